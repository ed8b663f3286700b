// One stream: where every offset is, its partitions and its windows.
import {
  ROOT, STATUS, address, asked, button, cell, copyable, counted, element, fill, grouped, isOne, keepingFocus, kindOf, link, loadPatiently,
  mend, mendedAt, navigation, rangeText, reasonText, refreshed, remember, repeat, run, say, sayOnce, spoken, streamOfAddress, time, ungrouped, withQuery,
} from "./shared.js";
import { picture, withoutKafka } from "./coverage.js";
import { plots } from "./plots.js";
import { timesAxis } from "./times-axis.js";
import { showTime, timeOf } from "./times.js";

const REFRESH_MS = 5000;
const TREND_MS = 30000;
// Of a table of more, those for which there is most to do.
const MAX_PARTITIONS = 100;
const name = streamOfAddress();
// Of a window; its page has all of them.
const MAX_RANGES = 3;
// On a page of a lane's windows.
const WINDOWS = 50;
const PENDING = "pending";
// Of the windows that the page has without asking for a lane's.
const FITS = {
  "": () => true,
  [PENDING]: (one) => one.state !== "committed",
  "dead letters": (one) => one.dead_letters > 0,
  "passed over": (one) => Object.values(one.passed_over || {}).some((offsets) => offsets !== "0"),
};
const view = { lane: asked("lane") || "", below: asked("below") || "", before: asked("before") || "", run: asked("run") || "", holding: Object.hasOwn(FITS, asked("holding")) ? asked("holding") : "" };
const which = document.getElementById("which-windows");
let all = asked("partitions") === "all";
let askedWindows = 0;

function partitionRow(row, one) {
  cell(row, one.topic, "topic");
  const picture = withQuery(address("streams", name), { partition: `${one.topic}/${one.partition}` });
  cell(row, link(String(one.partition), picture), "number");
  cell(row, grouped(one.log_start), "number");
  cell(row, grouped(one.position), "number");
  cell(row, grouped(one.end), "number");
  cell(row, grouped(one.lag), one.lag === "0" ? "number good" : `number ${one.status === "OK" ? "" : STATUS[one.status] || ""}`);
  cell(row, one.status, STATUS[one.status]).title = spoken(one.status_sentence) || "";
  cell(row, one.retention_shown, { warning: "busy", lost: "bad" }[one.retention]);
}

function windowRow(row, one) {
  cell(row, one.lane, "lane");
  cell(row, link(String(one.seq), address("streams", name, "windows", one.lane, String(one.seq))), "number");
  cell(row, one.fate || one.state, one.fate ? "busy" : "");
  cell(row, time(one.at), "time");
  const ranges = cell(row, "", "ranges");
  for (const range of one.ranges.slice(0, MAX_RANGES)) ranges.append(copyable(rangeText(range.partition, range.from, range.until)));
  const rest = one.ranges.length - MAX_RANGES + one.more_ranges;
  if (rest > 0) ranges.append(link(`and ${grouped(rest)} more`, address("streams", name, "windows", one.lane, String(one.seq))));
  if (one.selected !== null) ranges.append(element("div", `${counted(one.selected, "offset")} of these`));
  if (!ranges.hasChildNodes()) ranges.append("–");
  cell(row, grouped(one.read), "number");
  cell(row, grouped(one.stored), "number");
  cell(row, grouped(one.skipped), "number");
  const dead = withQuery(address("streams", name, "dead-letters"), { window: `${one.lane}/${one.seq}` });
  cell(row, one.dead_letters ? link(grouped(one.dead_letters), dead) : grouped(one.dead_letters), "number");
  const over = Object.entries(one.passed_over || {}).filter(([, offsets]) => offsets !== "0");
  cell(row, over.map(([why, offsets]) => `${grouped(offsets)} ${why}`).join(", ") || null, over.length ? "busy" : "");
  cell(row, run(one.run), "run");
}

// The page of a lane's run; that of the lane, if the run is none of Airflow's.
function progressOf(one) {
  const cut = one.run.indexOf("/");
  const dag = one.run.slice(0, cut);
  const ours = dag === `${name}__replay` || dag === `${name}__backfill`;
  return ours ? { dag_id: dag, run_id: one.run.slice(cut + 1) } : { stream: name, run: one.lane };
}

function laneRow(row, one) {
  const named = one.kind === "ingest" ? one.lane : link(one.lane, withQuery(new URL("run", ROOT), progressOf(one)));
  cell(row, named, "lane");
  cell(row, one.state, { paused: "busy", cancelled: "bad" }[one.state] || "");
  cell(row, grouped(one.windows), "number");
  cell(row, time(one.opened_at), "time");
  cell(row, one.reason, "words");
  cell(row, run(one.run), "run");
}

