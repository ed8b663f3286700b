// The places with results of what was, or would be, erased, and what each of them still holds then.
import { cell, element } from "./shared.js";

export function placesTable(places) {
  const table = element("table", undefined, "places");
  const head = table.createTHead().insertRow();
  for (const name of ["Place", "Type", "Where", "What remains"]) head.append(element("th", name));
  const body = table.createTBody();
  for (const one of places) {
    const row = body.insertRow();
    cell(row, one.name, "topic");
    cell(row, one.type, "");
    cell(row, Object.entries(one.place).map(([name, value]) => `${name} ${value}`).join(", ") || null, "run");
    cell(row, one.remains ? one.remains.charAt(0).toUpperCase() + one.remains.slice(1) : "Nothing", one.remains ? "" : "good");
  }
  const box = element("div", undefined, "box");
  box.append(table);
  return box;
}
