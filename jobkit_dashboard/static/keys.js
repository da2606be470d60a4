// Keys. Single ones never fire in fields or with modifiers, and can be switched off.
import { cycle, round } from "./live.js";
import { toggle } from "./select.js";
import { say } from "./words.js";

const root = document.body.dataset.root;
const single = document.body.dataset.keys !== "off";
const PAGES = { o: "/", j: "/jobs", q: "/queues", n: "/nodes", c: "/cron", a: "/audit", p: "/plugins", s: "/settings" };
const ACTIONS = { t: "retry", u: "run_now", c: "cancel", "#": "delete" };
let pending = "";

function rows() { return [...document.querySelectorAll("table.cards tbody tr[data-id], table.cards tbody tr:has(a.open)")]; }
function current() { return document.querySelector("tr.here"); }

function move(step) {
  const all = rows();
  if (!all.length) return;
  const next = all[Math.max(0, Math.min(all.length - 1, all.indexOf(current()) + step))] || all[0];
  current()?.classList.remove("here");
  next.classList.add("here");
  (next.querySelector("a.open") || next.querySelector("a"))?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function act(action) {
  const onJob = document.querySelector(`#job-actions [data-action="${action}"]`);
  if (onJob) {
    if (onJob instanceof HTMLAnchorElement) onJob.click();
    else ask(onJob);
    return;
  }
  const form = document.getElementById("jobs-form");
  if (!form) return;
  if (form.querySelector('input[name="id"]:checked') || document.getElementById("which-matching")?.checked) {
    form.querySelector(`#bulkbar button[value="${action}"]`)?.click();
  } else current()?.querySelector(`button[name="only"][value^="${action}:"]`)?.click();
}

function ask(button) {
  // The button acts at once when it is clicked; a key only brings it under the finger.
  button.focus();
}

function palette() {
  const dialog = document.getElementById("palette");
  if (!dialog || dialog.open) return;
  dialog.showModal();
  const field = document.getElementById("palette-input");
  field.value = ""; filter(""); field.focus();
}

function filter(text) {
  const wanted = text.trim().toLowerCase();
  let first = null;
  for (const row of document.querySelectorAll("#palette-list li")) {
    row.hidden = Boolean(wanted) && !row.textContent.toLowerCase().includes(wanted);
    row.classList.remove("here");
    if (!row.hidden && !first) first = row;
  }
  if (wanted) first?.classList.add("here");
}

let asking = 0;
async function queues(text) {
  // Queues whose names go on like this, as the completion knows them.
  const wanted = text.trim();
  const mine = ++asking;
  for (const old of document.querySelectorAll("#palette-list li[data-queue]")) old.remove();
  if (!wanted || /\s/.test(wanted)) return;
  try {
    const answer = await fetch(`${root}/-/suggest?${new URLSearchParams({ q: `queue:${wanted}` })}`, { credentials: "same-origin" });
    if (!answer.ok || mine !== asking) return;
    for (const item of (await answer.json()).items) {
      const name = /^(?:queue:)?"?([^"\\]+)"?$/.exec(item.text)?.[1];
      if (!name) continue;
      const row = document.createElement("li");
      const link = document.createElement("a");
      row.dataset.queue = ""; link.textContent = say("queue {name}", { name });
      link.href = `${root}/queues/show?${new URLSearchParams({ name })}`;
      row.append(link);
      document.getElementById("palette-list").append(row);
    }
    filter(text);
  } catch { /* the pages are enough */ }
}

function go(text) {
  const here = document.querySelector("#palette-list li.here a");
  const wanted = text.trim();
  if (/^\d{1,19}$/.test(wanted)) location.assign(`${root}/jobs/${wanted}`);
  else if (here) location.assign(here.href);
  else if (wanted) location.assign(`${root}/jobs?q=${encodeURIComponent(wanted)}`);
}

const DO = {
  "?": () => document.getElementById("keys")?.showModal(),
  "/": () => (document.getElementById("q") || document.querySelector("[data-search]"))?.focus(),
  j: () => move(1), k: () => move(-1),
  Enter: () => current()?.querySelector("a.open, a")?.click(),
  x: () => { const box = current()?.querySelector('input[name="id"]'); if (box) toggle(box, false); },
  X: () => { const box = current()?.querySelector('input[name="id"]'); if (box) toggle(box, true); },
  r: () => round(), R: () => cycle(),
  ".": () => { const menu = current()?.querySelector("details.menu"); if (menu) { menu.open = true; menu.querySelector("a")?.focus(); } },
  "[": () => document.querySelector('a[rel="prev"]')?.click(),
  "]": () => document.querySelector('a[rel="next"]')?.click(),
};

function typing(target) {
  return target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]") !== null;
}

function pressed(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.altKey) { palette(); event.preventDefault(); return; }
  if (!single || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (typing(event.target) || document.querySelector("dialog[open]")) return;
  const before = pending;
  pending = "";
  if (before === "g" && PAGES[event.key]) { location.assign(root + PAGES[event.key]); event.preventDefault(); return; }
  if (before === "*" && event.key === "a") { const box = document.getElementById("which-matching"); if (box) { box.checked = true; box.focus(); } event.preventDefault(); return; }
  if (event.key === "g" || event.key === "*") { pending = event.key; setTimeout(() => { pending = ""; }, 1500); return; }
  if (event.key === "Enter" && event.target !== document.body) return;
  const todo = DO[event.key] || (ACTIONS[event.key] && (() => act(ACTIONS[event.key])));
  if (todo) { todo(); event.preventDefault(); }
}

export function startKeys() {
  document.addEventListener("keydown", pressed);
  const field = document.getElementById("palette-input");
  field?.addEventListener("input", () => { filter(field.value); queues(field.value); });
  field?.form.addEventListener("submit", (event) => { event.preventDefault(); go(field.value); });
}
