// Two buttons at a match: what a person says of it, kept by the service where it takes feedback.

import { deleteFeedback, giveFeedback, version } from "./api.js";
import { element } from "./dom.js";

const VERDICTS = [[1, "Relevant"], [0, "Not relevant"]];

/** Return whether the service takes feedback at all; a key may still lack the scope. */
export async function takesFeedback() {
  return (await version()).limits.max_feedback > 0;
}

/** Return the buttons for a match of a query, {text, title} or {id}; a second press takes back. */
export function feedbackButtons(query, one) {
  const status = element("small", { role: "status", class: "quiet" });
  const buttons = VERDICTS.map(([grade, name]) => element("button", {
    type: "button", "aria-pressed": "false", "aria-label": `${name}: ${one.title || one.id}`,
    click: () => press(grade),
  }, name));
  let kept = null; // {id, grade} of the verdict that the service has from this page
  let waiting = false;

  async function press(grade) {
    if (waiting) return;
    waiting = true;
    status.textContent = "";
    try {
      if (kept?.grade === grade) {
        await deleteFeedback(kept.id);
        kept = null;
        status.textContent = "Taken back.";
      } else {
        kept = await giveFeedback({ query, match: one.id, grade });
        status.textContent = "Kept.";
      }
    } catch (error) {
      status.textContent = `Not kept: ${error.message}`;
    } finally {
      waiting = false;
    }
    buttons.forEach((button, index) => {
      button.setAttribute("aria-pressed", String(kept?.grade === VERDICTS[index][0]));
    });
  }

  return element("span", { class: "row", role: "group", "aria-label": "Is this match relevant?" },
    status, ...buttons);
}
