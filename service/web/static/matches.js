// The list of matches: what each one is, how sure it is, and why.

import { byId, count, counted, element, foreign, percent, shorten } from "./dom.js";
import { addValueFilter } from "./filters.js";
import { bestPassage, isTwin, whyItMatches } from "./why.js";

const MOST_TERMS = 8;
const MOST_FIELDS = 8;
const BINS = 20; // of a histogram
const FEWEST_SCORES = 3;
const SVG = "http://www.w3.org/2000/svg";

let onSimilar = () => {};

/** Say how much of the document was read, and why there are no probabilities. */
export function showReceipt({ receipt, alignment, no_probability: why }) {
  const { tokens, tokens_read: read, blocks_left_out: left, common_text: common } = receipt;
  const parts = left === 0
    ? ["All of the document was read."]
    : [element("strong", {}, `The first ${percent(read / tokens)} of the document were read`),
      " for their meaning; its words are all compared."];
  if (common >= 0.01) {
    parts.push(` ${percent(common)} of its words are text that many documents share: they count for nothing.`);
  }
  if (alignment && !alignment.aligned && alignment.candidates > 0) {
    parts.push(" There was no time to compare part by part: the order is rougher than usual.");
  }
  if (why) parts.push(` There are no probabilities: ${why}.`);
  byId("receipt").replaceChildren(...parts);
}

/**
 * Show matches, those that resemble the document by chance folded away; `compare` is called with
 * the one that a person opens, `judge` makes buttons.
 */
export function showMatches(matches, compare, judge) {
  const cards = (some) => some.map((match) =>
    card(match, matches.indexOf(match) + 1, () => compare(match), judge(match)));
  const below = matches.filter((match) => match.relevant === false);
  const above = matches.filter((match) => match.relevant !== false);
  byId("match-list").replaceChildren(...cards(above), ...folded(cards(below)), ...histogram(matches));
}

/** How many of the matches have which score; those above the level of chance are marked. */
function histogram(matches) {
  if (matches.length < FEWEST_SCORES) return [];
  const scores = matches.map((match) => match.score);
  const [least, most] = [Math.min(...scores), Math.max(...scores)];
  const bins = Array.from({ length: BINS }, () => [0, 0]);
  for (const { score, relevant } of matches) {
    const bin = Math.min(BINS - 1, Math.floor(((score - least) / (most - least || 1)) * BINS));
    bins[bin][relevant === false ? 1 : 0] += 1;
  }
  const highest = Math.max(...bins.map(([above, chance]) => above + chance));
  const drawn = document.createElementNS(SVG, "svg");
  drawn.setAttribute("class", "histogram");
  drawn.setAttribute("viewBox", `0 0 ${BINS} 10`);
  drawn.setAttribute("preserveAspectRatio", "none");
  drawn.setAttribute("aria-hidden", "true");
  bins.forEach(([above, chance], bin) => {
    const height = (number) => (10 * number) / highest;
    drawn.append(column(bin, 10 - height(chance), height(chance), "chance"),
      column(bin, 10 - height(chance + above), height(above), "above"));
  });
  const chance = matches.filter((match) => match.relevant === false).length;
  const said = `${counted(matches.length, "score")} from ${least.toFixed(3)} to ${most.toFixed(3)}` +
    (chance ? `; ${count(chance)}, in grey, no higher than those of random documents` : "");
  return [element("li", {}, element("details", { class: "details" },
    element("summary", {}, "Details of the scores"), drawn, element("p", { class: "quiet" }, said)))];
}

function column(bin, y, height, kind) {
  const drawn = document.createElementNS(SVG, "rect");
  const sizes = { x: bin + 0.1, y, width: 0.8, height, class: kind };
  for (const [name, value] of Object.entries(sizes)) drawn.setAttribute(name, value);
  return drawn;
}

function folded(cards) {
  if (cards.length === 0) return [];
  const list = element("ol", { class: "plain", role: "list" }, ...cards);
  const name = `${counted(cards.length, "document")} no closer than random ones`;
  return [element("li", {}, element("details", {}, element("summary", {}, name), list))];
}

function card(one, rank, compare, judging) {
  const title = one.title || one.id;
  const open = element("button", {
    type: "button", class: "title", "aria-haspopup": "dialog", click: compare,
  }, foreign(title));
  return element("li", { class: "match" },
    element("h3", {}, element("span", { class: "rank" }, `${rank}`), open),
    element("p", { class: "figures" }, ...chance(one)),
    element("p", {}, ...whyItMatches(one)),
    passage(one),
    family(one.collapsed),
    details(one),
    element("p", { class: "row actions" },
      element("button", { type: "button", "aria-label": `Compare with ${title}`,
        click: compare }, "Compare"),
      element("button", { type: "button", "aria-label": `Find what matches ${title}`,
        click: () => onSimilar(one) }, "Find similar"),
      judging));
}

