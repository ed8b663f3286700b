// What all pages use. Everything from the server is put in as text, never as HTML: other people write topics, runs,
// reasons and messages.

import { OTHER, ZONE, both, clockText, switchZone } from "./times.js";

// The address of the app, wherever Airflow is served: this file is files/VERSION/shared.js below it.
export const ROOT = new URL("../..", import.meta.url);
// Airflow's own address.
export const AIRFLOW = new URL("..", ROOT);
export const STATUS = { OK: "good", WARNING: "busy", STALLED: "bad", REWOUND: "bad", STOPPED: "bad" };
// Of a stream as a whole, which has more words than its partitions: all that are not here are bad.
const BUSY = ["NEW", "PAUSED", "WARNING", "DEAD LETTERS", "LATE", "SKIPPED", "EXPIRING"];
export const kindOf = (state) => (state === "OK" ? "good" : BUSY.includes(state) ? "busy" : "bad");
const NONE = "–";
// The server answers within seconds. Without a limit, a request that hangs would hold up a page for good.
const WAIT_MS = 60000;
const AWAY = "Airflow did not answer. If that stays so, look whether its API server is up.";
const USABLE = "a, button, svg[tabindex]";

// The pages of a stream, for the navigation: name, and the address below the stream's.
const PAGES = [
  ["Overview", ""],
  ["Message", "messages"],
  ["Browse", "browse"],
  ["Dead letters", "dead-letters"],
  ["Completeness", "completeness"],
  ["Audits", "audits"],
  ["Plan", "plan"],
];

export class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Parts of an address, each of them encoded: address("streams", name).
export function address(...parts) {
  return new URL(parts.map((part) => encodeURIComponent(part)).join("/"), ROOT);
}

export function withQuery(url, values) {
  const made = new URL(url);
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") made.searchParams.set(name, value);
  }
  return made;
}

