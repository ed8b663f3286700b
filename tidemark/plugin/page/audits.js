// The audits of a stream, the newest first: what they counted, what they found, down to the coordinate, and its repair.
import { address, airflowLink, asked, button, element, loadPatiently, navigation, remember, say, streamOfAddress, withQuery } from "./shared.js";
import { section } from "./audit.js";

const MOST = 100;
const stream = streamOfAddress();
const place = (id) => document.getElementById(id);

async function show() {
  const problem = place("problem");
  try {
    const url = withQuery(address("api", "streams", stream, "audits"), { limit: asked("limit") });
    const found = await loadPatiently(url, (sentence) => say(problem, sentence));
    say(problem, "");
    place("audits").replaceChildren(...found.audits.map((one) => section(stream, one)));
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
place("start").append(airflowLink("Start an audit in Airflow", `dags/${encodeURIComponent(`${stream}__audit`)}`));
show();