// The state that the page of all streams shows, with its reason; then all else that is wrong, and how far the stream is.
function showStatus(stream) {
  const { state, status: worst, lag_sentence: sentence, reasons, kafka_problem: away } = stream;
  const place = document.getElementById("status");
  const without = away ? ["Positions, windows, lanes and holes are those of the ledger. Ends, lag, status and retention are not known, and there is no picture."] : [];
  const lines = reasons.map((reason) => {
    const line = element("span", undefined, kindOf(reason.state));
    line.append(element("b", reason.state), `: ${spoken(reason.sentence)}. `, wayOut(reason, stream));
    return line;
  });
  place.className = `status ${kindOf(state)}`;
  const worstPartition = worst && worst.word !== "OK" && !reasons.some((reason) => reason.sentence === worst.sentence) ? [`Worst partition: ${spoken(worst.sentence)}.`] : [];
  const fine = reasons.length || !worst ? [] : [`${worst.word} (${worst.rule}): ${spoken(sentence)}.`];
  const lag = reasons.length && sentence ? [`Lag: ${spoken(sentence)}.`] : [];
  const quiet = [...without, ...worstPartition, ...lag].map((text) => element("span", text, "quiet"));
  mend(place, filled(element("p"), [...lines, ...fine.map((text) => element("span", text)), ...quiet]));
  place.hidden = !place.hasChildNodes();
}

// What to do; a link, where a page does it.
function wayOut(reason, stream) {
  if (!reason.remedy) return "";
  const page = mendedAt(reason, stream);
  const here = page.pathname === window.location.pathname;
  return here ? element("span", `${reason.remedy}.`, "way-out") : link(`${reason.remedy}.`, page);
}

function filled(place, parts) {
  place.append(...parts);
  return place;
}

function showPartitions(stream) {
  fill(document.getElementById("partitions"), stream.partitions, partitionRow, stream.kafka_problem ? "Not known while Kafka is away" : "No topic yet");
  const place = document.getElementById("more-partitions");
  const shown = stream.partitions.length;
  const turn = (title, to) => button(title, () => {
    all = to;
    remember({ partitions: all ? "all" : null });
    refresh();
  });
  const more = [element("span", `The worst ${shown} of ${grouped(shown + stream.more_partitions)}, by retention, status and lag.`, "quiet"), turn("Show all", true)];
  const fewer = all && shown > MAX_PARTITIONS ? [turn(`Only the worst ${MAX_PARTITIONS}`, false)] : [];
  keepingFocus(() => place, () => place.replaceChildren(...(stream.more_partitions ? more : fewer)));
}

async function refresh() {
  const problem = document.getElementById("problem");
  try {
    const url = withQuery(address("api", "streams", name), { partitions: all ? null : MAX_PARTITIONS });
    const stream = await loadPatiently(url, () => {}, 2);
    withoutKafka(stream.kafka_problem !== null);
    say(problem, "");
    showStatus(stream);
    showNext(stream.scheduling);
    say(document.getElementById("description"), stream.description);
    say(document.getElementById("unknown-fields"), stream.unknown_fields ? `Keys: ${spoken(stream.unknown_fields)}.` : "");
    showPartitions(stream);
    fill(document.getElementById("lanes"), stream.lanes, laneRow, "No lane yet");
    offerLanes(stream.lanes);
    if (!view.lane || view.holding === PENDING) showNewest(stream.windows);
    else if (!view.below && !view.before) showWindows();
    refreshed();
  } catch (error) {
    say(problem, error.message);
  }
}

// The pending windows of all lanes, and the newest committed ones: all of them, or those that fit.
function showNewest(windows) {
  const all = windows.filter((one) => !view.lane || one.lane === view.lane);
  const fit = all.filter((one) => (one.run || "").includes(view.run) && FITS[view.holding](one));
  const some = view.run || view.holding;
  fill(document.getElementById("windows"), fit, windowRow, some ? "No window" : "No window yet");
  for (const id of ["newer", "older"]) document.getElementById(id).disabled = true;
  const of = view.lane ? `of ${view.lane}` : "of all lanes";
  const newest = some ? `${grouped(fit.length)} of the newest ${counted(all.length, "window")} ${of} ${isOne(fit.length) ? "fits" : "fit"}.` : `The newest ${grouped(all.length)}, ${of}. Choose a lane for older ones.`;
  const said = document.getElementById("shown-windows");
  said.className = "quiet";
  said.textContent = view.holding === PENDING ? `Pending ${of}: ${grouped(fit.length)}.` : all.length ? newest : "";
}

// The lanes that the stream has told; one that was chosen stays.
function offerLanes(lanes) {
  const select = which.elements.lane;
  const names = ["", ...new Set([...lanes.map((one) => one.lane), ...(view.lane ? [view.lane] : [])])];
  if (names.join("\n") !== [...select.options].map((one) => one.value).join("\n")) {
    select.replaceChildren(...names.map((lane) => Object.assign(element("option", lane || "all, the newest"), { value: lane })));
  }
  select.value = view.lane;
}

