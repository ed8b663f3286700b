// Messages, dead letters or rows of a sink that fit a filter, some at a time: what was looked through is said, and a question goes on from there.
// What was picked is replayed, erased, or copied as records.
import {
  address, asked, button, cell, copyable, counted, element, fill, grouped, isOne, link, load, loadPatiently, messageOf, navigation, patiently,
  refusal, remember, say, streamOfAddress, time, toast, windowLink, withQuery,
} from "./shared.js";
import { fields, headers, parts, text } from "./payload.js";
import { picking, plan, planner } from "./plan.js";
import { showTime, timeOf } from "./times.js";

const stream = streamOfAddress();
const form = document.getElementById("which");
const COUNT = 50;
const NAMES = ["kind", "sink", "where", "window", "since", "until", "filter"];
const WHAT = { messages: "message", "dead-letters": "dead letter", results: "row" };
// Of a value, so much stands in its line.
const MAX_LINE = 140;
// A key as short as this stays in one line.
const MAX_KEY = 24;
const ENDED = {
  time: "it has looked long enough for one question", messages: "it has looked at enough messages for one question",
  bytes: "it has read enough bytes for one question",
};
// A page: what was asked for, the questions that have filled it, their lines, and what they have looked through.
let page = null;
// Where the pages before this one began.
let before = [];
// The records that were picked, on whatever page.
const picked = new Set();
let asking = 0;

const valuesNow = () => ({
  kind: form.elements.kind.value, where: form.elements.where.value.trim(), window: form.elements.window.value.trim(),
  since: timeOf(form.elements.since), until: timeOf(form.elements.until), filter: form.elements.filter.value.trim(),
  sink: form.elements.kind.value === "results" ? form.elements.sink.value.trim() : "",
});

function urlOf({ kind, ...values }, question, ...more) {
  return withQuery(address("api", "streams", stream, "browse", kind, ...more), { ...values, ...question });
}

function short(found) {
  if (found === null) return element("span", "none", "quiet");
  if (found.text === undefined) return element("span", `${counted(found.bytes, "byte")}, masked`, "quiet");
  const all = text(found);
  const line = all.slice(0, MAX_LINE).replaceAll("\n", " ");
  return element("code", all.length > MAX_LINE ? `${line} …` : line || "(empty)");
}

// The value in one line, which opens to all that is known of the message.
function valueOf(line) {
  if (page.kind === "results") return rowOf(line);
  const shown = line.record ?? line.value;
  if (!page.payload) return short(line.value);
  const made = element("details");
  const summary = element("summary");
  summary.append(short(shown));
  made.append(summary);
  made.addEventListener("toggle", () => {
    if (!made.open || made.childElementCount > 1) return;
    if (line.record) made.append(...parts([["record", line.record]]));
    made.append(...parts([["key", line.key], ["value", line.value]]), ...headers(line));
    const told = Object.entries(line.fields).filter(([name]) => name !== "window");
    made.append(...parts(told));
  });
  return made;
}

// A row in one line, which opens to its fields.
function rowOf(line) {
  const pairs = Object.entries(line.fields);
  const said = (found) => (found.text === undefined ? "masked" : text(found).replaceAll("\n", " "));
  const all = pairs.map(([name, found]) => `${name}=${said(found)}`).join("  ");
  const made = element("details");
  const summary = element("summary");
  summary.append(element("code", all.length > MAX_LINE ? `${all.slice(0, MAX_LINE)} …` : all || "(no fields)"));
  if (line.deleted) summary.append(" ", element("b", "deleted", "busy"));
  made.append(summary);
  made.addEventListener("toggle", () => {
    if (made.open && made.childElementCount === 1) made.append(fields(pairs));
  });
  return made;
}

function row(tr, line) {
  const record = line.coordinate;
  cell(tr, picking(record, picked, showPicked), "pick");
  cell(tr, copyable(line.coordinate, link(line.coordinate, withQuery(address("streams", stream, "messages"), messageOf(line.coordinate)))), "topic");
  cell(tr, time(line.timestamp), "time");
  cell(tr, short(line.key), line.key?.text?.length <= MAX_KEY ? "key-cell whole" : "key-cell");
  cell(tr, valueOf(line), "value-cell");
  const letter = cell(tr, "", "letters");
  if (page.kind === "dead-letters") {
    letter.replaceChildren(element("span", line.fields.reason ? text(line.fields.reason) : "", "reason"), " ", windowLink(stream, line.fields.window.text));
  }
}