/** The one number of a match. */
function chance(one) {
  const parts = one.probability === null
    ? [element("span", { class: "quiet" }, "not calibrated")]
    : [element("span", {}, element("b", {}, percent(one.probability)), " likely to match"),
      bar(one.probability)];
  if (isTwin(one)) parts.push(element("span", { class: "badge" }, "already in your corpus"));
  return parts;
}

function passage(one) {
  const found = bestPassage(one);
  return found && element("blockquote", {}, foreign(found));
}

function details(one) {
  return element("details", { class: "details" }, element("summary", {}, "Details"),
    element("p", { class: "id" }, element("code", {}, one.id)),
    element("p", { class: "figures" }, ...scores(one)),
    terms(one.terms),
    metadata(one.metadata));
}

function scores(one) {
  const parts = [element("span", {}, "score ", element("b", {}, one.score.toFixed(3)))];
  if (one.lexical_score !== null) {
    parts.push(element("small", {},
      `meaning ${one.semantic_score.toFixed(3)}, words ${one.lexical_score.toFixed(3)}`));
  }
  if (one.false_positive_rate !== null) {
    parts.push(element("small", {}, rate(one.false_positive_rate)));
  }
  return parts;
}

function rate(share) {
  if (share <= 0) return "no random pair of the corpus scores as high";
  return `1 in ${count(Math.round(1 / share))} random pairs scores as high`;
}

/** A bar of a share from 0 to 1; the number stands beside it. */
function bar(share) {
  const drawn = document.createElementNS(SVG, "svg");
  const full = document.createElementNS(SVG, "rect");
  drawn.setAttribute("viewBox", "0 0 100 1");
  drawn.setAttribute("preserveAspectRatio", "none");
  drawn.setAttribute("class", "bar");
  drawn.setAttribute("aria-hidden", "true");
  full.setAttribute("width", String(100 * share));
  full.setAttribute("height", "1");
  drawn.append(full);
  return drawn;
}

function terms(shared) {
  if (shared.length === 0) return null;
  const items = shared.slice(0, MOST_TERMS).map(({ term, weight }) =>
    element("li", {}, foreign(term), " ", element("small", {}, percent(weight))));
  return element("div", { class: "terms" }, element("span", { class: "quiet" }, "Telling words"),
    element("ul", { class: "chips", role: "list" }, ...items));
}

/** The fields of the metadata; a press on a plain value adds it as a filter. */
function metadata(fields) {
  const entries = Object.entries(fields);
  if (entries.length === 0) return null;
  const items = entries.slice(0, MOST_FIELDS).map(([name, value]) => {
    if (!["string", "number", "boolean"].includes(typeof value)) {
      return element("li", {}, foreign(`${name}: ${shorten(JSON.stringify(value))}`));
    }
    const shown = `${name}: ${shorten(String(value))}`;
    return element("li", {}, element("button", {
      type: "button", "aria-label": `Filter by ${shown}`, click: () => addValueFilter(name, value),
    }, foreign(shown)));
  });
  if (entries.length > MOST_FIELDS) {
    items.push(element("li", {}, `${count(entries.length - MOST_FIELDS)} more`));
  }
  return element("ul", { class: "chips", role: "list", "aria-label": "Metadata" }, ...items);
}

function family(collapsed) {
  if (!collapsed.length) return null;
  const items = collapsed.map((id) => element("li", {}, element("code", {}, id)));
  const more = collapsed.length === 10 ? "10 or more" : count(collapsed.length);
  return element("details", {},
    element("summary", {}, `Copies and versions of it: ${more}`),
    element("ul", {}, ...items));
}

/** Move among matches with the arrow keys; `similar` is called to match a match. */
export function startMatches(similar) {
  onSimilar = similar;
  byId("match-list").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const titles = [...byId("match-list").querySelectorAll(".title")]
      .filter((title) => title.checkVisibility());
    const here = titles.indexOf(event.target.closest(".match").querySelector(".title"));
    const next = titles[Math.min(Math.max(here + step, 0), titles.length - 1)];
    event.preventDefault();
    next.focus();
    next.closest(".match").scrollIntoView({ block: "nearest" });
  });
}
