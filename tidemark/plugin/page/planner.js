// The plan of a replay, a backfill or an erasure: what it would read and replace, or erase, by the same functions as a dry run.
// Airflow starts it, in the viewer's name, with the plan's digest: if the plan is stale by then, the run refuses.
import {
  ROOT, address, airflow, asked, button, cell, copyable, counted, element, estimated, grouped, isOne, load, loadPatiently, navigation, rangeText,
  remember, run, say, streamOfAddress, time, ungrouped, windowLink, withQuery,
} from "./shared.js";
import { newest } from "./newest.js";
import { STORED, dagOf, pausedSaid, start } from "./plan.js";
import { placesTable } from "./places.js";
import { showTime, timeOf } from "./times.js";

const stream = streamOfAddress();
const place = (id) => document.getElementById(id);
const form = place("what");
const starting = place("start");
// The ways of each kind to say which offsets, with the fields that say it.
const WAYS = {
  records: ["Records", ["records"]],
  records_file: ["Records in a file or table on the server", ["records_file"]],
  ranges: ["Offset ranges", ["ranges"]],
  window: ["Windows", ["window"]],
  time: ["Time", ["since", "until_time"]],
  dead_letters: ["Dead letters", ["dead_letters", "dead_letters_window", "since", "until_time"]],
  selection: ["Findings of an audit", ["selection"]],
  ignore_stored: ["Everything from the start", []],
  holes: ["Holes", []],
  everything_before: ["Everything before the first window", []],
  key: ["Key", ["key"]],
};
const OF_KIND = {
  replay: ["records", "records_file", "ranges", "window", "time", "dead_letters", "selection", "ignore_stored"],
  backfill: ["ranges", "records", "records_file", "time", "holes", "everything_before"],
  erase: ["records", "key", "records_file"],
};
const DEFAULTS = { mode: "only_missing", if_none: "fail", rate: "", lanes: "" };
// The longest text that a request takes, in characters, and what an address has room for.
const MAX_TEXT = 1000000;
const MAX_ADDRESS = 4000;
const TRIES = 120;
// What was resolved last: the kind, the fields, and the answer.
let resolved = null;
let asking = 0;
// The run whose request this is, until something is changed.
let before = asked("from_run") || "";

const kindNow = () => form.elements.kind.value;
const wayNow = () => form.elements.way.value;

function shownFor(one) {
  const { way, kind } = one.dataset;
  return (!way || way.split(" ").includes(wayNow())) && (!kind || kind.split(" ").includes(kindNow()));
}

// What is read for the first time goes into all sinks, and dead letters are resolved for all of them.
const mayChooseSinks = () => (kindNow() === "replay" ? wayNow() !== "dead_letters" : shownFor(form.elements.mode.closest("[data-way]")) && form.elements.mode.value === "reprocess");

const sinkBoxes = () => [...place("sinks").querySelectorAll("input")];

function showFields() {
  for (const one of document.querySelectorAll("[data-way], [data-kind]")) one.hidden = !shownFor(one);
  place("sinks").hidden = !sinkBoxes().length || !mayChooseSinks();
}

function sinkBox(name, type, checked) {
  const label = element("label", undefined, "check");
  label.append(Object.assign(element("input"), { type: "checkbox", name: "sink", value: name, checked }));
  label.append(element("span", type && type !== name ? `${name}, of type ${type}` : name));
  place("sinks").append(label);
}

// A box for each sink that is asked for, at once: one that is gone is refused, and not left out. Then the stream's others.
async function showSinks(chosen) {
  for (const name of chosen) sinkBox(name, null, true);
  const { sinks } = await loadPatiently(withQuery(address("api", "streams", stream), { partitions: 1 }), () => {});
  const there = new Set(sinkBoxes().map((one) => one.value));
  for (const { name, type } of sinks) if (!there.has(name)) sinkBox(name, type, false);
  showFields();
}

function showWays(chosen) {
  const ways = OF_KIND[kindNow()].map((name) => {
    const option = element("option", WAYS[name][0]);
    option.value = name;
    return option;
  });
  form.elements.way.replaceChildren(...ways);
  form.elements.way.value = OF_KIND[kindNow()].includes(chosen) ? chosen : OF_KIND[kindNow()][0];
  showFields();
}

