// Whether the hours of some days are complete, as a calendar, and the answer of one hour for each partition.
// Hours begin as in UTC. They stand in the rows and columns of the viewer's zone, in which a day may have 23 or 25 of them.
import {
  address, asked, button, cell, copyable, counted, element, fill, grouped, loadPatiently, navigation, rangeText, remember, say, span,
  streamOfAddress, time, windowLink, withQuery,
} from "./shared.js";
import { ZONE, both, dayText, digits, hourOf, minuteText, momentOf, weekday } from "./times.js";
import { plan } from "./plan.js";

const DAYS = 7;
const HOUR_MS = 3600000;
const MAX_PARTITIONS = 200;
const stream = streamOfAddress();
const WORDS = {
  complete: { sign: "✓", kind: "complete", means: "complete" },
  "not over": { sign: "…", kind: "not-over", means: "not over, with the allowed lateness" },
  "not read yet": { sign: "↓", kind: "unread", means: "not read yet: the next run does" },
  missing: { sign: "✕", kind: "missing", means: "offsets are missing that the stream has gone past" },
  replaced: { sign: "?", kind: "replaced", means: "a topic was replaced: nobody knows" },
  "before the first message": { sign: "·", kind: "before", means: "before the first message" },
  "no message yet": { sign: "∅", kind: "before", means: "over, and the stream has no message yet" },
};
const BADGE = { complete: "good", missing: "bad", replaced: "bad" };
const place = (id) => document.getElementById(id);

// The last day that is shown; null for today.
let last = asked("day");
let asking = 0;
let askingHour = 0;

const hourText = (ms) => new Date(ms).toISOString().slice(0, 13) + "Z";

function lastDay() {
  const today = dayText(new Date());
  const known = /^\d{4}-\d{2}-\d{2}$/.test(last || "") && !Number.isNaN(momentOf(last).getTime());
  return known && last < today ? last : today;
}

// As few figures as tell how much it is: 950, 1.2k, 30M.
function short(number) {
  const [size, word] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => Number(number) >= least) || [1, ""];
  const found = Number(number) / size;
  return `${found < 10 && word ? Math.floor(found * 10) / 10 : Math.floor(found)}${word}`;
}

const between = (late) => (late.least === late.most ? grouped(late.most) : `${grouped(late.least)} to ${grouped(late.most)}`);

function describe(one) {
  const said = [one.word];
  if (one.missing !== "0") said.push(`${counted(one.missing, "offset")} missing`);
  if (one.late.most) said.push(`${counted(between(one.late), "message")} came late`);
  if (one.unread_after !== "0") said.push(`${counted(one.unread_after, "unread offset")} may hold more of them`);
  return said.join(", ");
}

function hourButton(one) {
  const { sign, kind } = WORDS[one.word];
  const made = button("", () => showHour(one.hour), `hour hour-${kind}`);
  made.append(element("b", sign));
  if (one.late.most) made.append(element("span", `≤${short(one.late.most)}`, "late"));
  made.dataset.hour = one.hour;
  made.tabIndex = -1;
  const at = new Date(one.since);
  const from = `${dayText(at)} ${minuteText(at)}`;
  made.setAttribute("aria-label", `${from}: ${describe(one)}`);
  made.title = `${from} (${both(one.since)[1]})\n${describe(one)}`;
  if (one.hour === asked("hour")) made.setAttribute("aria-current", "true");
  return made;
}

function head() {
  const row = place("calendar").tHead;
  row.replaceChildren();
  const cells = row.insertRow();
  cells.append(element("th", "Day"));
  for (let hour = 0; hour < 24; hour += 1) {
    const made = element("th", digits(hour));
    made.scope = "col";
    cells.append(made);
  }
}

function dayRow(day) {
  const row = place("calendar").tBodies[0].insertRow();
  const name = element("th", dayText(day));
  name.scope = "row";
  name.append(" ", element("span", weekday(day), "quiet"));
  row.append(name);
  for (let hour = 0; hour < 24; hour += 1) row.insertCell();
  row.cells[1].append(element("span", "…", "quiet"));
  return row;
}

