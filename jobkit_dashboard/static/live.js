// The live refresh: polls, and merges what has changed without disturbing what the person does.
import { drawTimes } from "./times.js";
import { announce, stopAnnouncing } from "./say.js";
import { say } from "./words.js";

const body = document.body;
let token = body.dataset.token;
let seconds = Number(body.dataset.refresh || 0);
let failures = 0;
let lastGood = Date.now();
let timer = 0;
let busy = false;
let stopped = "";
let hiddenAt = 0;
let wait = 0;

function table() { return document.querySelector("[data-drawn]"); }

function held() {
  const shown = table();
  if (!shown) return false;
  if (!shown.dataset.first) return true;
  if (document.querySelector('input[name="id"]:checked, tr.here')) return true;
  return shown.contains(document.activeElement) || shown.matches(":hover");
}

function pause() {
  if (stopped) return stopped;
  if (document.hidden) return say("the tab is hidden");
  if (navigator.onLine === false) return say("offline");
  if (document.querySelector("dialog[open]")) return say("a dialog is open");
  if (document.querySelector("details.menu[open]")) return say("a menu is open");
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && document.getElementById("main").contains(selection.anchorNode)) return say("text is selected");
  return "";
}

function status(text, stale) {
  const place = document.getElementById("refresh-status");
  if (!place) return;
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("stale", Boolean(stale));
}

function trouble(text) {
  const box = document.getElementById("trouble");
  if (!box) return;
  box.hidden = !text;
  if (box.textContent !== text) box.textContent = text;
}

function tell() {
  const why = pause();
  const count = Math.round((Date.now() - lastGood) / 1000);
  if (why) return status(say("paused: {why}", { why }), true);
  if (failures) return status(say("stale {count} s", { count }), true);
  if (!seconds) return status(say("refresh is off"));
  status(say("updated {count} s ago", { count }));
}

// The one place where text becomes HTML: what this server drew, which is escaped, and the policy runs no script of it.
export function parse(html) { return new DOMParser().parseFromString(html, "text/html"); }

export function merge(html) {
  const parsed = parse(html);
  for (const fresh of parsed.querySelectorAll("section[data-live]")) {
    const old = document.getElementById(fresh.id);
    if (!old) continue;
    drawTimes(fresh);
    window.Idiomorph.morph(old, fresh, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks: { beforeNodeMorphed, beforeAttributeUpdated } });
  }
  document.dispatchEvent(new CustomEvent("jobkit:merged"));
}

function beforeNodeMorphed(old, fresh) {
  // What the person has typed, ticked or chosen is theirs.
  if (old instanceof HTMLInputElement && fresh instanceof HTMLInputElement) {
    if (old.type === "checkbox" || old.type === "radio") fresh.checked = old.checked;
    else if (old.value !== old.defaultValue) return false;
  }
  if (old instanceof HTMLTextAreaElement && old.value !== old.defaultValue) return false;
  if (old instanceof HTMLElement && old.classList.contains("here") && fresh instanceof HTMLElement) fresh.classList.add("here");
  return true;
}

function beforeAttributeUpdated(name, node) {
  if (name === "open" && node instanceof HTMLDetailsElement) return false;
  if ((name === "checked" || name === "value") && node instanceof HTMLInputElement) return node.type === "hidden";
  return true;
}

function address() {
  const params = new URLSearchParams({ page: body.dataset.page, since: token });
  const shown = table();
  if (shown) {
    params.set("_after", shown.dataset.max);
    if (held()) params.set("_rows", shown.dataset.drawn);
  }
  return `${body.dataset.root}/-/live?${params}`;
}

async function poll() {
  const answer = await fetch(address(), { credentials: "same-origin", headers: { Accept: "text/html" }, redirect: "error" });
  if (answer.status === 204) return;
  if (answer.status === 401 || answer.status === 403) {
    stopped = say("signed out");
    trouble(say("Signed out, or no longer permitted: reload the page."));
    return;
  }
  if (!answer.ok) {
    wait = Number(answer.headers.get("Retry-After") || 0);
    throw new Error(`status ${answer.status}`);
  }
  const html = await answer.text();
  if (pause()) return; // something was opened meanwhile: the next round brings it
  const before = document.querySelector(".pill a");
  const drawn = table() && held() ? table().dataset.drawn : null;
  token = answer.headers.get("X-Jobkit-Token") || token;
  merge(html);
  // Held rows are compared with the states that the person saw first.
  if (drawn && table()) table().dataset.drawn = drawn;
  const pill = document.querySelector(".pill a");
  if (pill && (!before || before.textContent !== pill.textContent)) announce(say("{count} new jobs", { count: pill.dataset.count }));
}

function schedule() {
  clearTimeout(timer);
  if (!seconds && !failures) return;
  const base = failures ? Math.max(Math.min(60, 2 ** failures), wait) : seconds;
  timer = setTimeout(round, base * 1000 * (0.9 + Math.random() * 0.2));
}

export async function round() {
  if (busy) return;
  if (pause()) { tell(); schedule(); return; }
  busy = true;
  try {
    await poll();
    failures = 0; wait = 0;
    lastGood = Date.now();
    if (!stopped) trouble("");
  } catch {
    failures += 1;
    if (failures >= 3) trouble(say("Can't reach the server; trying again in {count} s.", { count: Math.max(Math.min(60, 2 ** failures), wait) }));
  }
  busy = false;
  tell();
  if (!stopped) schedule();
}

export function cycle() {
  const choice = document.querySelector("[data-refresh-choice]");
  if (!choice) return;
  choice.selectedIndex = (choice.selectedIndex + 1) % choice.options.length;
  choose(choice);
}

function choose(choice) {
  seconds = Number(choice.value);
  const form = choice.form;
  fetch(form.action, { method: "POST", credentials: "same-origin", body: new URLSearchParams(new FormData(form)) }).catch(() => {});
  stopAnnouncing();
  tell();
  schedule();
}

export function startLive() {
  if (!body.dataset.page) return;
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-refresh-choice]")) choose(event.target);
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { hiddenAt = Date.now(); return; }
    if (seconds || Date.now() - hiddenAt > 300000) round();
  });
  window.addEventListener("online", () => round());
  setInterval(tell, 1000);
  round();
}