// What an answer's body says as JSON; undefined for another body, such as that of a proxy.
async function said(answer) {
  try {
    return await answer.json();
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

// Why an answer is none, in a sentence that says what to do.
export async function refusal(answer) {
  if (answer.status === 401) return new Refusal(401, "You are no longer logged in to Airflow: log in again, and reload this page.");
  const detail = (await said(answer))?.detail;
  const known = Array.isArray(detail) ? detail.map((one) => `${one.loc?.at(-1)}: ${one.msg}`).join("; ") : detail;
  if (typeof known === "string") return new Refusal(answer.status, known);
  const what = `${new URL(answer.url).pathname} was answered with ${answer.status} ${answer.statusText}`.trim();
  return new Refusal(answer.status, `${what}. If that stays so, look into the log of Airflow's API server, or of a proxy before it.`);
}

async function answered(answer) {
  if (!answer.ok) throw await refusal(answer);
  const body = await said(answer);
  if (body === undefined) throw new Refusal(answer.status, "Something else than Airflow has answered, such as a proxy's login: reload this page.");
  return body;
}

// What the server says, as JSON. Raises a Refusal with a sentence for people.
export async function load(url, options = {}) {
  const signal = AbortSignal.timeout(WAIT_MS);
  try {
    return await answered(await fetch(url, { credentials: "same-origin", headers: { Accept: "application/json" }, signal, ...options }));
  } catch (error) {
    // What browsers say then is for programmers: "Failed to fetch".
    if (error instanceof TypeError || error.name === "TimeoutError") throw new Refusal(0, AWAY);
    throw error;
  }
}

// As load, but asks again while servers are only slow (504): the server itself gives up what takes too long, and says so.
// `waiting` is told each time why there is no answer yet; where it returns false, nobody waits any more.
export const loadPatiently = (url, waiting, tries = Infinity, options = {}) => patiently(() => load(url, options), waiting, tries);

export async function patiently(ask, waiting, tries) {
  for (let left = tries; ; left -= 1) {
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 504 || left <= 1 || waiting(error.message) === false) throw error;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

// Airflow's own API, as the person who looks: Airflow decides, and its audit log knows who.
export function airflow(path, body, method = "POST") {
  const url = new URL(`api/v2/${path}`, AIRFLOW);
  if (body === undefined) return load(url);
  const headers = { Accept: "application/json", "Content-Type": "application/json" };
  return load(url, { method, headers, body: JSON.stringify(body) });
}

export function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text === null ? NONE : text;
  if (kind) made.className = kind;
  return made;
}

// A part of a drawing, with its attributes.
export function drawing(name, values) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
  return made;
}

export function cell(row, content, kind) {
  const td = row.insertCell();
  if (content instanceof Node) td.append(content);
  else td.textContent = content === null || content === undefined ? NONE : content;
  if (kind) td.className = kind;
  return td;
}

// Digits in groups of three. Offsets are texts, since numbers of JavaScript lose digits above 2^53.
export function grouped(number) {
  return number === null || number === undefined ? null : String(number).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

// A sentence of the server with the digits of its numbers in groups, as all numbers of a page. What stands within a word, such
// as an offset in a range, a time or a name, stays as it is.
export const spoken = (text) => text?.replace(/(?<![^\s(])\d{4,}(?=[\s,;:)]|\.?$|\.\s)/g, grouped);

// What is wrong with a stream, as commands say it: the sentence, and what to do.
export const reasonText = ({ state, sentence, remedy }) => `${state}: ${spoken([sentence, remedy].filter((part) => part).join(". "))}.`;

// Where somebody mends what is wrong, or reads more of it.
export function mendedAt({ state }, { stream, scheduling, line, skipped = line?.skipped }) {
  const pages = { "DEAD LETTERS": ["dead-letters"], FINDINGS: ["audits"], SKIPPED: ["plan"], HOLES: ["plan"] };
  if (state === "FAILED" && scheduling?.last) return withQuery(new URL("run", ROOT), { dag_id: scheduling.dag, run_id: scheduling.last.run });
  const page = address("streams", stream, ...(pages[state] ?? []));
  return pages[state]?.[0] === "plan" ? withQuery(page, { kind: "backfill", ...(state === "SKIPPED" && !skipped.ranges.includes(" and ") ? { ranges: skipped.ranges.replaceAll(", ", "\n") } : {}) }) : page;
}

// Whether a number is one, which may be a text: then what is counted is in the singular.
export const isOne = (number) => String(number) === "1";

// A number with what it counts: "1 window", "3 021 windows", "2 more rows". What stands before the number's word may be a
// number as people read it: counted("2 to 4", "message").
export function counted(number, what) {
  return `${/^\d+$/.test(number) ? grouped(number) : number} ${what}${isOne(number) ? "" : "s"}`;
}

// The focus, which `draw` may take away with what has it, goes to the link or button of the same number in the same place.
// `found` gives the place, before and after.
export function keepingFocus(found, draw) {
  const usable = () => [...(found()?.querySelectorAll(USABLE) || [])];
  const held = document.activeElement;
  const at = usable().indexOf(held);
  draw();
  if (at < 0 || document.activeElement === held) return;
  const now = usable();
  const same = held.isConnected ? held : now[Math.min(at, now.length - 1)];
  (same?.disabled ? now.find((one) => !one.disabled) : same)?.focus({ preventScroll: true });
}

// Puts rows into a table's body. Those that are there already are not moved unless they must be.
export function arrange(body, rows) {
  for (const one of [...body.rows]) if (!rows.includes(one)) one.remove();
  rows.forEach((row, at) => {
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] || null);
  });
}

// What each row was made as, as a text. Such a text is compared, and never becomes a part of a page.
const madeAs = new WeakMap();
const asText = (node) => new XMLSerializer().serializeToString(node);

