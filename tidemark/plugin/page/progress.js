// How far a run is: Airflow's steps, and each partition by the ledger. Pausing, resuming and cancelling what has a lane of its
// own, for those who may. Everything is asked for by short requests, every few seconds until the run has ended.
import {
  ROOT, address, airflow, airflowLink, button, cell, copyable, counted, element, grouped, isOne, keepingFocus, link, load, mend, rangeText, say,
  span, spoken, time, toast, windowLink, withQuery,
} from "./shared.js";
import { section } from "./audit.js";
import { cut } from "./payload.js";
import { pausedSaid, start } from "./plan.js";

const EVERY_MS = 3000;
// Of a run that has ended, which somebody may still clear.
const ENDED_MS = 15000;
const ENDED = new Set(["success", "failed"]);
const STATES = { success: "good", failed: "bad", up_for_retry: "busy", skipped: "quiet" };
const WORDS = { upstream_failed: "not begun", up_for_retry: "tries again" };
const LANES = { paused: "busy", done: "good", cancelled: "bad" };
const ORDER = [
  "check", "read_ledger", "compare", "show_changes", "approve", "plan", "erase", "process", "publish", "announce",
  "report", "plan_repair", "repair", "compare_again", "report_again", "judge",
];
// Steps that most runs do not have.
const OPTIONAL = new Set(["read_ledger", "compare", "show_changes", "approve", "plan_repair", "repair", "compare_again", "report_again"]);
// The kinds of runs, as people read them; and those with a lane of their own, which is asked for by the run's name.
export const KINDS = { ingest: "Ingest", replay: "Replay", backfill: "Backfill", erase: "Erasure", audit: "Audit" };
const OWN_LANE = new Set(["replay", "backfill", "erase"]);
// The steps in which Spark works.
const JOBS = new Set(["process", "compare", "compare_again"]);
// These can be planned again.
const PLANNED = new Set(["replay", "backfill", "erase"]);
// Under this name a task keeps its answer in one line: what a run has done, or why the task has failed.
const ANSWER = "tidemark_answer";
export const kindOf = (dag) => dag.slice(dag.lastIndexOf("__") + 2);
// Of a field of a request.
const MAX_LINES = 3;
const place = (id) => document.getElementById(id);
const part = encodeURIComponent;

// A dialog that asks why. `act` gets the reason; the dialog says what is wrong if it fails. `given`: a reason that was given before.
// `fields`: what else it asks. `needed`: whether a reason has to be given, as the fields are now.
export function why(title, about, act, { given = "", fields = [], label: named = "Reason, which the ledger keeps", needed = () => true } = {}) {
  const dialog = element("dialog", undefined, "plan");
  dialog.setAttribute("aria-label", title);
  const form = element("form");
  const reason = Object.assign(element("input"), { required: true, minLength: 3, maxLength: 500, name: "reason", autocomplete: "off", value: given });
  const label = element("label", undefined, "field");
  label.append(element("span", named), reason);
  const said = element("p", "", "said");
  said.setAttribute("role", "status");
  const go = element("button", title, "primary");
  const buttons = element("p", undefined, "buttons");
  buttons.append(go, button("Close", () => dialog.close()));
  form.append(element("h2", title), element("p", about, "quiet"), ...fields, label, buttons, said);
  const show = () => {
    reason.required = needed();
    label.hidden = !reason.required;
  };
  form.addEventListener("change", show);
  show();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    said.className = "said";
    said.textContent = "Asking …";
    try {
      await act(reason.value.trim());
      dialog.close();
    } catch (error) {
      said.className = "said bad";
      said.textContent = error.message;
      go.disabled = false;
    }
  });
  dialog.append(form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("input, select, textarea").focus();
}

// A thousandth of numbers of any size, for a bar.
const thousandths = (some, all) => (BigInt(all) === 0n ? 1000 : Number((BigInt(some) * 1000n) / BigInt(all)));

function bar(name, done, all) {
  const made = element("progress");
  made.max = 1000;
  made.value = thousandths(done, all);
  made.setAttribute("aria-label", `${name}: ${grouped(done)} of ${grouped(all)}`);
  return made;
}

function holding(nodes) {
  const made = element("div");
  made.append(...nodes);
  return made;
}

const readOf = (one) => String(BigInt(one.offsets) - BigInt(one.left));

