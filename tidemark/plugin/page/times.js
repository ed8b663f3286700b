// Times as people read them: those of the viewer's zone, or of UTC for who has chosen that. The choice is kept in the browser.
const KEPT = "tidemark-times";
const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;

function kept() {
  try {
    return window.localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

const UTC = kept() === "utc";
export const ZONE = UTC ? "UTC" : HERE;
// The other zone, which a click leads to.
export const OTHER = UTC ? HERE : "UTC";

export function switchZone() {
  window.localStorage.setItem(KEPT, UTC ? "here" : "utc");
  window.location.reload();
}

export const digits = (number) => String(number).padStart(2, "0");

function day(at, utc) {
  const [year, month, date] = utc ? [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()] : [at.getFullYear(), at.getMonth(), at.getDate()];
  return `${year}-${digits(month + 1)}-${digits(date)}`;
}

function clock(at, utc) {
  const parts = utc ? [at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()] : [at.getHours(), at.getMinutes(), at.getSeconds()];
  return parts.map(digits).join(":");
}

export const dayText = (at) => day(at, UTC);
export const clockText = (at) => clock(at, UTC);
export const minuteText = (at) => clockText(at).slice(0, 5);
export const hourOf = (at) => (UTC ? at.getUTCHours() : at.getHours());
export const weekday = (at) => at.toLocaleDateString("en", { weekday: "short", timeZone: ZONE });

// A time in ms as a text, and the same time of the other zone with its name.
export function both(ms) {
  const at = new Date(ms);
  return [`${dayText(at)} ${clockText(at)}`, `${day(at, !UTC)} ${clock(at, !UTC)} ${OTHER}`];
}

// The moment that a text such as 2026-11-21T07:00 or 2026-11-21T07:00:30 names; without the clock, the beginning of the day.
// `later`: days.
export function momentOf(text, later = 0) {
  const [year, month, date, hour = 0, minute = 0, second = 0] = text.split(/[-T:]/).map(Number);
  const parts = [year, month - 1, date + later, hour, minute, Math.floor(second), Math.round((second % 1) * 1000)];
  return UTC ? new Date(Date.UTC(...parts)) : new Date(...parts);
}

// A field of a time (datetime-local) takes the zone that all times are of. A time that the page was given, and that nobody has
// changed, stays as exact as it was given.
export function showTime(field, text) {
  const at = new Date(text);
  const seconds = clockText(at).slice(5);
  // A browser shows seconds, and takes them, where they are steps.
  field.step = seconds === ":00" ? "" : "1";
  field.value = Number.isNaN(at.getTime()) ? "" : `${dayText(at)}T${minuteText(at)}${seconds === ":00" ? "" : seconds}`;
  field.dataset.given = text;
  field.dataset.shown = field.value;
}

// What a field of a time says, as the server reads it; empty for an empty field.
export function timeOf(field) {
  if (field.dataset.given && field.value === field.dataset.shown) return field.dataset.given;
  return field.value ? momentOf(field.value).toISOString().replace(/\.000Z$/, "Z") : "";
}