// The rows of a table. A row that would look the same stays as it is, so that a text can be selected there and copied.
export function fill(table, rows, columns, empty) {
  const body = table.tBodies[0];
  const old = new Map([...body.rows].map((row) => [madeAs.get(row), row]));
  const rowOf = (draw) => {
    const row = element("tr");
    draw(row);
    const text = asText(row);
    // What a button does may differ though it looks the same.
    const same = row.querySelector("button:not([data-copy])") ? null : old.get(text);
    old.delete(text);
    madeAs.set(same || row, text);
    return same || row;
  };
  const none = (row) => {
    row.className = "none";
    cell(row, empty).colSpan = table.tHead.rows[0].cells.length;
  };
  const wanted = rows.length ? rows.map((one) => rowOf((row) => columns(row, one))) : [rowOf(none)];
  const at = [...body.rows].findIndex((row) => row.contains(document.activeElement));
  keepingFocus(() => body.rows[at], () => arrange(body, wanted));
}

// As fill, for one row, or for another element.
export function refill(place, draw) {
  const wanted = element(place.tagName);
  draw(wanted);
  const text = asText(wanted);
  if (madeAs.get(place) === text) return;
  madeAs.set(place, text);
  keepingFocus(() => place, () => place.replaceChildren(...wanted.childNodes));
}

// Makes a place's content that of `wanted`. What would look the same stays, and so does what is around a change: a text can be
// selected there, and the focus stays. Only for content whose links and buttons do the same where they look the same.
export function mend(place, wanted) {
  const old = [...place.childNodes];
  const same = new Map(old.map((one) => [asText(one), one]));
  const kept = new Set();
  const content = [...wanted.childNodes].map((one) => {
    const found = same.get(asText(one));
    if (!found || kept.has(found)) return one;
    kept.add(found);
    return found;
  });
  content.forEach((one, at) => {
    const there = old[at];
    if (kept.has(one) || !there || kept.has(there) || one.nodeType !== Node.ELEMENT_NODE || one.tagName !== there.tagName) return;
    for (const { name } of [...there.attributes]) if (!one.hasAttribute(name)) there.removeAttribute(name);
    for (const { name, value } of one.attributes) there.setAttribute(name, value);
    mend(there, one);
    kept.add(there);
    content[at] = there;
  });
  for (const one of old) if (!kept.has(one)) one.remove();
  content.forEach((one, at) => {
    if (place.childNodes[at] !== one) place.insertBefore(one, place.childNodes[at] ?? null);
  });
}

// Says when the page has asked the server last.
export function refreshed() {
  document.getElementById("refreshed").textContent = `Refreshed ${clockText(new Date())}`;
}

// A time in ms in the viewer's zone, or in UTC; the other one is in its title.
export function time(ms) {
  if (ms === null || ms === undefined) return document.createTextNode(NONE);
  // A message may say any number for its time, and a browser knows no times beyond some 270,000 years.
  if (Number.isNaN(new Date(ms).getTime())) return document.createTextNode(`${ms} ms since 1970`);
  const [text, other] = both(ms);
  const made = element("time", text);
  made.dateTime = new Date(ms).toISOString();
  made.title = other;
  return made;
}

