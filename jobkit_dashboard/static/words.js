// The texts of the scripts, in the words of the catalogue; the server makes catalogue.js of it.
import words from "./catalogue.js";

export function say(text, values = {}) {
  const found = Object.hasOwn(words, text) ? words[text] : text;
  return found.replace(/\{(\w+)\}/g, (place, name) => (Object.hasOwn(values, name) ? String(values[name]) : place));
}
