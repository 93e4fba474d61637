// The comparison page of the service in a frame: the query on the left, a match on the right.

import { compare } from "./api.js";
import { byId, element, foreign } from "./dom.js";
import { showError } from "./notices.js";

let loading = null;
let address = null;

/** Compare a query, {text, title} or {id}, with one of its matches. */
export async function openComparison(query, one) {
  close();
  const dialog = byId("comparison");
  const controller = new AbortController();
  loading = controller;
  byId("comparison-title").replaceChildren(
    foreign(query.title ?? query.id ?? "Your document"), " and ", foreign(one.title || one.id));
  byId("comparison-status").textContent = "Comparing …";
  byId("comparison-notice").replaceChildren();
  if (!dialog.open) dialog.showModal();
  try {
    const page = await compare(query, { id: one.id }, controller.signal);
    if (loading === controller) showPage(page, one);
  } catch (error) {
    if (loading !== controller) return;
    byId("comparison-status").textContent = "";
    showError(byId("comparison-notice"), error, () => openComparison(query, one));
  }
}

function showPage(page, one) {
  address = URL.createObjectURL(page);
  byId("comparison-status").textContent = "";
  const save = byId("save-comparison");
  save.href = address;
  save.download = `comparison with ${one.id}.html`;
  save.hidden = false;
  // Sandboxed without an origin of its own: it holds texts of strangers and needs nothing of ours.
  const frame = element("iframe", { sandbox: "allow-scripts", src: address,
    title: "Comparison: both texts with the passages that match" });
  frame.addEventListener("load", () => frame.focus());
  byId("comparison").append(frame);
}

function close() {
  loading?.abort();
  loading = null;
  byId("comparison").querySelector("iframe")?.remove();
  byId("save-comparison").hidden = true;
  if (address) URL.revokeObjectURL(address);
  address = null;
}

export function startComparison() {
  const dialog = byId("comparison");
  byId("close-comparison").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", close);
  // Keys that are pressed in the frame are its own; it says when Escape was one of them.
  addEventListener("message", (event) => {
    const frame = dialog.querySelector("iframe");
    if (frame && event.source === frame.contentWindow && event.data === "escape") dialog.close();
  });
}
