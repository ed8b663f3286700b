// The coverage picture by event time: a row for each partition, a column for each hour or day. Columns are chosen with the pointer
// or the keyboard, and replayed, backfilled or looked through.
import {
  address, asked, button, counted, drawing, element, grouped, isOne, keepingFocus, link, loadPatiently, rangeText, remember, say, shortened, withQuery,
} from "./shared.js";
import { WORDS, give } from "./coverage.js";
import { plan } from "./plan.js";
import { dayText, hourOf, minuteText, showTime, timeOf, weekday } from "./times.js";

const PAGE = 25;
const REFRESH_MS = 15000;
const ROW = 20;
// What the name of a day and of an hour takes below the columns.
const [DAY_PX, HOUR_PX] = [82, 46];
const AXES = [["", "By offset"], ["hour", "By event time: hours"], ["day", "Days"]];
// What no window has, although it was asked for: missing. In a window that is not committed: in work, or failed.
const MISSING = new Set(["hole", "lost", "skipped", "expired"]);
const AGAIN = new Set(["ingest", "backfill", "replay", "pending"]);
const READ = new Set(["hole", "before", "unread"]);

let stream;
let found = null;
let wanted = 0;
// The question that the picture answers.
let answered = "";
let dragging = false;
// The columns that are chosen: [from, until); null for none.
let chosen = null;
const view = { axis: asked("axis") || "", since: asked("times_since"), until: asked("times_until"), first: Number(asked("times_first")) || 0 };
const place = (id) => document.getElementById(`coverage-${id}`);
const begins = (column) => found.since + column * found.step_ms;
const columns = () => Math.round((found.until - found.since) / found.step_ms);
const iso = (ms) => new Date(ms).toISOString().replace(/\.000Z$/, "Z");
// Whether a day begins in a column of hours. In some zones it begins at half past of UTC, and so within one.
const beginsDay = (column) => view.axis === "hour" && hourOf(new Date(begins(column))) === 0;
const timeText = (ms) => (view.axis === "day" ? dayText(new Date(ms)) : `${dayText(new Date(ms))} ${minuteText(new Date(ms))}`);
const spanText = (from, until) => `${timeText(begins(from))} to ${timeText(begins(until))}`;

// How many offsets of some columns have each state, over all partitions that are shown.
function statesOf(from, until) {
  const sum = new Map();
  for (const row of found.rows) {
    for (const cell of row.cells) {
      if (cell.column < from || cell.column >= until) continue;
      for (const [state, number] of Object.entries(cell.states)) sum.set(state, (sum.get(state) ?? 0n) + BigInt(number));
    }
  }
  return sum;
}

function told(states) {
  if (!states.size) return "no messages that Kafka still has";
  const of = (those) => [...states].filter(([state]) => those.has(state)).reduce((sum, [, number]) => sum + number, 0n);
  const missing = of(MISSING);
  const parts = [...states].map(([state, number]) => `${grouped(number)} ${WORDS[state]}`);
  const said = missing ? [`${counted(missing, "offset")} ${isOne(missing) ? "is" : "are"} missing`] : [];
  if (states.has("pending")) said.push(`${grouped(states.get("pending"))} ${isOne(states.get("pending")) ? "is in a window" : "are in windows"} not committed yet: in work, or failed`);
  return `${parts.join("; ")}${said.length ? `. ${said.join(", ")}` : ""}`;
}

function choose(from, until) {
  chosen = [from, until];
  mark();
  const states = statesOf(from, until);
  const [low, high] = [begins(from), begins(until)];
  const conf = { since: iso(low), until_time: iso(high) };
  const planned = (kind) => () => plan({ stream, kind, conf });
  const has = (those) => [...states.keys()].some((one) => those.has(one));
  const box = place("chosen");
  const buttons = element("span", undefined, "buttons");
  const look = link("Look through the messages", withQuery(`${address("streams", stream)}/browse`, { where: found.rows[0]?.topic, since: conf.since, until: conf.until_time }));
  buttons.append(
    button("Backfill …", planned("backfill"), "", has(READ)),
    button("Replay …", planned("replay"), "", has(AGAIN)),
    ...(view.axis === "day" ? [button("Zoom to its hours", () => zoom("hour", low, high))] : [button("Zoom in", () => zoom("hour", low, high), "", until - from < columns())]),
    look,
    button("Clear", clear),
  );
  box.replaceChildren(element("strong", spanText(from, until)), element("span", `${told(states)}.`, "quiet"), buttons);
  box.hidden = false;
}

function clear() {
  chosen = null;
  place("chosen").hidden = true;
  mark();
  place("times").querySelector("svg")?.focus();
}

function zoom(axis, since, until) {
  Object.assign(view, { axis, since: String(since), until: String(until) });
  chosen = null;
  place("chosen").hidden = true;
  draw();
}

