// One window: what it covers, what became of its messages, what it passed over, its attempt and its times.
import {
  ROOT, address, airflowLink, asked, button, cell, copyable, counted, element, fill, grouped, isOne, keepingFocus, link, loadPatiently, messageOf,
  navigation, rangeText, refill, remember, repeat, rest, run, say, span, time, windowLink, withQuery,
} from "./shared.js";

const REFRESH_MS = 5000;
// Of a table of more, those with dead letters first.
const MAX_PARTITIONS = 100;
const [, stream, , lane, seq] = rest();
const COUNTS = ["read", "stored", "skipped", "invalid", "failed", "no_message", "rows", "bytes"];
const BAD = new Set(["invalid", "failed"]);
let all = asked("partitions") === "all";

function partitionRow(row, one) {
  cell(row, copyable(rangeText(one.partition, one.from, one.until), element("span", one.partition)), "topic");
  cell(row, link(grouped(one.from), message(one)), "number");
  cell(row, grouped(one.until), "number");
  cell(row, grouped(one.offsets), "number");
  for (const name of COUNTS) {
    const number = one.tally === null ? null : one.tally[name];
    cell(row, grouped(number), BAD.has(name) && number !== "0" && number !== null ? "number bad" : "number");
  }
}

// Those that are shown, and whether the others are.
function showPartitions(found) {
  const isBad = (one) => one.tally !== null && [...BAD].some((name) => one.tally[name] !== "0");
  const few = [...found.partitions.filter(isBad), ...found.partitions.filter((one) => !isBad(one))].slice(0, MAX_PARTITIONS);
  const isLong = found.partitions.length > MAX_PARTITIONS;
  fill(document.getElementById("partitions"), isLong && !all ? few : found.partitions, partitionRow, "Nothing to read");
  const turn = () => {
    all = !all;
    remember({ partitions: all ? "all" : null });
    showPartitions(found);
  };
  const said = all ? [] : [element("span", `${grouped(few.length)} of ${counted(found.partitions.length, "partition")}, those with dead letters first.`, "quiet")];
  const place = document.getElementById("more-partitions");
  keepingFocus(() => place, () => place.replaceChildren(...(isLong ? [...said, button(all ? `Only ${MAX_PARTITIONS}` : "Show all", turn)] : [])));
}

// The first message, in the incarnation that the window has read.
function message(one) {
  return withQuery(address("streams", stream, "messages"), messageOf(`${one.partition}@${one.from}`));
}

function total(partitions, of) {
  return grouped(String(partitions.reduce((sum, one) => sum + BigInt(of(one)), 0n)));
}

function totals(found) {
  const foot = document.getElementById("partitions").tFoot;
  if (found.partitions.length < 2) return;
  refill(foot.rows[0] || foot.insertRow(), (row) => {
    cell(row, "total", "topic");
    cell(row, "");
    cell(row, "");
    cell(row, total(found.partitions, (one) => one.offsets), "number");
    for (const name of COUNTS) {
      const known = found.partitions.every((one) => one.tally !== null);
      cell(row, known ? total(found.partitions, (one) => one.tally[name]) : null, "number");
    }
  });
}

function gapRow(row, one) {
  cell(row, copyable(rangeText(one.partition, one.from, one.until), element("span", one.partition)), "topic");
  cell(row, grouped(one.from), "number");
  cell(row, grouped(one.until), "number");
  cell(row, grouped(one.offsets), "number");
  cell(row, one.kind, "bad");
  cell(row, one.policy, "reason");
  cell(row, one.sentence);
}

function timesOf(found) {
  const longest = Math.max(1, ...found.times.map((one) => one.took_ms || 0));
  return (row, one) => {
    cell(row, one.step);
    cell(row, one.at === null ? "not yet" : time(one.at), "time");
    cell(row, one.took_ms === null ? "" : one.took_ms < 1000 ? `${one.took_ms} ms` : span(one.took_ms), "number");
    const bar = element("span", undefined, "took");
    bar.style.width = `${(100 * (one.took_ms || 0)) / longest}%`;
    cell(row, one.took_ms ? bar : "", "took-bar");
  };
}

function sinkRow(row, one) {
  cell(row, one.name);
  cell(row, one.type);
  cell(row, Object.entries(one.place).map(([name, value]) => `${name} ${value}`).join(", "), "reason");
}

// The text of the file, which opens; of one that has changed, the ledger keeps the digest alone.
function streamFile({ stream_digest: digest, same_file: same, file_text: text }) {
  const name = digest.slice(0, 12);
  if (!same || text === null) {
    const said = same ? "as it is now" : "it has changed since: in your version control, the file whose SHA-256 begins so";
    return copyable(digest, element("span", `${name} (${said})`));
  }
  const made = element("details");
  made.append(element("summary", `${name} (as it is now)`), element("pre", text));
  return made;
}

