// The document that is matched: a text that was pasted or read from a file, or a stored document.

import { Refusal, documents, version } from "./api.js";
import { acceptDrops, byId, counted, element, foreign } from "./dom.js";
import { readFile, refuseLong } from "./files.js";
import { suggestFields } from "./filters.js";
import { showError } from "./notices.js";

const EXAMPLES = 5;
const COUNT_AFTER_MS = 200;
const MOST_EDITED = 100_000; // characters; a browser needs seconds to lay out more in a text area
const BEGINNING = 400; // characters of a longer text that are shown

let stored = null; // {id, title} of the stored document, if one is matched
let long = ""; // the text, where it is too long for the text area
let fileName = "";
let choices = 0; // files chosen so far: the one that was chosen last is read, however slow others are
let counting = 0;
let onChosen = () => {};
let addFiles = () => {};

/** Return what to match, as the fields of POST /match; refuse what cannot be matched. */
export async function currentQuery() {
  if (stored) return { id: stored.id };
  const text = long || byId("text").value;
  if (!text.trim()) {
    byId("text").focus();
    throw new Refusal("There is no document yet", "Paste one, drop a file, or match a stored one.",
      "text-notice");
  }
  refuseLong(fileName || "The document", text, (await version()).limits);
  const title = byId("title").value.trim();
  return title ? { text, title } : { text };
}

/** Match a stored document from now on. */
export function useStored(document) {
  clear();
  stored = document;
  byId("chosen").replaceChildren("Stored document: ",
    element("b", {}, foreign(document.title || document.id)), " ",
    element("code", {}, document.id));
  show();
}

/** Match no stored document any more: it is one of another collection. */
export function forgetStored() {
  if (stored) clear();
}

/** Match a text from now on; a long one is not shown whole. */
function useText(text, name, title) {
  clear();
  fileName = name;
  byId("title").value = title;
  if (text.length > MOST_EDITED) {
    long = text;
    byId("chosen").replaceChildren(foreign(`${text.slice(0, BEGINNING)} …`));
  } else {
    byId("text").value = text;
  }
  show();
}

function clear() {
  choices += 1;
  stored = null;
  long = "";
  fileName = "";
  byId("text").value = "";
  byId("title").value = "";
  byId("file").value = "";
  byId("text-notice").replaceChildren();
  show();
}

function show() {
  const chosen = stored !== null || long !== "";
  byId("chosen").hidden = !chosen;
  for (const id of ["text", "text-help"]) byId(id).hidden = chosen;
  byId("title-field").hidden = stored !== null;
  describe();
}

function describe() {
  const text = long || byId("text").value;
  const words = text ? counted((text.match(/\S+/g) ?? []).length, "word") : "";
  byId("source").replaceChildren(...(fileName ? [foreign(fileName), words && `, ${words}`] : [words]));
}

/** Read the file of a drop or a choice, then search with it. */
async function choose(files) {
  const choice = ++choices;
  byId("text-notice").replaceChildren();
  try {
    byId("source").textContent = "Reading the file …";
    const { limits } = await version();
    const { text, title } = await readFile(files[0], limits);
    if (choice !== choices) return;
    useText(text, files[0].name, title);
    onChosen();
  } catch (error) {
    if (choice !== choices) return;
    describe();
    showError(byId("text-notice"), error, () => choose(files));
  } finally {
    byId("file").value = ""; // so that the same file can be chosen again
  }
}

/** Take a long text that is pasted before it gets into the text area. */
function paste(event) {
  const text = event.clipboardData.getData("text/plain");
  if (text.length <= MOST_EDITED) return;
  event.preventDefault();
  useText(text, "", "");
  byId("find").focus();
}

/** Offer some stored documents to begin with, or say that there are none, and offer their fields. */
export async function showExamples() {
  const { documents: found } = await documents(100);
  suggestFields(found);
  const place = byId("examples");
  const step = Math.max(1, Math.floor(found.length / EXAMPLES));
  const some = found.filter((_, index) => index % step === 0).slice(0, EXAMPLES);
  const use = (one) => () => {
    useStored(one);
    onChosen();
  };
  const buttons = some.map((one) => element("button", { type: "button", click: use(one) },
    foreign(one.title || one.id)));
  place.replaceChildren(element("span", {}, some.length ? "No document to try? Match a stored one:"
    : "There are no documents yet: drop a folder here, or press “Add documents”."), ...buttons);
  place.hidden = false;
}

/** Listen to the form; `chosen` is called when a document was chosen, `add` with several files. */
export function startQuery(chosen, add) {
  onChosen = chosen;
  addFiles = add;
  // On the whole window, so that a file that misses the form does no harm.
  acceptDrops(window, byId("drop"), (files, entries) => {
    if (document.querySelector("dialog[open]")) return;
    const folder = entries.some((entry) => entry.isDirectory);
    if (folder || files.length > 1) addFiles(files, entries);
    else choose(files);
  });
  byId("file").addEventListener("change", (event) => {
    const files = [...event.target.files]; // a copy: the list is emptied with the control
    if (files.length) choose(files);
  });
  byId("clear").addEventListener("click", () => {
    clear();
    byId("text").focus();
  });
  byId("text").addEventListener("paste", paste);
  byId("text").addEventListener("input", () => {
    choices += 1; // a file that is still being read must not replace what is typed
    clearTimeout(counting);
    counting = setTimeout(describe, COUNT_AFTER_MS);
    if (!byId("text").value) fileName = "";
  });
  describe(); // a browser may keep the text of a form over a reload
}
