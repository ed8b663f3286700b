// Keys, values and headers as text, or only their sizes where they are masked. The server has cut them, and has made
// control characters and marks of direction visible.
import { element, grouped } from "./shared.js";

// A text as short as this stands beside its name. Its bytes in hexadecimal would say no more.
const MOST_INLINE = 60;

function size(bytes) {
  return `${grouped(bytes)} ${bytes === 1 ? "byte" : "bytes"}`;
}

function value(name, found) {
  const made = element("div", undefined, "value");
  made.append(element("b", name), element("span", found === null ? ": none" : `, ${size(found.bytes)}`, "quiet"));
  if (found === null) return made;
  if (found.text === undefined) {
    made.append(element("span", found.bytes ? " masked" : " empty", "quiet"));
    return made;
  }
  if (found.utf8 && !found.more && found.bytes <= MOST_INLINE && !found.text.includes("\n")) {
    made.replaceChildren(element("b", name), element("span", found.bytes ? " " : ": empty", "quiet"), element("code", found.text));
    return made;
  }
  if (!found.utf8) made.append(element("span", ", not UTF-8", "quiet"));
  made.append(element("pre", found.text));
  if (found.more) made.append(element("p", `${size(found.more)} more are not shown.`, "more"));
  const raw = element("details");
  raw.append(element("summary", "Raw, in hexadecimal"), element("pre", found.hex));
  if (found.hex_more) raw.append(element("p", `${size(found.hex_more)} more are not shown.`, "more"));
  if (found.bytes) made.append(raw);
  return made;
}

// Pairs of a name and what is to be shown of its value.
export function parts(pairs) {
  return pairs.map(([name, found]) => value(name, found));
}
