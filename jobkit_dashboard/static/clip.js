// Copy buttons.
import { announce } from "./say.js";

export function startClip() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      announce("copied");
    } catch { announce("could not be copied"); }
  });
}