function laneOf(one) {
  const made = element("div", undefined, `lane lane-${one.kind}`);
  const title = element("h3", `Lane ${one.lane} `);
  title.append(element("span", one.state, `badge ${LANES[one.state] || ""}`));
  made.append(title);
  const about = element("p", `${one.reason || "No reason given"}. Asked for by ${one.asked_by || "–"}`, "quiet");
  if (one.approved_by) about.append(`, approved by ${one.approved_by}`);
  about.append(", opened ", time(one.opened_at), ".");
  made.append(about);
  if (one.paused) {
    const said = element("p", `Paused: ${one.paused.reason}, since `, "busy");
    said.append(time(one.paused.at), ". A window in work is finished; no further one begins.");
    made.append(said);
  }
  if (one.closed_early) made.append(element("p", `Closed before it was done: ${one.closed_early}`, "bad"));
  if (one.pending) {
    const { pending } = one;
    const said = element("p", one.pending.step ? "In work: window " : "Next: window ");
    said.append(windowLink(one.window_of, pending.window), pending.step ? `, ${pending.step}` : "", pending.stored === null ? "" : `, ${counted(pending.stored, "message")} stored so far`, ", pinned ", time(pending.since), ".");
    said.append(...howFar(pending));
    made.append(said);
  }
  const partitions = one.partitions.map((found) => ({ ...found, done: readOf(found), within: `within ${rangeText(found.partition, found.from, found.until)}` }));
  if (one.committed.length) made.append(...committedBy(one));
  made.append(...folded(partitionsTable(one.kind === "erase" ? "Erased" : "Read", partitions, one.more_partitions), partitions.length + one.more_partitions, one.lane));
  return made;
}

// How far a step of a job is, if it has said so.
function howFar({ window: name, step, done, offsets, beat }) {
  if (done === null || offsets === "0") return [];
  return [" ", bar(name ? `window ${name}` : step, done, offsets), ` ${grouped(done)} of ${grouped(offsets)}${paceOf({ name, step, done, offsets, beat })}`];
}

// Of many partitions, the table is folded; whoever opens it finds it open at the next look.
const unfolded = new Set();
const MAX_OPEN = 12;

function folded(box, number, name) {
  if (number <= MAX_OPEN) return [box];
  const made = element("details");
  made.open = unfolded.has(name);
  made.append(element("summary", counted(number, "partition")), box);
  made.addEventListener("toggle", () => (made.open ? unfolded.add(name) : unfolded.delete(name)));
  return [made];
}

function partitionsTable(what, partitions, more) {
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const [name, kind] of [["Partition", ""], [what, "number"], ["Of", "number"], ["How far", "wide"]]) head.append(element("th", name, kind));
  const body = table.createTBody();
  for (const found of partitions) {
    const row = body.insertRow();
    cell(row, found.partition, "topic");
    cell(row, grouped(found.done), "number");
    const all = cell(row, grouped(found.offsets), "number");
    if (found.within) all.title = found.within;
    cell(row, bar(found.partition, found.done, found.offsets), "wide");
  }
  if (more) cell(body.insertRow(), `and ${counted(more, "more partition")}`, "quiet");
  const box = element("div", undefined, "box");
  box.append(table);
  return box;
}

// What a run without lanes is at, while its job is at work: the window of an ingest, or what an audit or comparison reads.
function workOf(tasks, found, stream, named) {
  const made = [];
  const task = tasks.find((one) => JOBS.has(one.task_id) && one.state === "running");
  if (task && !found.lanes.length) {
    const { job } = found;
    const name = task.task_id === "compare_again" ? `${named}/after-repair` : named;
    // What an earlier try has said is over.
    const mine = job?.run === name && (job.window || job.try_number === task.try_number);
    const said = element("p", "");
    if (!mine || !job.step) said.append("Spark is starting", ...(mine && job.window ? [": its window is ", windowLink(stream, job.window)] : []), ".");
    else if (job.window) said.append("In work: window ", windowLink(stream, job.window), `, ${job.step}`, ...howFar(job));
    else said.append(`${spoken(job.step[0].toUpperCase() + job.step.slice(1))}`, ...howFar(job));
    made.push(said);
    if (mine && job.done !== null && job.partitions.length) made.push(...folded(partitionsTable(job.step?.includes("storing") ? "Stored" : "Read", job.partitions, job.more_partitions), job.partitions.length + job.more_partitions, "job"));
  }
  // In the end, `publish` has all of them.
  const { ingest } = found;
  if (ingest?.windows && !tasks.some((one) => one.task_id === "publish" && one.state === "success")) made.push(...committedBy({ ...ingest, window_of: stream }));
  return made;
}

