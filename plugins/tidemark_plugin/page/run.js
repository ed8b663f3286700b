// The windows that a run has committed, and the answers to its offsets, as its tasks have given them. They are asked of
// Airflow's own API, as the person who looks: Airflow decides who sees them. Everything is put in as text, never as HTML.

import { address, airflow, asked, cell, grouped, link } from "./shared.js";

const RESULTS = [
  { task: "check", key: "found", title: "Before the run" },
  { task: "publish", key: "return_value", title: "After the run" },
];

async function result(task, key) {
  const [dag, run] = ["dag_id", "run_id"].map((name) => encodeURIComponent(asked(name) || ""));
  try {
    return (await airflow(`dags/${dag}/dagRuns/${run}/taskInstances/${task}/xcomEntries/${key}`)).value;
  } catch (refusal) {
    if (refusal.status === 404) return null;
    throw refusal;
  }
}

function estimate(found) {
  if (!found) return "No window has been read yet, so there is no estimate.";
  const minutes = (found.seconds / 60).toFixed(1);
  return `About ${grouped(found.records)} records, ${grouped(found.bytes)} bytes and ${minutes} minutes, with the start of Spark besides.`;
}

function section(title, found) {
  const made = document.getElementById("answers").content.cloneNode(true).firstElementChild;
  made.querySelector("h2").textContent = title;
  made.querySelector(".description").textContent = "estimate" in found ? estimate(found.estimate) : "";
  const table = made.querySelector("table");
  let shown = 0;
  for (const one of found.answers) {
    const row = table.tBodies[0].insertRow();
    cell(row, one.partition, "topic");
    cell(row, grouped(one.from), "number");
    cell(row, grouped(one.until), "number");
    cell(row, grouped(one.offsets), "number");
    cell(row, one.answer, "");
    shown += one.offsets;
  }
  let all = 0;
  for (const [answer, offsets] of Object.entries(found.totals)) {
    const row = table.tFoot.insertRow();
    cell(row, "total", "topic");
    cell(row, "", "");
    cell(row, "", "");
    cell(row, grouped(offsets), "number");
    cell(row, answer, "");
    all += offsets;
  }
  if (shown < all) made.querySelector(".description").textContent += " The first lines; the totals are of all.";
  document.body.append(made);
}

function windows({ lane, windows: committed }) {
  const dag = asked("dag_id") || "";
  const stream = dag.slice(0, dag.lastIndexOf("__"));
  const made = document.getElementById("windows").content.cloneNode(true).firstElementChild;
  for (const one of committed) {
    const row = made.querySelector("tbody").insertRow();
    cell(row, link(`${lane}/${one.seq}`, address("streams", stream, "windows", lane, String(one.seq))), "lane");
    for (const name of ["read", "stored", "skipped", "dead_letters"]) cell(row, grouped(one[name]), "number");
  }
  document.body.append(made);
}

async function show() {
  const problem = document.getElementById("problem");
  try {
    const results = await Promise.all(RESULTS.map(({ task, key }) => result(task, key)));
    const [, published] = results;
    if (published && published.windows && published.windows.length) windows(published);
    results.forEach((found, at) => found && found.answers && section(RESULTS[at].title, found));
    if (!document.querySelector("section")) problem.textContent = "No task of this run has committed a window or answered for offsets.";
  } catch (reason) {
    problem.textContent = reason.message;
  }
}

show();