// A span of time in words, as the command line says it: its two largest units.
export function span(ms) {
  if (ms === null || ms === undefined) return null;
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  const at = units.findIndex(([, size]) => ms >= size);
  if (at < 0) return "0 s";
  const [word, size] = units[at];
  const next = units[at + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return `${Math.floor(ms / size)} ${word}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

// What reading some offsets takes, in a sentence.
export function estimated(found) {
  if (!found) return "No window has been read yet, so there is no estimate.";
  const took = found.seconds < 60 ? "less than a minute" : span(found.seconds * 1000);
  return `About ${counted(found.records, "record")}, ${counted(found.bytes, "byte")} and ${took}, with the start of Spark besides.`;
}

// A link to one of our own pages.
export function link(text, url) {
  const made = element("a", text);
  made.href = url;
  return made;
}

// A link to one of Airflow's pages. Airflow shows this page in a frame that may neither navigate the window nor open one.
// The frame may use Airflow's document, so the click is made there.
export function airflowLink(text, path) {
  const made = link(text, new URL(path, AIRFLOW));
  const leave = (event) => {
    if (window.parent === window || event.button > 1) return;
    event.preventDefault();
    const outside = window.parent.document.createElement("a");
    outside.href = made.href;
    if (event.button === 1 || event.ctrlKey || event.metaKey || event.shiftKey) outside.target = "_blank";
    outside.rel = "noopener";
    outside.click();
  };
  made.addEventListener("click", leave);
  made.addEventListener("auxclick", leave);
  return made;
}

// A run of Airflow, which the ledger knows as `DAG/RUN`, or a run of the command line: `cli/...`, or a name that was given.
// What is copied is the whole name, as commands take it.
export function run(name) {
  const [dag, ...rest] = (name || "").split("/");
  if (!name) return document.createTextNode(NONE);
  if (rest.length === 0 || dag === "cli") return copyable(name, element("span", name));
  const id = rest.join("/");
  const made = airflowLink("", `dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(id)}`);
  // A narrow column breaks an id between its parts: scheduled__, the date, the clock, the zone.
  id.split(/(?<=__)|(?=T\d\d:)|(?=[+-]\d\d:\d\d$)/).forEach((part, at) => {
    made.append(at ? element("wbr") : "", /^\d{4}-\d\d-\d\d$/.test(part) ? element("span", part, "date") : part);
  });
  return copyable(name, made);
}

// What the page of a message takes, of a coordinate as the ledger writes it.
export function messageOf(coordinate) {
  const [place, offset] = [coordinate.slice(0, coordinate.lastIndexOf("@")), coordinate.slice(coordinate.lastIndexOf("@") + 1)];
  const cut = place.lastIndexOf("/");
  // A topic with its incarnation, where it is marked by #. Otherwise the page of a message finds it itself.
  return { topic: place.slice(0, cut), partition: place.slice(cut + 1), offset };
}

// Offsets as people and commands write them: half-open.
export const rangeText = (partition, from, until) => `${partition}@${from}-${until}`;

// A partition beside a picture: the beginning and the end of a name that would take many lines.
export const shortened = (partition, most = 70) => (partition.length > most ? `${partition.slice(0, most / 2)} … ${partition.slice(3 - most / 2)}` : partition);

// A text with numbers as pages show them, whose digits are in groups, as a field takes it.
export const ungrouped = (text) => text.replace(/(?<=\d)[ \u00a0\u2009\u202f](?=\d{3}(?!\d))/g, "").trim();

// What the page of a message takes, of a coordinate as people write it; null for another text. A time may stand for the offset.
// Of a range, the first offset.
export function coordinateOf(text) {
  const found = /^([A-Za-z0-9._-]{1,249}(?:#\d{1,9})?)\/(\d{1,10}) ?(?:@|(?=\[))(?:\[?(\d{1,19})(?:(?:-|, ?)\d{1,19}\)?)?|(\S*[-:]\S*))$/.exec(ungrouped(text));
  return found && { topic: found[1], partition: found[2], offset: found[3] ?? found[4] };
}

// Says something that has just happened, for a few seconds, without taking the focus. It stays in sight over a dialog.
export function toast(text, kind = "") {
  const place = document.getElementById("toasts");
  const made = element("p", text, `toast ${kind}`);
  place.append(made);
  place.hidePopover();
  place.showPopover();
  setTimeout(() => made.remove(), 6000);
}

// What was said just before a page was left is said on the next one too.
const SAID = "tidemark-said";
window.addEventListener("pagehide", () => {
  const said = [...document.querySelectorAll(".toast")].map((one) => [one.textContent, one.classList.contains("bad") ? "bad" : ""]);
  if (said.length) window.sessionStorage.setItem(SAID, JSON.stringify(said));
});
for (const [text, kind] of JSON.parse(window.sessionStorage.getItem(SAID) || "[]")) toast(text, kind);
window.sessionStorage.removeItem(SAID);

// A text that people take elsewhere, and a button that copies it. `shown` stands in its place, if it is shown in another way.
export function copyable(text, shown) {
  const made = element("span", undefined, "copyable");
  const copy = element("button");
  // Drawn: not every machine has a letter for it.
  const icon = drawing("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" });
  icon.append(drawing("rect", { x: 1, y: 1, width: 7, height: 7, rx: 1 }), drawing("rect", { x: 4, y: 4, width: 7, height: 7, rx: 1 }));
  copy.append(icon);
  Object.assign(copy, { type: "button", title: `Copy ${text.length > 200 ? "all" : text}` });
  copy.setAttribute("aria-label", copy.title);
  copy.dataset.copy = text;
  made.append(shown ?? element("code", text), " ", copy);
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers give the clipboard to secure addresses only.
    const field = Object.assign(element("textarea"), { value: text });
    const held = document.activeElement;
    (document.querySelector("dialog[open]") || document.body).append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    held?.focus();
    if (!done) {
      toast("The browser did not copy it: mark it and copy it yourself.", "bad");
      return;
    }
  }
  toast(`Copied ${text.length > 100 ? `${text.slice(0, 100)} …` : text}`);
}

// For all buttons at once: rows are made again, and a row that would look the same stays as it is.
document.addEventListener("click", (event) => {
  const found = event.target.closest?.("button[data-copy]");
  if (found) copy(found.dataset.copy);
});

// A link to the page of a window, which is named LANE/NUMBER.
export function windowLink(stream, name) {
  const cut = name.lastIndexOf("/");
  return link(name, address("streams", stream, "windows", name.slice(0, cut), name.slice(cut + 1)));
}

export function button(text, act, kind, on = true) {
  const made = element("button", text, kind);
  made.type = "button";
  made.disabled = !on;
  made.addEventListener("click", act);
  return made;
}

// Shows a text in a place that is hidden while it has none.
export function say(place, text) {
  place.hidden = !text;
  // A text that stays can be selected.
  if (place.textContent !== (text || "")) place.textContent = text || "";
}

// As say, of a problem. A text that stands on the page already, since several parts of it ask one server, is not said again.
export function sayOnce(place, text) {
  const there = [...document.querySelectorAll(".problem")].some((one) => one !== place && !one.hidden && one.textContent === text);
  say(place, there ? "" : text);
}

// The navigation: all streams, and the pages of the stream at hand, `here` being the name of the page.
export function navigation(stream, here) {
  const nav = document.getElementById("navigation");
  nav.setAttribute("aria-label", "Tidemark");
  const all = link("Streams", ROOT);
  all.className = "brand";
  const zone = button(`Times: ${ZONE}`, switchZone, "zone");
  zone.title = `Show times of ${OTHER}`;
  zone.hidden = ZONE === OTHER;
  nav.replaceChildren(all, zone);
  if (!stream) {
    all.setAttribute("aria-current", "page");
    document.title = "Tidemark";
    return;
  }
  document.title = `${stream} · Tidemark`;
  zone.before(element("span", "/", "quiet"), element("span", stream, "stream"));
  for (const [name, path] of PAGES) {
    const one = link(name, path ? `${address("streams", stream)}/${path}` : address("streams", stream));
    if (name === here) one.setAttribute("aria-current", "page");
    zone.before(one);
  }
}

// The stream that the address names: .../streams/NAME/...
export function streamOfAddress() {
  return rest()[1];
}

// The parts of the address below the app's: ["streams", "orders", "windows", "ingest", "17"].
export function rest() {
  return window.location.pathname.slice(ROOT.pathname.length).split("/").map(decodeURIComponent);
}

export function asked(name) {
  return new URLSearchParams(window.location.search).get(name);
}

// Puts values into the query of the address, so that the address shows what the page shows.
export function remember(values) {
  const url = new URL(window.location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  window.history.replaceState(null, "", url);
  // Around this page, Airflow shows the address of the page that it has loaded last: a colleague would get that one.
  const { location, history } = window.parent;
  const framed = new URL(`plugin/tidemark/${url.href.slice(AIRFLOW.href.length)}`, AIRFLOW);
  if (window.parent !== window && location.pathname === framed.pathname) history.replaceState(history.state, "", framed);
}

// Calls something now and every few seconds, never twice at a time, and not while nobody can see the page. An answer of
// `false` ends it.
export function repeat(call, ms) {
  const again = async () => {
    if (!document.hidden && (await call()) === false) return;
    setTimeout(again, ms);
  };
  again();
}
