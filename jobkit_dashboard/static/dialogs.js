// What asks first is asked in a dialog over the page: the server's own confirmation page, taken out of its frame.
// Whatever goes wrong on the way, the page itself is opened instead; asking changes nothing, so asking twice is harmless.
import { parse } from "./live.js";

const PATIENCE = 10000;
const FIELDS = "a[href], button:not([disabled]), input:not([type=hidden]):not([disabled]), select:not([disabled]), textarea:not([disabled])";
let dialog = null;
let opener = null;
let asking = false;
let page = null; // the form that is being sent the ordinary way

function frame() {
  if (dialog) return dialog;
  dialog = document.createElement("dialog");
  dialog.className = "asking";
  dialog.setAttribute("aria-labelledby", "asking-title");
  dialog.setAttribute("aria-describedby", "confirmation-lead");
  dialog.addEventListener("close", closed);
  dialog.addEventListener("keydown", around);
  dialog.addEventListener("click", (event) => {
    if (!event.target.closest("[data-back]") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    dialog.close();
  });
  document.body.append(dialog);
  return dialog;
}

function around(event) {
  if (event.key !== "Tab") return;
  const all = [...dialog.querySelectorAll(FIELDS)].filter((field) => field.checkVisibility?.() ?? true);
  const from = event.shiftKey ? all[0] : all[all.length - 1];
  if (!all.length || (document.activeElement !== from && all.includes(document.activeElement))) return;
  event.preventDefault();
  (event.shiftKey ? all[all.length - 1] : all[0]).focus();
}

function closed() {
  dialog.replaceChildren();
  // A button in a menu is out of sight by now; its menu is not.
  const seen = (place) => place?.isConnected && (place.checkVisibility?.() ?? place.offsetParent !== null);
  const places = [opener, opener?.closest("details")?.querySelector("summary"), document.getElementById("main")];
  places.find(seen)?.focus();
  opener = null;
}

function show(html) {
  const answer = parse(html);
  const content = answer.querySelector("[data-confirmation]");
  const title = answer.querySelector("h1");
  if (!content || !title) throw new Error("no confirmation");
  const heading = document.createElement("h2");
  heading.id = "asking-title";
  heading.textContent = title.textContent;
  const box = frame();
  box.replaceChildren(heading, ...[...content.childNodes].map((node) => document.importNode(node, true)));
  box.showModal();
  (box.querySelector("input:not([type=hidden]), select") || box.querySelector("[data-back]"))?.focus();
}

async function ask(url, options, otherwise) {
  asking = true;
  try {
    const answer = await fetch(url, { ...options, credentials: "same-origin", redirect: "error", headers: { Accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.text());
  } catch { otherwise(); }
  asking = false;
}

function followed(event) {
  const link = event.target.closest("a[data-asks]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (asking) return;
  opener = link;
  ask(link.href, {}, () => location.assign(link.href));
}

function sent(event) {
  const form = event.target;
  if (form === page || event.defaultPrevented || !form.matches("form[data-asks]")) return;
  const button = event.submitter;
  const body = new URLSearchParams(new FormData(form, button)); // where a browser cannot do that, the page opens
  event.preventDefault();
  if (asking) return;
  opener = button || document.activeElement;
  ask(form.getAttribute("action"), { method: "POST", body }, () => {
    page = form;
    form.requestSubmit(button);
    page = null;
  });
}

export function startDialogs() {
  document.addEventListener("click", followed);
  document.addEventListener("submit", sent);
}