function fillDay(row, hours) {
  for (const one of [...row.cells].slice(1)) one.replaceChildren();
  for (const one of hours) row.cells[1 + hourOf(new Date(one.since))].append(hourButton(one));
}

// One stop of the tab key for the calendar: the hour that was chosen, or the newest.
function stop(chosen) {
  const all = [...place("calendar").querySelectorAll("button")];
  for (const one of all) one.tabIndex = -1;
  const found = chosen || all.find((one) => one.hasAttribute("aria-current")) || [...(all[0]?.closest("tr").querySelectorAll("button") || [])].at(-1);
  if (found) found.tabIndex = 0;
  return found;
}

function move(event) {
  const now = event.target.closest("button");
  if (!now) return;
  const row = now.parentElement.parentElement;
  const inRow = [...row.querySelectorAll("button")];
  const at = inRow.indexOf(now);
  let to = null;
  if (event.key === "ArrowLeft") to = inRow[at - 1];
  else if (event.key === "ArrowRight") to = inRow[at + 1];
  else if (event.key === "ArrowUp") to = row.previousElementSibling?.cells[now.parentElement.cellIndex].querySelector("button");
  else if (event.key === "ArrowDown") to = row.nextElementSibling?.cells[now.parentElement.cellIndex].querySelector("button");
  else return;
  event.preventDefault();
  if (to) stop(to).focus();
}

function showWatermark(found) {
  const said = place("watermark");
  if (found.watermark === null) said.replaceChildren("The watermark is unknown");
  else said.replaceChildren("The watermark is ", element("b", ""), `, ${span(found.now - found.watermark)} old`);
  if (found.watermark !== null) said.querySelector("b").append(time(found.watermark));
  const as = element("span", ` · allowed lateness ${span(found.allowed_lateness_ms)} · as of `, "quiet");
  as.append(time(found.now));
  said.append(as);
}

async function show() {
  const mine = ++asking;
  const problem = place("problem");
  const newest = lastDay();
  const today = dayText(new Date());
  remember({ day: newest === today ? null : newest });
  place("later").disabled = newest === today;
  place("days-shown").textContent = `${dayText(momentOf(newest, 1 - DAYS))} to ${newest}`;
  place("calendar").tBodies[0].replaceChildren();
  say(problem, "");
  const rows = Array.from({ length: DAYS }, (_, back) => {
    const day = momentOf(newest, -back);
    return { row: dayRow(day), from: day.getTime(), until: momentOf(newest, 1 - back).getTime() };
  });
  try {
    // Day by day, so that no question takes longer than a viewer waits.
    for (const { row, from, until } of rows) {
      const first = Math.ceil(from / HOUR_MS) * HOUR_MS;
      const url = withQuery(address("api", "streams", stream, "completeness"), { since: hourText(first), hours: Math.ceil((until - first) / HOUR_MS) });
      const found = await loadPatiently(url, (sentence) => mine === asking && say(problem, sentence));
      if (mine !== asking) return;
      say(problem, "");
      showWatermark(found);
      fillDay(row, found.hours);
      stop();
    }
  } catch (error) {
    if (mine !== asking) return;
    for (const { row } of rows) if (!row.querySelector("button")) fillDay(row, []);
    say(problem, error.message);
  }
}

function missingOf(one) {
  const made = document.createDocumentFragment();
  for (const part of one.missing) {
    const line = element("div", undefined, "missing-range");
    line.append(`${part.kind} `, copyable(rangeText(part.partition, part.from, part.until)), " ");
    line.title = part.meaning;
    if (part.again) line.append(button("Backfill …", () => plan({ stream, kind: "backfill", conf: { ranges: part.again }, text: "ranges" }), "small"));
    made.append(line);
  }
  if (one.more_missing) made.append(element("div", `and ${counted(one.more_missing, "more range")}`, "quiet"));
  return one.missing.length ? made : null;
}

function windowsOf(one) {
  const made = element("span");
  one.late.windows.forEach((name, at) => made.append(at ? ", " : "", windowLink(stream, name)));
  return one.late.windows.length ? made : null;
}

