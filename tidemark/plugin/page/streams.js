// All streams that the viewer may see, one line each. Each line asks by itself, so a server that is away costs its own
// lines only. Only the lines of this page of the table are asked, unless the order needs those of all.
import {
  ROOT, STATUS, address, airflow, airflowLink, arrange, asked, button, cell, coordinateOf, element, grouped, keepingFocus, link, load,
  loadPatiently, navigation, refill, refreshed, remember, repeat, say, span, time, withQuery,
} from "./shared.js";

const PAGE = 25;
const LINES_MS = 15000;
const RUNS_MS = 30000;
// Of those questions that a browser asks at once.
const AT_ONCE = 6;
const SEVERITY = { STOPPED: 5, REWOUND: 4, STALLED: 3, WARNING: 2, OK: 1 };
const RETENTION = { lost: "bad", warning: "busy" };
const RUN = { success: "good", failed: "bad", running: "busy", queued: "busy" };

let names = [];
// What is known of each stream: { line, problem, at, run, runAt, row }.
const known = new Map();
const view = { filter: asked("filter") || "", sort: asked("sort") || "name", down: asked("order") === "down", page: Number(asked("page")) || 1 };
const waiting = [];
let working = 0;

function of(name) {
  if (!known.has(name)) known.set(name, { at: 0, runAt: 0 });
  return known.get(name);
}

// Questions in their order, a few at a time.
function ask(name, when, call) {
  const one = of(name);
  if (one[`${when}Waiting`]) return;
  one[`${when}Waiting`] = true;
  waiting.push(async () => {
    await call(name, one);
    one[when] = Date.now();
    one[`${when}Waiting`] = false;
    if (one.row) paint(one.row, name);
  });
  work();
}

async function work() {
  if (working >= AT_ONCE || waiting.length === 0) return;
  working += 1;
  await waiting.shift()();
  working -= 1;
  if (waiting.length === 0 && view.sort !== "name") draw();
  work();
}

async function askLine(name, one) {
  try {
    // A stream that is only slow is no problem yet.
    one.line = await loadPatiently(address("api", "streams", name, "line"), () => {}, 2);
    one.problem = null;
  } catch (error) {
    one.problem = error.message;
  }
}

async function askRun(name, one) {
  try {
    const dag = encodeURIComponent(`${name}__ingest`);
    [one.run] = (await airflow(`dags/${dag}/dagRuns?limit=1&order_by=-run_after`)).dag_runs;
  } catch {
    one.run = null;
  }
}

const words = (name) => {
  const { line, problem } = of(name);
  return [name, line?.description, line?.status?.word, line?.status?.rule, problem].filter(Boolean).join(" ").toLowerCase();
};

const KEYS = {
  name: (name) => name,
  status: (name) => -(of(name).problem ? 6 : SEVERITY[of(name).line?.status?.word] || 0),
  lag: (name) => -Number(of(name).line?.lag ?? -1),
  retention: (name) => (of(name).line?.retention === "lost" ? -1 : of(name).line?.retention_ms ?? Infinity),
  dead: (name) => -(of(name).line?.dead_letters ?? -1),
  audit: (name) => ({ false: 0, true: 2 })[of(name).line?.audit?.clean] ?? 1,
};

function chosen() {
  const key = KEYS[view.sort] || KEYS.name;
  const found = names.filter((name) => words(name).includes(view.filter.trim().toLowerCase()));
  const compared = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
  found.sort((one, other) => compared(key(one), key(other)) || compared(one, other));
  return view.down ? found.reverse() : found;
}

function two(first, second) {
  const made = document.createDocumentFragment();
  const made1 = element("div");
  made1.append(first);
  const made2 = element("div", undefined, "quiet small");
  if (second instanceof Node) made2.append(second);
  else made2.textContent = second;
  made.append(made1);
  if (second) made.append(made2);
  return made;
}