// What the lane has committed, whatever became of the run: also while it goes on, and after a pause or a cancel.
function committedBy(one) {
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const [name, kind] of [["Window", ""], ["Committed", ""], ["Ranges", ""], ["Read", "number"], ["Stored", "number"], ["Skipped", "number"], ["Dead letters", "number"]]) head.append(element("th", name, kind));
  for (const found of one.committed) {
    const row = table.tBodies[0]?.insertRow() ?? table.createTBody().insertRow();
    cell(row, windowLink(one.window_of, found.window), "lane");
    cell(row, time(found.at), "time");
    const ranges = cell(row, "", "ranges");
    for (const range of found.ranges) ranges.append(copyable(rangeText(range.partition, range.from, range.until)));
    if (found.more_ranges) ranges.append(`and ${grouped(found.more_ranges)} more`);
    for (const name of ["read", "stored", "skipped"]) cell(row, grouped(found[name]), "number");
    const dead = withQuery(address("streams", one.window_of, "dead-letters"), { window: found.window });
    cell(row, found.dead_letters ? link(grouped(found.dead_letters), dead) : grouped(found.dead_letters), "number");
  }
  const box = element("div", undefined, "box");
  box.append(table);
  const more = one.windows - one.committed.length;
  return [element("h3", `Committed: ${counted(one.windows, "window")}${more > 0 ? `, of which these are the newest ${one.committed.length}` : ""}`), box];
}

// What a window's job was done with when it gave a sign of life for the first time that this page saw, and since then its pace.
const firstSigns = new Map();

function paceOf({ name, step, done, offsets, beat }) {
  const key = `${name} ${step}`;
  const first = firstSigns.get(key);
  if (!first || first.done > BigInt(done)) {
    firstSigns.set(key, { done: BigInt(done), beat });
    return "";
  }
  const ms = beat - first.beat;
  const more = Number(BigInt(done) - first.done);
  if (ms < 1000 || more <= 0) return "";
  const left = Number(BigInt(offsets) - BigInt(done));
  return `, ${grouped(Math.round((more * 1000) / ms))} a second, about ${span(Math.round((left * ms) / more))} left`;
}

// Of lanes that go on, the pace of all together, and how long the slowest of them takes for what is left.
function paceOfAll(lanes) {
  const going = lanes.filter((one) => one.state === "open" && one.left !== "0");
  if (!going.length || going.some((one) => !one.pace)) return "";
  const seconds = Math.max(...going.map((one) => Number(one.left) / one.pace));
  const pace = going.reduce((sum, one) => sum + one.pace, 0);
  return `, lately ${grouped(pace < 10 ? pace.toFixed(1) : Math.round(pace))} a second: about ${span(seconds * 1000)} left`;
}

// What a task has given under a name, or null where there is none: to ask for that one would be an error in the browser's
// console. It is looked for by its name, since a list of all that the tasks of a run have given may have many pages.
export async function given(run, task, key, index = -1) {
  const entries = `${run}/taskInstances/${part(task)}/xcomEntries`;
  const { total_entries: there } = await airflow(`${entries}?xcom_key=${key}&map_index=${index}&limit=1`);
  return there ? (await airflow(`${entries}/${key}${index < 0 ? "" : `?map_index=${index}`}`)).value : null;
}

const placeOf = (task) => ORDER.indexOf(task.task_id) + (ORDER.includes(task.task_id) ? 0 : ORDER.length);

// What the run has done, in one line: its note has it.
const answerOf = (run) => spoken(/^Answer: (.+?)\.?$/m.exec(run.note ?? "")?.[1]);

// How the run has ended, where all went well.
function ended(kind, run, lanes) {
  const answer = answerOf(run);
  if (!lanes.length && answer?.startsWith("dry run: ")) return `The dry run has ended: ${answer.slice(9)}. Nothing was changed.`;
  if (run.conf?.dry_run && !lanes.length) return "The dry run has ended. Nothing was changed.";
  if (kind === "audit") return "The audit has ended; what it found stands below.";
  return answer && !lanes.length ? `Finished: ${answer}.` : "Finished.";
}