function showPicked() {
  const place = document.getElementById("picked");
  place.hidden = picked.size === 0;
  if (place.hidden) return;
  const records = [...picked].join("\n");
  const said = isOne(picked.size) ? "Replay the picked message …" : `Replay the ${counted(picked.size, "picked message")} …`;
  const act = button(said, () => plan({ stream, kind: "replay", conf: { records }, text: "records" }), "primary");
  const clear = button("Clear selection", () => {
    picked.clear();
    show();
  });
  const erase = link(isOne(picked.size) ? "Erase it …" : "Erase them …", planner(stream, "erase", { records }));
  place.replaceChildren(act, erase, copyable(records, element("span", isOne(picked.size) ? "Copy its record" : "Copy as records")), clear);
}

function searchedText() {
  const { looked, erased, notRead, leftOut, searched, lines, more, ended, kind } = page;
  const of = `${counted(looked, WHAT[kind])} that ${isOne(looked) ? "was" : "were"} looked at`;
  const said = [page.values.filter ? `${grouped(lines.length)} of ${of} ${isOne(lines.length) ? "fits" : "fit"}` : counted(lines.length, WHAT[kind])];
  if (erased) said.push(`${counted(erased, "erased one")} ${isOne(erased) ? "is" : "are"} not shown`);
  if (notRead) said.push(`${grouped(notRead)} could not be read as JSON within limits, so nobody knows whether ${isOne(notRead) ? "it fits" : "they fit"}`);
  if (leftOut) said.push(`at least ${counted(leftOut, "more row")} of messages with very many ${isOne(leftOut) ? "is" : "are"} not shown`);
  const ranges = searched.length ? ` Looked through: ${searched.slice(0, 3).join(", ")}${searched.length > 3 ? ` and ${counted(searched.length - 3, "more range")}` : ""}.` : "";
  const end = more ? (ended === "count" ? "There may be more." : `Then ${ENDED[ended] ?? "it stopped"}: go on from there.`) : "That is all of it.";
  return `${said.join("; ")}.${ranges} ${end}`;
}

// All that is shown as a file: each question is asked again for whole payloads. Airflow's frame lets it be downloaded.
async function download(format) {
  const mine = page;
  try {
    let all = "";
    for (const question of mine.questions) {
      const text = await patiently(async () => {
        const answer = await fetch(urlOf(mine.values, { ...question, format }, "file"), { credentials: "same-origin" });
        if (!answer.ok) throw await refusal(answer);
        return answer.text();
      }, () => {}, 20);
      // One header is enough.
      all += format === "csv" && all ? text.slice(text.indexOf("\r\n") + 2) : text;
    }
    const made = link("", URL.createObjectURL(new Blob([all])));
    made.download = `${stream}-${mine.kind}.${format}`;
    made.click();
    setTimeout(() => URL.revokeObjectURL(made.href), 60000);
  } catch (error) {
    toast(`Not exported: ${error.message}`, "bad");
  }
}

function showMasking() {
  const place = document.getElementById("masking");
  if (!page.lines.length && !page.more) place.replaceChildren();
  else if (page.payload) place.replaceChildren(element("span", "Payloads are shown. Airflow's audit log knows that you have looked.", "quiet"));
  else if (page.may) place.replaceChildren(button("Show payloads", () => begin(true)), element("span", "Airflow's audit log will know.", "quiet"));
  else place.replaceChildren(element("span", `Payloads are masked: they are for those who may trigger ${stream}__replay.`, "quiet"));
}

