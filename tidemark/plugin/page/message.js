// One message: where it went, and the message beside what is stored of it. Payloads are shown as text, and only when they
// are asked for: the server says who may, and notes who did.
import { address, asked, button, cell, coordinateOf, copyable, element, fill, grouped, link, load, loadPatiently, navigation, rangeText, remember, run, say, streamOfAddress, time, ungrouped, windowLink, withQuery } from "./shared.js";
import { newest } from "./newest.js";
import { plan } from "./plan.js";
import { fields, headers, parts } from "./payload.js";

const stream = streamOfAddress();
const form = document.getElementById("which");
const FATES = {
  stored: "good", erased: "good", skipped: "good", "no message": "good", "dead letter": "bad", missing: "bad", lost: "bad", expired: "bad",
  gone: "bad", hole: "bad", unproven: "bad",
};
// Of these, there is nothing to erase, or the ingest would read them again.
const NOT_ERASED = new Set(["erased", "no message", "pending", "not read yet", "not in the topic yet", "not of the stream"]);
// As the server writes times in sentences.
const TIME = /(\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ)/;
// Answers may come in another order than the questions.
let asking = 0;

// A sentence of the server as this page writes it: with a capital first, and times of the viewer's zone.
// `named` has what stands for a name in it, such as a link to a window.
function sentence(text, named = new Map()) {
  const made = document.createDocumentFragment();
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  begun.split(TIME).forEach((part, at) => made.append(...(at % 2 ? [time(Date.parse(part.replace(" ", "T")))] : replaced(part, named))));
  return made;
}

// Only whole names: ingest/1 is no part of ingest/17.
function replaced(text, named) {
  if (named.size === 0) return [text];
  const names = [...named.keys()].sort((one, other) => other.length - one.length).map((name) => name.replace(/\W/g, "\\$&"));
  const parts = text.split(new RegExp(`(?<![\\w/-])(${names.join("|")})(?![\\w/-])`));
  return parts.map((part, at) => (at % 2 ? named.get(part)() : part));
}

// The windows and runs of an answer, as links.
function links(windows) {
  const named = new Map();
  for (const one of windows) {
    named.set(one.window, () => windowLink(stream, one.window));
    if (one.run) named.set(one.run, () => run(one.run));
  }
  return named;
}

function told(text, kind = "quiet told") {
  const made = element("p", undefined, kind);
  made.append(sentence(text));
  return made;
}

function windowsOf(found) {
  const pending = found.pending.map((one) => ({ ...one, state: "pending", at: one.pinned_at, counts: "" }));
  const read = found.windows.map((one) => ({ ...one, state: "committed", at: one.committed_at, counts: one.counts ? "count" : one.counts_in.length ? `count in ${one.counts_in.join(", ")} alone` : "replaced by a newer one" }));
  const over = found.gaps.map((one) => ({ ...one, window: `${one.lane}/${one.seq}`, state: `passed over ${one.range}: ${one.kind}, ${one.policy}`, at: null, run: null, counts: "" }));
  return [...pending, ...read, ...over];
}

function windowRow(row, one) {
  cell(row, windowLink(stream, one.window), "lane");
  cell(row, one.state, one.counts === "count" ? "good" : "");
  cell(row, time(one.at), "time");
  cell(row, one.run === null ? null : run(one.run), "run");
  cell(row, one.counts, "");
}

function showRows(found) {
  const place = document.getElementById("rows");
  place.replaceChildren();
  const named = (one, more = "") => element("h4", `${one.place}${one.index ? `, row ${one.index}` : ""}${more}`);
  for (const row of found.rows) {
    place.append(named(row, row.tombstone ? ", a tombstone" : ""), fields(Object.entries(row.fields)));
  }
  for (const one of found.under_keys) {
    place.append(named(one, ", by key"), told(`${one.said}.`), fields(Object.entries({ ...one.key, ...one.fields })));
  }
  if (place.childElementCount === 0 && !found.not_asked.length) place.append(element("p", "No row of it counts.", "quiet"));
  for (const one of found.unsaid) place.append(named(one), told(`${one.why}.`));
  if (found.not_asked.length) {
    const asking = element("p", `Asking ${found.not_asked.join(", ")} …`, "quiet");
    asking.id = "asking-sinks";
    place.append(asking);
  }
}