function statusOf(line) {
  if (line.missing_topics.length) return two(element("b", "NO TOPIC", "busy"), `Topic ${line.missing_topics.join(", ")} does not exist`);
  if (!line.status) return two(element("b", "NEW", "quiet"), "no window yet");
  const word = element("span");
  word.append(element("b", line.status.word, STATUS[line.status.word]));
  if (line.holes?.length) {
    const holes = link("HOLES", address("streams", line.stream));
    holes.className = "bad";
    holes.title = `No window has read ${line.holes.join(", ")}${line.more_holes ? ` and ${grouped(line.more_holes)} more ranges` : ""}.`;
    word.append(" ", holes);
  }
  const made = two(word, line.status.rule);
  made.lastElementChild.title = line.status.sentence;
  return made;
}

function lagOf(line) {
  if (line.lag === null) return null;
  const made = element("span", grouped(line.lag), line.lag === "0" ? "good" : "busy");
  return two(made, line.lag !== "0" && line.unread_since ? `for ${span(Date.now() - line.unread_since)}` : "");
}

function retentionOf(line) {
  if (line.retention === null) return null;
  if (line.retention === "lost") return element("span", "unread offsets are deleted", "bad");
  if (line.retention_ms === null) return element("span", line.retention === "safe" ? "none due" : "not known", "quiet");
  const made = element("span", `in ${span(line.retention_ms)}`, RETENTION[line.retention]);
  made.title = line.retention_headroom || "";
  return made;
}

function deadLettersOf(line, name) {
  const written = link(grouped(line.dead_letters), address("streams", name, "dead-letters"));
  written.title = "As many as these windows have written. The page Dead letters has those that are dead letters now.";
  const by = { 0: "", 1: "written by the last window" }[line.windows];
  return two(written, by ?? `written by the last ${line.windows} windows`);
}

function auditOf(name, audit) {
  if (!audit) return null;
  const report = link(audit.clean ? "clean" : "findings", withQuery(address("streams", name, "audit"), { run: audit.run }));
  report.className = audit.clean ? "good" : "bad";
  report.title = audit.sentence;
  const about = element("span", `${audit.level}, `);
  about.append(time(audit.at), ", ", link("all", address("streams", name, "audits")));
  return two(report, about);
}

function runOf(one, name) {
  if (!one.run) return null;
  const made = airflowLink(one.run.state, `dags/${encodeURIComponent(`${name}__ingest`)}/runs/${encodeURIComponent(one.run.dag_run_id)}`);
  made.className = RUN[one.run.state] || "";
  const at = one.run.end_date || one.run.start_date || one.run.queued_at;
  return two(made, at ? time(Date.parse(at)) : "");
}

function paint(row, name) {
  row.dataset.stream = name;
  refill(row, (made) => cells(made, name));
}

function cells(row, name) {
  const one = of(name);
  const first = cell(row, two(link(name, address("streams", name)), one.line?.description || ""), "topic");
  if (one.line?.description) first.lastElementChild.classList.add("description");
  if (one.problem) {
    const told = cell(row, one.problem, "problem");
    told.colSpan = 5;
  } else if (!one.line) {
    cell(row, "asking …", "quiet").colSpan = 5;
  } else {
    cell(row, statusOf(one.line));
    cell(row, lagOf(one.line), "number");
    cell(row, retentionOf(one.line), one.line.retention_ms === null ? "" : "until");
    cell(row, deadLettersOf(one.line, name), `number ${one.line.dead_letters ? "busy" : ""}`);
    const last = one.line.last_commit;
    cell(row, last && two(time(last.at), link(`window ${last.window}`, address("streams", name, "windows", "ingest", String(last.window)))));
  }
  cell(row, runOf(one, name));
  cell(row, one.problem ? null : auditOf(name, one.line?.audit));
}

