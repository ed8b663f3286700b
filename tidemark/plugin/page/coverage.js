// The coverage picture: where every offset of each partition is. What the server has put into blocks of pixels is drawn
// here, and the pointer's or the keyboard's pixels are turned back into offsets, exactly.
import {
  address, asked, button, copyable, counted, drawing, element, grouped, keepingFocus, loadPatiently, rangeText, remember, say, sayOnce, shortened, withQuery,
} from "./shared.js";
import { plan } from "./plan.js";

const PAGE = 25;
const REFRESH_MS = 15000;
export const MEANINGS = [
  ["ingest", "committed by the ingest"],
  ["backfill", "by a backfill"],
  ["replay", "by a replay"],
  ["erase", "by an erasure"],
  ["pending", "pending"],
  ["hole", "hole: no window has read it"],
  ["lost", "lost"],
  ["skipped", "skipped"],
  ["expired", "expired before any window read it"],
  ["before", "before the beginning of the ingest: nobody has asked for it"],
  ["unread", "unread"],
];
export const WORDS = Object.fromEntries(MEANINGS);
const REMARKABLE = new Set(["hole", "lost", "skipped", "expired"]);
// What was erased is never read again.
const REPLAYED = new Set(["ingest", "backfill", "replay", "pending"]);

let stream;
let drawn = null;
let dragging = false;
let away = false;
let wanted = 0;
// The partition of what is chosen.
let chosenOf = null;
// What the keyboard has marked: { partition, at, anchor }, the first offsets of two blocks.
let marked = null;
// Whether the picture is that of another axis.
let hidden = false;
const view = { first: Number(asked("first")) || 0, partition: asked("partition"), from: asked("from"), until: asked("until"), gaps: asked("gaps") === "true" };
const place = (id) => document.getElementById(`coverage-${id}`);

// The first offset of a pixel of a bar, as the server computes it.
function offsetOf(bar, pixel) {
  const [from, until] = [BigInt(bar.from), BigInt(bar.until)];
  return from + ((until - from) * BigInt(pixel)) / BigInt(bar.pixels);
}

// Where an offset is on a bar, between 0 and 1; outside of that, not on the bar.
function shareOf(bar, offset) {
  const [from, until] = [BigInt(bar.from), BigInt(bar.until)];
  return until > from ? Number(((BigInt(offset) - from) * 1000000n) / (until - from)) / 1000000 : -1;
}

const act = (title, call, on = true) => button(title, call, undefined, on);
const rangeOf = (bar, from, until) => rangeText(`${bar.topic}/${bar.number}`, from, until);

function describe(bar, block) {
  const count = BigInt(block.until) - BigInt(block.from);
  const lines = [rangeText(bar.partition, block.from, block.until), `${block.stretches > 1 && block.windows < 2 ? "among " : ""}${counted(count, "offset")}: ${WORDS[block.state]}`];
  if (block.window !== null) lines.push(`window ${block.lane}/${block.window}`);
  else if (block.windows > 1) lines.push(`${counted(block.windows, "window")}; a click looks closer`);
  else if (block.stretches > 1) lines.push(`in ${grouped(block.stretches)} places; a click looks closer`);
  if (block.state !== "expired") {
    if (BigInt(block.until) <= BigInt(bar.log_start)) lines.push("Kafka has deleted these");
    else if (BigInt(block.from) < BigInt(bar.log_start)) lines.push(`Kafka has deleted those below ${grouped(bar.log_start)}`);
  }
  return lines;
}