// What a run does before it claims its offsets.
function notClaimed(step) {
  const does = { check: "it resolves what is asked for", compare: "it reads the offsets to compare their rows with those that count now", show_changes: "it has compared", approve: "it waits for a second person" };
  return `Nothing is claimed or committed yet${does[step] ? `: ${does[step]}` : ""}.`;
}

// `failed`: the step that has failed, or is tried again, and why. `step`: the one at work.
function told(kind, run, { lanes, away }, failed, paused, doneBefore, step) {
  const made = [];
  const why = failed?.why?.replace(/\.$/, "");
  if (paused) made.push(paused);
  if (why && failed.over && (failed.step === "check" || failed.step === "plan") && kind !== "ingest") made.push(`Refused: ${why}.`);
  else if (doneBefore) return [...made, `${doneBefore[0].toUpperCase()}${doneBefore.slice(1)}.`].join(" ");
  else if (run && run.state === "failed" && kind === "audit" && failed?.step === "judge" && why) made.push(`The audit found something that is not repaired: ${why}.`);
  else if (lanes.length && lanes.every((one) => one.state === "done" || one.state === "cancelled") && lanes.some((one) => one.state === "cancelled")) made.push("Cancelled: what is committed stays, and the rest is free for a later request.");
  else if (run && run.state === "success") made.push(ended(kind, run, lanes));
  else if (run && run.state === "failed") made.push(lanes.some((one) => one.state === "paused") ? "The run has stopped because it was paused." : `The run has failed: ${why ?? "the log of the red step says why"}.`);
  else if (run && lanes.some((one) => one.state === "paused")) made.push("Paused: the window in work is finished, and no further one begins.");
  else if (run) made.push(run.state === "queued" ? "Waits for Airflow to begin it." : why ? `Under way: ${failed.step} ${failed.over ? "has failed" : "is tried again"}. ${why}.` : "Under way.");
  if (lanes.length) {
    const [done, all] = [lanes.map(readOf), lanes.map((one) => one.offsets)].map((numbers) => numbers.reduce((sum, one) => sum + BigInt(one), 0n));
    made.push(`${grouped(done)} of ${counted(all, "offset")} ${isOne(done) ? "is" : "are"} ${kind === "erase" ? "erased" : "read and committed"}${paceOfAll(lanes)}.`);
    const answer = run?.state === "success" ? answerOf(run) : undefined;
    if (answer) made.push(`${answer[0].toUpperCase()}${answer.slice(1)}.`);
  } else if (run && !ENDED.has(run.state) && OWN_LANE.has(kind) && !away) made.push(notClaimed(step));
  return made.join(" ");
}

const stepAtWork = (tasks) => tasks.find((one) => !ENDED.has(one.state) && one.state && one.state !== "skipped" && ORDER.includes(one.task_id))?.task_id;

// Where a run takes far longer than its plan has said, how many times.
function longerSaid(about, estimate) {
  const ms = Date.parse(about.end_date ?? new Date().toISOString()) - Date.parse(about.start_date);
  if (!estimate?.seconds || ms < 60000 || ms < 2000 * estimate.seconds) return "";
  return ` Its estimate was ${estimate.seconds < 60 ? "less than a minute" : span(estimate.seconds * 1000)}: it ${about.end_date ? "took" : "takes"} ${grouped(Math.floor(ms / 1000 / Math.max(60, estimate.seconds)))} times as long.`;
}

// How long a run of Airflow has taken, and how many of its steps have ended, where no lane says it.
function tookSaid(about, tasks, lanes, estimate) {
  if (!about?.start_date) return [];
  const ms = Date.parse(about.end_date ?? new Date().toISOString()) - Date.parse(about.start_date);
  const said = (about.end_date ? `It took ${span(Math.max(0, ms))}.` : `Begun ${span(Math.max(0, ms))} ago.`) + longerSaid(about, estimate);
  const shown = tasks.filter((one) => ORDER.includes(one.task_id));
  if (lanes.length || about.end_date || !shown.length) return [said];
  const ended = shown.filter((one) => ENDED.has(one.state) || one.state === "skipped").length;
  return [`${said} ${ended} of ${counted(shown.length, "step")} ${isOne(ended) ? "has" : "have"} ended.`];
}

