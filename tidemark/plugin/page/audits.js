// The audits of a stream, the newest first: what they counted, what they found, down to the coordinate, and its repair.
import { ROOT, address, airflow, airflowLink, asked, button, element, loadPatiently, navigation, remember, say, streamOfAddress, withQuery } from "./shared.js";
import { section } from "./audit.js";
import { start } from "./plan.js";
import { why } from "./progress.js";

const MOST = 100;
const stream = streamOfAddress();
const place = (id) => document.getElementById(id);

function field(label, control) {
  const made = element("label", undefined, "field");
  made.append(element("span", label), control);
  return made;
}

function choice(name, options) {
  const made = Object.assign(element("select"), { name });
  made.append(...options.map(([value, text]) => Object.assign(element("option", text), { value })));
  return made;
}

// What an audit looks at, and what it does with what it finds. The run itself checks the request, as it checks any other.
function startOne(levels) {
  const level = choice("level", levels.map(({ name }) => [name, name]));
  level.value = levels.find(({ name }) => name === "full")?.name ?? levels[0].name;
  const about = element("p", "", "quiet");
  const ranges = Object.assign(element("textarea"), { name: "ranges", rows: 3, spellcheck: false });
  const repair = choice("repair", [["none", "nothing"], ["plan", "say what a replay of them would read"], ["execute", "replay them, then audit these offsets again"]]);
  const some = [field("Only these offsets, one range a line: topic/partition@from-until; empty: all", ranges), field("With its findings", repair)];
  const change = () => {
    const { looks_at: looksAt, leaves_out: leavesOut, reads } = levels.find(({ name }) => name === level.value);
    about.textContent = `Looks at ${looksAt}. Says nothing about ${leavesOut}.`;
    for (const one of some) one.hidden = !reads;
  };
  // One that only looks needs no reason.
  const repairs = () => !some[1].hidden && repair.value === "execute";
  level.addEventListener("change", change);
  change();
  why("Start the audit", `A run of ${stream}__audit, in your name. It changes no results, unless it is told to replay its findings.`, async (reason) => {
    const chosen = some[0].hidden ? {} : { ...(ranges.value.trim() ? { ranges: ranges.value } : {}), repair: repair.value };
    const begun = await start(stream, "audit", { level: level.value, ...chosen, ...(repairs() ? { reason } : {}) });
    window.location.assign(withQuery(new URL("run", ROOT), { dag_id: begun.dag, run_id: begun.run }));
  }, { fields: [field("Level", level), about, ...some], label: "Reason for the replay, which the ledger keeps", needed: repairs });
}

// The audits whose own run goes on to repair what it has found: nobody else need. Whoever may not see the runs sees none.
async function repairingRuns() {
  const dag = `${stream}__audit`;
  try {
    const runs = await airflow(`dags/${encodeURIComponent(dag)}/dagRuns?state=running&state=queued&limit=${MOST}`);
    return new Set(runs.dag_runs.filter(({ conf }) => conf?.repair === "execute").map((one) => `${dag}/${one.dag_run_id}`));
  } catch {
    return new Set();
  }
}

async function show() {
  const problem = place("problem");
  try {
    const url = withQuery(address("api", "streams", stream, "audits"), { limit: asked("limit") });
    const found = await loadPatiently(url, (sentence) => say(problem, sentence));
    say(problem, "");
    place("start").replaceChildren(button("Start an audit …", () => startOne(found.levels), found.audits.length ? undefined : "primary"), airflowLink("By its form in Airflow", `dags/${encodeURIComponent(`${stream}__audit`)}`));
    const repairing = await repairingRuns();
    place("audits").replaceChildren(...found.audits.map((one) => section(stream, one, repairing.has(one.run))));
    if (!found.audits.length) {
      place("audits").append(element("p", "No audit has ended yet.", "quiet"));
    }
    const more = button("Show more", () => {
      remember({ limit: MOST });
      show();
    });
    const all = element("span", `Only the newest ${MOST} are shown.`, "quiet");
    place("more").replaceChildren(...(found.more ? [asked("limit") === String(MOST) ? all : more] : []));
  } catch (error) {
    say(problem, error.message);
  }
}

navigation(stream, "Audits");
show();
