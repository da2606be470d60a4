// Copy buttons.
import { announce } from "./say.js";
import { say } from "./words.js";

export function startClip() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      announce(say("copied"));
    } catch { announce(say("could not be copied")); }
  });
}
