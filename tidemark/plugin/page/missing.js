// An address that is none of Tidemark's.
import { ROOT, navigation } from "./shared.js";

document.getElementById("all").href = ROOT;
navigation(null);