function showTip(bar, block, x, y) {
  const tip = place("tip");
  tip.replaceChildren(...describe(bar, block).map((text) => element("div", text)));
  tip.hidden = false;
  const size = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, document.documentElement.clientWidth - size.width - 4))}px`;
  tip.style.top = `${y + 18 + size.height > window.innerHeight ? y - size.height - 8 : y + 18}px`;
}

function hideTip() {
  place("tip").hidden = true;
}

function blockAt(bar, pixel) {
  const at = bar.blocks.findLastIndex((one) => one.pixel <= pixel);
  // What is remarkable is drawn two pixels wide.
  const before = bar.blocks[at - 1];
  return before && REMARKABLE.has(before.state) && pixel - before.pixel < 2 ? before : bar.blocks[at];
}

function lastPixel(bar, index) {
  return index + 1 < bar.blocks.length ? bar.blocks[index + 1].pixel : bar.pixels;
}

// What a click on a block does: a window's page, the offsets for a plan, or a closer look at many windows.
function open(bar, block, pixel) {
  if (block.window !== null) window.location.href = address("streams", stream, "windows", block.lane, String(block.window));
  else if (block.stretches > 1) closer(bar, block, pixel);
  else choose(bar, block.from, block.until);
}

// Into a block. Where windows lie close, one block may be all that is seen: then what is around the pixel.
function closer(bar, block, pixel) {
  if (2n * (BigInt(block.until) - BigInt(block.from)) <= BigInt(bar.until) - BigInt(bar.from)) {
    zoom(bar, block.from, block.until);
    return;
  }
  const around = Math.max(1, Math.floor(bar.pixels / 8));
  zoom(bar, String(offsetOf(bar, Math.max(0, pixel - around))), String(offsetOf(bar, Math.min(bar.pixels, pixel + around))));
}

function zoom(bar, from, until) {
  Object.assign(view, { partition: bar ? bar.partition : null, from, until });
  clear();
  draw();
}

function clear() {
  const held = place("chosen").contains(document.activeElement);
  place("chosen").hidden = true;
  // Back to the bar, for who came from there.
  if (held) [...place("bars").children].find((one) => one.dataset.partition === chosenOf)?.querySelector("svg").focus();
}

// Shows what was chosen, with what can be done with it.
function choose(bar, from, until) {
  chosenOf = bar.partition;
  const within = bar.blocks.filter((one) => BigInt(one.from) < BigInt(until) && BigInt(one.until) > BigInt(from));
  const states = [...new Set(within.map((one) => one.state))];
  const text = rangeOf(bar, from, until);
  const box = place("chosen");
  const range = copyable(text);
  const planned = (kind) => () => plan({ stream, kind, conf: { ranges: text }, text: "ranges" });
  const buttons = element("span", undefined, "buttons");
  buttons.append(
    act("Backfill …", planned("backfill"), states.some((one) => one === "hole" || one === "before" || one === "unread")),
    act("Replay …", planned("replay"), states.some((one) => REPLAYED.has(one))),
    act("Zoom in", () => zoom(bar, from, until)),
    act("Clear", () => {
      clear();
      draw();
    }),
  );
  const told = `${counted(BigInt(until) - BigInt(from), "offset")}: ${states.map((one) => WORDS[one]).join(", ")}. The picture stays as it is until you clear this.`;
  box.replaceChildren(range, element("span", told, "quiet"), buttons);
  box.hidden = false;
}

function mark(svg, from, until) {
  svg.querySelector(".marked")?.remove();
  if (from === null) return;
  svg.append(drawing("rect", { class: "marked", x: from, y: 0, width: Math.max(1, until - from), height: 10 }));
}

// The pointer on a bar: hover, click, drag.
function follow(svg, bar) {
  let began = null;
  const pixelOf = (event) => {
    const box = svg.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    return Math.max(0, Math.min(bar.pixels - 1, Math.floor(share * bar.pixels)));
  };
  const dragged = (event) => [Math.min(began, pixelOf(event)), Math.max(began, pixelOf(event)) + 1];
  svg.addEventListener("pointermove", (event) => {
    const block = blockAt(bar, pixelOf(event));
    if (began === null || Math.abs(began - pixelOf(event)) < 3) {
      showTip(bar, block, event.clientX, event.clientY);
      return;
    }
    const [from, until] = dragged(event);
    mark(svg, from, until);
    const tip = { ...block, from: offsetOf(bar, from), until: offsetOf(bar, until) };
    place("tip").replaceChildren(element("div", rangeOf(bar, tip.from, tip.until)));
  });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    began = pixelOf(event);
    dragging = true;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (event) => {
    if (began === null) return;
    const [from, until] = dragged(event);
    began = null;
    dragging = false;
    if (until - from <= 3) open(bar, blockAt(bar, pixelOf(event)), pixelOf(event));
    else choose(bar, String(offsetOf(bar, from)), String(offsetOf(bar, until)));
  });
  svg.addEventListener("pointercancel", () => {
    began = null;
    dragging = false;
    mark(svg, null);
  });
  svg.addEventListener("pointerleave", hideTip);
}

// The keyboard on a bar: arrows go from block to block, with Shift they take more of them; Enter opens one, the space bar
// chooses them.
function steer(svg, bar) {
  const last = bar.blocks.length - 1;
  let at = -1;
  let anchor = -1;
  const ends = () => [Math.min(anchor, at), Math.max(anchor, at)];
  const blockOf = (offset) => bar.blocks.findLastIndex((one) => BigInt(one.from) <= BigInt(offset));
  const show = () => {
    const [from, until] = ends();
    mark(svg, bar.blocks[from].pixel, lastPixel(bar, until));
    const block = bar.blocks[at];
    const box = svg.getBoundingClientRect();
    showTip(bar, block, box.left + (box.width * block.pixel) / bar.pixels, box.top);
    const more = from === until ? [] : [`chosen ${rangeOf(bar, bar.blocks[from].from, bar.blocks[until].until)}`];
    marked = { partition: bar.partition, at: block.from, anchor: bar.blocks[anchor].from };
    const spoken = [...describe(bar, block), ...more].join(", ");
    if (place("spoken").textContent !== spoken) place("spoken").textContent = spoken;
  };
  // Where a person was who comes back, or whose picture was drawn again.
  svg.addEventListener("focus", () => {
    if (marked?.partition !== bar.partition || !svg.matches(":focus-visible")) return;
    [at, anchor] = [blockOf(marked.at), blockOf(marked.anchor)];
    if (at >= 0 && anchor >= 0) show();
  });
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: last }[event.key];
    if (to !== undefined && last >= 0) {
      at = Math.max(0, Math.min(last, to));
      if (!event.shiftKey || anchor < 0) anchor = at;
      show();
    } else if (at >= 0 && event.key === "Enter") open(bar, bar.blocks[at], Math.floor((bar.blocks[at].pixel + lastPixel(bar, at)) / 2));
    else if (at >= 0 && event.key === " ") {
      const [from, until] = ends();
      choose(bar, bar.blocks[from].from, bar.blocks[until].until);
      place("chosen").querySelector(".buttons button:enabled").focus();
    } else return;
    event.preventDefault();
  });
  svg.addEventListener("blur", () => {
    mark(svg, null);
    hideTip();
  });
}

function barOf(bar) {
  const summary = {};
  const above = drawing("g", {});
  const svg = drawing("svg", { viewBox: `0 0 ${Math.max(1, bar.pixels)} 10`, preserveAspectRatio: "none", class: "bar", tabindex: 0, role: "application" });
  bar.blocks.forEach((block, index) => {
    summary[block.state] = (summary[block.state] || 0) + 1;
    const width = lastPixel(bar, index) - block.pixel;
    // What is remarkable is at least two pixels wide: one that falls between the screen's pixels would be pale.
    const drawn = REMARKABLE.has(block.state) ? Math.max(2, width) : width;
    const rect = drawing("rect", { class: `state-${block.state}`, x: block.pixel, y: 0, width: drawn, height: 10, "data-state": block.state });
    (REMARKABLE.has(block.state) ? above : svg).append(rect);
    // Windows side by side are told apart by a thin line.
    if (index && bar.blocks[index - 1].state === block.state && width > 4) {
      svg.append(drawing("rect", { class: "seam", x: block.pixel, y: 0, width: 0.6, height: 10 }));
    }
  });
  svg.append(above);
  svg.setAttribute("aria-label", `${rangeText(bar.partition, bar.from, bar.until)}: ${Object.keys(summary).map((one) => WORDS[one]).join(", ") || "empty"}`);
  follow(svg, bar);
  steer(svg, bar);
  const holder = element("div", undefined, "holder");
  holder.append(svg);
  for (const [offset, kind] of [[bar.log_start, "log-start"], [bar.position, "position"]]) {
    const share = offset === null ? -1 : shareOf(bar, offset);
    if (share <= 0 || share > 1) continue;
    const made = element("i", undefined, `mark ${kind}`);
    made.style.left = `${share * 100}%`;
    holder.append(made);
  }
  return holder;
}

function row(bar) {
  const made = element("div", undefined, "bar-row");
  made.dataset.partition = bar.partition;
  const name = button(shortened(bar.partition), () => zoom(bar, null, null), "name");
  name.title = `Only ${bar.partition}`;
  const bounds = element("span");
  bounds.append(element("span", `${grouped(bar.from)}-`), element("wbr"), element("span", grouped(bar.until)));
  const shown = element("span", undefined, "bounds quiet");
  shown.append(copyable(rangeText(bar.partition, bar.from, bar.until), bounds));
  made.append(name, barOf(bar), shown);
  return made;
}

function controls(found) {
  const bar = view.partition && found.bars[0];
  const box = place("controls");
  place("only").hidden = Boolean(bar) || found.of < 2;
  place("only").control.checked = view.gaps;
  if (bar) {
    const [first, last, from, until] = [bar.first, bar.last, bar.from, bar.until].map(BigInt);
    const size = until - from;
    const to = (low, high) => () => zoom(bar, String(low < first ? first : low), String(high > last ? last : high));
    box.replaceChildren(
      act("All partitions", () => zoom(null, null, null)),
      act("Zoom out", to(from - size, until + size), from > first || until < last),
      act("Zoom in", to(from + size / 4n, until - size / 4n), size > 3n),
      act("◀", to(from - size / 2n, until - size / 2n), from > first),
      act("▶", to(from + size / 2n, until + size / 2n), until < last),
    );
    box.querySelector("button:nth-of-type(4)").setAttribute("aria-label", "Earlier offsets");
    box.querySelector("button:nth-of-type(5)").setAttribute("aria-label", "Later offsets");
    return;
  }
  if (found.partitions <= PAGE) {
    box.replaceChildren(...(view.gaps ? [element("span", `${grouped(found.partitions)} of ${counted(found.of, "partition")}`, "quiet")] : []));
    return;
  }
  const to = (first) => () => {
    view.first = first;
    draw();
  };
  box.replaceChildren(
    act("Previous", to(Math.max(0, view.first - PAGE)), view.first > 0),
    element("span", `partitions ${view.first + 1} to ${Math.min(view.first + PAGE, found.partitions)} of ${found.partitions}`, "quiet"),
    act("Next", to(view.first + PAGE), view.first + PAGE < found.partitions),
  );
}

const HINTS = {
  offset: place("hint").textContent,
  time: "Point at a column to see what is there. Click or drag over columns to replay, backfill or look through them. On the keyboard: arrows, Shift for more, Enter to zoom, space to choose.",
};

export async function draw() {
  const number = ++wanted;
  const problem = place("problem");
  remember({ first: view.first || null, gaps: view.gaps || null, partition: view.partition, from: view.from, until: view.until });
  // What the names and the bounds beside a bar leave of the page; on a narrow page they are above and below it.
  const beside = window.innerWidth > 900 ? 360 : 0;
  const width = Math.max(200, Math.min(2000, Math.round(place("bars").clientWidth) - beside));
  const url = withQuery(address("api", "streams", stream, "coverage"), { width, first: view.first, count: PAGE, gaps: view.gaps || null, partition: view.partition, from: view.from, until: view.until });
  try {
    const found = await loadPatiently(url, () => {}, 2);
    // Another picture was asked for meanwhile, or somebody holds this one.
    if (number !== wanted || dragging) return;
    say(problem, "");
    if (found.bars.length === 0 && view.first) {
      // There are fewer partitions than before.
      view.first = 0;
      await draw();
      return;
    }
    drawn = found;
    explain();
    place("bars").classList.toggle("alone", Boolean(view.partition));
    const none = found.of ? "No partition has a hole, or lost, skipped or expired offsets" : "No topic yet";
    const rows = found.partitions ? found.bars.map(row) : [element("p", none, "quiet")];
    const focused = document.activeElement?.closest?.(".bar-row")?.dataset.partition;
    const rowOf = () => [...place("bars").children].find((one) => one.dataset.partition === focused);
    keepingFocus(rowOf, () => place("bars").replaceChildren(...rows));
    keepingFocus(() => place("controls"), () => controls(found));
  } catch (error) {
    // The page says it once, of all that Kafka knows.
    if (number === wanted) sayOnce(problem, away ? "" : error.message);
  }
}

// Where there is no picture, nothing of one is explained.
function explain() {
  const none = !hidden && (drawn ? !drawn.of : away);
  for (const id of ["legend", "hint"]) place(id).classList.toggle("away", none);
}

// Leaves the place to the picture by another axis, or takes it back.
export function give(away) {
  hidden = away;
  clear();
  for (const id of ["bars", "controls", "only"]) place(id).classList.toggle("away", away);
  place("legend").classList.toggle("by-time", away);
  place("hint").textContent = HINTS[away ? "time" : "offset"];
  explain();
  if (!away) draw();
}

// Whether Kafka does not answer, which alone knows where the logs end.
export function withoutKafka(now) {
  away = now;
  explain();
  if (away) say(place("problem"), "");
}

function legend() {
  const keys = [
    ...MEANINGS.map(([state, text]) => [`key state-${state}`, text]),
    ["key-mark log-start", "Kafka's log begins"],
    ["key-mark position", "the ingest's position"],
  ];
  place("legend").replaceChildren(...keys.map(([kind, text]) => {
    const made = element("li", text);
    made.prepend(element("i", undefined, kind));
    return made;
  }));
}

export function picture(name) {
  stream = name;
  legend();
  place("only").control.addEventListener("change", (event) => {
    Object.assign(view, { gaps: event.target.checked, first: 0 });
    draw();
  });
  let resized = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(draw, 250);
  });
  const again = async () => {
    const busy = hidden || dragging || document.hidden || !place("chosen").hidden || document.querySelector("dialog");
    if (!busy || (drawn === null && !hidden)) await draw();
    setTimeout(again, REFRESH_MS);
  };
  again();
}
