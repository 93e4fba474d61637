// Which collection the page works with, where the server has several.

import { collections, useCollection } from "./api.js";
import { byId, element } from "./dom.js";

const NAME = "longmatch-collection"; // in this browser tab

let chosen = null; // its name; null while the server has not said which there are

/** The name of the collection that searches and uploads go to; null while it is not known. */
export const chosenCollection = () => chosen;

/** Ask which collections there are, and offer the choice if there are several. */
export async function refreshCollections() {
  const names = (await collections()).collections.map((one) => one.name);
  const kept = sessionStorage.getItem(NAME);
  chosen = names.includes(kept) ? kept : names[0] ?? null;
  useCollection(names.length > 1 ? chosen : null);
  byId("collection").replaceChildren(...names.map((name) =>
    element("option", { value: name, selected: name === chosen }, name)));
  byId("collection-choice").hidden = names.length < 2;
}

/** Listen to the choice; `changed` is called when there is another one. */
export function startCollections(changed) {
  byId("collection").addEventListener("change", (event) => {
    chosen = event.target.value;
    sessionStorage.setItem(NAME, chosen);
    useCollection(chosen);
    changed();
  });
}
