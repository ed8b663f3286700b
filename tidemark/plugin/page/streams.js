// All streams that the viewer may see, one line each, the worst first. The server knows all of them: it puts them in order,
// counts them, and waits for no server that is slow. What it does not know yet comes with a later answer.
import {
  ROOT, address, arrange, asked, button, cell, coordinateOf, counted, drawing, element, grouped, isOne, keepingFocus,
  kindOf, link, load, mendedAt, navigation, reasonText, refill, refreshed, remember, say, span, spoken, time, withQuery,
} from "./shared.js";

const PAGE = 25;
const REFRESH_MS = 15000;
// While the servers of some streams have not been asked yet.
const SOON_MS = 1500;
// A number of more is written smaller.
const MAX_DIGITS = 12;
// Orders of which the first click shows the largest on top; and those whose first one is the worst on top.
const LARGEST_FIRST = ["lag", "dead"];
const WORST_FIRST = ["worst", "audit"];
const RETENTION = { lost: "bad", warning: "busy" };
const RUN = { success: "good", failed: "bad" };
const DEFAULTS = { words: "", state: "", owner: "", tag: "", sort: "worst", down: false, page: 1 };

const view = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, asked(name) ?? value]));
Object.assign(view, { down: asked("down") === "true", page: Number(asked("page")) || 1 });
// The rows by the names of the streams.
const known = new Map();
let shown = { streams: [], states: [], owners: [], tags: [], problems: [], found: 0, of: 0, unknown: 0 };
let question = 0;
let timer = null;

function two(first, second) {
  const made = document.createDocumentFragment();
  const made1 = element("div");
  made1.append(first);
  const made2 = element("div", undefined, "quiet small");
  if (second instanceof Node) made2.append(second);
  else made2.textContent = made2.title = second;
  made.append(made1);
  if (second) made.append(made2);
  return made;
}

// The worst, with its number; the words of all else; and every sentence where somebody points.
function stateOf(one) {
  const { reasons, state, line } = one;
  const word = element("span");
  word.append(element("b", state, kindOf(state)));
  const others = [...new Set(reasons.map((reason) => reason.state))].filter((other) => other !== state);
  for (const other of others) word.append(" ", element("b", other, kindOf(other)));
  const told = reasons.length ? reasons[0].brief : line?.status?.rule ?? "nothing is wrong";
  const brief = one.is_unread ? element("span", told) : link(spoken(told), reasons.length ? mendedAt(reasons[0], one) : address("streams", one.stream));
  brief.title = reasons.map(reasonText).join("\n") || spoken(line?.status?.sentence) || "";
  brief.className = "plain small";
  const made = element("div");
  made.append(word, " ", brief);
  return made;
}

// The numbers of the last windows, the oldest on the left.
function spark(numbers, words, bars) {
  if (numbers.length < 2) return "";
  const most = numbers.reduce((one, other) => (BigInt(other) > one ? BigInt(other) : one), 0n);
  const height = (one) => (most ? Number((BigInt(one) * 1000n) / most) / 1000 : 0) * 14;
  const made = drawing("svg", { class: "spark", viewBox: `0 0 ${numbers.length * 4} 16`, preserveAspectRatio: "none", role: "img", "aria-label": words });
  const hover = drawing("title", {});
  hover.textContent = words;
  made.append(hover);
  if (bars) {
    numbers.forEach((one, at) => {
      const size = Math.max(most && BigInt(one) ? 1.5 : 0.5, height(one));
      made.append(drawing("rect", { x: at * 4, y: 16 - size, width: 3, height: size }));
    });
  } else {
    made.append(drawing("path", { d: numbers.map((one, at) => `${at ? "L" : "M"}${at * 4 + 2} ${15 - height(one)}`).join("") }));
  }
  return made;
}

function withSpark(number, drawn) {
  const made = element("span");
  made.append(drawn, " ", number);
  return made;
}

// The largest unit of a span of time: enough to compare lines by.
const about = (ms) => span(Math.max(0, ms)).split(" ").slice(0, 2).join(" ");

function lagOf(line) {
  if (line.lag === null) return line.in_topics ? two(element("span", grouped(line.in_topics)), "in Kafka") : null;
  const made = element("span", grouped(line.lag), line.lag === "0" ? "good" : line.lag.length > MAX_DIGITS ? "long" : "");
  const drawn = spark(line.lags, `Lag that each of the last ${counted(line.lags.length, "window")} left: from ${grouped(line.lags[0])} to ${grouped(line.lags.at(-1))}`, false);
  const since = line.lag !== "0" && line.unread_since ? `for ${about(Date.now() - line.unread_since)}` : "";
  return two(made, drawn || since ? withSpark(since, drawn) : "");
}

