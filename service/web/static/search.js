// One search at a time: what is running, its states, and what came of it.

import { Unreachable, match } from "./api.js";
import { openComparison } from "./comparison.js";
import { byId, counted, element } from "./dom.js";
import { feedbackButtons, takesFeedback } from "./feedback.js";
import { currentFilter, filterCount, markErrors } from "./filters.js";
import { indexIsEmpty, refreshIndex } from "./index_panel.js";
import { focusKey } from "./key.js";
import { showMatches, showReceipt } from "./matches.js";
import { showError, showMessage } from "./notices.js";
import { currentQuery } from "./query.js";

const SLOW_SECONDS = 3;
const EXPLAINED = { matches: 20, passages: 3 }; // of those further down, words alone say why

let running = null;
let found = null; // {query, matches} of the last search

/** Return the last query and its matches, null if there are none. */
export const lastFound = () => found;

/** Search with what the form says; a search that is running is given up. */
export async function search() {
  cancel();
  const controller = new AbortController();
  running = controller;
  const stop = showLoading();
  try {
    const query = await currentQuery();
    const body = { ...query, ...options(), explain: EXPLAINED };
    const answer = await match(body, controller.signal);
    const judged = await takesFeedback().catch(() => false);
    if (running === controller) show(answer, query, judged);
  } catch (error) {
    if (running === controller) fail(error);
  } finally {
    if (running === controller) {
      stop();
      running = null;
    }
  }
}

/** Give up the search that is running; the service stops working on it. */
export function cancel() {
  if (!running) return false;
  running.abort();
  running = null;
  stopLoading();
  byId("search-status").textContent = "Cancelled.";
  return true;
}

function options() {
  const given = {
    mode: document.querySelector("input[name=mode]:checked").value,
    collapse: byId("collapse").checked,
  };
  const most = byId("top-k").valueAsNumber;
  if (!Number.isNaN(most)) given.top_k = most;
  const filter = currentFilter();
  return filter ? { ...given, filter } : given;
}

let stopLoading = () => {};

function showLoading() {
  const { top } = byId("matches").getBoundingClientRect(); // an emptied page may not scroll
  clear();
  byId("matches").setAttribute("aria-busy", "true");
  byId("cancel").hidden = false;
  if (top < 0 || top > innerHeight / 2) byId("matches").scrollIntoView(); // on a phone it is below
  const status = byId("search-status");
  status.textContent = "Reading the document …";
  const started = performance.now();
  const timer = setInterval(() => {
    const seconds = Math.floor((performance.now() - started) / 1000);
    byId("elapsed").textContent = `${seconds} s`;
    if (seconds === SLOW_SECONDS) {
      status.textContent = "Still reading: the document is long, or the server is busy.";
    }
  }, 1000);
  stopLoading = () => {
    clearInterval(timer);
    byId("elapsed").textContent = "";
    byId("cancel").hidden = true;
    byId("matches").removeAttribute("aria-busy");
    stopLoading = () => {};
  };
  return stopLoading;
}

/** Take away what the last search found. */
export function clearMatches() {
  clear();
  byId("search-status").textContent = "";
}

function clear() {
  found = null;
  const places = ["search-notice", "text-notice", "filter-notice", "match-list", "receipt"];
  for (const id of places) byId(id).replaceChildren();
}

function show(answer, query, judged) {
  const took = Object.values(answer.timings).reduce((sum, one) => sum + one, 0);
  const above = answer.matches.filter((match) => match.relevant !== false);
  const matches = counted(above.length, "match", "matches");
  byId("search-status").textContent = `${matches} in ${(took / 1000).toFixed(took < 995 ? 2 : 1)} s`;
  found = { query, matches: answer.matches };
  showReceipt(answer);
  showMatches(answer.matches, (one) => openComparison(query, one),
    (one) => (judged ? feedbackButtons(query, one) : null));
  if (answer.matches.length === 0) showNone();
  else if (above.length === 0) {
    showMessage(byId("search-notice"), element("b", {}, "Nothing here resembles this document."),
      " What comes nearest is no closer than random documents are.");
  }
}

function showNone() {
  const place = byId("search-notice");
  if (indexIsEmpty()) {
    showMessage(place, "There are no documents yet. Add some under “Add documents”, or run " +
      "longmatch index FOLDER.");
  } else if (filterCount()) {
    showMessage(place, "No document passes the filters. Remove one, or compare by meaning.");
  } else {
    showMessage(place, "Nothing here shares a telling word with this document. Compare by meaning.");
  }
}

function fail(error) {
  byId("search-status").textContent = "";
  markErrors(error.errors ?? []);
  const place = byId(error.place ?? "search-notice");
  showError(place, error, search);
  if (error.place) place.scrollIntoView({ block: "nearest" }); // a phone shows the matches by now
  if (error instanceof Unreachable) refreshIndex(); // the header says so at once, too
  if (error.status === 401) focusKey();
}
