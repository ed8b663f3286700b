// All streams that the viewer may see, one line each. Each line asks by itself.
import { ROOT, STATUS, address, cell, element, fill, link, load, navigation, repeat } from "./shared.js";

const REFRESH_MS = 5000;

async function line(row, name) {
  cell(row, link(name, address("streams", name)));
  const status = cell(row, "…");
  try {
    const stream = await load(address("api", "streams", name));
    status.replaceChildren(element("span", stream.status ? `${stream.status.word} (${stream.status.rule})` : null, stream.status && STATUS[stream.status.word]));
  } catch (error) {
    status.replaceChildren(element("span", error.message, "bad"));
  }
}

async function refresh() {
  const status = document.getElementById("refreshed");
  try {
    const { streams, problems } = await load(new URL("api/streams", ROOT));
    fill(document.getElementById("streams"), streams, line, "No stream that you may see.");
    status.textContent = [...problems, `Refreshed ${new Date().toLocaleTimeString()}`].join(" · ");
  } catch (error) {
    status.textContent = error.message;
  }
}

navigation(null);
repeat(refresh, REFRESH_MS);
