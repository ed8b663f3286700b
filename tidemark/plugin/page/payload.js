// Keys, values, headers and fields as text, or only their sizes where they are masked. The server has cut them, and has made
// control characters and marks of direction visible.
import { counted, element, isOne } from "./shared.js";

// A text as short as this stands beside its name. Its bytes in hexadecimal would say no more.
const MAX_INLINE = 60;
// JSON that is deeper than this is not indented any further.
const MAX_DEEP = 40;

const size = (bytes) => counted(bytes, "byte");

// A value that needs no more than a line: none, masked, empty, or a short text. Null for another one.
function inline(found) {
  if (found === null) return element("span", "none", "quiet");
  if (found.bytes === 0) return element("span", "empty", "quiet");
  if (found.text === undefined) return element("span", `${size(found.bytes)}, masked`, "quiet");
  const short = found.utf8 && !found.more && found.bytes <= MAX_INLINE && !found.text.includes("\n");
  return short ? element("code", found.text) : null;
}

// JSON with a line for each member, as it was written otherwise: a browser's own numbers would lose digits. Null for another text.
function indented(found) {
  const text = found.text.trim();
  if (!found.utf8 || found.more || !/^[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const line = (deep) => `\n${"  ".repeat(Math.min(deep, MAX_DEEP))}`;
  let deep = 0;
  const drawn = text.match(/"(?:[^"\\]|\\.)*"|\[\s*\]|\{\s*\}|[[\]{},:]|[^\s[\]{},:"]+/g).map((part) => {
    if (part === "{" || part === "[") return part + line(deep += 1);
    if (part === "}" || part === "]") return line(deep -= 1) + part;
    if (part === ",") return part + line(deep);
    return part === ":" ? ": " : part;
  }).join("");
  return drawn === text ? null : drawn;
}

// What a longer value is: its text, and its bytes. JSON is shown line by line, with what was sent below.
function whole(found) {
  const json = indented(found);
  const made = [element("pre", json ?? found.text)];
  if (json !== null) {
    const sent = element("details");
    sent.append(element("summary", "As it was sent"), element("pre", found.text));
    made.push(sent);
  }
  if (found.more) made.push(element("p", `${size(found.more)} more ${isOne(found.more) ? "is" : "are"} not shown.`, "more"));
  const raw = element("details");
  raw.append(element("summary", "Raw, in hexadecimal"), element("pre", found.hex));
  if (found.hex_more) raw.append(element("p", `${size(found.hex_more)} more ${isOne(found.hex_more) ? "is" : "are"} not shown.`, "more"));
  return [...made, raw];
}

const about = (found) => `${size(found.bytes)}${found.utf8 ? "" : ", not UTF-8"}`;

// A value as one text, with how much of it is not shown.
export function text(found) {
  return found.more ? `${found.text} … and ${size(found.more)} more` : found.text;
}

// Pairs of a name and what is to be shown of its value.
export function parts(pairs) {
  return pairs.map(([name, found]) => {
    const made = element("div", undefined, "value");
    const line = inline(found);
    if (line) made.append(element("b", name), " ", line);
    else made.append(element("b", name), element("span", `, ${about(found)}`, "quiet"), ...whole(found));
    return made;
  });
}

// The headers of a message, as far as the server gives them.
export function headers(of) {
  const left = of.more_headers ? [element("p", `${counted(of.more_headers, "more header")} ${isOne(of.more_headers) ? "is" : "are"} not shown.`, "more")] : [];
  return [...parts(of.headers.map((one) => [`header ${text(one.name)}`, one.value])), ...left];
}

// The same in two columns, for the fields of a row.
export function fields(pairs) {
  const made = element("dl", undefined, "fields");
  for (const [name, found] of pairs) {
    const shown = element("dd", undefined, "value");
    const line = inline(found);
    if (line) shown.append(line);
    else shown.append(element("span", about(found), "quiet"), ...whole(found));
    made.append(element("dt", name), shown);
  }
  return made;
}

// How many characters of a text of any size stand in a sentence.
const MAX_CUT = 1000;

// A text from others that the server has left as it is: control characters and marks of direction by their numbers, and cut.
export function cut(text) {
  const shown = [...text.slice(0, MAX_CUT)].map((one) => (/[\p{C}\p{Zl}\p{Zp}]/u.test(one) && one !== "\n" && one !== "\t" ? number(one) : one)).join("");
  return text.length > MAX_CUT ? `${shown} … and ${counted(text.length - MAX_CUT, "more character")}` : shown;
}

function number(character) {
  const hex = character.codePointAt(0).toString(16);
  if (hex.length <= 2) return `\\x${hex.padStart(2, "0")}`;
  return hex.length <= 4 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}
