// Starts the page: each module listens to its part, here they are connected.

import { startBrowse } from "./browse.js";
import { chosenCollection, refreshCollections, startCollections } from "./collections.js";
import { startComparison } from "./comparison.js";
import { byId } from "./dom.js";
import { startFilters } from "./filters.js";
import { openIndexPanel, refreshIndex, startIndexPanel } from "./index_panel.js";
import { startKey } from "./key.js";
import { forgetMap, startMap } from "./map.js";
import { startMatches } from "./matches.js";
import { forgetStored, showExamples, startQuery, useStored } from "./query.js";
import { cancel, clearMatches, search } from "./search.js";
import { choose, startUploads } from "./uploads.js";

function startForm() {
  const form = byId("query");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  byId("cancel").addEventListener("click", cancel);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) cancel();
  });
}

function startHelp() {
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("close-help").addEventListener("click", () => byId("help").close());
}

function matchStored(one) {
  useStored(one);
  scrollTo({ top: 0 });
  search();
}

const refreshExamples = () => showExamples().catch(() => {}); // the search itself says what is wrong

/** Ask what there is to search, when it changed and with another key. */
async function refreshChoice() {
  const before = chosenCollection();
  await refreshCollections().catch(() => {}); // then it is the collection of the server or the key
  refreshExamples();
  if (chosenCollection() !== before) refreshIndex();
}

startKey(async () => {
  await refreshChoice();
  if (byId("search-notice").childElementCount) search(); // it was refused for want of a key
});
startForm();
startHelp();
startFilters();
startQuery(search, (files, entries) => {
  openIndexPanel();
  choose(files, entries);
});
startMatches(matchStored);
startComparison();
startUploads();
startIndexPanel(refreshChoice);
startBrowse(matchStored);
startMap(matchStored);
startCollections(() => {
  cancel();
  clearMatches();
  forgetStored();
  forgetMap();
  refreshExamples();
  refreshIndex();
});
