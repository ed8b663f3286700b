// The dead letters that count, in groups. Any group, window of a group or picked examples of any groups can be replayed.
import {
  address, asked, button, cell, copyable, counted, element, grouped, isOne, link, loadPatiently, messageOf, navigation, remember, run, say,
  streamOfAddress, time, windowLink, withQuery,
} from "./shared.js";
import { newest } from "./newest.js";
import { text } from "./payload.js";
import { picking, plan, planner } from "./plan.js";
import { showTime, timeOf } from "./times.js";

const stream = streamOfAddress();
const form = document.getElementById("which");
const ALL = "*";
// Examples of each group, once it was chosen what to look at, or more were asked for.
const MANY = 50;
// The records that were picked, in whatever group. They stay picked when something else is asked for.
const picked = new Set();
let asking = 0;
// What was asked for, of what is shown.
let shown = {};

const valuesNow = () => ({
  reason: form.elements.reason.value, window: form.elements.window.value.trim(), since: timeOf(form.elements.since), until: timeOf(form.elements.until),
  examples: asked("examples"),
});

// Replays what is shown of a name: of the window and of the times that were asked for.
function replay(name, window = shown.window) {
  const conf = { dead_letters: name };
  if (window) conf.dead_letters_window = window;
  if (shown.since) conf.since = shown.since;
  if (shown.until) conf.until_time = shown.until;
  plan({ stream, kind: "replay", conf, text: "dead_letters" });
}

function windowsOf(group) {
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const [name, kind] of [["Window", ""], ["Dead letters", "number"], ["Committed", ""], ["Run", ""], ["Replay", ""]]) {
    head.append(element("th", name, kind));
  }
  const body = table.createTBody();
  for (const one of group.windows) {
    const row = body.insertRow();
    cell(row, windowLink(stream, one.window), "lane");
    cell(row, grouped(one.number), "number");
    cell(row, time(one.committed_at), "time");
    cell(row, run(one.run), "run");
    const act = row.insertCell();
    if (group.selects !== null) act.append(button(isOne(one.number) ? "Replay it …" : "Replay these …", () => replay(group.selects, one.window)));
  }
  if (group.more_windows) body.insertRow().insertCell().textContent = `and ${counted(group.more_windows, "more window")}`;
  const box = element("div", undefined, "box");
  box.append(table);
  return box;
}

function showPicked() {
  const place = document.getElementById("picked");
  place.hidden = picked.size === 0;
  const said = isOne(picked.size) ? "Replay the picked message …" : `Replay the ${counted(picked.size, "picked message")} …`;
  const act = button(said, () => plan({ stream, kind: "replay", conf: { records: [...picked].join("\n") }, text: "records" }));
  const erase = link(isOne(picked.size) ? "Erase it …" : "Erase them …", planner(stream, "erase", { records: [...picked].join("\n") }));
  const clear = button("Clear selection", () => {
    picked.clear();
    for (const one of document.querySelectorAll(".examples input")) one.checked = false;
    showPicked();
  });
  place.replaceChildren(act, erase, clear);
}

function examplesOf(group) {
  const place = element("div");
  const list = element("ul", undefined, "examples");
  for (const coordinate of group.examples) {
    const one = messageOf(coordinate);
    const line = element("li");
    line.append(picking(coordinate, picked, showPicked), copyable(coordinate, link(coordinate, withQuery(address("streams", stream, "messages"), one))));
    list.append(line);
  }
  place.append(list);
  const left = group.number - group.examples.length;
  if (left > 0 && group.examples.length < MANY) place.append(button("Show more", () => { remember({ examples: MANY }); ask(); }));
  else if (left > 0) place.append(element("p", `${grouped(left)} more ${isOne(left) ? "is" : "are"} not listed. To see more of them, choose one of their windows.`, "quiet"));
  return place;
}

