// Starting a backfill or a replay: a dialog that says what, asks why, and has Airflow start the run in the viewer's name.
// Airflow's rights decide, and its audit log knows who. The run itself checks the request as it checks any other.
// Airflow 3.3 cannot fill in its own form from an address, so the form is here.
import { ROOT, address, airflow, airflowLink, element, link, time, toast, withQuery } from "./shared.js";

const ABOUT = {
  backfill: "A backfill reads offsets that no window has read yet.",
  replay: "A replay reads offsets again that windows have read before, and replaces their results.",
};

// The fields of a request that can be changed in the dialog, as people read them.
const LABELS = {
  ranges: "Offset ranges, one a line: topic/partition@from-until",
  records: "Messages, one a line: topic/partition@offset",
  dead_letters: "The dead letters with exactly this reason or error class; * for all of them",
};

// Where the planner finds what has no room in an address.
export const STORED = "tidemark-plan";
const MAX_ADDRESS = 4000;

// Of a run in Airflow.
const ENDED = ["success", "failed"];

export const dagOf = (stream, kind) => `${stream}__${kind}`;

// The planner's page with the same request, which also shows what it would read and replace.
export function planner(stream, kind, fields) {
  const url = `${address("streams", stream)}/plan`;
  if (JSON.stringify(fields).length <= MAX_ADDRESS) return withQuery(url, { kind, ...fields });
  window.sessionStorage.setItem(STORED, JSON.stringify(fields));
  return withQuery(url, { kind, stored: "1" });
}

function field(label, control) {
  const made = element("label", undefined, "field");
  made.append(element("span", label), control);
  return made;
}

function between({ since, until_time: until }) {
  const made = element("p", "Only of messages");
  if (since) made.append(" from ", time(Date.parse(since)), until ? "," : " on");
  if (until) made.append(" before ", time(Date.parse(until)));
  made.append(".");
  return made;
}

function changeable(name, value) {
  const made = element("textarea");
  made.rows = Math.min(8, String(value).split("\n").length + 1);
  Object.assign(made, { value, required: true, spellcheck: false, name });
  return made;
}

// 64 bits of a text (FNV-1a). The browser's own digests are missing where Airflow is served without TLS.
function digest(text) {
  let found = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) found = BigInt.asUintN(64, (found ^ BigInt(byte)) * 0x100000001b3n);
  return found.toString(16).padStart(16, "0");
}

// What a viewer has to know of a paused DAG: Airflow takes a run of it, and does not begin it. Empty where it is not paused.
export async function pausedSaid(dag) {
  try {
    return (await airflow(`dags/${encodeURIComponent(dag)}`)).is_paused ? `The DAG ${dag} is paused in Airflow: a run of it waits until the DAG is resumed there.` : "";
  } catch {
    // Whoever may not see the DAG is told so when the run is started.
    return "";
  }
}

// Starts a run, and gives its id. Raises a Refusal with Airflow's own words.
// The id follows from what is asked for. So a request that is sent again, as when its answer was lost or after a second
// click, meets the run that is there (409). Once that run has ended, the same request is a new one.
export async function start(stream, kind, conf) {
  const dag = dagOf(stream, kind);
  const runs = `dags/${encodeURIComponent(dag)}/dagRuns`;
  // Not the kind's name: Airflow takes no name that begins with `backfill__`, which it keeps for its own backfills.
  const name = `from_page__${digest(JSON.stringify(conf))}`;
  for (let number = 1; ; number += 1) {
    const dag_run_id = number === 1 ? name : `${name}__${number}`;
    try {
      await airflow(runs, { dag_run_id, logical_date: null, conf, note: `Reason: ${conf.reason}` });
      toast(`Airflow has taken a run of ${dag}.`);
      return { dag, run: dag_run_id };
    } catch (refusal) {
      if (refusal.status !== 409) {
        // Without an answer, nobody knows.
        if (refusal.status !== 0) toast(`Airflow has started no run of ${dag}.`, "bad");
        throw refusal;
      }
      const { state } = await airflow(`${runs}/${encodeURIComponent(dag_run_id)}`);
      if (!ENDED.includes(state)) {
        toast(`The same run of ${dag} is under way already.`);
        return { dag, run: dag_run_id };
      }
    }
  }
}