// The run's name, and what was asked for: the fields of the form that were filled in. Of many lines the first ones; and no key,
// which may be personal.
function askedFor(name, { key, ...conf } = {}) {
  const filled = Object.entries(conf).filter(([, value]) => value !== null && value !== "" && value !== false);
  const asked = [...filled, ...(key ? [["key", "not shown here"]] : [])].flatMap(([field, value]) => {
    const lines = (typeof value === "string" ? value : JSON.stringify(value)).trim().split("\n");
    const more = lines.length - MAX_LINES;
    const text = cut(lines.slice(0, MAX_LINES).join("\n")) + (more > 0 ? `\nand ${counted(more, "more line")}` : "");
    return [element("dt", field.replaceAll("_", " ")), element("dd", text)];
  });
  const shown = element("dd");
  shown.append(copyable(name, element("span", name)));
  return [element("dt", "run"), shown, ...asked];
}

// Follows a run of Airflow, `dag` and `run`; or a lane, `named`, whose run may be of the command line. `show` is called when
// tasks may have given something new, with what is known of the run.
export function follow({ stream, dag = "", run = "", named = `${dag}/${run}`, show = () => {} }) {
  let seen = "";
  let over = false;
  let verdictShown = "";
  let known = null;
  const problem = place("progress-problem");
  const runs = `dags/${part(dag)}/dagRuns/${part(run)}`;
  let whyShown = { of: "" };

  // The step that has failed, or else one that is tried again. Why, its task has said, unless it was killed.
  async function failure(tasks) {
    const sorted = [...tasks].sort((left, right) => placeOf(left) - placeOf(right));
    const one = sorted.find(({ state }) => state === "failed") ?? sorted.find(({ state }) => state === "up_for_retry");
    if (!one) return null;
    const of = JSON.stringify([one.task_id, one.map_index, one.state, one.try_number]);
    if (of !== whyShown.of) {
      const why = spoken(await given(runs, one.task_id, ANSWER, one.map_index));
      whyShown = { of, step: one.task_id, over: one.state === "failed", why };
    }
    return whyShown;
  }

  // What Airflow says of a run is shown without the ledger too, beside what that has said last.
  async function progress() {
    try {
      known = await load(withQuery(address("api", "streams", stream, "progress"), { run: named }));
      return known;
    } catch (error) {
      if (!dag) throw error;
      return { lanes: [], may_steer: false, ...known, away: error.message };
    }
  }

  // A run that Airflow no longer has: by its lanes, its report, or its windows among those of the ingest.
  function inLedger() {
    if (OWN_LANE.has(kindOf(dag))) return withQuery(new URL("run", ROOT), { stream, run: named });
    if (kindOf(dag) === "audit") return withQuery(address("streams", stream, "audit"), { run: named });
    return withQuery(address("streams", stream), { lane: "ingest", run });
  }

  function steer(action, reason = "") {
    const headers = { Accept: "application/json", "Content-Type": "application/json" };
    return load(address("api", "streams", stream, "progress", action), { method: "POST", headers, body: JSON.stringify({ run: named, reason }) });
  }

  async function steered(action, reason, said) {
    await steer(action, reason);
    toast(said);
    await look();
  }

  // After a pause the task has failed: it goes on when it is cleared, which Airflow decides.
  async function goOn(state) {
    say(problem, "");
    try {
      await steer("resume");
      toast("The run goes on.");
      if (dag && state === "failed") {
        await airflow(`dags/${part(dag)}/clearTaskInstances`, { dry_run: false, dag_run_id: run, only_failed: true, reset_dag_runs: true });
      }
    } catch (error) {
      say(problem, error.message);
    }
    look();
  }

  // What a dry run has shown is done: the same request, and the digest of its plan. If the plan is stale by then, the run says so.
  function forReal(about, answer) {
    const kind = kindOf(dag);
    const { dry_run: _, ...conf } = about.conf || {};
    const said = `${counted(answer.offsets, "offset")} ${isOne(answer.offsets) ? "is" : "are"} ${kind === "erase" ? "erased" : "read"}, as the dry run has said${answer.plan ? `, by its plan ${answer.plan.slice(0, 12)}: if that has become stale, nothing is done` : ""}.`;
    return button("Start this for real …", () => why(`Start the ${kind === "erase" ? "erasure" : kind} for real`, said, async (reason) => {
      const begun = await start(stream, kind, { ...conf, ...(answer.plan ? { plan: answer.plan } : {}), reason, dry_run: false });
      window.location.assign(withQuery(new URL("run", ROOT), { dag_id: begun.dag, run_id: begun.run }));
    }, { given: conf.reason || "" }), "primary");
  }

  // Airflow ends a run's tasks when the run is set to failed. Whoever may not do so is told so by Airflow.
  function stopping() {
    const dialog = element("dialog", undefined, "plan");
    dialog.setAttribute("aria-label", "Stop the run");
    const said = element("p", "", "said");
    said.setAttribute("role", "status");
    const go = button("Stop the run", async () => {
      go.disabled = true;
      try {
        await airflow(`${runs}?update_mask=state`, { state: "failed" }, "PATCH");
        dialog.close();
        toast("Stopped: what is committed stays.");
        look();
      } catch (error) {
        said.className = "said bad";
        said.textContent = error.status === 403 ? `Airflow does not let you stop runs of ${dag}.` : error.message;
        go.disabled = false;
      }
    }, "primary");
    const buttons = element("p", undefined, "buttons");
    buttons.append(go, button("Close", () => dialog.close()));
    dialog.append(element("h2", "Stop the run"), element("p", "Airflow ends its steps and calls the run failed. What is committed stays; what a window in work has written never counts.", "quiet"), buttons, said);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    go.focus();
  }

  function steering(found, about, lanes, tasks, answer) {
    const state = about?.state;
    const made = [];
    if (answer && Number(answer.offsets) > 0 && ENDED.has(state) && !lanes.length) made.push(forReal(about, answer));
    if (tasks.some((one) => one.task_id === "report" && one.state === "success")) {
      made.push(link("The report of the audit", withQuery(address("streams", stream, "audit"), { run: named })));
    }
    const open = lanes.filter((one) => one.state === "open" || one.state === "paused");
    if (open.length && found.may_steer) {
      if (open.some((one) => one.state === "open")) {
        made.push(button("Pause …", () => why("Pause the run", "The window in work is finished, and no further one begins. What the run has claimed stays claimed.", (reason) => steered("pause", reason, "Paused: the window in work is finished, and no further one begins."))));
      } else made.push(button("Resume", () => goOn(state), "primary"));
      made.push(button("Cancel …", () => why("Cancel the run", "Ends it now. Committed windows stay; what the window in work has written never counts. The rest is free for a later request.", (reason) => steered("cancel", reason, "Cancelled: what is committed stays."))));
    } else if (open.length) made.push(element("span", `Only those who may trigger ${stream}__${lanes[0].kind} can pause or cancel it.`, "quiet"));
    // Without a lane, Airflow alone knows the run: it checks, compares, or waits, and has committed nothing.
    if (!open.length && dag && about && !ENDED.has(state)) made.push(button("Stop …", () => stopping()));
    if (open.length && !dag) made.push(element("span", `A run of the command line: after a pause, run it again with --run ${found.run}.`, "quiet"));
    if (dag) {
      if (PLANNED.has(kindOf(dag))) made.push(link("Plan it again", withQuery(`${address("streams", stream)}/plan`, { from_run: `${dag}/${run}` })));
      made.push(airflowLink("The run in Airflow", `dags/${part(dag)}/runs/${part(run)}`));
    }
    return made;
  }

  function steps(tasks, answered) {
    const shown = tasks.filter((one) => ORDER.includes(one.task_id) && !(one.state === "skipped" && OPTIONAL.has(one.task_id)));
    return shown.sort((left, right) => placeOf(left) - placeOf(right)).map((one) => {
      const made = element("li");
      // One of several lanes has a mapped task of its own.
      const several = shown.filter((other) => other.task_id === one.task_id).length > 1;
      const name = several ? `${one.task_id} ${one.rendered_map_index || one.map_index}` : one.task_id;
      const mapped = one.map_index >= 0 ? `/mapped/${one.map_index}` : "";
      // A dry run ends with its answer, which Airflow calls skipped.
      const state = one.task_id === "check" && answered && one.state === "skipped" ? "answered" : one.state === "skipped" && answered ? "not needed" : WORDS[one.state] || one.state || "waits";
      made.append(airflowLink(name, `dags/${part(dag)}/runs/${part(run)}/tasks/${part(one.task_id)}${mapped}`), " ", element("span", state, state === "answered" ? "good" : STATES[one.state] || "quiet"));
      return made;
    });
  }

  // Whoever may do so in Airflow lets a paused DAG go on from here.
  function showPaused(paused) {
    const going = async () => {
      try {
        await airflow(`dags/${part(dag)}`, { is_paused: false }, "PATCH");
        toast(`${dag} is no longer paused.`);
      } catch (error) {
        toast(error.status === 403 ? `Airflow does not let you resume ${dag}.` : error.message, "bad");
      }
      look();
    };
    const made = paused ? [button(`Resume the DAG ${dag}`, going, "primary")] : [];
    keepingFocus(() => place("unpause"), () => place("unpause").replaceChildren(...made));
  }

  // The answer of an audit: that of the run, and that of the audit after its repair.
  async function verdict(tasks, repairing) {
    if (!tasks.some((one) => one.task_id === "report" && one.state === "success")) return;
    const { audits } = await load(withQuery(address("api", "streams", stream, "audits"), { limit: 100 }));
    const mine = audits.filter((one) => one.run === named || one.repair_of === named);
    const now = JSON.stringify([mine, repairing]);
    if (now === verdictShown) return;
    verdictShown = now;
    place("verdict").replaceChildren(...mine.map((one) => section(stream, one, repairing)));
  }

  async function look() {
    try {
      const [about, tasks, found] = await Promise.all([
        dag ? airflow(runs) : null,
        dag ? airflow(`${runs}/taskInstances`).then((answer) => answer.task_instances) : [],
        progress(),
      ]);
      const lanes = found.lanes.map((one) => ({ ...one, window_of: stream }));
      const failed = await failure(tasks);
      // Of an erasure that found nothing, `check` is skipped.
      const checked = dag && OWN_LANE.has(kindOf(dag)) && tasks.some((one) => one.task_id === "check" && (one.state === "success" || one.state === "skipped"));
      const answer = checked ? await given(runs, "check", "found") : null;
      const doneBefore = answer?.done_before || "";
      const dry = Boolean(answer) && !lanes.length && about?.conf?.dry_run !== false && tasks.some((one) => one.task_id === "check" && one.state === "skipped");
      const kind = lanes[0]?.kind || kindOf(dag);
      place("of-progress").textContent = `${KINDS[kind] || "Run"}${about?.conf?.dry_run ? ", dry run" : ""}: ${run || found.run || named}`;
      const paused = about && !ENDED.has(about.state) ? await pausedSaid(dag) : "";
      showPaused(paused);
      place("told").textContent = told(kind, about, { ...found, lanes }, failed, paused, doneBefore, stepAtWork(tasks));
      // A step that somebody has paused or cancelled has failed too, as Airflow sees it.
      const isSteered = lanes.some((one) => one.state === "paused" || one.state === "cancelled");
      place("told").className = `sentence ${failed?.over && !isSteered ? "bad" : failed || paused || doneBefore ? "busy" : ""}`;
      mend(place("took"), holding(tookSaid(about, tasks, lanes, answer?.estimate)));
      mend(place("asked"), holding(askedFor(dag ? named : found.run || named, about?.conf)));
      mend(place("steps"), holding(steps(tasks, dry)));
      const focused = document.activeElement?.closest?.("#steering") ? document.activeElement.textContent : null;
      place("steering").replaceChildren(...steering(found, about, lanes, tasks, dry || about?.conf?.dry_run ? answer : null));
      [...place("steering").children].find((one) => one.textContent === focused)?.focus();
      mend(place("lanes"), holding(lanes.length ? lanes.map(laneOf) : found.away ? [] : workOf(tasks, found, stream, named)));
      place("progress").hidden = false;
      over = about ? ENDED.has(about.state) : lanes.every((one) => one.state === "done" || one.state === "cancelled");
      say(problem, found.away);
      const now = JSON.stringify(dag ? [over, ...tasks.map((one) => [one.task_id, one.state, one.try_number])] : lanes.map((one) => one.state));
      if (now !== seen) {
        await show(found);
        if (kind === "audit") await verdict(tasks, about.conf?.repair === "execute" && !ENDED.has(about.state));
      }
      seen = now;
    } catch (error) {
      place("progress").hidden = false;
      const gone = Boolean(dag) && error.status === 404;
      say(problem, gone ? `Airflow has no run ${run} of ${dag}: it may have been deleted there.` : error.message);
      if (gone) place("steering").replaceChildren(link("What the ledger has of it", inLedger()), airflowLink(`The runs of ${dag} in Airflow`, `dags/${part(dag)}/runs`));
    }
  }

  const again = async () => {
    if (!document.hidden) await look();
    setTimeout(again, over ? ENDED_MS : EVERY_MS);
  };
  again();
}