function paging(found) {
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  view.page = Math.min(Math.max(1, view.page), pages);
  const turn = (title, by) => {
    const to = () => {
      view.page += by;
      draw();
    };
    return button(title, to, undefined, view.page + by >= 1 && view.page + by <= pages);
  };
  const all = names.length === 1 ? "1 stream" : `${names.length} streams`;
  const count = found.length === names.length ? all : `${found.length} of ${all}`;
  const shown = pages > 1 ? [turn("Previous", -1), element("span", `page ${view.page} of ${pages}, ${count}`, "quiet"), turn("Next", 1)] : [element("span", count, "quiet")];
  const place = document.getElementById("paging");
  keepingFocus(() => place, () => place.replaceChildren(...shown));
}

function draw() {
  const table = document.getElementById("streams");
  const found = chosen();
  paging(found);
  remember({ filter: view.filter || null, sort: view.sort === "name" ? null : view.sort, order: view.down ? "down" : null, page: view.page > 1 ? view.page : null });
  for (const one of table.tHead.querySelectorAll("button")) {
    one.parentElement.setAttribute("aria-sort", one.dataset.sort === view.sort ? (view.down ? "descending" : "ascending") : "none");
  }
  const shown = found.slice((view.page - 1) * PAGE, view.page * PAGE);
  for (const [name, one] of known) if (!shown.includes(name)) one.row = null;
  const rows = shown.map((name) => {
    const one = of(name);
    one.row ||= element("tr");
    paint(one.row, name);
    return one.row;
  });
  if (shown.length === 0) {
    const none = element("tr", undefined, "none");
    cell(none, names.length ? "No stream with these words." : "No stream that you may see.").colSpan = 8;
    rows.push(none);
  }
  const body = table.tBodies[0];
  keepingFocus(() => body, () => arrange(body, rows));
  refreshLines(shown);
}

// Asks for the lines whose answer is old: those of this page of the table first.
function refreshLines(shown) {
  const due = (name, when, ms) => Date.now() - of(name)[when] > ms;
  for (const name of shown) {
    if (due(name, "at", LINES_MS)) ask(name, "at", askLine);
    if (due(name, "runAt", RUNS_MS)) ask(name, "runAt", askRun);
  }
  const others = view.sort !== "name" || view.filter ? names : [];
  for (const name of others) if (due(name, "at", 4 * LINES_MS)) ask(name, "at", askLine);
}

async function refresh() {
  try {
    const { streams, problems } = await load(new URL("api/streams", ROOT));
    names = streams;
    say(document.getElementById("problems"), problems.join("\n"));
    refreshed();
    draw();
  } catch (error) {
    say(document.getElementById("problems"), error.message);
  }
}

// Whoever has a coordinate need not know which stream reads its topic.
async function find(event) {
  event.preventDefault();
  const said = document.getElementById("found");
  const named = coordinateOf(document.getElementById("coordinate").value);
  if (named === null) {
    say(said, "Write it as topic/partition@offset, or with a time and its zone instead of the offset.");
    return;
  }
  try {
    const { streams } = await load(withQuery(new URL("api/streams", ROOT), { topic: named.topic }));
    const page = (name) => withQuery(`${address("streams", name)}/messages`, named);
    if (streams.length === 1) window.location.assign(page(streams[0]));
    else if (!streams.length) say(said, `No stream that you may see reads ${named.topic}.`);
    else {
      said.replaceChildren("Several streams read it: ");
      streams.forEach((name, at) => said.append(at ? ", " : "", link(name, page(name))));
      said.hidden = false;
    }
  } catch (error) {
    say(said, error.message);
  }
}

document.getElementById("find").addEventListener("submit", find);
document.getElementById("filter").value = view.filter;
document.getElementById("filter").addEventListener("input", (event) => {
  Object.assign(view, { filter: event.target.value, page: 1 });
  draw();
});
for (const one of document.querySelectorAll("[data-sort]")) {
  one.addEventListener("click", () => {
    const again = view.sort === one.dataset.sort;
    Object.assign(view, { sort: one.dataset.sort, down: again ? !view.down : false, page: 1 });
    draw();
  });
}
navigation(null);
repeat(refresh, LINES_MS);
