// The state of the index, from /readyz, /collections, /metrics and /version.

import { Problem, Unreachable, collection, metrics, ready, version } from "./api.js";
import { chosenCollection, refreshCollections } from "./collections.js";
import { byId, count, counted, element, percent } from "./dom.js";
import { showError } from "./notices.js";

const EVERY_MS = 10_000;
const AGAIN_MS = 2_000; // while the server does not answer

let documents = null;
let timer = 0;
let onChange = () => {};

export const indexIsEmpty = () => documents === 0;

/** Ask for the state now, and again from time to time. */
export async function refreshIndex() {
  clearTimeout(timer);
  let reached = true;
  try {
    const state = await currentState();
    summarise(state);
    if (byId("index-panel").open) await showState(state);
    if (documents !== state.documents) {
      documents = state.documents;
      onChange();
    }
  } catch (error) {
    reached = false;
    showAway(error);
  }
  timer = setTimeout(refreshIndex, reached ? EVERY_MS : AGAIN_MS);
}

/** The state of the service, with the numbers of the chosen collection where it is known. */
async function currentState() {
  const [service, name] = [await ready(), chosenCollection()];
  if (name === null) return service;
  try {
    const { documents: held } = await collection(name);
    return { ...service, documents: held ?? 0 };
  } catch (error) {
    if (error.status === 404) await refreshCollections(); // it was removed
    throw error;
  }
}

function summarise({ documents: held, degraded }) {
  const parts = [counted(held, "document")];
  if (degraded.length) parts.push(`without ${degraded.join(", ")}`);
  say(parts.join(" · "), false);
  byId("index-notice").replaceChildren();
}

function showAway(error) {
  say(error instanceof Unreachable ? "The server does not answer." : error.message, true);
  if (byId("index-panel").open) showError(byId("index-notice"), error, refreshIndex);
}

/** Tell the summary to a screen reader only when it changes. */
function say(text, away) {
  const summary = byId("index-summary");
  if (summary.textContent !== text) summary.textContent = text;
  summary.classList.toggle("away", away);
}

async function showState({ documents: held }) {
  const about = await version();
  const rows = [
    ["Documents", count(held)],
    ["Model", `${about.checkpoint.name}, ${about.precision}`],
    ...(await measured()),
    ["Version", about.version],
  ];
  byId("index-state").replaceChildren(...rows.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** How much a search finds, and how much changed since it was tuned; an operator may have closed /metrics. */
async function measured() {
  let values;
  try {
    values = await metrics();
  } catch (error) {
    if (error instanceof Problem) return [["What searches find", "not public on this server"]];
    throw error;
  }
  const own = (name, label = "") =>
    values.get(`longmatch_${name}{collection="${chosenCollection() ?? "default"}"${label}}`);
  const share = (name, label) => {
    const value = own(name, label);
    return value === undefined ? "not measured yet" : percent(value);
  };
  const lists = own("index_lists");
  const rows = [
    ["Found, of the best 10", share("recall_at_10", ',source="shadow"')],
    ["A search compares", lists === 1 ? "every document"
      : `${count(own("nprobe") ?? 0)} of ${count(lists ?? 0)} groups of documents`],
  ];
  if (lists === 1) return rows;
  return [...rows,
    ["Found when they were grouped", share("recall_at_10", ',source="held_out"')],
    ["Added since then", share("index_changed_ratio", ',kind="added"')],
    ["Removed since then", share("index_changed_ratio", ',kind="removed"')],
    ["Empty groups", share("index_empty_lists_ratio")]];
}

export function openIndexPanel() {
  byId("index-panel").showModal();
  refreshIndex();
}

/** Show the panel on request; `change` is called when the number of documents changes. */
export function startIndexPanel(change) {
  onChange = change;
  byId("index-button").addEventListener("click", openIndexPanel);
  byId("close-index").addEventListener("click", () => byId("index-panel").close());
  refreshIndex();
}
