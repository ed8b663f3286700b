// What a run has done with its offsets, as its tasks have given it: the windows that it has committed, the answers to its
// offsets, and what a replay changes. They are asked of Airflow's own API, as the person who looks: Airflow decides who sees
// them. Everything is put in as text, never as HTML.

import {
  address, airflow, asked, cell, coordinateOf, copyable, counted, element, estimated, grouped, link, load, messageOf, navigation, rangeText, windowLink, withQuery,
} from "./shared.js";
import { cut } from "./payload.js";
import { placesTable } from "./places.js";
import { KINDS, follow, given, kindOf } from "./progress.js";

// What is shown first: how it ended.
const RESULTS = [
  { task: "publish", key: "return_value", title: "After the run" },
  { task: "show_changes", key: "changes", title: "What the replay changes" },
  { task: "check", key: "found", title: "Before the run" },
];
const CHANGES = ["changed", "new", "gone"];

const runNow = () => {
  const [dag, run] = ["dag_id", "run_id"].map((name) => encodeURIComponent(asked(name) || ""));
  return `dags/${dag}/dagRuns/${run}`;
};

function section(title, found) {
  const made = document.getElementById("answers").content.cloneNode(true).firstElementChild;
  made.querySelector("h2").textContent = title;
  made.querySelector(".description").textContent = "estimate" in found ? estimated(found.estimate) : "";
  const table = made.querySelector("table");
  // They may be beyond 2^53.
  let shown = 0n;
  for (const one of found.answers) {
    const row = table.tBodies[0].insertRow();
    cell(row, copyable(rangeText(one.partition, one.from, one.until), element("span", one.partition)), "topic");
    cell(row, link(grouped(one.from), withQuery(address("streams", stream, "messages"), messageOf(`${one.partition}@${one.from}`))), "number");
    cell(row, grouped(one.until), "number");
    cell(row, grouped(one.offsets), "number");
    cell(row, one.answer, "");
    shown += BigInt(one.offsets);
  }
  let all = 0n;
  for (const [answer, offsets] of Object.entries(found.totals)) {
    const row = table.tFoot.insertRow();
    cell(row, "total", "topic");
    cell(row, "", "");
    cell(row, "", "");
    cell(row, grouped(offsets), "number");
    cell(row, answer, "");
    all += BigInt(offsets);
  }
  if (shown < all) made.querySelector(".description").textContent += " The first lines; the totals are of all.";
  document.getElementById("results").append(made);
}

function numbers(counts) {
  return Object.entries(counts).map(([name, number]) => `${name} ${grouped(number)}`);
}

// Counts of every sink that was compared, and the first rows of each kind. There are no values among them.
function changes(title, found) {
  const made = document.getElementById("changes").content.cloneNode(true).firstElementChild;
  made.querySelector("h2").textContent = title;
  const said = [`${counted(found.messages, "message")} compared, before anything is committed.`];
  if (found.not_compared.length) said.push(`Not compared: ${found.not_compared.join(", ")}.`);
  for (const one of found.reasons) {
    said.push(`Dead letters with the reason “${cut(one.reason)}”: ${grouped(one.number)}, such as ${one.first}.`);
  }
  made.querySelector(".description").textContent = said.join(" ");
  const [counts, examples] = made.querySelectorAll("table");
  for (const place of found.places) {
    const row = counts.tBodies[0].insertRow();
    cell(row, place.name, "topic");
    for (const kind of ["same", ...CHANGES]) cell(row, grouped(place[kind]), "number");
    cell(row, [place.columns, place.new_because, place.gone_because].flatMap(numbers).join(", "), "run");
    for (const kind of CHANGES) {
      const named = place[`${kind}_at`];
      for (const one of named) {
        const line = examples.tBodies[0].insertRow();
        cell(line, place.name, "topic");
        cell(line, kind, "");
        cell(line, copyable(one.at, link(one.at, withQuery(address("streams", stream, "messages"), coordinateOf(one.at)))), "topic");
        cell(line, grouped(one.index), "number");
        cell(line, one.columns.join(", ") || one.why, "run");
      }
      if (named.length < place[kind]) {
        const line = examples.tBodies[0].insertRow();
        cell(line, place.name, "topic");
        cell(line, kind, "");
        cell(line, `and ${grouped(place[kind] - named.length)} more`, "topic");
        cell(line, "", "");
        cell(line, "", "");
      }
    }
  }
  if (!examples.tBodies[0].rows.length) {
    made.querySelector("h3").remove();
    examples.parentElement.remove();
  }
  document.getElementById("results").append(made);
}

function remains(title, places) {
  const made = element("section");
  made.append(element("h2", title), placesTable(places));
  document.getElementById("results").append(made);
}

function windows({ lane, windows: committed }) {
  const made = document.getElementById("windows").content.cloneNode(true).firstElementChild;
  for (const one of committed) {
    const row = made.querySelector("tbody").insertRow();
    cell(row, windowLink(stream, `${lane}/${one.seq}`), "lane");
    for (const name of ["read", "stored", "skipped"]) cell(row, grouped(one[name]), "number");
    const dead = withQuery(address("streams", stream, "dead-letters"), { window: `${lane}/${one.seq}` });
    cell(row, one.dead_letters ? link(grouped(one.dead_letters), dead) : grouped(one.dead_letters), "number");
  }
  document.getElementById("results").append(made);
}

// Puts what the tasks have given until now in the place of what was there.
async function show() {
  const problem = document.getElementById("problem");
  try {
    const results = await Promise.all(RESULTS.map(({ task, key }) => given(runNow(), task, key)));
    const [published, compared, before] = results;
    document.getElementById("results").replaceChildren();
    // Those of a run with lanes of its own stand beside its lanes.
    const lanes = published && (dag.endsWith("__ingest") || document.getElementById("progress").hidden) ? [published, ...(published.then || [])] : [];
    for (const lane of lanes) if (lane.windows.length) windows(lane);
    // Before the answers, which may be a hundred lines.
    if (published?.remains) remains("What remains", published.remains);
    else if (before?.remains) remains("Where the results are, and what would remain", before.remains);
    results.forEach((found, at) => {
      if (found && found.places) changes(RESULTS[at].title, found);
      else if (found && found.answers) section(RESULTS[at].title, found);
    });
    if (published && !compared && kindOf(dag) === "replay") {
      document.getElementById("results").prepend(element("p", "This run has not compared its rows with the ones before: only the counts of its windows are known. A replay that is planned with Compare shows what it changes, row by row.", "quiet"));
    }
    const some = document.querySelector("#results section") || !document.getElementById("progress").hidden;
    problem.textContent = some ? "" : "No task of this run has committed a window or answered for offsets.";
  } catch (reason) {
    problem.textContent = reason.message;
  }
}

// What a replay of the command line was going to change: its comparison is in the ledger.
async function compared({ run }) {
  if (!run) return;
  const { comparison } = await load(withQuery(address("api", "streams", stream, "comparison"), { run }));
  document.getElementById("results").replaceChildren();
  if (comparison) changes("What the replay changes", comparison);
}

const dag = asked("dag_id") || "";
const stream = asked("stream") || dag.slice(0, dag.lastIndexOf("__"));
if (stream && kindOf(dag) in KINDS) {
  navigation(stream, "");
  follow({ stream, dag, run: asked("run_id") || "", show });
} else if (asked("stream")) {
  // A lane, or a run of the command line.
  navigation(stream, "");
  follow({ stream, named: asked("run") || "", show: compared });
} else {
  navigation(null);
  show();
}