function retentionOf(line) {
  if (line.retention === null) return null;
  if (line.retention === "lost") return element("div", "too late", "bad");
  if (line.retention_ms === null) return element("div", line.retention === "safe" ? "none due" : "not known", "quiet");
  const made = element("div", `in ${about(line.retention_ms)}`, RETENTION[line.retention]);
  made.title = line.retention_headroom || span(line.retention_ms);
  return made;
}

function deadLettersOf(line, name) {
  const written = link(grouped(line.dead_letters), address("streams", name, "dead-letters"));
  if (!line.dead_letters) written.className = "plain quiet";
  const by = { 0: "", 1: "by the last window" }[line.windows] ?? `by the last ${counted(line.windows, "window")}`;
  written.title = `Written ${by}. The page Dead letters has those that are dead letters now.`;
  const drawn = line.dead_letters ? spark(line.letters, `Dead letters of each of the last ${counted(line.letters.length, "window")}`, true) : "";
  return two(written, drawn ? withSpark("", drawn) : "");
}

function ago(ms) {
  const made = time(ms);
  if (!made.title) return made;
  made.title = `${made.textContent}, ${made.title}`;
  // A clock that is slow says nothing of the future.
  made.textContent = `${about(Date.now() - ms)} ago`;
  return made;
}

function auditOf(name, audit) {
  if (!audit) return null;
  const report = link(audit.clean ? "clean" : "findings", withQuery(address("streams", name, "audit"), { run: audit.run }));
  report.className = audit.clean ? "good" : "bad";
  report.title = `${audit.level}: ${spoken(audit.sentence)}`;
  const more = element("span");
  more.append(ago(audit.at), ", ", link("all", address("streams", name, "audits")));
  return two(report, more);
}

function runOf({ scheduling }) {
  const last = scheduling?.last;
  if (!last) return null;
  const made = link(last.state, withQuery(new URL("run", ROOT), { dag_id: scheduling.dag, run_id: last.run }));
  made.className = RUN[last.state] || "";
  return two(made, last.since ? ago(last.since) : "");
}

function cells(row, one) {
  const name = one.stream;
  const { line } = one;
  // A file that cannot be used, or that Airflow has not read, has no page.
  const title = one.is_unread ? element("span", name) : link(name, address("streams", name));
  const first = cell(row, two(title, one.description), "topic of-stream");
  first.firstElementChild.title = name;
  if (one.description) first.lastElementChild.classList.add("description");
  if (one.problem && !line) {
    const told = element("div");
    told.append(element("b", one.state, kindOf(one.state)), ` ${one.problem.replace(/^Unreachable: /, "")}`);
    told.title = one.reasons.map(reasonText).join("\n");
    cell(row, told, "of-problem").colSpan = 5;
  } else if (!line) {
    cell(row, "asking …", "quiet of-state").colSpan = 5;
  } else {
    const state = cell(row, stateOf(one), "of-state");
    if (one.problem) {
      // Kafka alone knows what stands in the next two columns, and there is more to say of why it is away.
      state.colSpan = 3;
    } else {
      cell(row, lagOf(line), "number of-lag");
      cell(row, retentionOf(line), "of-next");
    }
    cell(row, deadLettersOf(line, name), "number of-dead");
    const last = line.last_commit;
    cell(row, last && two(ago(last.at), link(`window ${last.window}`, address("streams", name, "windows", "ingest", String(last.window)))), "of-commit");
  }
  cell(row, runOf(one), "of-run");
  cell(row, auditOf(name, line?.audit), "of-audit");
  cell(row, two(one.owner || "", ""), "of-owner").title = one.owner || "";
  cell(row, two(one.tags.join(", "), ""), "of-tags").title = one.tags.join(", ");
}

function states() {
  const place = document.getElementById("states");
  const all = shown.states.reduce((sum, one) => sum + one.streams, shown.unknown);
  const one = (state, number, word, kind) => {
    const made = button("", () => choose({ state: view.state === state ? "" : state }), undefined);
    made.append(element("b", grouped(number), kind), ` ${word}`);
    made.setAttribute("aria-pressed", view.state === state);
    return made;
  };
  const made = [one("", all, isOne(all) ? "stream" : "streams"), ...shown.states.map(({ state, streams }) => one(state, streams, state, kindOf(state)))];
  // A state that no stream is in any more stays where it is chosen.
  if (view.state && !shown.states.some(({ state }) => state === view.state)) made.push(one(view.state, 0, view.state));
  if (shown.unknown) made.push(element("span", `${grouped(shown.unknown)} not asked yet`, "quiet"));
  keepingFocus(() => place, () => place.replaceChildren(...made));
}

