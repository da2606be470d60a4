// Ticked rows: kept while the list is refreshed and paged, shift-click ticks a range.
const KEY = `jobkit:ticked:${document.body.dataset.root}`;
const MOST = 500;
let last = null;

function load() {
  try { return new Set(JSON.parse(sessionStorage.getItem(KEY) || "[]")); } catch { return new Set(); }
}
let ticked = load();

function save() {
  try { sessionStorage.setItem(KEY, JSON.stringify([...ticked].slice(0, MOST))); } catch { /* private mode */ }
}

function boxes() { return [...document.querySelectorAll('#jobs-form input[name="id"][type="checkbox"]')]; }

export function count() { return ticked.size; }

function note(box) {
  if (box.checked && ticked.size < MOST) ticked.add(box.value);
  else { ticked.delete(box.value); box.checked = false; }
}

function show() {
  for (const box of boxes()) box.checked = ticked.has(box.value);
  const place = document.getElementById("ticked");
  if (place) place.textContent = `(${ticked.size})`;
  const all = document.getElementById("tick-all");
  const here = boxes();
  if (all) all.checked = here.length > 0 && here.every((box) => box.checked);
}

function range(to) {
  const here = boxes();
  const a = here.findIndex((box) => box.value === last);
  const b = here.indexOf(to);
  if (a < 0 || b < 0) return;
  for (const box of here.slice(Math.min(a, b), Math.max(a, b) + 1)) { box.checked = to.checked; note(box); }
}

export function toggle(box, shift) {
  box.checked = !box.checked;
  changed(box, shift);
}

function changed(box, shift) {
  note(box);
  if (shift && last) range(box);
  last = box.value;
  save(); show();
}

export function startSelect() {
  const form = document.getElementById("jobs-form");
  if (!form) {
    if (/\/operations\/\d+$/.test(location.pathname)) { ticked.clear(); save(); }
    return;
  }
  let shift = false;
  document.addEventListener("click", (event) => { shift = event.shiftKey; }, true);
  document.addEventListener("change", (event) => {
    if (event.target.matches('#jobs-form input[name="id"]')) changed(event.target, shift);
    if (event.target.id === "tick-all") {
      for (const box of boxes()) { box.checked = event.target.checked; note(box); }
      save(); show();
    }
  });
  document.addEventListener("jobkit:merged", show);
  form.addEventListener("submit", () => {
    // Ticked rows of other pages go along.
    const here = new Set(boxes().map((box) => box.value));
    for (const old of form.querySelectorAll("input[data-elsewhere]")) old.remove();
    for (const id of ticked) {
      if (here.has(id)) continue;
      const input = document.createElement("input");
      input.type = "hidden"; input.name = "id"; input.value = id; input.dataset.elsewhere = "";
      form.append(input);
    }
  });
  show();
}
