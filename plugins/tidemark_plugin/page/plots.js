// Small plots of the last windows: a column for each window, the oldest on the left.
import { address, drawing, element, grouped } from "./shared.js";
import { both } from "./times.js";

const HEIGHT = 60;

// `value` gives a number of a window, or null; `words` says the number for people.
function plot(stream, title, windows, value, words) {
  const made = element("figure", undefined, "plot");
  const numbers = windows.map(value);
  const known = numbers.filter((one) => one !== null);
  const most = Math.max(0, ...known);
  const last = known.length ? words(known.at(-1)) : "–";
  made.append(element("figcaption", title), element("b", last), element("span", `most ${known.length ? words(most) : "–"}`, "quiet"));
  const svg = drawing("svg", { viewBox: `0 0 ${Math.max(20, windows.length) * 8} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: last ${last}` });
  windows.forEach((one, at) => {
    const height = numbers[at] === null || most === 0 ? 1 : Math.max(1, (numbers[at] / most) * (HEIGHT - 2));
    // No stops of the tab key: the table of windows has the same links.
    const anchor = drawing("a", { href: address("streams", stream, "windows", "ingest", String(one.window)), tabindex: -1 });
    const hover = drawing("title", {});
    hover.textContent = `window ${one.window}, ${both(one.at)[0]}: ${numbers[at] === null ? "–" : words(numbers[at])}`;
    // The whole height takes the pointer, also above a low column.
    const area = drawing("rect", { class: "area", x: at * 8, y: 0, width: 8, height: HEIGHT });
    anchor.append(hover, area, drawing("rect", { class: "column", x: at * 8 + 1, y: HEIGHT - height, width: 6, height }));
    svg.append(anchor);
  });
  made.append(svg);
  return made;
}

export function plots(place, stream, windows) {
  const whole = (number) => grouped(Math.round(number));
  place.replaceChildren(
    plot(stream, "Lag after each window, offsets", windows, (one) => Number(one.lag), whole),
    plot(stream, "Messages a second", windows, (one) => (one.seconds ? one.read / one.seconds : null), whole),
    plot(stream, "Messages read", windows, (one) => one.read, whole),
    plot(stream, "Dead letters", windows, (one) => one.dead_letters, whole),
  );
}