// Opens the dialog. `kind` is backfill or replay. `conf` has the fields of the DAG's form that say what: { ranges: "..." }.
// One of them may be a text that can still be changed here: `text` names it. `says` describes in words what else there is.
// `repair`: the replay repairs what an audit of this level has found. Then that audit's DAG may start it, and audits again.
export function plan({ stream, kind, conf, text = null, says = "", repair = null }) {
  const dialog = element("dialog", undefined, "plan");
  dialog.setAttribute("aria-label", `${kind} of ${stream}`);
  const form = element("form");
  const what = text === null ? null : changeable(text, conf[text] ?? "");
  const reason = element("input");
  Object.assign(reason, { required: true, minLength: 3, maxLength: 500, name: "reason", autocomplete: "off" });
  const dry = element("input");
  Object.assign(dry, { type: "checkbox", checked: true, name: "dry_run" });
  const onlyShow = element("label", undefined, "check");
  onlyShow.append(dry, element("span", "Dry run: only show what would be read"));
  const paused = element("p", "", "busy");
  const again = element("input");
  Object.assign(again, { type: "checkbox", checked: repair !== null, name: "again" });
  const thenAudit = element("label", undefined, "check");
  thenAudit.append(again, element("span", `Audit these offsets before and after it: a run of ${dagOf(stream, "audit")}`));
  const said = element("p", "", "said");
  said.setAttribute("role", "status");
  const go = element("button", undefined, "primary");
  const audits = () => again.checked && !dry.checked;
  const nameIt = () => {
    go.textContent = dry.checked ? "Start the dry run" : `Start the ${kind}`;
    again.disabled = dry.checked;
  };
  const dagNow = () => dagOf(stream, audits() ? "audit" : kind);
  const sayPaused = async () => {
    const dag = dagNow();
    const found = await pausedSaid(dag);
    if (dag === dagNow()) paused.textContent = found;
    return found;
  };
  for (const one of [dry, again]) one.addEventListener("change", () => { nameIt(); sayPaused(); });
  nameIt();
  sayPaused();
  const close = element("button", "Close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  const buttons = element("p", undefined, "buttons");
  const detail = link("Plan it in detail", address("streams", stream));
  const aim = () => { detail.href = planner(stream, kind, { ...conf, ...(what ? { [text]: what.value } : {}) }); };
  aim();
  if (what) what.addEventListener("input", aim);
  buttons.append(go, close, detail);
  form.append(
    element("h2", `${kind === "replay" ? "Replay" : "Backfill"} of ${stream}`),
    element("p", ABOUT[kind], "quiet"),
    ...(says ? [element("p", says)] : []),
    ...(what ? [field(LABELS[text] || text, what)] : []),
    ...(conf.dead_letters_window ? [element("p", `Only of the lane or window ${conf.dead_letters_window}.`)] : []),
    ...(conf.since || conf.until_time ? [between(conf)] : []),
    field("Reason, which the ledger keeps", reason),
    onlyShow,
    ...(repair === null ? [] : [thenAudit]),
    paused,
    buttons,
    said,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    said.className = "said";
    said.textContent = "Asking Airflow …";
    try {
      const changed = what ? { [text]: what.value } : {};
      const why = { reason: reason.value.trim() };
      const { dag, run } = audits()
        ? await start(stream, "audit", { selection: conf.selection, level: repair, repair: "execute", ...why })
        : await start(stream, kind, { ...conf, ...changed, ...why, dry_run: dry.checked });
      // Asked again: it may have been paused or resumed since the dialog was opened.
      const waits = await sayPaused();
      const begun = dry.checked ? "Airflow has started a dry run: " : "Airflow has started it: ";
      said.replaceChildren(
        waits ? element("span", "Airflow has taken it, and does not begin it while its DAG is paused: ", "busy") : element("span", begun, "good"),
        link("follow its progress", withQuery(new URL("run", ROOT), { dag_id: dag, run_id: run })),
        ". In Airflow it is the run ",
        airflowLink(run, `dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`),
      );
    } catch (error) {
      said.className = "said bad";
      said.textContent = error.status === 403 ? `Airflow does not let you start ${dagOf(stream, audits() ? "audit" : kind)}: ${error.message}` : error.message;
    }
    go.disabled = false;
  });
  dialog.append(form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}

// A checkbox that picks a record, for a replay or an erasure of all that are picked.
export function picking(record, picked, changed) {
  const box = element("input");
  box.type = "checkbox";
  box.checked = picked.has(record);
  box.setAttribute("aria-label", `Pick ${record}`);
  box.addEventListener("change", () => {
    if (box.checked) picked.add(record);
    else picked.delete(record);
    changed();
  });
  return box;
}
