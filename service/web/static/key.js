// The API key of this browser tab, where the server takes one. It ends with the tab.

import { byId } from "./dom.js";

const NAME = "longmatch-api-key";
const REQUIRED = "key-required";

/** The header that requests carry; none without a key. */
export function authorization() {
  const key = sessionStorage.getItem(NAME);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Tell the page that the server refused a request for its key. */
export const requireKey = () => document.dispatchEvent(new Event(REQUIRED));

/** Lead to the form: a person waits for what was refused. */
export const focusKey = () => byId("api-key").focus();

/** Ask for a key when one is required; `changed` is called when there is another one. */
export function startKey(changed) {
  const form = byId("key-form");
  const input = byId("api-key");
  document.addEventListener(REQUIRED, () => {
    byId("key-status").textContent = sessionStorage.getItem(NAME)
      ? "The server does not accept this key: it is wrong, revoked or expired." : "";
    form.hidden = false;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const key = input.value.trim();
    // A header takes no other characters; a key has none.
    if (!/^[\x21-\x7e]+$/.test(key)) {
      byId("key-status").textContent = "This is not a key: it has characters that no key has.";
      input.focus();
      return;
    }
    sessionStorage.setItem(NAME, key);
    input.value = "";
    form.hidden = true;
    byId("text").focus();
    changed();
  });
}
