// The editor of filters over metadata: rows of field, operator and value.

import { Refusal } from "./api.js";
import { byId, element } from "./dom.js";

const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

// Each operator: its name, whether it takes a value, and the condition that it makes.
const OPERATORS = {
  is: { takes: true, make: (field, value) => ({ field, equal: read(value) }) },
  "is not": { takes: true, make: (field, value) => ({ not: { field, equal: read(value) } }) },
  "is one of": { takes: true, make: (field, value) => ({ field, in: split(value).map(read) }) },
  "at least": { takes: true, make: (field, value) => ({ field, range: { gte: read(value) } }) },
  "at most": { takes: true, make: (field, value) => ({ field, range: { lte: read(value) } }) },
  "is there": { takes: false, make: (field) => ({ field, exists: true }) },
  "is missing": { takes: false, make: (field) => ({ field, exists: false }) },
};

/** Read a value as it is typed: a number, true, false, or a text; in quotes always a text. */
function read(value) {
  const quoted = /^"(.*)"$/s.exec(value);
  if (quoted) return quoted[1];
  if (value === "true" || value === "false") return value === "true";
  if (!NUMBER.test(value)) return value;
  const number = Number(value);
  if (!Number.isFinite(number) || (/^-?\d+$/.test(value) && !Number.isSafeInteger(number))) {
    throw new Refusal("A filter is not complete",
      `${value} is a larger number than a browser can send exactly.`, "filter-notice");
  }
  return number;
}

/** Split values at commas that are not within quotes. */
function split(value) {
  const parts = value.match(/"[^"]*"|[^,]+/g) ?? [];
  return parts.map((part) => part.trim()).filter((part) => part !== "");
}

/** Write a value of metadata as `read` reads it. */
function write(value) {
  if (typeof value !== "string") return String(value);
  const plain = value === value.trim() && value !== "" && value !== "true" && value !== "false";
  return plain && !NUMBER.test(value) && !/[",]/.test(value) ? value : `"${value}"`;
}

/** Add a row; return its first control. */
export function addFilter(field = "", operator = "is", value = "") {
  const list = byId("filters");
  const remove = () => {
    const next = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    rename();
    (next?.querySelector("button") ?? byId("add-filter")).focus();
  };
  const operators = Object.keys(OPERATORS).map((name) => element("option", {}, name));
  const row = element("li", { class: "filter" },
    element("input", { class: "field", list: "fields", placeholder: "field", autocomplete: "off" }),
    element("select", { class: "operator", change: () => show(row) }, ...operators),
    element("input", { class: "value", placeholder: "value", autocomplete: "off" }),
    element("button", { type: "button", click: remove }, "Remove"));
  control(row, "field").value = field;
  control(row, "operator").value = operator;
  control(row, "value").value = value;
  list.append(row);
  rename();
  show(row);
  return control(row, "field");
}

/** Add the filter that a field has a value, as it is in the metadata of a document. */
export const addValueFilter = (name, value) => addFilter(fieldOf(name), "is", write(value));

/** A name that begins with a slash is written as a JSON pointer. */
export const fieldOf = (name) =>
  name.startsWith("/") ? `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}` : name;

const rows = () => [...byId("filters").children];
const control = (row, name) => row.querySelector(`.${name}`);
const show = (row) => {
  control(row, "value").hidden = !OPERATORS[control(row, "operator").value].takes;
};

function rename() {
  rows().forEach((row, index) => {
    for (const name of ["field", "operator", "value"]) {
      control(row, name).setAttribute("aria-label", `Filter ${index + 1}: ${name}`);
    }
    row.querySelector("button").setAttribute("aria-label", `Remove filter ${index + 1}`);
  });
}

export const filterCount = () => rows().length;

/** Return the filter of POST /match, one condition a row; undefined without rows. */
export function currentFilter() {
  markErrors([]);
  const conditions = rows().map((row, index) => {
    const field = control(row, "field").value.trim();
    const operator = OPERATORS[control(row, "operator").value];
    const value = control(row, "value").value.trim();
    if (field === "" || (operator.takes && value === "")) {
      markErrors([{ pointer: `#/filter/and/${index}` }]);
      const missing = field === "" ? "field" : "value";
      control(row, missing).focus();
      throw new Refusal("A filter is not complete", `Filter ${index + 1} needs a ${missing}.`,
        "filter-notice");
    }
    return operator.make(field, value);
  });
  return conditions.length ? { and: conditions } : undefined;
}

/** Mark the rows that errors of the service point at. */
export function markErrors(errors) {
  const wrong = new Set(errors.map((one) => /^#\/filter\/and\/(\d+)/.exec(one.pointer ?? "")?.[1]));
  rows().forEach((row, index) => {
    for (const input of row.querySelectorAll("input, select")) {
      input.setAttribute("aria-invalid", String(wrong.has(String(index))));
    }
  });
}

/** Suggest the fields of some documents. */
export function suggestFields(documents) {
  const names = new Set(documents.flatMap((one) => Object.keys(one.metadata)));
  byId("fields").replaceChildren(
    ...[...names].sort().map((name) => element("option", { value: fieldOf(name) })),
  );
}

export function startFilters() {
  byId("add-filter").addEventListener("click", () => addFilter().focus());
}
