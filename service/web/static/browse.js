// The list of the stored documents, a page at a time, at #browse.

import { documents } from "./api.js";
import { byId, count, counted, element, foreign, shorten } from "./dom.js";
import { showError } from "./notices.js";

const PAGE = 100; // documents
const MOST_FIELDS = 8;

let cursors = [""]; // of the pages up to the one that is shown
let requested = 0; // pages: only the answer to the newest request is shown
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

async function showPage() {
  const page = ++requested;
  byId("browse-notice").replaceChildren();
  try {
    const answer = await documents(PAGE, cursors.at(-1));
    if (page !== requested) return;
    const found = answer.documents;
    byId("browse-rows").replaceChildren(...found.map(row));
    byId("browse-table").hidden = found.length === 0;
    byId("browse-status").textContent = found.length || cursors.length > 1
      ? `Page ${count(cursors.length)}, ${counted(found.length, "document")}`
      : "There are no documents yet.";
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
  cursors = [""];
  byId("browse").showModal();
  showPage();
}

/** Show the list at #browse; `chosen` is called with the document that is to be matched. */
export function startBrowse(chosen) {
  onChosen = chosen;
  byId("browse-button").addEventListener("click", () => { location.hash = "browse"; });
  byId("close-browse").addEventListener("click", () => byId("browse").close());
  byId("browse").addEventListener("close", () => {
    if (location.hash === "#browse") history.replaceState(null, "", location.pathname + location.search);
  });
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