function facts(place, found) {
  const fact = (name, content) => {
    if (content === null || content === undefined || content === "") return;
    const dd = element("dd");
    dd.append(content);
    place.append(element("dt", name), dd);
  };
  const by = found.attempt ? found.attempt.run : found.run;
  fact("Run", run(by));
  const [dag, ...id] = by.split("/");
  // There, each lane of a run has a mapped task.
  const mapped = /__(backfill|replay)$/.test(dag) ? "/mapped" : "";
  if (id.length && dag !== "cli") fact("Log", airflowLink("the step that reads and stores", `dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(id.join("/"))}/tasks/process${mapped}`));
  fact("Reason", found.reason);
  fact("Asked by", found.asked_by);
  fact("Approved by", found.approved_by);
  fact("Into", found.only_sinks === null ? null : `${found.only_sinks.join(", ")} alone; other sinks and the dead letters stay as they are`);
  fact("Selected", found.selected === null ? null : `${counted(found.selected, "offset")} of the lane's selection`);
  fact("Guarantee", found.guarantee.replaceAll("_", " "));
  fact("Isolation", found.isolation.replaceAll("_", " "));
  if (found.takes === null) fact("Attempt", "the one that committed; earlier attempts are not kept");
  else if (found.takes > 1) fact("Attempt", `number ${found.takes}; earlier attempts are not kept`);
  if (found.attempt) {
    fact("Generation", String(found.attempt.generation));
    const [version, ...own] = found.attempt.code_version.split("+");
    fact("Code", `Tidemark ${version}; ${own.length ? `your own: ${own.join("+")}` : "your own has no version: TIDEMARK_CODE_VERSION names one"}`);
    fact("Stream file", streamFile(found.attempt));
  }
  if (found.messages && found.messages.dead_letters) {
    const url = withQuery(address("streams", stream, "dead-letters"), { window: found.window });
    fact("Dead letters", link(`${grouped(found.messages.dead_letters)} ${isOne(found.messages.dead_letters) ? "was" : "were"} written`, url));
  }
  fact("Keys", found.unknown_fields);
}

// The planner shows what a replay would read and replace. It starts nothing by itself.
function actions(found) {
  const url = withQuery(`${address("streams", stream)}/plan`, { kind: "replay", window: found.window });
  document.getElementById("actions").replaceChildren(...(found.committed_at === null ? [] : [link("Replay this window", url)]));
}

// The page of what a run has done: of Airflow's, or of a lane, if the run is of the command line.
function whatItDid(one) {
  const [dag, ...id] = one.run.split("/");
  const ours = dag.startsWith(`${stream}__`) && id.length;
  return withQuery(new URL("run", ROOT), ours ? { dag_id: dag, run_id: id.join("/") } : { stream, run: one.window.slice(0, one.window.lastIndexOf("/")) });
}

function newerRow(row, one) {
  cell(row, windowLink(stream, one.window), "lane");
  cell(row, one.kind === "erase" ? "erased" : "replaced");
  cell(row, grouped(one.offsets), "number");
  cell(row, time(one.committed_at), "time");
  cell(row, run(one.run), "run");
  cell(row, link("what it changed", whatItDid(one)));
}

// What became of its results: a link for whoever asks which run has replaced them.
async function showNewer() {
  const found = await loadPatiently(address("api", "streams", stream, "windows", lane, seq, "newer"), () => {}, 2);
  // Committed, and of no effect any more.
  if (String(found.count) === "0" && found.newer.length) {
    const state = document.getElementById("state");
    [state.textContent, state.className] = [found.newer.every((one) => one.kind === "erase") ? "erased" : "replaced", "badge busy"];
  }
  const place = document.getElementById("since");
  const said = found.newer.length ? `At ${grouped(found.count)} of its ${counted(found.offsets, "offset")} its results still count.` : "All its results still count.";
  place.querySelector("p").textContent = said + (found.more ? ` The newest ${found.newer.length} of ${counted(found.newer.length + found.more, "window")}.` : "");
  place.querySelector(".box").hidden = !found.newer.length;
  fill(document.getElementById("newer"), found.newer, newerRow, "None");
  place.hidden = false;
}

async function refresh() {
  try {
    const found = await loadPatiently(address("api", "streams", stream, "windows", lane, seq), () => {}, 2);
    const state = document.getElementById("state");
    state.textContent = found.state;
    state.className = `badge ${found.state === "committed" ? "good" : ""}`;
    document.getElementById("sentence").textContent = sentence(found);
    refill(document.getElementById("facts"), (place) => facts(place, found));
    actions(found);
    showPartitions(found);
    totals(found);
    fill(document.getElementById("gaps"), found.gaps, gapRow, "None");
    fill(document.getElementById("times"), found.times, timesOf(found), "");
    fill(document.getElementById("sinks"), found.sinks, sinkRow, "Nothing yet");
    document.getElementById("answer").hidden = false;
    say(document.getElementById("problem"), "");
    if (found.committed_at !== null) await showNewer();
    // A committed window does not change any more.
    return found.state !== "committed";
  } catch (error) {
    say(document.getElementById("problem"), error.message);
    return true;
  }
}

function sentence(found) {
  const offsets = `${counted(found.offsets, "offset")} in ${counted(found.partitions.length, "partition")}`;
  if (!found.messages) return offsets;
  const { read, stored, skipped, dead_letters: dead } = found.messages;
  return `${offsets}: ${counted(read, "message")} read, ${grouped(stored)} stored, ${grouped(skipped)} skipped, ${counted(dead, "dead letter")}`;
}

navigation(stream, "Window");
document.getElementById("title").textContent = `Window ${lane}/${seq}`;
if (/^[1-9]\d*$/.test(seq)) repeat(refresh, REFRESH_MS);
else say(document.getElementById("problem"), `There is no window ${lane}/${seq}: a window has a number, as in ${lane}/17. The page Overview lists the windows of each lane.`);
