// An address that is none of Tidemark's, or a page that cannot be shown.
import { ROOT, navigation } from "./shared.js";

document.getElementById("all").href = ROOT;
navigation(null);
