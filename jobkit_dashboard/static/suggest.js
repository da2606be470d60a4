// Completion of the query: an ARIA combobox.
let items = [];
let at = -1;
let asked = 0;
let timer = 0;
let abort = null;

function input() { return document.getElementById("q"); }
function list() { return document.getElementById("q-list"); }

function close() {
  const box = list();
  if (!box) return;
  asked += 1; clearTimeout(timer); // what is still on its way comes too late
  box.hidden = true; items = []; at = -1;
  input().setAttribute("aria-expanded", "false");
  input().removeAttribute("aria-activedescendant");
}

function draw() {
  const box = list();
  box.replaceChildren(...items.map((item, index) => {
    const row = document.createElement("li");
    row.id = `q-option-${index}`; row.role = "option";
    row.setAttribute("aria-selected", String(index === at));
    const text = document.createElement("span");
    text.textContent = item.text;
    const hint = document.createElement("span");
    hint.className = "what"; hint.textContent = item.hint;
    row.append(text, hint);
    return row;
  }));
  box.hidden = items.length === 0;
  input().setAttribute("aria-expanded", String(items.length > 0));
  if (at >= 0) {
    input().setAttribute("aria-activedescendant", `q-option-${at}`);
    box.children[at].scrollIntoView({ block: "nearest" });
  } else input().removeAttribute("aria-activedescendant");
}

async function ask() {
  const field = input();
  const mine = ++asked;
  abort?.abort();
  abort = new AbortController();
  const params = new URLSearchParams({ q: field.value, at: String([...field.value.slice(0, field.selectionStart)].length) });
  try {
    const answer = await fetch(`${field.dataset.suggest}?${params}`, { credentials: "same-origin", signal: abort.signal });
    if (!answer.ok || mine !== asked || document.activeElement !== field) return;
    items = (await answer.json()).items; at = -1;
    draw();
  } catch { /* a newer question took its place */ }
}

function take(index) {
  const item = items[index];
  if (!item) return;
  const field = input();
  // Positions count characters, as the server does.
  const chars = [...field.value];
  const before = chars.slice(0, item.start).join("");
  const after = chars.slice(item.start + item.length).join("");
  const gap = item.text.endsWith(":") || item.text.endsWith(".") || after.startsWith(" ") ? "" : " ";
  field.value = before + item.text + gap + after;
  const place = before.length + item.text.length + gap.length;
  field.setSelectionRange(place, place);
  close();
  if (!gap) { clearTimeout(timer); timer = setTimeout(ask, 120); }
}

export function startSuggest() {
  document.addEventListener("click", (event) => {
    // "more…" of a facet: the completion lists all its values.
    const more = event.target.closest("[data-more]");
    const field = input();
    if (!more || !field) return;
    field.value = `${field.value.trim()} ${more.dataset.more}`.trimStart();
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
    ask();
  });
  const field = input();
  if (!field || !field.dataset.suggest) return;
  for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-expanded", "false"], ["aria-controls", "q-list"]]) field.setAttribute(name, value);
  field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 120); });
  field.addEventListener("blur", () => setTimeout(close, 150));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list().hidden) { close(); event.preventDefault(); event.stopPropagation(); return; }
    if (event.key === "ArrowDown" && !items.length) { ask(); event.preventDefault(); return; }
    if (!items.length) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = event.key === "ArrowDown" ? (at + 1) % items.length : (at <= 0 ? items.length : at) - 1;
      draw(); event.preventDefault();
    } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) { take(at); event.preventDefault(); }
  });
  list().addEventListener("mousedown", (event) => {
    const row = event.target.closest("li");
    if (row) { take([...list().children].indexOf(row)); event.preventDefault(); field.focus(); }
  });
}