// A page of a lane's windows, from a number or a time on.
async function showWindows() {
  const mine = ++askedWindows;
  const { lane, below, before, run: ofRun, holding } = view;
  remember({ lane, below, before, run: ofRun, holding });
  which.elements.before.disabled = !lane;
  if (!lane || holding === PENDING) {
    await refresh();
    return;
  }
  const said = document.getElementById("shown-windows");
  try {
    const url = withQuery(address("api", "streams", name, "windows", lane), { below, until: below || !before ? "" : String(Date.parse(before)), count: WINDOWS, run: ofRun, holding });
    const found = await loadPatiently(url, () => {}, 2);
    // Something else was chosen meanwhile.
    if (mine !== askedWindows) return;
    fill(document.getElementById("windows"), found.windows, windowRow, "No window");
    const [newest, oldest] = [found.windows[0]?.seq, found.windows.at(-1)?.seq];
    said.className = "quiet";
    const all = `${counted(found.of, "window")} of ${lane}`;
    const looked = `${grouped(found.windows.length)} of the windows ${grouped(found.looked_down_to)} to ${grouped(found.below - 1)} of ${all} ${isOne(found.windows.length) ? "fits" : "fit"}`;
    said.textContent = found.below <= 1 ? `None of the ${all}` : ofRun || holding ? looked : `${grouped(oldest)} to ${grouped(newest)} of ${all}`;
    document.getElementById("older").disabled = found.looked_down_to <= 1;
    document.getElementById("newer").disabled = found.below > found.of;
    document.getElementById("older").onclick = () => turn({ below: String(found.looked_down_to) });
    document.getElementById("newer").onclick = () => turn({ below: String(found.below + WINDOWS) });
  } catch (error) {
    if (mine !== askedWindows) return;
    said.className = "bad";
    said.textContent = error.message;
  }
}

function turn(values) {
  Object.assign(view, { below: "", before: "" }, values);
  if (!view.before) which.elements.before.value = "";
  showWindows();
}

// A number is one of the lane that is shown, or of the ingest. Whether there is such a window is asked before.
async function openWindow(event) {
  event.preventDefault();
  const said = document.getElementById("no-window");
  const found = /^(?:([A-Za-z0-9-]{1,60})\/)?([1-9]\d{0,18})$/.exec(ungrouped(event.target.elements.window.value));
  if (!found) {
    said.textContent = "Write a number, such as 17, or LANE/NUMBER, such as ingest/17.";
    return;
  }
  const [lane, seq] = [found[1] ?? (view.lane || "ingest"), found[2]];
  try {
    await loadPatiently(address("api", "streams", name, "windows", lane, seq), () => {}, 2);
    window.location.assign(address("streams", name, "windows", lane, seq));
  } catch (error) {
    said.textContent = error.status === 404 ? `There is no window ${lane}/${seq}.` : error.message;
  }
}

// When the ingest reads what is unread: only Airflow knows.
function showNext(scheduling) {
  const place = document.getElementById("next");
  const { last, due, paused } = scheduling ?? {};
  const active = ["running", "queued"].includes(last?.state);
  // What holds it up is said above.
  place.hidden = !scheduling || (!active && (paused || scheduling.stale || scheduling.import_error !== null));
  place.className = due && due < scheduling.now ? "busy" : "quiet";
  if (active) mend(place, filled(element("p"), [`The ingest is ${last.state}: `, run(`${scheduling.dag}/${last.run}`)]));
  else if (due) mend(place, filled(element("p"), [due < scheduling.now ? "The run of the ingest was due: " : "The next run of the ingest: ", time(due)]));
  else mend(place, filled(element("p"), ["The ingest has no schedule: it reads when its DAG is triggered."]));
}

async function refreshTrend() {
  const problem = document.getElementById("trend-problem");
  try {
    plots(document.getElementById("plots"), name, (await loadPatiently(address("api", "streams", name, "trend"), () => {}, 2)).windows);
    say(problem, "");
  } catch (error) {
    sayOnce(problem, error.message);
  }
}

document.getElementById("title").textContent = `Stream ${name}`;
navigation(name, "Overview");
repeat(refresh, REFRESH_MS);
which.elements.lane.addEventListener("change", (event) => turn({ lane: event.target.value }));
which.elements.before.addEventListener("change", () => turn({ before: timeOf(which.elements.before) }));
for (const one of ["run", "holding"]) which.elements[one].addEventListener("change", (event) => turn({ [one]: event.target.value.trim() }));
which.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("open-window").addEventListener("submit", openWindow);
for (const one of ["run", "holding"]) which.elements[one].value = view[one];
if (view.before) showTime(which.elements.before, view.before);
if (view.lane && view.holding !== PENDING) showWindows();
repeat(refreshTrend, TREND_MS);
// If it is that of times, the other one is not asked for.
timesAxis(name);
picture(name);