// What the value says, as JSON or as the text that was compressed: known once the other servers were asked.
function showRecord(found) {
  const place = document.getElementById("record");
  place.replaceChildren();
  if (!found) return;
  place.append(element("h4", found.by ? `Read: ${found.by}` : "Read"));
  place.append(...(found.text ? parts([["record", found.text]]) : [told(found.problem, "bad told")]));
}

function showMessage(found) {
  const place = document.getElementById("message");
  const message = found.message;
  place.replaceChildren();
  if (message === null) {
    place.append(told(found.kafka.sentence, "quiet"));
    return;
  }
  const at = element("p", message.appended ? "Time, set by the broker: " : "Time, set by the producer: ", "told");
  at.append(time(message.timestamp));
  place.append(at, ...parts([["key", message.key], ["value", message.value]]));
  place.append(...headers(message));
}

function showActions(found) {
  const place = document.getElementById("actions");
  const { kind, fields, why_not: whyNot } = found.again;
  const erasing = NOT_ERASED.has(found.fate) ? [] : [link("Erase it …", withQuery(`${address("streams", stream)}/plan`, { kind: "erase", records: found.coordinate }))];
  if (kind === null) {
    place.replaceChildren(element("span", `It cannot be read again: ${whyNot}.`, "quiet"), ...erasing);
    return;
  }
  const [text] = Object.keys(fields);
  const say = kind === "replay" ? "Replay this message …" : "Read it with a backfill …";
  place.replaceChildren(button(say, () => plan({ stream, kind, conf: fields, text }), "primary"), ...erasing);
}

function showMasking(found) {
  const place = document.getElementById("masking");
  if (found.payload) {
    place.replaceChildren(element("span", "Payloads are shown. Airflow's audit log knows that you have looked.", "quiet"));
  } else if (found.may_see_payload) {
    place.replaceChildren(button("Show payloads", () => ask(true)), element("span", "Airflow's audit log will know.", "quiet"));
  } else {
    place.replaceChildren(element("span", `Payloads are masked: they are for those who may trigger ${stream}__replay.`, "quiet"));
  }
}

// The sentence begins with the fate, which stands before it in a frame of its own.
function withoutFate(sentence, fate) {
  const rest = sentence.replace(/^a /, "");
  return rest.startsWith(fate) ? rest.slice(fate.length).replace(/^[:,] /, "") : sentence;
}

function show(found) {
  document.getElementById("title").replaceChildren(copyable(found.coordinate, element("span", found.coordinate)));
  const fate = document.getElementById("fate");
  fate.textContent = found.fate;
  fate.className = `badge ${FATES[found.fate] || "busy"}`;
  document.getElementById("sentence").replaceChildren(sentence(withoutFate(found.sentence, found.fate), links(windowsOf(found))));
  const { log_start: start, end, sentence: said } = found.kafka;
  const log = start === null ? [] : start === end ? [`. Its log is empty, and its next offset is ${grouped(end)}.`] : [". Its log has ", copyable(rangeText(found.coordinate.slice(0, found.coordinate.lastIndexOf("@")), start, end)), "."];
  document.getElementById("kafka").replaceChildren(sentence(said), ...log);
  showActions(found);
  showMasking(found);
  showMessage(found);
  showRecord(found.record);
  showRows(found);
  fill(document.getElementById("windows"), windowsOf(found), windowRow, "No window");
  const exact = /^\d+$/.test(found.offset);
  document.getElementById("before").disabled = !exact || BigInt(found.offset) === 0n;
  document.getElementById("after").disabled = !exact;
  form.elements.offset.value = found.offset;
  document.getElementById("answer").hidden = false;
  document.getElementById("newest").hidden = true;
}

