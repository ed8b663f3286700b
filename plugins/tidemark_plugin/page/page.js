"use strict";
// Everything from the server is put in as text, never as HTML: other people write topics, runs and reasons.

const REFRESH_MS = 5000;
const STATUS = { OK: "good", WARNING: "busy", STALLED: "bad", REWOUND: "bad", STOPPED: "bad" };
const sections = new Map();

async function load(path) {
  const answer = await fetch(path, { credentials: "same-origin", headers: { Accept: "application/json" } });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.detail || `${answer.status} ${answer.statusText}`);
  return body;
}

function cell(row, text, kind) {
  const td = row.insertCell();
  td.textContent = text === null || text === undefined ? "–" : text;
  if (kind) td.className = kind;
  return td;
}

function grouped(number) {
  return number === null || number === undefined ? null : String(number).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

function fill(table, rows, columns, empty) {
  const body = table.tBodies[0];
  body.replaceChildren();
  for (const row of rows) columns(body.insertRow(), row);
  if (rows.length === 0) {
    const row = body.insertRow();
    row.className = "none";
    cell(row, empty).colSpan = table.tHead.rows[0].cells.length;
  }
}

function partitionRow(row, one) {
  cell(row, one.topic, "topic");
  cell(row, one.partition, "number");
  cell(row, grouped(one.log_start), "number");
  cell(row, grouped(one.position), "number");
  cell(row, grouped(one.end), "number");
  cell(row, grouped(one.lag), one.lag === "0" ? "number good" : "number busy");
  cell(row, one.status, STATUS[one.status]).title = one.status_sentence || "";
  cell(row, one.retention_shown, { warning: "busy", lost: "bad" }[one.retention]);
}

function windowRow(row, one) {
  cell(row, one.lane, "lane");
  cell(row, one.seq, "number");
  cell(row, one.state, one.state === "committed" ? "good" : "busy");
  cell(row, new Date(one.at).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC"), "time");
  const ranges = one.ranges.map((range) => `${range.partition} [${range.from}, ${range.until})`);
  if (one.selected !== null) ranges.push(`${grouped(one.selected)} offsets of these`);
  cell(row, ranges.join("\n"), "ranges");
  cell(row, grouped(one.read), "number");
  cell(row, grouped(one.stored), "number");
  cell(row, grouped(one.skipped), "number");
  cell(row, grouped(one.dead_letters), "number");
  const over = Object.entries(one.passed_over || {}).filter(([, offsets]) => offsets > 0);
  cell(row, over.map(([why, offsets]) => `${grouped(offsets)} ${why}`).join(", ") || null, over.length ? "busy" : "");
  const [dag, ...rest] = one.run.split("/");
  // Airflow shows this page in a frame that may not navigate the window, so a link would do nothing.
  if (rest.length === 0 || window.top !== window) {
    cell(row, rest.length === 0 ? one.run : rest.join("/"), "run");
    return;
  }
  const run = cell(row, "", "run");
  const link = document.createElement("a");
  link.href = `../dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(rest.join("/"))}`;
  link.textContent = rest.join("/");
  run.append(link);
}

function section(name) {
  if (!sections.has(name)) {
    const made = document.getElementById("stream").content.cloneNode(true).firstElementChild;
    made.dataset.stream = name;
    made.querySelector("h2").textContent = name;
    document.getElementById("streams").append(made);
    sections.set(name, made);
  }
  return sections.get(name);
}

function complain(place, text) {
  place.hidden = !text;
  place.textContent = text;
}

function showStatus(place, worst) {
  place.hidden = !worst;
  if (!worst) return;
  place.className = `status ${STATUS[worst.word]}`;
  place.textContent = `${worst.word} (${worst.rule}): ${worst.sentence}`;
}

async function show(name) {
  const place = section(name);
  const problem = place.querySelector(".problem");
  try {
    const stream = await load(`streams/${encodeURIComponent(name)}`);
    const missing = stream.missing_topics.map((topic) => `Topic ${topic} does not exist.`);
    const late = stream.latency.sentence ? [`Latency: ${stream.latency.sentence}.`] : [];
    complain(problem, [...missing, ...late, ...stream.retention_alarms].join("\n"));
    showStatus(place.querySelector(".status"), stream.status);
    place.querySelector(".description").textContent = stream.description;
    fill(place.querySelector(".partitions"), stream.partitions, partitionRow, "No topic yet");
    fill(place.querySelector(".windows"), stream.windows, windowRow, "No window yet");
  } catch (error) {
    complain(problem, error.message);
  }
}

async function refresh() {
  const status = document.getElementById("refreshed");
  try {
    const { streams, problems } = await load("streams");
    await Promise.all(streams.map(show));
    const said = streams.length === 0 ? ["No stream that you may see."] : [];
    status.textContent = [...said, ...problems, `Refreshed ${new Date().toLocaleTimeString()}`].join(" · ");
  } catch (error) {
    status.textContent = error.message;
  }
  setTimeout(refresh, REFRESH_MS);
}

refresh();