function show() {
  document.getElementById("answer").hidden = false;
  document.getElementById("searched").textContent = searchedText();
  document.getElementById("found").classList.toggle("of-letters", page.kind === "dead-letters");
  document.getElementById("found").classList.toggle("of-rows", page.kind === "results");
  document.getElementById("of-value").textContent = page.kind === "results" ? "Fields" : "Value";
  showMasking();
  const records = page.lines.map((line) => line.coordinate);
  const all = button(isOne(records.length) ? "Pick it" : `Pick all ${grouped(records.length)} shown${page.more ? " so far" : ""}`, () => {
    for (const one of records) picked.add(one);
    show();
  });
  const exports = page.payload ? [button("Export as CSV", () => download("csv")), button("Export as JSON lines", () => download("jsonl"))] : [];
  document.getElementById("actions").replaceChildren(...(records.length ? [all, ...exports] : []));
  fill(document.getElementById("found"), page.lines, row, page.more ? "None so far" : page.values.filter ? "Nothing fits" : "Nothing is there");
  for (const one of document.querySelectorAll("#found input")) one.checked = picked.has(one.getAttribute("aria-label").slice(5));
  const paging = [];
  if (before.length) paging.push(button("Previous", () => turn(before.pop())));
  if (page.more && page.lines.length >= COUNT) paging.push(button(page.values.newest ? `Older ${COUNT}` : `Next ${COUNT}`, () => {
    before.push({ go_on: page.questions[0].go_on });
    turn({ go_on: page.more });
  }));
  else if (page.more) paging.push(button("Go on", () => goOn(), "primary"));
  document.getElementById("paging").replaceChildren(...paging);
  showPicked();
}

// Asks one question, and puts its answer into the page.
async function goOn() {
  const mine = ++asking;
  const problem = document.getElementById("problem");
  const question = { count: COUNT - page.lines.length, go_on: page.more };
  say(problem, "");
  document.getElementById("searched").textContent = "Looking …";
  document.getElementById("answer").hidden = false;
  try {
    const url = urlOf(page.values, { ...question, payload: page.payload || null });
    const found = await loadPatiently(url, (sentence) => mine === asking && say(problem, sentence));
    if (mine !== asking) return;
    say(problem, "");
    page.questions.push(question);
    page.lines.push(...found.lines);
    page.searched.push(...found.searched);
    Object.assign(page, { more: found.go_on, ended: found.ended, may: found.may_see_payload });
    page.looked += found.looked;
    page.erased += found.erased;
    page.notRead += found.not_read;
    page.leftOut += found.left_out;
    show();
  } catch (error) {
    if (mine !== asking) return;
    document.getElementById("searched").textContent = "";
    if (!page.questions.length) document.getElementById("answer").hidden = true;
    say(problem, error.message);
  }
}

// A page from somewhere on, of what was asked for.
function turn({ go_on: from }) {
  const { values, kind, payload, may } = page;
  page = { values, kind, payload, may, questions: [], lines: [], searched: [], looked: 0, erased: 0, notRead: 0, leftOut: 0, more: from || "", ended: null };
  remember({ ...values, newest: values.newest ? "true" : null, go_on: from || null });
  goOn();
}

function begin(payload, newest = page?.values.newest ?? false, from = "") {
  const values = { ...valuesNow(), newest: newest || null };
  before = [];
  page = { values, kind: values.kind, payload: payload || Boolean(values.filter), may: false };
  turn({ go_on: from });
}

// The stream's sinks, and for an empty form its topic; what somebody is typing meanwhile stays as it is.
async function suggest(empty) {
  const found = await load(withQuery(address("api", "streams", stream), { partitions: 1 }));
  for (const { name, type } of found.sinks) offer(name, type === name ? name : `${name}, of type ${type}`);
  const topics = [...new Set(found.partitions.map((one) => one.topic))];
  if (empty && topics.length && !form.elements.where.value && !form.contains(document.activeElement)) [form.elements.where.value] = topics;
}

navigation(stream, "Browse");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  begin(page?.payload ?? false, false);
});
document.getElementById("newest").addEventListener("click", () => begin(page?.payload ?? false, true));
const showSink = () => { document.getElementById("of-sink").hidden = form.elements.kind.value !== "results"; };
form.elements.kind.addEventListener("change", showSink);
// One that is asked for can be chosen at once, whether there is such a sink or not.
const sinks = form.elements.sink;
const offer = (name, said = name) => {
  if (![...sinks.options].some((one) => one.value === name)) sinks.append(Object.assign(element("option", said), { value: name }));
};
if (asked("sink")) offer(asked("sink"));
for (const name of NAMES) {
  if (!asked(name)) continue;
  if (name === "since" || name === "until") showTime(form.elements[name], asked(name));
  else form.elements[name].value = asked(name);
}
showSink();
const given = NAMES.some((name) => asked(name)) || asked("newest");
// An empty form is answered with what came last.
begin(false, given ? asked("newest") === "true" : true, asked("go_on") || "");
// Without the stream's sinks, the first one is offered.
suggest(!given).catch((error) => given || say(document.getElementById("problem"), error.message));