// The fields of the DAG's form that the page's form says. What is as the DAG has it by itself is left out.
function fieldsNow() {
  const way = wayNow();
  const found = {};
  for (const name of WAYS[way][1]) {
    const control = form.elements[name];
    const value = control.type === "datetime-local" ? timeOf(control) : control.value;
    if (value.trim()) found[name] = name === "records" || name === "ranges" ? value : value.trim();
  }
  if (WAYS[way][1].length === 0) found[way] = true;
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const control = form.elements[name];
    const label = control.closest("[data-way], [data-kind]");
    const value = control.value.trim();
    if ((!label || shownFor(label)) && value !== usual) found[name] = name === "rate" || name === "lanes" ? Number(value) : value;
  }
  if (form.elements.strict.checked && kindNow() !== "erase") found.strict = true;
  const sinks = sinkBoxes().filter((one) => one.checked).map((one) => one.value);
  if (sinks.length && mayChooseSinks()) found.sinks = sinks;
  return found;
}

function fillIn(kind, fields) {
  if (OF_KIND[kind]) form.elements.kind.value = kind;
  const dead = "dead_letters" in fields ? "dead_letters" : null;
  const way = dead || Object.keys(WAYS).find((name) => fields[name] || WAYS[name][1].some((one) => fields[one]));
  showWays(way);
  for (const [name, value] of Object.entries(fields)) {
    const control = form.elements[name];
    if (!control || ["kind", "way", "sinks"].includes(name) || value === null) continue;
    if (control.type === "checkbox") control.checked = value === true || value === "true";
    else if (control.type === "datetime-local") showTime(control, String(value));
    else control.value = String(value);
  }
  const { mode, rate, lanes, strict, sinks, if_none: ifNone } = fields;
  if ([mode, rate, lanes, strict, sinks, ifNone].some((one) => one !== undefined && one !== null && one !== false)) place("more").open = true;
  countRecords();
}

function countRecords() {
  const text = form.elements.records.value;
  const lines = text.split("\n").filter((line) => line.trim()).length;
  const long = text.length > MAX_TEXT;
  place("counted").className = long ? "bad" : "quiet";
  place("counted").textContent = long
    ? `${counted(text.length, "character")}, and a request takes up to ${grouped(MAX_TEXT)}: leave some out, or choose by a file on the server.`
    : lines ? counted(lines, "line") : "";
}

// A file is read here, in the browser, into the same field.
async function takeFile(file) {
  if (!file) return;
  if (file.size > MAX_TEXT) {
    place("counted").className = "bad";
    place("counted").textContent = `${file.name} has ${counted(file.size, "byte")}, and this field takes up to ${grouped(MAX_TEXT)}: put the file below the server's folder TIDEMARK_SELECTIONS, and choose by a file on the server.`;
    return;
  }
  form.elements.records.value = await file.text();
  countRecords();
  changed();
}

// A plan is of what was asked for, and no longer of what the form says now.
function changed() {
  if (!resolved) return;
  place("plan").classList.add("outdated");
  for (const one of starting.elements) one.disabled = true;
  place("said").className = "said busy";
  place("said").textContent = "What is asked for has changed. Resolve it again.";
}

function table(names, kinds) {
  const made = element("table");
  const head = made.createTHead().insertRow();
  names.forEach((name, at) => head.append(element("th", name, kinds[at])));
  made.createTBody();
  const box = element("div", undefined, "box");
  box.append(made);
  return [box, made.tBodies[0]];
}

// Half-open ranges, as each field of ranges takes them.
function spans(one, partition) {
  const said = one.ranges.map((range) => rangeText(partition ?? range.partition, range.from, range.until)).join(", ");
  const made = copyable(said);
  if (one.more_ranges) made.append(` and ${grouped(one.more_ranges)} more`);
  return made;
}

function more(body, number, what) {
  if (number) cell(body.insertRow(), `and ${counted(number, `more ${what}`)}`, "quiet");
}

function partitions(found) {
  const again = found.partitions.some((one) => one.again !== "0");
  const [box, body] = table(
    ["Partition", "Offsets", ...(again ? ["Read again"] : []), "Ranges"],
    ["", "number", ...(again ? ["number"] : []), ""],
  );
  for (const one of found.partitions) {
    const row = body.insertRow();
    cell(row, one.partition, "topic");
    cell(row, grouped(one.offsets), "number");
    if (again) cell(row, grouped(one.again), "number");
    cell(row, spans(one, one.partition), "spans");
  }
  more(body, found.more_partitions, "partition");
  return box;
}