// The rest of the answer, from servers that may be slow or away: rows in files and topics, and schemas.
async function askWhole(url, mine, reads) {
  try {
    const found = await loadPatiently(withQuery(url, { whole: "true" }), () => {});
    if (mine === asking) show(found);
  } catch (error) {
    if (mine !== asking) return;
    const sinks = document.getElementById("asking-sinks");
    if (sinks) sinks.replaceChildren(element("span", error.message, "bad"));
    if (reads) document.getElementById("record").replaceChildren(element("h4", "Read"), told(`Not read: ${error.message}`, "bad told"));
  }
}

async function ask(payload) {
  const mine = ++asking;
  const problem = document.getElementById("problem");
  const [topic, partition, offset] = ["topic", "partition", "offset"].map((name) => ungrouped(form.elements[name].value));
  say(problem, "");
  try {
    const url = withQuery(address("api", "streams", stream, "messages", topic, partition, offset), { payload: payload ? "true" : "" });
    const found = await loadPatiently(url, (sentence) => mine === asking && say(problem, sentence));
    say(problem, "");
    if (mine !== asking) return;
    show(found);
    remember({ topic, partition, offset: found.offset });
    const reads = payload && found.has_record && found.message !== null;
    if (found.not_asked.length || reads) askWhole(url, mine, reads);
  } catch (error) {
    if (mine !== asking) return;
    document.getElementById("answer").hidden = true;
    say(problem, error.message);
  }
}

// Offsets may be beyond 2^53, so they are counted as such.
function step(by) {
  const offset = ungrouped(form.elements.offset.value);
  if (!/^\d+$/.test(offset)) return;
  form.elements.offset.value = String(BigInt(offset) + by);
  ask(false);
}

// A suggestion for an empty form. What somebody is typing meanwhile stays as it is.
async function suggest() {
  let begun = false;
  form.addEventListener("focusin", () => { begun = true; }, { once: true });
  const { partitions } = await load(withQuery(address("api", "streams", stream), { partitions: 1 }));
  if (!begun && !form.contains(document.activeElement) && partitions.length) {
    form.elements.topic.value = partitions[0].topic;
    form.elements.partition.value = String(partitions[0].partition);
  }
}

navigation(stream, "Message");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask(false);
});
// What each field takes, as a page shows it: a whole coordinate is divided, and digits may be in groups.
const FORMS = {
  topic: [/^[A-Za-z0-9._-]{1,249}(#\d{1,9})?$/, "Write the name of a topic, or a whole coordinate: topic/partition@offset."],
  partition: [/^\d{1,10}$/, "Write the number of a partition, or a whole coordinate: topic/partition@offset."],
  offset: [/^[^/@]+$/, "Write an offset such as 31337, a time with its zone such as 2026-11-21T07:00:00Z, or a whole coordinate: topic/partition@offset."],
};

function check(field) {
  const [wanted, said] = FORMS[field.name];
  field.setCustomValidity(!field.value || wanted.test(field.value.trim()) ? "" : said);
}

for (const name of Object.keys(FORMS)) {
  form.elements[name].addEventListener("input", () => {
    const field = form.elements[name];
    const named = coordinateOf(field.value);
    for (const [other, value] of Object.entries(named || {})) form.elements[other].value = value;
    const plain = ungrouped(field.value);
    if (/^\d+$/.test(plain) && plain !== field.value) field.value = plain;
    for (const other of Object.keys(FORMS)) check(form.elements[other]);
  });
}
document.getElementById("before").addEventListener("click", () => step(-1n));
document.getElementById("after").addEventListener("click", () => step(1n));
for (const name of ["topic", "partition", "offset"]) if (asked(name)) form.elements[name].value = asked(name);
if (asked("topic") && asked("partition") && asked("offset")) ask(false);
else {
  suggest().catch((error) => say(document.getElementById("problem"), error.message));
  newest(document.getElementById("newest"), stream).catch(() => {});
}
