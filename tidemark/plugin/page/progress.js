// How far a run is: Airflow's steps, and each partition by the ledger. Pausing, resuming and cancelling what has a lane of its
// own, for those who may. Everything is asked for by short requests, every few seconds until the run has ended.
import { address, airflow, airflowLink, button, cell, element, grouped, link, load, say, time, windowLink, withQuery } from "./shared.js";
import { pausedSaid } from "./plan.js";

const EVERY_MS = 3000;
// Of a run that has ended, which somebody may still clear.
const ENDED_MS = 15000;
const ENDED = new Set(["success", "failed"]);
const STATES = { success: "good", failed: "bad", up_for_retry: "busy", skipped: "quiet" };
const WORDS = { upstream_failed: "not begun", up_for_retry: "tries again" };
const LANES = { paused: "busy", done: "good", cancelled: "bad" };
const ORDER = [
  "check", "read_ledger", "compare", "diff", "approve", "plan", "erase", "process", "publish", "complete",
  "report", "plan_repair", "repair", "compare_again", "report_again", "verdict",
];
// Steps that most runs do not have.
const OPTIONAL = new Set(["read_ledger", "compare", "diff", "approve", "plan_repair", "repair", "compare_again", "report_again"]);
// The kinds of runs, as people read them; and those with a lane of their own, which is asked for by the run's name.
export const KINDS = { ingest: "Ingest", replay: "Replay", backfill: "Backfill", erase: "Erasure", audit: "Audit" };
const OWN_LANE = new Set(["replay", "backfill", "erase"]);
// These can be planned again.
const PLANNED = new Set(["replay", "backfill"]);
export const kindOf = (dag) => dag.slice(dag.lastIndexOf("__") + 2);
const place = (id) => document.getElementById(id);
const part = encodeURIComponent;

// A dialog that asks why. `act` gets the reason; the dialog says what is wrong if it fails.
function why(title, about, act) {
  const dialog = element("dialog", undefined, "plan");
  dialog.setAttribute("aria-label", title);
  const form = element("form");
  const reason = Object.assign(element("input"), { required: true, minLength: 3, maxLength: 500, name: "reason", autocomplete: "off" });
  const label = element("label", undefined, "field");
  label.append(element("span", "Reason, which the ledger keeps"), reason);
  const said = element("p", "", "said");
  said.setAttribute("role", "status");
  const go = element("button", title, "primary");
  const buttons = element("p", undefined, "buttons");
  buttons.append(go, button("Close", () => dialog.close()));
  form.append(element("h2", title), element("p", about, "quiet"), label, buttons, said);
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
  reason.focus();
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
    const said = element("p", one.pending.step ? "In work: window " : "Next: window ");
    said.append(windowLink(one.window_of, one.pending.window), one.pending.step ? `, ${one.pending.step}` : "", one.pending.stored === null ? "" : `, ${grouped(one.pending.stored)} messages stored so far`, ", pinned ", time(one.pending.since), ".");
    made.append(said);
  }
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const [name, kind] of [["Partition", ""], [one.kind === "erase" ? "Erased" : "Read", "number"], ["Of", "number"], ["", "wide"]]) head.append(element("th", name, kind));
  const body = table.createTBody();
  for (const found of one.partitions) {
    const row = body.insertRow();
    cell(row, found.partition, "topic");
    cell(row, grouped(readOf(found)), "number");
    const all = cell(row, grouped(found.offsets), "number");
    all.title = `within ${found.from}–${BigInt(found.until) - 1n}`;
    cell(row, bar(found.partition, readOf(found), found.offsets), "wide");
  }
  if (one.more_partitions) cell(body.insertRow(), `and ${grouped(one.more_partitions)} more partitions`, "quiet");
  const box = element("div", undefined, "box");
  box.append(table);
  made.append(box);
  return made;
}

