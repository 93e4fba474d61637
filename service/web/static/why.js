// Why a document matches, in one sentence, and the passage that shows it.

import { foreign, percent } from "./dom.js";

const MOST_NAMED = 3; // words
const SHORTEST = 40; // characters of a passage that says something
const LONGEST = 280; // and of what is shown of it

/** Whether a match is the very text of the query. */
export const isTwin = (match) => match.explanation?.relation === "identical";

/** The sentence, in parts. */
export function whyItMatches({ explanation: found, terms, relevant }) {
  const words = new Set(terms.map(({ term }) => term.replaceAll('"', ""))); // of titles in quotes
  const named = [...words].slice(0, MOST_NAMED).map((word) => foreign(word));
  if (found?.relation === "identical") return ["The same text as your document."];
  if (found?.relation === "near-copy") return [`${shared(found)}, mostly word for word.`];
  if (found?.relation === "paraphrase") return [`${shared(found)}, mostly in other words.`];
  if (relevant === false) return ["It resembles your document no more than a random one does."];
  const copied = found?.left_coverage >= 0.01 ? `${shared(found)}. ` : "";
  if (named.length) return [`${copied}Both write about `, ...listed(named), "."];
  if (copied) return [copied];
  return [relevant === true ? "It is close in meaning; no telling word is shared."
    : "No telling word is shared, and it is not known how close random documents come."];
}

const shared = ({ left_coverage: here, right_coverage: there }) =>
  `${percent(here)} of your document and ${percent(there)} of this one say the same`;

/** Whether most of a text is letters: drawings and tables of numbers say little. */
const isProse = (text) => (text.match(/\p{L}/gu) ?? []).length > text.length / 2;

function listed(names) {
  return names.flatMap((name, index) => {
    if (index === 0) return [name];
    return [index === names.length - 1 ? " and " : ", ", name];
  });
}

/** The passage of a match that resembles the document most; null where none stands out. */
export function bestPassage({ explanation: found }) {
  if (!found) return null;
  const length = ({ right }) => right.end - right.start;
  const worded = found.passages.filter(({ kind }) => kind !== "similar");
  worded.sort((one, other) => length(other) - length(one));
  const text = [...worded, ...(found.aligned_blocks ?? []), ...found.passages]
    .map(({ right }) => right.text.replace(/\s+/g, " ").trim())
    .find((text) => text.length >= SHORTEST && isProse(text));
  if (!text) return null;
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST).replace(/\s\S*$/, "")} …`;
}
