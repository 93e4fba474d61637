// Elements and text. Nothing here parses markup: what comes from documents stays text.

export const byId = (id) => document.getElementById(id);

// The characters that the comparison page shows as pictures, too (service/web/marked_text.py).
const UNSAFE =
  /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u206f\ufeff\ufffe\uffff]/g;

/** Return a text with control characters and those that reorder text made visible. */
export function visible(text) {
  return String(text).replace(UNSAFE, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/** Make an element: attributes by name, listeners as functions by event, then children. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map(
    (child) => (child instanceof Node ? child : visible(child)),
  ));
  return made;
}

/** A text of a document or a person, which may run in either direction. */
export const foreign = (text) => element("bdi", { dir: "auto" }, text);

const LONGEST_VALUE = 60; // characters of a value in a list

export const shorten = (text) =>
  text.length <= LONGEST_VALUE ? text : `${text.slice(0, LONGEST_VALUE - 1)}…`;

export const count = (number) => number.toLocaleString("en");

export const counted = (number, one, more = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : more}`;

/** A share as a percentage; "100 %" and "0 %" are exact. */
export function percent(share) {
  if (share > 0 && share < 0.01) return "<1\u00a0%";
  if (share > 0.99 && share < 1) return ">99\u00a0%";
  return `${(100 * share).toFixed(0)}\u00a0%`;
}

/** Bytes as a person reads them. */
export function bytes(size) {
  if (size < 1024) return counted(size, "byte");
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = size;
  let unit = -1;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Take the files that are dropped on a target; `place` is marked while they are above it. */
export function acceptDrops(target, place, take) {
  const listen = (kind, on, then) => target.addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault(); // the browser would otherwise open the file in place of this page
    event.stopPropagation();
    place.classList.toggle("over", on(event));
    if (!then) return;
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
    then([...event.dataTransfer.files], entries.filter(Boolean)); // folders are entries alone
  });
  listen("dragover", () => true);
  listen("dragleave", (event) => Boolean(event.relatedTarget));
  listen("drop", () => false, take);
}