function told(kind, run, lanes, refused, paused, doneBefore) {
  const made = [];
  if (paused) made.push(paused);
  if (refused) made.push(`Refused: ${refused}`);
  else if (doneBefore) return [...made, `${doneBefore[0].toUpperCase()}${doneBefore.slice(1)}.`].join(" ");
  else if (run && run.state === "failed" && kind === "audit") made.push("The audit found something that is not repaired, or it failed. Its report names the findings. If there is no report, the log of the red step says why it failed.");
  else if (run && run.state === "success") made.push(run.conf?.dry_run && !lanes.length ? "The dry run has ended. Nothing was changed." : "Finished.");
  else if (run && run.state === "failed") made.push(lanes.some((one) => one.state === "paused") ? "The run has stopped because it was paused." : lanes.some((one) => one.state === "cancelled") ? "Cancelled." : "The run has failed: the log of the red step says why.");
  else if (run) made.push("Under way.");
  if (lanes.length) {
    const [done, all] = [lanes.map(readOf), lanes.map((one) => one.offsets)].map((numbers) => numbers.reduce((sum, one) => sum + BigInt(one), 0n));
    made.push(`${grouped(done)} of ${grouped(all)} offsets are ${kind === "erase" ? "erased" : "read and committed"}.`);
  } else if (run && !ENDED.has(run.state) && OWN_LANE.has(kind)) made.push("Nothing is claimed or read yet.");
  return made.join(" ");
}