function leftOut(found) {
  const [box, body] = table(["Partition", "Range", "Offsets", "Answer"], ["", "", "number", ""]);
  for (const one of found.answers) {
    const row = body.insertRow();
    cell(row, one.partition, "topic");
    cell(row, spans({ ranges: [one], more_ranges: 0 }, one.partition), "spans");
    cell(row, grouped(one.offsets), "number");
    cell(row, one.answer, "busy");
  }
  more(body, found.more_answers, "line");
  return box;
}

function replaced(found) {
  const [box, body] = table(["Window", "Offsets", "Ranges", "Committed", "Run"], ["", "number", "", "", ""]);
  for (const one of found.replaces) {
    const row = body.insertRow();
    cell(row, windowLink(stream, one.window), "lane");
    cell(row, grouped(one.offsets), "number");
    cell(row, spans(one), "spans");
    cell(row, time(one.committed_at), "time");
    cell(row, run(one.run), "run");
  }
  more(body, found.more_replaced, "window");
  return box;
}

const messagesSaid = (number) => counted(number, "message");

function erasedBefore(found) {
  return Object.entries(found.before).map(([why, number]) => `${messagesSaid(number)}: ${why}.`);
}

// What an erasure would do, and what would remain where: before it is started, since it cannot be undone.
function showErasure(found) {
  const some = found.offsets !== "0";
  const inAll = found.partitions.length + found.more_partitions;
  const said = some
    ? [`${messagesSaid(found.offsets)} of ${counted(inAll, "partition")} would be erased for good.`]
    : ["There is nothing to erase."];
  place("summary").textContent = [...said, ...erasedBefore(found)].join(" ");
  const made = element("span", found.how ? `${found.how[0].toUpperCase()}${found.how.slice(1)}. ` : "");
  made.append("Resolved ", time(found.made_at), ".");
  place("estimate").replaceChildren(made);
  const [box, body] = table(["Partition", "Messages", "Ranges"], ["", "number", ""]);
  for (const one of found.partitions) {
    const row = body.insertRow();
    cell(row, one.partition, "topic");
    cell(row, grouped(one.offsets), "number");
    cell(row, spans(one, one.partition), "spans");
  }
  more(body, found.more_partitions, "partition");
  const places = [element("h3", "Where their results are, and what would remain"), placesTable(found.places)];
  place("parts").replaceChildren(...(some ? [box] : []), ...(some || Object.keys(found.before).length ? places : []));
  showStart(found, some, `Erase ${messagesSaid(found.offsets)} for good`);
  place("go").classList.add("danger");
  if (some && !found.may_start) {
    starting.elements.go.disabled = true;
    place("said").className = "said";
    place("said").textContent = `Only those who may trigger ${dagOf(stream, "erase")} can erase. Send them the address of this page.`;
  }
}

const offsetsSaid = (number) => counted(number, "offset");

function showPlan(found) {
  const some = found.offsets !== "0";
  const inAll = found.partitions.length + found.more_partitions;
  const out = Object.values(found.left_out.totals).reduce((sum, one) => sum + BigInt(one), 0n);
  const said = some
    ? [`${offsetsSaid(found.offsets)} of ${counted(inAll, "partition")} would be read.`]
    : [`There is nothing to ${found.kind}.`];
  if (out > 0n) said.push(`${offsetsSaid(String(out))} cannot be read.`);
  if (resolved.fields.sinks) said.push(`Only ${resolved.fields.sinks.join(", ")} would be written.`);
  place("summary").textContent = said.join(" ");
  const made = element("span", some ? `${estimated(found.estimate)} ` : "");
  made.append("Resolved ", time(found.made_at), ".");
  place("estimate").replaceChildren(made);
  const parts = [];
  if (some) parts.push(partitions(found));
  if (out > 0n) {
    const totals = Object.entries(found.left_out.totals).map(([why, number]) => `${grouped(number)} ${why}`).join("; ");
    parts.push(element("h3", "What cannot be read"), element("p", `${totals}.`), leftOut(found.left_out));
  }
  if (some) {
    parts.push(element("h3", "What will be replaced"));
    if (found.replaces.length) {
      parts.push(element("p", `Results of ${counted(found.stored_before ?? `${grouped(found.stored_at_least)} to ${grouped(found.stored_at_most)}`, "stored message")} in ${counted(found.replaces.length + found.more_replaced, "window")}. They count until the run commits its own.`), replaced(found));
    } else parts.push(element("p", "Nothing: no window has read any of these offsets.", "quiet"));
  }
  place("parts").replaceChildren(...parts);
  showStart(found, some, `Start the ${found.kind}`);
}

