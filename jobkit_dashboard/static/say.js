// Announcements for screen readers: action results and new jobs, nothing else.
let quiet = false;

export function announce(text) {
  const box = document.getElementById("announce");
  if (box && !quiet) box.textContent = text;
}

export function stopAnnouncing() {
  quiet = document.querySelector("[data-refresh-choice]")?.value === "0";
}
