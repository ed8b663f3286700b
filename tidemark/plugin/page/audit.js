// An audit: what it counted and found, down to the coordinate, and its repair.
import { address, button, cell, coordinateOf, copyable, counted, element, grouped, isOne, link, messageOf, run, spoken, time, withQuery } from "./shared.js";
import { plan } from "./plan.js";

// So many offsets of a kind are named one by one.
const MAX_NAMED = 20n;
const NAMES = { blocks: "blocks that differ" };
let stream = "";
const WRONG = new Set(["missing", "different", "extra", "twice", "blocks"]);

function runOf(one) {
  if (one.repair_of === null) return run(one.run);
  const made = element("span", "After the repair of ");
  made.append(run(one.repair_of));
  return made;
}

const reportOf = (name) => withQuery(address("streams", stream, "audit"), { run: name });

// A line for each place that was compared: the sinks, and the dead letters.
function counts(found) {
  const table = element("table", undefined, "counts");
  const names = Object.keys(found.places[0]?.counts || {});
  if (!names.length) return null;
  const head = table.createTHead().insertRow();
  head.append(element("th", "place"), ...names.map((name) => element("th", NAMES[name] || name, "number")));
  const body = table.createTBody();
  for (const one of found.places) {
    const row = body.insertRow();
    cell(row, one.name, "topic");
    for (const name of names) cell(row, grouped(one.counts[name]), WRONG.has(name) ? `number ${one.counts[name] ? "bad" : "good"}` : "number");
  }
  const box = element("div", undefined, "box");
  box.append(table);
  return box;
}

function listOf(entries, number, named = entries.length) {
  const list = element("ul", undefined, "coordinates");
  for (const one of entries) {
    const line = element("li");
    line.append(one);
    list.append(line);
  }
  if (named < number) list.append(element("li", `and ${grouped(number - named)} more`, "quiet"));
  return list;
}

function findings(found) {
  const made = [];
  const linked = (text) => copyable(text, link(text, withQuery(address("streams", stream, "messages"), coordinateOf(text) ?? messageOf(text))));
  const part = (title, entries, number, named = entries.length) => {
    made.push(element("h3", `${title}: ${grouped(number)}`), listOf(entries, number, named));
  };
  // Of a lost file, thousands of offsets are a few ranges; a few are all named below.
  if (found.ranges?.length && BigInt(found.offsets) > MAX_NAMED) made.push(element("h3", `offsets that a repair would read: ${grouped(found.offsets)}`), listOf(found.ranges.map(linked), found.ranges.length + found.more_ranges, found.ranges.length));
  for (const one of found.places) {
    for (const [kind, coordinates] of Object.entries(one.at)) {
      part(`${kind} in ${one.name}`, coordinates.map(linked), one.counts[kind], one.named[kind]);
    }
    if (one.blocks_at.length) part(`blocks that differ in ${one.name}`, one.blocks_at, one.counts.blocks);
  }
  if (found.holes.length) part("holes, in no window", found.holes.map((one) => copyable(one)), found.holes.length);
  if (found.overlaps.length) part("offsets in two windows", found.overlaps.map((one) => copyable(one)), found.overlaps.length);
  if (found.problems.length) part("what is wrong with the ledger, or in Kafka", found.problems, found.problems.length);
  return made;
}

function repair(one) {
  const { found } = one;
  const made = element("p", undefined, "buttons");
  // What was repaired is no finding any more.
  if (found.selection && !one.repaired?.clean) {
    const into = found.sinks ? ` Only ${found.sinks.join(", ")} would be written: the other sinks are right.` : "";
    const says = `${isOne(found.offsets) ? "The offset" : `All ${counted(found.offsets, "offset")}`} that the audit ${one.run} has found.${into} The dry run shows what has to be read besides.`;
    const conf = { selection: found.selection, ...(found.sinks ? { sinks: found.sinks } : {}) };
    const start = () => plan({ stream, kind: "replay", conf, says, repair: one.level });
    made.append(button(`Repair: replay ${isOne(found.offsets) ? "the offset" : `the ${counted(found.offsets, "offset")}`} …`, start, "primary"));
  }
  if (found.holes.length) {
    const says = "All offsets that the ingest is past, and that no window has read.";
    made.append(button("Backfill the holes …", () => plan({ stream, kind: "backfill", conf: { holes: true }, says })));
  }
  return made.childElementCount ? made : null;
}

// One audit: its verdict in words and numbers, each finding with a link, and what was repaired. `repairing`: its run goes on to do
// so, and nobody else need.
export function section(name, one, repairing = false) {
  stream = name;
  const made = element("section");
  const title = element("h2");
  title.append(element("span", one.clean ? "✓ clean" : "✕ findings", `badge ${one.clean ? "good" : "bad"}`), " ", time(one.at), element("span", ` level ${one.level}`, "quiet"));
  const about = element("p", one.repair_of === null ? "Run " : "");
  about.append(runOf(one));
  if (one.found) about.append(" · ", link("the whole report", reportOf(one.repair_of ?? one.run)));
  made.append(title, about, element("p", spoken(one.sentence), "sentence"));
  if (one.repaired) {
    const again = element("p", "Its findings were repaired; the audit after that was ");
    again.append(element("b", one.repaired.clean ? "clean" : "not clean", one.repaired.clean ? "good" : "bad"), ", ", time(one.repaired.at), ".");
    made.append(again);
  }
  if (one.problem) made.append(element("p", one.problem, "problem"));
  if (one.found) {
    const parts = [counts(one.found), repairing ? element("p", "This run repairs what it has found.", "quiet") : repair(one), ...findings(one.found)];
    made.append(...parts.filter(Boolean));
  }
  return made;
}
