// Times in words: "3 min ago" with the whole time in the title. The server's text stays where it is wanted.
import { say } from "./words.js";

const absolute = document.body.dataset.times === "absolute";
const UNITS = [
  [86400, (count) => say("{count} d", { count })], [3600, (count) => say("{count} h", { count })],
  [60, (count) => say("{count} min", { count })], [1, (count) => say("{count} s", { count })],
];

function span(seconds) {
  const [size, words] = UNITS.find(([least]) => seconds >= least) || UNITS[3];
  return words(Math.floor(seconds / size));
}

function relative(then) {
  const seconds = (Date.now() - then) / 1000;
  if (Math.abs(seconds) < 1) return say("now");
  return seconds >= 0 ? say("{span} ago", { span: span(seconds) }) : say("in {span}", { span: span(-seconds) });
}

export function drawTimes(root = document) {
  if (!absolute) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const words = relative(Date.parse(time.dateTime));
      const text = "keep" in time.dataset ? `${time.title} (${words})` : words;
      if (time.textContent !== text) time.textContent = text;
    }
  }
  for (const running of root.querySelectorAll("[data-since]")) {
    const text = span(Math.max(0, (Date.now() - Date.parse(running.dataset.since)) / 1000));
    if (running.textContent !== text) running.textContent = text;
  }
}

function selecting() {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed;
}

export function startTimes() {
  drawTimes();
  setInterval(() => { if (!document.hidden && !selecting()) drawTimes(); }, 1000);
}