function paging() {
  const page = Math.floor(shown.first / PAGE) + 1;
  const pages = Math.max(1, Math.ceil(shown.found / PAGE));
  view.page = page;
  const turn = (title, by) => button(title, () => choose({ page: page + by }), undefined, page + by >= 1 && page + by <= pages);
  const all = counted(shown.of, "stream");
  const count = shown.found === shown.of ? all : `${shown.found} of ${all}`;
  const made = pages > 1 ? [turn("Previous", -1), element("span", `page ${page} of ${pages}, ${count}`, "quiet"), turn("Next", 1)] : [element("span", count, "quiet")];
  const place = document.getElementById("paging");
  keepingFocus(() => place, () => place.replaceChildren(...made));
}

// The words that can be chosen from; one that was chosen stays, even where no stream has it any more.
function offer(id, words, all) {
  const select = document.getElementById(id);
  const offered = ["", ...new Set(view[id] ? [...words, view[id]] : words)];
  if (offered.join("\n") !== [...select.options].map((one) => one.value).join("\n")) {
    select.replaceChildren(...offered.map((word) => Object.assign(element("option", word || all), { value: word })));
  }
  select.value = view[id];
  select.hidden = offered.length === 1;
}

function draw() {
  const table = document.getElementById("streams");
  paging();
  states();
  offer("owner", shown.owners, "All owners");
  offer("tag", shown.tags, "All tags");
  table.classList.toggle("owned", shown.owners.length > 0);
  table.classList.toggle("tagged", shown.tags.length > 0);
  remember(Object.fromEntries(Object.entries(view).map(([name, value]) => [name, value === DEFAULTS[name] ? null : String(value)])));
  for (const one of table.tHead.querySelectorAll("button")) {
    const falls = view.down !== WORST_FIRST.includes(view.sort);
    one.parentElement.setAttribute("aria-sort", one.dataset.sort === view.sort ? (falls ? "descending" : "ascending") : "none");
  }
  const rows = shown.streams.map((one) => {
    const place = `${one.stream} ${one.is_unread}`;
    if (!known.has(place)) known.set(place, element("tr"));
    const row = known.get(place);
    row.dataset.stream = one.stream;
    refill(row, (made) => cells(made, one));
    return row;
  });
  for (const [place, row] of known) if (!rows.includes(row)) known.delete(place);
  if (rows.length === 0) {
    const none = element("tr", undefined, "none");
    cell(none, shown.of ? "No stream is like this." : "No stream that you may see: a stream is here once Airflow has its DAGs.").colSpan = table.tHead.rows[0].cells.length;
    rows.push(none);
  }
  keepingFocus(() => table.tBodies[0], () => arrange(table.tBodies[0], rows));
}

async function refresh() {
  clearTimeout(timer);
  if (document.hidden) {
    timer = setTimeout(refresh, REFRESH_MS);
    return;
  }
  question += 1;
  const mine = question;
  let again = REFRESH_MS;
  try {
    const { page, ...wanted } = view;
    const found = await load(withQuery(new URL("api/triage", ROOT), { ...wanted, first: (page - 1) * PAGE, count: PAGE }));
    // Somebody has chosen something else meanwhile.
    if (mine !== question) return;
    shown = found;
    say(document.getElementById("problems"), shown.problems.join("\n"));
    refreshed();
    draw();
    if (shown.unknown) again = SOON_MS;
  } catch (error) {
    if (mine !== question) return;
    say(document.getElementById("problems"), error.message);
  }
  timer = setTimeout(refresh, again);
}

function choose(values) {
  Object.assign(view, { page: 1 }, values);
  refresh();
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
document.getElementById("filter").value = view.words;
let typed = null;
document.getElementById("filter").addEventListener("input", (event) => {
  clearTimeout(typed);
  typed = setTimeout(() => choose({ words: event.target.value }), 200);
});
for (const id of ["owner", "tag"]) {
  document.getElementById(id).addEventListener("change", (event) => choose({ [id]: event.target.value }));
}
for (const one of document.querySelectorAll("[data-sort]")) {
  one.addEventListener("click", () => {
    const { sort } = one.dataset;
    choose({ sort, down: view.sort === sort ? !view.down : LARGEST_FIRST.includes(sort) });
  });
}
navigation(null);
refresh();