function showStart(found, some, what) {
  place("approval").hidden = !found.needs_approval;
  pausedSaid(dagOf(stream, resolved.kind)).then((sentence) => { place("paused").textContent = sentence; });
  place("digest").replaceChildren(copyable(found.plan, element("span", `Plan ${found.plan.slice(0, 12)}`)));
  place("digest").title = found.plan;
  place("go").textContent = what;
  place("go").classList.remove("danger");
  place("starting").hidden = !some;
  place("plan").hidden = false;
  place("plan").classList.remove("outdated");
  for (const one of starting.elements) one.disabled = false;
  place("said").textContent = "";
}

function lookUp(kind, fields, waiting) {
  const headers = { Accept: "application/json", "Content-Type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(kind === "erase" ? { fields } : { kind, fields }) };
  return loadPatiently(address("api", "streams", stream, kind === "erase" ? "erasure" : "plan"), waiting, TRIES, options);
}

// The address shows what the form says, as long as there is room. A key may be personal data, and browsers keep addresses.
function rememberNow(kind, { key: _, ...fields }) {
  const known = Object.fromEntries([...new Set([...Object.values(WAYS).flatMap(([, names]) => names), ...Object.keys(WAYS), ...Object.keys(DEFAULTS), "strict", "sinks"])].map((name) => [name, ""]));
  const room = JSON.stringify(fields).length <= MAX_ADDRESS;
  // A run's request has an address, however long it is.
  remember({ ...known, from_run: room ? "" : before, stored: "", kind, ...(room ? fields : {}) });
  return room || before !== "";
}

async function resolve() {
  const mine = ++asking;
  const [kind, fields] = [kindNow(), fieldsNow()];
  const [title, needed] = WAYS[wayNow()];
  // The window and the times of dead letters only say which of those that the first field names.
  const lacking = wayNow() === "dead_letters" ? !fields.dead_letters : needed.length && !needed.some((name) => fields[name]);
  if (lacking) {
    say(place("problem"), fields.dead_letters_window ? `${title}: say which reason or error class, or * for all of them.` : `${title}: nothing is filled in.`);
    form.elements[needed[0]].focus();
    return;
  }
  say(place("problem"), "");
  place("newest").hidden = true;
  place("instead").replaceChildren();
  say(place("waiting"), "Resolving …");
  try {
    const found = await lookUp(kind, fields, (sentence) => mine === asking && say(place("waiting"), `Resolving … ${sentence}`));
    if (mine !== asking) return;
    resolved = { kind, fields, found };
    (kind === "erase" ? showErasure : showPlan)(found);
    if (!rememberNow(kind, fields)) place("estimate").append(" What is asked for is too long for this page's address.");
    if (place("starting").hidden === false) starting.elements.reason.focus({ preventScroll: true });
  } catch (error) {
    if (mine !== asking) return;
    resolved = null;
    place("plan").hidden = true;
    say(place("problem"), error.message);
    if (kind === "erase" && fields.key && error.status !== 403) place("instead").replaceChildren(inAirflow(fields));
  }
  say(place("waiting"), "");
}

// A run of Airflow looks for a key in any number of messages.
function inAirflow(fields) {
  return button("Look for it with a dry run in Airflow, which keeps the key", async () => {
    try {
      const begun = await start(stream, "erase", { ...fields, reason: "a dry run of the page Plan", dry_run: true });
      window.location.assign(withQuery(new URL("run", ROOT), { dag_id: begun.dag, run_id: begun.run }));
    } catch (error) {
      say(place("problem"), error.message);
    }
  });
}

function stale(sentence) {
  const said = place("said");
  said.className = "said stale busy";
  const again = element("button", "Resolve again", "primary");
  again.type = "button";
  again.addEventListener("click", resolve);
  said.replaceChildren(element("span", `${sentence} `), again);
}

async function begin(more) {
  const { kind, found } = resolved;
  // Of a key, the messages that were found: they are what was shown.
  const fields = found.records ? { records: found.records } : resolved.fields;
  const said = place("said");
  said.className = "said";
  said.textContent = "Asking Airflow …";
  for (const one of starting.elements) one.disabled = true;
  try {
    // The run checks this too. Here it is said at once.
    await lookUp(kind, { ...fields, plan: found.plan }, (sentence) => { said.textContent = sentence; });
    const conf = { ...fields, reason: starting.elements.reason.value.trim(), plan: found.plan, ...more };
    const begun = await start(stream, kind, conf);
    window.location.assign(withQuery(new URL("run", ROOT), { dag_id: begun.dag, run_id: begun.run }));
    return;
  } catch (error) {
    if (error.status === 409) {
      stale(error.message);
      return;
    }
    said.className = "said bad";
    said.textContent = error.status === 403 ? `Airflow does not let you start ${dagOf(stream, kind)}: ${error.message}` : error.message;
  }
  for (const one of starting.elements) one.disabled = false;
}

async function suggestReasons() {
  if (place("reasons").childElementCount) return;
  const { groups } = await load(address("api", "streams", stream, "dead-letters"));
  const names = ["*", ...groups.map((one) => one.selects).filter((one) => one !== null)];
  place("reasons").replaceChildren(...names.map((name) => Object.assign(element("option"), { value: name })));
}

// What the page was opened with: its address; a run whose request is taken again; or what another page has put aside.
async function given() {
  const query = Object.fromEntries(new URLSearchParams(window.location.search));
  const { kind = "replay", from_run: _run, stored, ...fields } = query;
  if (before) {
    const [dag, ...rest] = before.split("/");
    const { conf } = await airflow(`dags/${encodeURIComponent(dag)}/dagRuns/${encodeURIComponent(rest.join("/"))}`);
    const { reason, dry_run: _, plan: __, compare, ...other } = conf || {};
    starting.elements.reason.value = reason || "";
    starting.elements.compare.checked = compare === true;
    return [Object.keys(OF_KIND).find((kind) => dag.endsWith(`__${kind}`)) || "replay", other];
  }
  if (stored) return [kind, JSON.parse(window.sessionStorage.getItem(STORED) || "{}")];
  return [kind, fields];
}

// For an empty form: what came last, to be picked.
function showNewest() {
  const pick = (coordinate) => {
    const { records } = form.elements;
    form.elements.way.value = "records";
    records.value = [...new Set([...records.value.split("\n").filter((line) => line.trim()), coordinate])].join("\n");
    before = "";
    showFields();
    countRecords();
    changed();
  };
  return newest(place("newest"), stream, { act: { title: "Pick", pick } });
}

navigation(stream, "Plan");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  resolve();
});
starting.addEventListener("submit", (event) => {
  event.preventDefault();
  begin({ dry_run: false, ...(resolved.kind === "replay" && starting.elements.compare.checked ? { compare: true } : {}) });
});
place("only-compare").addEventListener("click", () => {
  if (starting.reportValidity()) begin({ dry_run: true, compare: true });
});
form.addEventListener("input", (event) => {
  before = "";
  // Numbers as pages show them.
  const plain = ungrouped(event.target.value ?? "");
  if (["rate", "lanes"].includes(event.target.name) && plain !== event.target.value && /^\d+$/.test(plain)) event.target.value = plain;
  if (event.target.name === "kind") showWays(wayNow());
  showFields();
  if (event.target.name === "records") countRecords();
  if (wayNow() === "dead_letters") suggestReasons().catch(() => {});
  if (event.target.id !== "file") changed();
});
place("open-file").addEventListener("click", () => place("file").click());
place("file").addEventListener("change", () => takeFile(place("file").files[0]).then(() => { place("file").value = ""; }));
form.elements.records.addEventListener("dragover", (event) => event.preventDefault());
form.elements.records.addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  takeFile(event.dataTransfer.files[0]);
});
showWays("records");
given().then(([kind, fields]) => {
  const sinks = fields.sinks || [];
  // Without the stream's sinks, there is nothing to choose from.
  showSinks(Array.isArray(sinks) ? sinks : sinks.split(",")).catch((error) => error.status === 404 && say(place("problem"), error.message));
  fillIn(kind, fields);
  // Whoever gets the address sees the plan at once.
  if (Object.keys(fields).length) resolve();
  else showNewest().catch(() => {});
}).catch((error) => say(place("problem"), error.message));
