// The map of the documents at #map: a point for each, near those that it resembles.

import { documentMap } from "./api.js";
import { byId, count, counted, element, foreign, shorten } from "./dom.js";
import { showError } from "./notices.js";
import { lastSearch } from "./search.js";

const SIDE = 65_535; // of the coordinates of the service
const MARGIN = 24; // CSS pixels around the points
const NEAR = 12; // CSS pixels from a point that count as on it
const CLOSEST = 64; // times as large as the whole map
const LABEL = 13; // CSS pixels
const MOST_MARKED = 10; // matches
// Told apart by people who confuse red and green, on light and on dark paper; then they repeat.
const COLOURS = ["#4269d0", "#c78a00", "#e0513f", "#3c9d8f", "#b05fc7", "#7a8b3c", "#d9679b",
  "#5f8fc9", "#9a6b4b", "#6c6f7d"];
const OTHER = "#8d9099";

let shown = null; // the answer of the service, and what follows from it
let view = { scale: 1, x: 0.5, y: 0.5 }; // the point of the unit square in the middle
let hovered = -1;
let marked = []; // rows of the matches of the last search, the best first
let requested = 0;
let drawing = 0;
const pointers = new Map(); // that are down, by their id
let moved = 0; // CSS pixels since the first of them was down
let onChosen = () => {};

const canvas = () => byId("map-canvas");

async function load() {
  const number = ++requested;
  const field = byId("map-field").value.trim();
  byId("map-notice").replaceChildren();
  byId("map-status").textContent = "Making the map …";
  try {
    const answer = await documentMap(field);
    if (number !== requested) return;
    take(answer, field);
  } catch (error) {
    if (number !== requested) return;
    byId("map-status").textContent = "";
    showError(byId("map-notice"), error, load);
  }
}

function take(answer, field) {
  const rows = new Map(answer.ids.map((id, row) => [id, row]));
  const names = answer.values ?? answer.groups.map((group) => group.words.join(", ") || "unnamed");
  const of = answer.value_of ?? answer.group_of;
  shown = { ...answer, rows, names, of };
  const { matches, query } = lastSearch();
  marked = matches.slice(0, MOST_MARKED).map((id) => rows.get(id)).filter((row) => row !== undefined);
  shown.query = rows.get(query);
  const found = answer.ids.length;
  byId("map-status").textContent = found === 0 ? "There are no documents yet."
    : found < answer.documents ? `${count(found)} of ${counted(answer.documents, "document")}`
      : counted(found, "document");
  canvas().setAttribute("aria-label", `Map of ${counted(found, "document")} in ` +
    `${counted(answer.groups.length, "group")}. The list under “Browse” has the same documents.`);
  showLegend(field);
  hovered = -1;
  reset();
}

const colourOf = (value) => (value === null ? OTHER : COLOURS[value % COLOURS.length]);

function showLegend(field) {
  const sizes = new Map();
  for (const value of shown.of) sizes.set(value, (sizes.get(value) ?? 0) + 1);
  const items = [...sizes].sort((a, b) => b[1] - a[1]).map(([value, size]) => {
    const dot = element("span", { class: "dot", "aria-hidden": "true" });
    dot.style.background = colourOf(value);
    const name = value === null ? "other or none" : shown.names[value];
    const go = () => focusOn(shown.of.flatMap((one, row) => (one === value ? [row] : [])));
    return element("li", {}, element("button", { type: "button", click: go }, dot,
      foreign(shorten(name)), " ", element("small", {}, count(size))));
  });
  byId("map-legend").setAttribute("aria-label", field ? `Values of ${field}` : "Groups");
  byId("map-legend").replaceChildren(...items);
}

/** Show these rows as large as they fit. */
function focusOn(rows) {
  if (!rows.length) return;
  let [left, right, top, bottom] = [1, 0, 1, 0];
  for (const row of rows) {
    const [x, y] = [shown.x[row] / SIDE, shown.y[row] / SIDE];
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
  }
  const size = Math.max(right - left, bottom - top, 1 / CLOSEST);
  view = { scale: Math.min(0.9 / size, CLOSEST), x: (left + right) / 2, y: (top + bottom) / 2 };
  draw();
}