// Follows a run of Airflow, `dag` and `run`; or a lane, `named`, whose run may be of the command line. `show` is called when
// tasks may have given something new.
export function follow({ stream, dag = "", run = "", named = `${dag}/${run}`, show = () => {} }) {
  let seen = "";
  let over = false;
  const problem = place("progress-problem");
  const runs = `dags/${part(dag)}/dagRuns/${part(run)}`;
  const xcom = async (task, key) => (await airflow(`${runs}/taskInstances/${task}/xcomEntries/${key}`)).value;

  async function progress() {
    if (dag && !OWN_LANE.has(kindOf(dag))) return { lanes: [], may_steer: false };
    try {
      return await load(withQuery(address("api", "streams", stream, "progress"), { run: named }));
    } catch (error) {
      // 400: there is no such lane, so far.
      if (error.status === 400 && dag) return { lanes: [], may_steer: false };
      throw error;
    }
  }

  function steer(action, reason = "") {
    const headers = { Accept: "application/json", "Content-Type": "application/json" };
    return load(address("api", "streams", stream, "progress", action), { method: "POST", headers, body: JSON.stringify({ run: named, reason }) });
  }

  // After a pause the task has failed: it goes on when it is cleared, which Airflow decides.
  async function goOn(state) {
    say(problem, "");
    try {
      await steer("resume");
      if (dag && state === "failed") {
        await airflow(`dags/${part(dag)}/clearTaskInstances`, { dry_run: false, dag_run_id: run, only_failed: true, reset_dag_runs: true });
      }
    } catch (error) {
      say(problem, error.message);
    }
    look();
  }

  function steering(found, state, lanes, tasks) {
    const made = [];
    if (tasks.some((one) => one.task_id === "report" && one.state === "success")) {
      made.push(link("The report of the audit", withQuery(address("streams", stream, "audit"), { run: named })));
    }
    const open = lanes.filter((one) => one.state === "open" || one.state === "paused");
    if (open.length && found.may_steer) {
      if (open.some((one) => one.state === "open")) {
        made.push(button("Pause …", () => why("Pause the run", "The window in work is finished, and no further one begins. What the run has claimed stays claimed.", (reason) => steer("pause", reason).then(look))));
      } else made.push(button("Resume", () => goOn(state), "primary"));
      made.push(button("Cancel …", () => why("Cancel the run", "Ends it now. Committed windows stay; what the window in work has written never counts. The rest is free for a later request.", (reason) => steer("cancel", reason).then(look))));
    } else if (open.length) made.push(element("span", `Only those who may trigger ${stream}__${lanes[0].kind} can pause or cancel it.`, "quiet"));
    if (open.length && !dag) made.push(element("span", `A run of the command line: after a pause, run it again with --run ${found.run}.`, "quiet"));
    if (dag) {
      if (PLANNED.has(kindOf(dag))) made.push(link("Plan it again", withQuery(`${address("streams", stream)}/plan`, { from_run: `${dag}/${run}` })));
      made.push(airflowLink("The run in Airflow", `dags/${part(dag)}/runs/${part(run)}`));
    }
    return made;
  }

  function steps(tasks) {
    const at = (one) => (ORDER.indexOf(one.task_id) + 100) % 100;
    const shown = tasks.filter((one) => ORDER.includes(one.task_id) && !(one.state === "skipped" && OPTIONAL.has(one.task_id)));
    return shown.sort((left, right) => at(left) - at(right)).map((one) => {
      const made = element("li");
      // One of several lanes has a mapped task of its own.
      const several = shown.filter((other) => other.task_id === one.task_id).length > 1;
      const name = several ? `${one.task_id} ${one.rendered_map_index || one.map_index}` : one.task_id;
      const mapped = one.map_index >= 0 ? `/mapped/${one.map_index}` : "";
      made.append(airflowLink(name, `dags/${part(dag)}/runs/${part(run)}/tasks/${part(one.task_id)}${mapped}`), " ", element("span", WORDS[one.state] || one.state || "waits", STATES[one.state] || "quiet"));
      return made;
    });
  }

  async function look() {
    try {
      const [about, tasks, found] = await Promise.all([
        dag ? airflow(runs) : null,
        dag ? airflow(`${runs}/taskInstances`).then((answer) => answer.task_instances) : [],
        progress(),
      ]);
      const lanes = found.lanes.map((one) => ({ ...one, window_of: stream }));
      const failed = tasks.find((one) => one.state === "failed" && (one.task_id === "check" || one.task_id === "plan"));
      const refused = failed ? await xcom(failed.task_id, "refused").catch(() => "") : "";
      // Of an erasure that found nothing, `check` is skipped.
      const checked = dag && OWN_LANE.has(kindOf(dag)) && tasks.some((one) => one.task_id === "check" && (one.state === "success" || one.state === "skipped"));
      const doneBefore = checked ? (await xcom("check", "found").catch(() => null))?.done_before : "";
      const kind = lanes[0]?.kind || kindOf(dag);
      place("of-progress").textContent = `${KINDS[kind] || "Run"}${about?.conf?.dry_run ? ", dry run" : ""}: ${run || found.run || named}`;
      const paused = about && !ENDED.has(about.state) ? await pausedSaid(dag) : "";
      place("told").textContent = told(kind, about, lanes, refused, paused, doneBefore);
      place("told").className = `sentence ${refused ? "bad" : paused || doneBefore ? "busy" : ""}`;
      place("steps").replaceChildren(...steps(tasks));
      const focused = document.activeElement?.closest?.("#steering") ? document.activeElement.textContent : null;
      place("steering").replaceChildren(...steering(found, about?.state, lanes, tasks));
      [...place("steering").children].find((one) => one.textContent === focused)?.focus();
      place("lanes").replaceChildren(...lanes.map(laneOf));
      place("progress").hidden = false;
      over = about ? ENDED.has(about.state) : lanes.every((one) => one.state === "done" || one.state === "cancelled");
      say(problem, "");
      const now = JSON.stringify(tasks.map((one) => [one.task_id, one.state, one.try_number]));
      if (now !== seen) await show();
      seen = now;
    } catch (error) {
      place("progress").hidden = false;
      say(problem, error.message);
    }
  }

  const again = async () => {
    if (!document.hidden) await look();
    setTimeout(again, over ? ENDED_MS : EVERY_MS);
  };
  again();
}