function section(group, most, only) {
  const made = element("section", undefined, "group");
  const title = element("h2");
  title.append(element("span", grouped(group.number), "number"), element("span", text(group.shown.reason) || "(no reason)", "reason"));
  made.append(title);
  if (group.error) made.append(element("p", text(group.shown.error), "quiet reason"));
  if (group.too_often) made.append(element("p", `${grouped(group.too_often)} of them ${isOne(group.too_often) ? "was" : "were"} redriven ${counted(most, "time")} or more: a replay by reason leaves out what was. Pick it by its message.`, "busy"));
  const actions = element("p", undefined, "buttons");
  if (group.selects !== null) {
    actions.append(button(`Replay ${isOne(group.number) ? "it" : `all ${grouped(group.number)}`} …`, () => replay(group.selects), only ? "primary" : ""));
  } else {
    actions.append(element("span", "This reason cannot be written into a request: pick messages below.", "quiet"));
  }
  made.append(actions, windowsOf(group), element("h3", "Examples"), examplesOf(group));
  return made;
}

function counting(text, goesOn = true) {
  const place = document.getElementById("counted");
  place.textContent = text;
  place.setAttribute("aria-busy", goesOn);
}

function show(found) {
  const said = [`${counted(found.counted, "dead letter")} in ${grouped(found.windows_counted)} of ${counted(found.windows, "window")}`];
  if (!found.complete) said.push(`there was no time to count the older windows, which wrote up to ${grouped(found.not_counted)}: choose a window, or use tidemark dead-letters`);
  if (found.more_groups) said.push(`${counted(found.more_groups, "more group")} ${isOne(found.more_groups) ? "is" : "are"} not shown: choose a window or a reason`);
  counting(found.windows === 0 ? (Object.values(shown).some(Boolean) ? "No window has dead letters of these." : "No window has written dead letters.") : `${said.join("; ")}.`, false);
  const all = document.getElementById("all");
  all.replaceChildren();
  if (found.groups.length > 1 && !shown.reason) all.append(button(`Replay all ${grouped(found.counted)} …`, () => replay(ALL), "primary"));
  // What was asked for is a reason, or else an error class.
  const named = found.groups[0]?.reason === shown.reason ? "reason" : "error";
  const through = { kind: "dead-letters", window: shown.window, since: shown.since, until: shown.until, filter: shown.reason && `${named} = ${JSON.stringify(shown.reason)}` };
  // What they say comes before all of them are read again.
  const { kind, ...narrowed } = through;
  if (found.groups.length) {
    all.append(link("Look through their contents", withQuery(address("streams", stream, "browse"), through)));
    // A filter looks at payloads, so what fits one is asked for where somebody wants to see them.
    if (!narrowed.filter) newest(document.getElementById("newest"), stream, { kind, asked: narrowed, title: "The newest of them" }).catch(() => {});
    else document.getElementById("newest").hidden = true;
  } else document.getElementById("newest").hidden = true;
  document.getElementById("groups").replaceChildren(...found.groups.map((group) => section(group, found.max_redrives, found.groups.length === 1)));
  showPicked();
}

async function ask() {
  const mine = ++asking;
  const problem = document.getElementById("problem");
  const values = valuesNow();
  say(problem, "");
  counting("Counting …");
  try {
    const examples = values.examples || (values.reason || values.window ? MANY : "");
    const url = withQuery(address("api", "streams", stream, "dead-letters"), { ...values, examples });
    const found = await loadPatiently(url, (sentence) => mine === asking && say(problem, sentence));
    say(problem, "");
    if (mine !== asking) return;
    shown = values;
    show(found);
    remember(values);
  } catch (error) {
    if (mine !== asking) return;
    counting("", false);
    document.getElementById("groups").replaceChildren();
    say(problem, error.message);
  }
}

// The beginning of the minute some hours ago.
const minuteBefore = (hours) => new Date(Math.floor(Date.now() / 60000 - hours * 60) * 60000).toISOString().replace(/\.000Z$/, "Z");

navigation(stream, "Dead letters");
form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
for (const one of form.querySelectorAll("[data-hours]")) {
  one.addEventListener("click", () => {
    showTime(form.elements.since, minuteBefore(one.dataset.hours));
    form.elements.until.value = "";
    ask();
  });
}
for (const name of ["reason", "window"]) form.elements[name].value = asked(name) || "";
for (const name of ["since", "until"]) if (asked(name)) showTime(form.elements[name], asked(name));
ask();