function partitionRow(row, one) {
  cell(row, one.partition, "topic");
  cell(row, one.rule, one.complete ? "good" : one.rule === "not over" ? "" : "bad").title = one.meaning;
  cell(row, missingOf(one), "missing-ranges");
  cell(row, between(one.late), one.late.most ? "number busy" : "number");
  cell(row, windowsOf(one), "lane");
  cell(row, grouped(one.unread_after), "number");
}

// What the words in the table mean, each once.
function meanings(found) {
  const known = new Map();
  for (const one of found.partitions) {
    known.set(one.rule, one.meaning);
    for (const part of one.missing) known.set(part.kind, part.meaning);
  }
  place("meanings").replaceChildren(...[...known].flatMap(([word, meaning]) => [element("dt", word), element("dd", meaning)]));
}

function showWhole(found) {
  const heading = place("of-hour");
  heading.replaceChildren(time(found.since), " to ", time(found.until), element("span", ` (${found.hour} for the command line)`, "quiet small"));
  const word = place("word");
  word.textContent = `${WORDS[found.word].sign} ${found.word}`;
  word.className = `badge ${BADGE[found.word] || "busy"}`;
  const late = found.late.most ? `${counted(between(found.late), "message")} came late` : "nothing came late";
  const after = found.unread_after === "0" ? "" : `; ${counted(found.unread_after, "unread offset")} may hold more late messages`;
  place("sentence").textContent = `${late}${after}`;
  const actions = place("actions");
  actions.replaceChildren();
  if (found.backfill.length) {
    const more = found.more_backfill ? `, the first ${counted(found.backfill.length, "range")}` : "";
    actions.append(button(`Backfill what is missing${more} …`, () => plan({ stream, kind: "backfill", conf: { ranges: found.backfill.join("\n") }, text: "ranges" }), "primary"));
  }
  // What is to be looked at first: what is not complete, then what came late.
  const order = (one) => (one.complete ? (one.late.most ? 1 : 2) : 0);
  const sorted = [...found.partitions].sort((one, other) => order(one) - order(other));
  fill(place("partitions"), sorted.slice(0, MAX_PARTITIONS), partitionRow, "The stream has no partition yet");
  meanings(found);
  say(place("more"), sorted.length > MAX_PARTITIONS ? `Of ${counted(sorted.length, "partition")}, the first ${MAX_PARTITIONS} are shown; tidemark complete shows all.` : "");
}

async function showHour(hour) {
  const mine = ++askingHour;
  const problem = place("problem");
  remember({ hour });
  for (const one of place("calendar").querySelectorAll("button")) {
    if (one.dataset.hour === hour) one.setAttribute("aria-current", "true");
    else one.removeAttribute("aria-current");
  }
  stop();
  try {
    const found = await loadPatiently(address("api", "streams", stream, "completeness", hour), (sentence) => mine === askingHour && say(problem, sentence));
    if (mine !== askingHour) return;
    say(problem, "");
    showWhole(found);
    place("hour").hidden = false;
    place("hour").scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (mine !== askingHour) return;
    place("hour").hidden = true;
    say(problem, error.message);
  }
}

function legend() {
  place("legend").replaceChildren(...Object.values(WORDS).map(({ sign, kind, means }) => {
    const made = element("li", means);
    made.prepend(element("b", sign, `key hour-${kind}`));
    return made;
  }));
  const late = element("li", "at most this many messages came late");
  late.prepend(element("span", "≤120", "key late"));
  place("legend").append(late);
}

function turn(days) {
  last = dayText(momentOf(lastDay(), days));
  show();
}

navigation(stream, "Completeness");
head();
legend();
place("zone").textContent = ZONE;
place("earlier").addEventListener("click", () => turn(-DAYS));
place("later").addEventListener("click", () => turn(DAYS));
place("again").addEventListener("click", show);
place("calendar").addEventListener("keydown", move);
show();
if (asked("hour")) showHour(asked("hour"));
