// The entry: everything is attached to the document, so that replaced nodes lose nothing.
import { startTimes } from "./times.js";
import { startLive } from "./live.js";
import { startSelect } from "./select.js";
import { startSuggest } from "./suggest.js";
import { startKeys } from "./keys.js";
import { startClip } from "./clip.js";
import { startMenus } from "./menus.js";
import { startDialogs } from "./dialogs.js";

document.documentElement.classList.add("scripted");
if (matchMedia("(max-width: 1000px)").matches) document.querySelector("details.facets")?.removeAttribute("open");
startTimes();
startSelect();
startMenus();
startClip();
startSuggest();
startKeys();
startDialogs();
startLive();
