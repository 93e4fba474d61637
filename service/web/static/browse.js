// The list of the stored documents at #browse: a page at a time, sorted, filtered by their metadata.

import { documents, facets } from "./api.js";
import { byId, count, counted, element, foreign, shorten } from "./dom.js";
import { fieldOf } from "./filters.js";
import { showError } from "./notices.js";

const PAGE = 100; // documents
const MOST_FIELDS = 8;
const FEW = 8; // values that are shown without a press

let cursors = [""]; // of the pages up to the one that is shown
const chosen = new Map(); // values by field: documents that have one of each
let requested = 0; // pages: only the answer to the newest request is shown
let counting = 0; // requests for facets
let onChosen = () => {};

function row(stored) {
  const choose = () => {
    byId("browse").close();
    onChosen(stored);
  };
  const fields = Object.entries(stored.metadata).slice(0, MOST_FIELDS).map(([name, value]) =>
    element("li", {}, foreign(shorten(
      `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`))));
  return element("tr", {},
    element("th", { scope: "row" },
      element("button", { type: "button", class: "title", click: choose },
        foreign(stored.title || stored.id))),
    element("td", {}, element("ul", { class: "chips", role: "list" }, ...fields)),
    element("td", { class: "number" }, count(stored.receipt.tokens)),
    element("td", { class: "number" }, stored.indexed_at.slice(0, 10)));
}

const filter = () => (chosen.size
  ? { and: [...chosen].map(([field, values]) => ({ field: fieldOf(field), in: [...values] })) } : null);

/** Show the first page of what is chosen by now. */
function restart() {
  cursors = [""];
  showPage();
  showFacets();
}

/** The values of fields with how many of the chosen documents have each; a press chooses it. */
async function showFacets() {
  const request = ++counting;
  try {
    const answer = await facets(filter());
    if (request !== counting) return;
    const focused = document.activeElement?.closest("#facets button")?.ariaLabel;
    byId("facets").replaceChildren(...answer.facets.map(facet));
    [...byId("facets").querySelectorAll("button")].find((one) => one.ariaLabel === focused)?.focus();
  } catch (error) {
    if (request === counting) showError(byId("browse-notice"), error, restart);
  }
}

function facet({ field, values }) {
  const buttons = values.map(({ value, documents: number }) => {
    const press = () => {
      const held = chosen.get(field) ?? new Set();
      if (!held.delete(value)) held.add(value);
      if (held.size) chosen.set(field, held);
      else chosen.delete(field);
      restart();
    };
    const shown = shorten(String(value));
    return element("li", {}, element("button", {
      type: "button", "aria-pressed": String(chosen.get(field)?.has(value) ?? false),
      "aria-label": `${field}: ${shown}, ${counted(number, "document")}`, click: press,
    }, foreign(shown), " ", element("small", {}, count(number))));
  });
  return element("details", { open: chosen.has(field) || values.length <= FEW },
    element("summary", {}, foreign(field)),
    element("ul", { class: "chips", role: "list" }, ...buttons));
}

async function showPage() {
  const page = ++requested;
  byId("browse-notice").replaceChildren();
  try {
    const answer = await documents(PAGE, cursors.at(-1), byId("browse-sort").value, filter());
    if (page !== requested) return;
    const found = answer.documents;
    byId("browse-rows").replaceChildren(...found.map(row));
    const bare = found.every((one) => Object.keys(one.metadata).length === 0);
    byId("browse-table").classList.toggle("bare", bare);
    byId("browse-table").hidden = found.length === 0;
    byId("browse-status").textContent = found.length || cursors.length > 1
      ? `Page ${count(cursors.length)}, ${counted(found.length, "document")}`
      : chosen.size ? "No document has these." : "There are no documents yet.";
    byId("browse-previous").disabled = cursors.length === 1;
    byId("browse-next").disabled = answer.next_cursor === null;
    byId("browse-next").value = answer.next_cursor ?? "";
    byId("browse-scroll").scrollTop = 0;
  } catch (error) {
    if (page === requested) showError(byId("browse-notice"), error, showPage);
  }
}

function follow() {
  const open = location.hash === "#browse";
  if (open === byId("browse").open) return;
  if (!open) {
    byId("browse").close();
    return;
  }
  chosen.clear();
  byId("browse").showModal();
  restart();
}

/** Show the list at #browse; `chosen` is called with the document that is to be matched. */
export function startBrowse(chosen) {
  onChosen = chosen;
  byId("browse-button").addEventListener("click", () => { location.hash = "browse"; });
  byId("close-browse").addEventListener("click", () => byId("browse").close());
  byId("browse").addEventListener("close", () => {
    if (location.hash === "#browse") history.replaceState(null, "", location.pathname + location.search);
  });
  byId("browse-sort").addEventListener("change", restart);
  byId("browse-previous").addEventListener("click", () => {
    cursors.pop();
    showPage();
  });
  byId("browse-next").addEventListener("click", (event) => {
    cursors.push(event.target.value);
    event.target.disabled = true; // until the next page says what follows it
    showPage();
  });
  addEventListener("hashchange", follow);
  follow();
}