function reset() {
  view = { scale: 1, x: 0.5, y: 0.5 };
  draw();
}

const unit = () => view.scale *
  (Math.min(canvas().clientWidth, canvas().clientHeight) - 2 * MARGIN); // CSS pixels of the square

function placeOf(x, y) {
  const size = unit();
  return [canvas().clientWidth / 2 + (x / SIDE - view.x) * size,
    canvas().clientHeight / 2 + (y / SIDE - view.y) * size];
}

function draw() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    if (shown && byId("map").open) drawNow();
  });
}

function rgb(colour) {
  const number = Number.parseInt(colour.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function drawNow() {
  const area = canvas();
  const ratio = devicePixelRatio || 1;
  const [width, height] = [area.clientWidth, area.clientHeight];
  area.width = Math.round(width * ratio);
  area.height = Math.round(height * ratio);
  const context = area.getContext("2d");
  drawPoints(context, ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(document.documentElement);
  const [ink, paper] = [style.getPropertyValue("--ink"), style.getPropertyValue("--sheet")];
  context.strokeStyle = ink;
  context.lineWidth = 2;
  const taken = [];
  const circle = (row, radius) => {
    context.beginPath();
    context.arc(...placeOf(shown.x[row], shown.y[row]), radius, 0, 2 * Math.PI);
    context.stroke();
  };
  marked.forEach((row) => circle(row, 6));
  if (hovered >= 0) circle(hovered, 8);
  context.font = `600 ${LABEL}px ${style.getPropertyValue("--sans")}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const write = (text, x, y) => {
    const half = context.measureText(text).width / 2;
    const middle = Math.min(Math.max(x, half + 2), width - half - 2);
    const box = [middle - half - 4, y - LABEL, middle + half + 4, y + LABEL];
    const free = taken.every((other) => box[2] < other[0] || other[2] < box[0] ||
      box[3] < other[1] || other[3] < box[1]);
    if (!free) return;
    taken.push(box);
    context.lineWidth = 4;
    context.strokeStyle = paper;
    context.strokeText(text, middle, y);
    context.fillStyle = ink;
    context.fillText(text, middle, y);
  };
  const query = queryPlace();
  if (query) write("✚ your document", query[0], query[1]);
  marked.forEach((row, place) => {
    const [x, y] = placeOf(shown.x[row], shown.y[row]);
    write(String(place + 1), x, y - LABEL - 2);
  });
  for (const group of [...shown.groups].sort((a, b) => b.documents - a.documents)) {
    const [x, y] = placeOf(group.x, group.y);
    if (x > 0 && y > 0 && x < width && y < height) write(group.words.join(", "), x, y);
  }
}

/** The place of the query: its own, or amid its three best matches. */
function queryPlace() {
  if (shown.query !== undefined) return placeOf(shown.x[shown.query], shown.y[shown.query]);
  const best = marked.slice(0, 3);
  if (!best.length) return null;
  const mean = (values) => best.reduce((sum, row) => sum + values[row], 0) / best.length;
  return placeOf(mean(shown.x), mean(shown.y));
}

/** Points are written as pixels: a hundred thousand of them take a few milliseconds. */
function drawPoints(context, ratio) {
  const { width, height } = context.canvas;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = [...shown.names.keys(), null].map((value) => {
    const [red, green, blue] = rgb(colourOf(value));
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
  const other = colours.at(-1);
  const size = unit() * ratio;
  const [left, top] = [width / 2 - view.x * size, height / 2 - view.y * size];
  const radius = Math.max(1, Math.round((shown.ids.length > 5000 ? 1 : 2.5) * ratio *
    Math.min(2, Math.sqrt(view.scale))));
  for (let row = 0; row < shown.x.length; row += 1) {
    const x = Math.round(left + (shown.x[row] / SIDE) * size);
    const y = Math.round(top + (shown.y[row] / SIDE) * size);
    if (x < radius || y < radius || x >= width - radius || y >= height - radius) continue;
    const value = shown.of[row];
    const colour = value === null ? other : colours[value];
    for (let dy = -radius; dy <= radius; dy += 1) {
      const reach = Math.floor(Math.sqrt(radius * radius - dy * dy));
      pixels.fill(colour, (y + dy) * width + x - reach, (y + dy) * width + x + reach + 1);
    }
  }
  context.putImageData(image, 0, 0);
}

function nearest(event) {
  if (!shown) return -1;
  const { left, top } = canvas().getBoundingClientRect();
  const [px, py] = [event.clientX - left, event.clientY - top];
  let [best, distance] = [-1, NEAR * NEAR];
  for (let row = 0; row < shown.x.length; row += 1) {
    const [x, y] = placeOf(shown.x[row], shown.y[row]);
    const here = (x - px) ** 2 + (y - py) ** 2;
    if (here < distance) [best, distance] = [row, here];
  }
  return best;
}

function hover(event) {
  const row = nearest(event);
  if (row === hovered) return;
  hovered = row;
  canvas().classList.toggle("on-point", row >= 0);
  byId("map-title").replaceChildren(row < 0 ? "" : foreign(shown.titles[row] || shown.ids[row]));
  draw();
}

/** Zoom so that the point of the map below a place of the canvas stays there. */
function zoom(factor, px = canvas().clientWidth / 2, py = canvas().clientHeight / 2) {
  const [dx, dy] = [px - canvas().clientWidth / 2, py - canvas().clientHeight / 2];
  const before = unit();
  view.scale = Math.min(Math.max(view.scale * factor, 0.5), CLOSEST);
  const after = unit();
  view.x += dx / before - dx / after;
  view.y += dy / before - dy / after;
  draw();
}

function pan(dx, dy) {
  view.x -= dx / unit();
  view.y -= dy / unit();
  draw();
}

function down(event) {
  canvas().setPointerCapture(event.pointerId);
  if (pointers.size === 0) moved = 0;
  pointers.set(event.pointerId, event);
}

function move(event) {
  const before = pointers.get(event.pointerId);
  if (!before) {
    hover(event);
    return;
  }
  const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
  moved += Math.hypot(dx, dy);
  const [, second] = [...pointers.keys()];
  if (second !== undefined) {
    const other = [...pointers.values()].find((one) => one.pointerId !== event.pointerId);
    const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    const { left, top } = canvas().getBoundingClientRect();
    zoom(apart(event) / Math.max(apart(before), 1), other.clientX - left, other.clientY - top);
  } else {
    pan(dx, dy);
  }
  pointers.set(event.pointerId, event);
}

function up(event) {
  const held = pointers.delete(event.pointerId);
  if (!held || event.type !== "pointerup" || moved > 4 || pointers.size) return;
  const row = nearest(event);
  if (row >= 0) choose(row);
}

function choose(row) {
  byId("map").close();
  onChosen({ id: shown.ids[row], title: shown.titles[row] });
}

const KEYS = {
  "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: reset,
  ArrowLeft: () => pan(60, 0), ArrowRight: () => pan(-60, 0),
  ArrowUp: () => pan(0, 60), ArrowDown: () => pan(0, -60),
};

function follow() {
  const open = location.hash === "#map";
  if (open === byId("map").open) return;
  if (!open) {
    byId("map").close();
    return;
  }
  shown = null;
  byId("map").showModal();
  load();
}

/** Show the map at #map; `chosen` is called with the document that is to be matched. */
export function startMap(chosen) {
  onChosen = chosen;
  byId("map-button").addEventListener("click", () => { location.hash = "map"; });
  byId("close-map").addEventListener("click", () => byId("map").close());
  byId("map").addEventListener("close", () => {
    if (location.hash === "#map") history.replaceState(null, "", location.pathname + location.search);
  });
  byId("map-list").addEventListener("click", () => { location.hash = "browse"; });
  byId("map-field").addEventListener("change", load);
  byId("map-in").addEventListener("click", () => zoom(1.5));
  byId("map-out").addEventListener("click", () => zoom(1 / 1.5));
  byId("map-whole").addEventListener("click", reset);
  const area = canvas();
  area.addEventListener("pointerdown", down);
  area.addEventListener("pointermove", move);
  area.addEventListener("pointerup", up);
  area.addEventListener("pointercancel", up);
  area.addEventListener("pointerleave", hover);
  area.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
  }, { passive: false });
  area.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  new ResizeObserver(draw).observe(area);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("hashchange", follow);
  follow();
}