function mark(from = chosen?.[0], until = chosen?.[1]) {
  const svg = place("times").querySelector("svg");
  svg?.querySelector(".marked")?.remove();
  if (!svg || from === undefined) return;
  svg.append(drawing("rect", { class: "marked", x: from, y: 0, width: until - from, height: svg.viewBox.baseVal.height }));
}

function tip(lines, x, y) {
  const box = place("tip");
  box.replaceChildren(...lines.map((one) => element("div", one)));
  box.hidden = false;
  const size = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 12, document.documentElement.clientWidth - size.width - 4))}px`;
  box.style.top = `${y + 18 + size.height > window.innerHeight ? y - size.height - 8 : y + 18}px`;
}

const hideTip = () => { place("tip").hidden = true; };

function at(svg, event) {
  const box = svg.getBoundingClientRect();
  const column = Math.floor(((event.clientX - box.left) / box.width) * columns());
  const row = Math.floor(((event.clientY - box.top) / box.height) * found.rows.length);
  return [Math.max(0, Math.min(columns() - 1, column)), found.rows[Math.max(0, Math.min(found.rows.length - 1, row))]];
}

function follow(svg) {
  let began = null;
  const ends = (event) => [Math.min(began, at(svg, event)[0]), Math.max(began, at(svg, event)[0]) + 1];
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    [began] = at(svg, event);
    dragging = true;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const [column, row] = at(svg, event);
    if (began !== null) {
      mark(...ends(event));
      tip([spanText(...ends(event))], event.clientX, event.clientY);
      return;
    }
    const cell = row.cells.find((one) => one.column === column);
    const states = new Map(Object.entries(cell?.states ?? {}).map(([state, number]) => [state, BigInt(number)]));
    const range = cell ? [rangeText(row.partition, cell.from, cell.until)] : [row.partition];
    tip([...range, spanText(column, column + 1), told(states)], event.clientX, event.clientY);
  });
  svg.addEventListener("pointerup", (event) => {
    if (began === null) return;
    const [from, until] = ends(event);
    began = null;
    dragging = false;
    hideTip();
    choose(from, until);
  });
  svg.addEventListener("pointercancel", () => {
    began = null;
    dragging = false;
    mark();
  });
  svg.addEventListener("pointerleave", hideTip);
}

// Arrows go from column to column, with Shift they take more of them; Enter zooms, the space bar chooses.
function steer(svg) {
  let [here, anchor] = [-1, -1];
  const ends = () => [Math.min(anchor, here), Math.max(anchor, here) + 1];
  svg.addEventListener("keydown", (event) => {
    const last = columns() - 1;
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, PageDown: here + 10, PageUp: here - 10, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      here = Math.max(0, Math.min(last, to));
      if (!event.shiftKey || anchor < 0) anchor = here;
      mark(...ends());
      place("spoken").textContent = `${spanText(...ends())}: ${told(statesOf(...ends()))}`;
    } else if (here >= 0 && event.key === "Enter") zoom("hour", begins(ends()[0]), begins(ends()[1]));
    else if (here >= 0 && event.key === " ") {
      choose(...ends());
      place("chosen").querySelector("button:enabled").focus();
    } else return;
    event.preventDefault();
  });
  svg.addEventListener("blur", () => mark());
}

// What stands below the columns: days, and hours where there is room.
function scale() {
  const made = element("div", undefined, "scale quiet");
  const number = columns();
  const width = Math.max(200, place("times").clientWidth - (window.innerWidth > 900 ? 160 : 120));
  let free = 0;
  const each = view.axis === "day" ? Math.ceil(number / 12) : [1, 2, 3, 6, 12, 24].find((one) => number / one <= 16) ?? 24;
  for (let column = 0; column < number; column += 1) {
    const time = new Date(begins(column));
    const first = column === 0 || beginsDay(column);
    // The hours that people count by: 03:00, 06:00.
    if (!first && (view.axis === "day" ? column : hourOf(time)) % each) continue;
    const text = view.axis === "day" || first ? `${weekday(time)} ${dayText(time).slice(5)}` : minuteText(time);
    const at = (column / number) * width;
    const size = first || view.axis === "day" ? DAY_PX : HOUR_PX;
    // At the end there is no room to the right.
    const ends = at + size > width;
    const left = ends ? at - size : at;
    // A day's name takes the place of hours before it.
    if (left < free && !first) continue;
    if (left < free) made.lastElementChild?.remove();
    free = left + size;
    const label = element("span", text, ends ? "ends" : "");
    label.style.left = `${(column / number) * 100}%`;
    made.append(label);
  }
  return made;
}

function grid() {
  const number = columns();
  const height = Math.max(1, found.rows.length) * ROW;
  const svg = drawing("svg", { viewBox: `0 0 ${number} ${height}`, preserveAspectRatio: "none", class: "grid", tabindex: 0, role: "application" });
  svg.style.height = `${height}px`;
  svg.setAttribute("aria-label", `By event time, ${spanText(0, number)}: ${told(statesOf(0, number))}`);
  found.rows.forEach((row, index) => {
    for (const cell of row.cells) {
      const shown = { class: `state-${cell.state}`, x: cell.column + 0.04, y: index * ROW + 2, width: 0.92, height: ROW - 4, "data-state": cell.state };
      svg.append(drawing("rect", shown));
      // Unread beside read: a lower half.
      if (cell.states.unread && cell.state !== "unread") svg.append(drawing("rect", { ...shown, class: "state-unread", y: index * ROW + ROW / 2, height: ROW / 2 - 2 }));
    }
  });
  for (let column = 1; column < number; column += 1) {
    if (beginsDay(column)) svg.append(drawing("line", { class: "midnight", x1: column, x2: column, y1: 0, y2: height }));
  }
  follow(svg);
  steer(svg);
  const names = element("div", undefined, "names");
  for (const row of found.rows) names.append(Object.assign(element("span", shortened(row.partition, 20)), { title: row.partition }));
  const drawn = element("div");
  drawn.append(svg, scale());
  const made = element("div", undefined, "in-time");
  made.append(names, drawn);
  return made;
}

function controls() {
  const made = element("form", undefined, "buttons");
  const size = found.until - found.since;
  const [from, until] = ["since", "until"].map((name) => {
    const input = element("input");
    Object.assign(input, { type: "datetime-local", name });
    showTime(input, iso(found[name]));
    return input;
  });
  const labelled = (text, input) => {
    const label = element("label", `${text} `);
    label.append(input);
    return label;
  };
  const to = (low) => () => zoom(view.axis, Math.max(0, low), Math.max(0, low) + size);
  made.append(
    button("◀", to(found.since - size / 2), "", found.since > 0), button("▶", to(found.since + size / 2)),
    labelled("From", from), labelled("up to", until), element("button", "Show"),
    button("The newest", () => { Object.assign(view, { since: null, until: null }); draw(); }),
  );
  made.children[0].setAttribute("aria-label", "Earlier");
  made.children[1].setAttribute("aria-label", "Later");
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    if (timeOf(from) && timeOf(until)) zoom(view.axis, Date.parse(timeOf(from)), Date.parse(timeOf(until)));
  });
  const turn = (first) => () => { view.first = first; draw(); };
  if (found.partitions > PAGE) {
    made.append(
      button("Previous partitions", turn(Math.max(0, view.first - PAGE)), "", view.first > 0),
      element("span", `${view.first + 1} to ${Math.min(view.first + PAGE, found.partitions)} of ${grouped(found.partitions)}`, "quiet"),
      button("Next partitions", turn(view.first + PAGE), "", view.first + PAGE < found.partitions),
    );
  }
  return made;
}

async function draw() {
  const number = ++wanted;
  remember({ axis: view.axis || null, times_since: view.axis ? view.since : null, times_until: view.axis ? view.until : null, times_first: view.axis && view.first ? view.first : null });
  keepingFocus(() => document.getElementById("axis"), choices);
  place("times").hidden = !view.axis;
  if (!view.axis) return;
  const question = JSON.stringify(view);
  const isOther = question !== answered;
  if (isOther) {
    // Nobody chooses columns of a picture that is about to go.
    place("times").querySelector("svg")?.remove();
    place("chosen").hidden = true;
    chosen = null;
    dragging = false;
  }
  try {
    const url = withQuery(address("api", "streams", stream, "coverage", "times"), { step: view.axis, since: view.since, until: view.until, first: view.first, count: PAGE });
    const answer = await loadPatiently(url, () => {}, 10);
    const isTyping = place("times").contains(document.activeElement) && document.activeElement.tagName === "INPUT";
    if (number !== wanted || dragging || (isTyping && !isOther)) return;
    [found, answered] = [answer, question];
    say(place("problem"), "");
    const shown = found.rows.length ? [controls(), grid()] : [element("p", "No topic yet", "quiet")];
    keepingFocus(() => place("times"), () => place("times").replaceChildren(...shown));
    mark();
  } catch (error) {
    if (number === wanted) say(place("problem"), error.message);
  }
}

function choices() {
  document.getElementById("axis").replaceChildren(...AXES.map(([axis, text]) => {
    const made = button(text, () => {
      if (axis === view.axis) return;
      const before = view.axis;
      Object.assign(view, { axis, since: null, until: null });
      chosen = null;
      if (!before !== !axis) give(Boolean(axis));
      draw();
    });
    made.setAttribute("aria-pressed", String(axis === view.axis));
    return made;
  }));
}

export function timesAxis(name) {
  stream = name;
  if (view.axis) give(true);
  const again = async () => {
    const busy = !view.axis || dragging || document.hidden || chosen !== null || document.querySelector("dialog");
    if (!busy || found === null) await draw();
    setTimeout(again, REFRESH_MS);
  };
  again();
}
