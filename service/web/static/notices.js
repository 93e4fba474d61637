// What went wrong, as a person reads it.

import { Refusal, Unreachable } from "./api.js";
import { count, element, foreign } from "./dom.js";

const FIELDS = {
  "#/text": "Document",
  "#/title": "Title",
  "#/top_k": "Matches",
  "#/mode": "Compare by",
  "#/filter": "Filters",
  "#/left/text": "Document",
};

/** Show an error in a place of the page; `retry` is offered where trying again may help. */
export function showError(place, error, retry) {
  const title = error.title ?? (error instanceof Unreachable ? error.message : "The page failed");
  const parts = [element("p", {}, element("b", {}, title))];
  if (error instanceof Unreachable) {
    parts.push(element("p", {}, "Check that it runs and that the network reaches it."));
  } else if (error.status === 401) {
    parts.push(element("p", {}, "Enter it at the top of this page."));
  } else if (error.errors?.length) { // they say it all
    parts.push(element("ul", {}, ...error.errors.map(fieldError)));
  } else {
    parts.push(element("p", {}, foreign(error.message)));
  }
  if (error.limit !== undefined) parts.push(element("p", {}, `The limit is ${count(error.limit)}.`));
  if (error.requestId) {
    parts.push(element("p", { class: "quiet" }, `Request ${error.requestId}`));
  }
  if (retry && mayHelp(error)) parts.push(retryButton(error, retry));
  place.replaceChildren(element("div", { class: "notice error", role: "alert" }, ...parts));
}

/** Show a message that is no error. */
export function showMessage(place, ...parts) {
  place.replaceChildren(element("div", { class: "notice" }, element("p", {}, ...parts)));
}

function mayHelp(error) {
  return !(error instanceof Refusal) && (error.status === undefined || error.status === 429 ||
    error.status >= 500);
}

function retryButton(error, retry) {
  const wait = error.retryAfter;
  const text = wait ? `The server asks to wait ${wait} s. ` : "";
  return element("p", {}, text, element("button", { type: "button", click: retry }, "Try again"));
}

/** An error of one field: its name on this page, what is wrong, and the limit. */
function fieldError(one) {
  const place = one.pointer ?? one.parameter ?? "";
  const row = /^#\/filter\/and\/(\d+)/.exec(place);
  const name = row ? `Filter ${Number(row[1]) + 1}` : FIELDS[place] ?? place;
  const limit = one.limit === undefined ? "" : ` (limit: ${count(one.limit)})`;
  return element("li", {}, element("b", {}, name), ": ", foreign(one.detail), limit);
}
