// Small plots of the last windows: a column for each window, the oldest on the left.
import { address, drawing, element, grouped, keepingFocus } from "./shared.js";
import { both } from "./times.js";

const HEIGHT = 60;
let drawn = "";

// The keyboard on a plot, which is one stop of the tab key: the arrows go from window to window, Home and End to the ends.
function steer(figure) {
  const columns = [...figure.querySelectorAll("a")];
  columns.at(-1)?.setAttribute("tabindex", 0);
  figure.addEventListener("focusin", (event) => {
    for (const one of columns) one.setAttribute("tabindex", one === event.target ? 0 : -1);
  });
  figure.addEventListener("keydown", (event) => {
    const at = columns.indexOf(event.target);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: columns.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    columns[to]?.focus();
  });
}

// `value` gives a number of a window, exactly, or null; `words` says the number for people.
function plot(stream, title, windows, value, words) {
  const made = element("figure", undefined, "plot");
  const numbers = windows.map(value);
  const known = numbers.filter((one) => one !== null);
  const most = known.reduce((one, other) => (other > one ? other : one), 0);
  const last = known.length ? words(known.at(-1)) : "–";
  made.append(element("figcaption", title), element("b", last), element("span", `most ${known.length ? words(most) : "–"}`, "quiet"));
  const svg = drawing("svg", { viewBox: `0 0 ${Math.max(20, windows.length) * 8} ${HEIGHT}`, preserveAspectRatio: "none", role: "group", "aria-label": `${title}: last ${last}` });
  windows.forEach((one, at) => {
    const height = numbers[at] === null || !most ? 1 : Math.max(1, (Number(numbers[at]) / Number(most)) * (HEIGHT - 2));
    const anchor = drawing("a", { href: address("streams", stream, "windows", "ingest", String(one.window)), tabindex: -1 });
    const hover = drawing("title", {});
    hover.textContent = `window ${one.window}, ${both(one.at)[0]}: ${numbers[at] === null ? "–" : words(numbers[at])}`;
    // The whole height takes the pointer, also above a low column.
    const area = drawing("rect", { class: "area", x: at * 8, y: 0, width: 8, height: HEIGHT });
    anchor.append(hover, area, drawing("rect", { class: "column", x: at * 8 + 1, y: HEIGHT - height, width: 6, height }));
    svg.append(anchor);
  });
  made.append(svg);
  steer(made);
  return made;
}

export function plots(place, stream, windows) {
  const now = JSON.stringify(windows);
  if (now === drawn) return;
  drawn = now;
  if (!windows.length) {
    place.replaceChildren(element("p", "No window yet", "quiet"));
    return;
  }
  const rate = (one) => (one.seconds ? Math.round(one.read / one.seconds) : null);
  keepingFocus(() => place, () => place.replaceChildren(
    plot(stream, "Lag after each window, offsets", windows, (one) => BigInt(one.lag), grouped),
    plot(stream, "Messages a second", windows, rate, grouped),
    plot(stream, "Messages read", windows, (one) => one.read, grouped),
    plot(stream, "Dead letters", windows, (one) => one.dead_letters, grouped),
  ));
}
