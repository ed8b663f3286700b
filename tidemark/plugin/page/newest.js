// The newest messages, or dead letters, of a stream: so that no page begins empty. Keys and values are masked until they are asked for.
import { address, button, cell, copyable, counted, element, link, loadPatiently, messageOf, time, windowLink, withQuery } from "./shared.js";
import { text } from "./payload.js";

const COUNT = 10;
const MOST = 140;

function short(found) {
  if (!found) return element("span", "none", "quiet");
  if (found.text === undefined) return element("span", `${counted(found.bytes, "byte")}, masked`, "quiet");
  const all = text(found).replaceAll("\n", " ");
  return element("code", all.length > MOST ? `${all.slice(0, MOST)} …` : all || "(empty)");
}

function row(tr, stream, line, act) {
  const page = withQuery(address("streams", stream, "messages"), messageOf(line.coordinate));
  const first = cell(tr, copyable(line.coordinate, link(line.coordinate, page)), "topic");
  if (act) first.prepend(button(act.title, () => act.pick(line.coordinate)), " ");
  cell(tr, time(line.timestamp), "time");
  cell(tr, short(line.key), "words");
  cell(tr, short(line.value), "words");
  if (line.fields.reason) {
    const why = cell(tr, text(line.fields.reason), "words");
    if (line.fields.window) why.append(" ", windowLink(stream, line.fields.window.text));
  }
}

// Shows them in a place; nothing where there are none. `asked` narrows the question, `act` is a button in each row.
export async function newest(place, stream, { kind = "messages", asked = {}, act = null, title = "The newest messages", payload = false } = {}) {
  const url = withQuery(address("api", "streams", stream, "browse", kind), { newest: "true", count: COUNT, ...asked, payload: payload || null });
  const found = await loadPatiently(url, () => place.isConnected);
  const table = element("table");
  const head = table.createTHead().insertRow();
  const names = ["Message", "Time", "Key", "Value", ...(kind === "dead-letters" ? ["Dead letter"] : [])];
  for (const name of names) head.append(element("th", name));
  const body = table.createTBody();
  for (const line of found.lines) row(body.insertRow(), stream, line, act);
  const box = element("div", undefined, "box");
  box.append(table);
  const more = element("p", undefined, "buttons");
  if (payload) more.append(element("span", "Payloads are shown. Airflow's audit log knows that you have looked.", "quiet"));
  else if (found.may_see_payload) more.append(button("Show payloads", () => newest(place, stream, { kind, asked, act, title, payload: true })), element("span", "Airflow's audit log will know.", "quiet"));
  more.append(link("Look through all of them", withQuery(address("streams", stream, "browse"), { kind, newest: "true", ...asked })));
  place.replaceChildren(...(found.lines.length ? [element("h2", title), box, more] : []));
  place.hidden = !found.lines.length;
}
