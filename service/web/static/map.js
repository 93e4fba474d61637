// The map of the documents, at #map: each a point, drawn by pixels so that 100,000 of them move.

import { documentMap, storedDocument } from "./api.js";
import { byId, count, counted, element, foreign, shorten, visible } from "./dom.js";
import { showError } from "./notices.js";
import { lastFound } from "./search.js";

const SIDE = 65_536; // of the coordinates
const ASK_AGAIN_MS = 1000;
const REACH = 12; // pixels from the pointer to a point
const CLOSEST = 400; // times as large as the whole map
const MOVED = 4; // pixels that make a press a drag
const SVG = "http://www.w3.org/2000/svg";
// Of middle brightness, distinct on both backgrounds; the last is for what has no colour.
const COLOURS = ["#3f78d8", "#d9722e", "#2f9e5f", "#c74a86", "#8b6fd6", "#a8862a", "#1f9bb0",
  "#cf4b45", "#6a8f2d", "#9c6b4f", "#5b67a8", "#888d96"];

let points = null; // the answer of GET /map
let places = new Map(); // of the documents, by id
let view = null; // {scale, x, y}: pixels = coordinate * scale + offset
let asked = 0; // only the newest request counts
let timer = 0;
let here = -1; // the point under the pointer
let drawn = 0; // the frame that is asked for
let ranks = new Map(); // of the matches that are shown, by point
let query = null; // where the document is: {x, y} in coordinates
let image = null; // the pixels
let onChosen = () => {};
const pressed = new Map(); // pointers, by id
let moved = 0; // pixels since the first of them was pressed
const titles = new Map();

const canvas = () => byId("map-canvas");
const colourOf = (number) => COLOURS[number < 0 ? COLOURS.length - 1 : number % (COLOURS.length - 1)];
const groups = () => (points.values.length ? points.value : points.cluster);

async function load() {
  const request = ++asked;
  clearTimeout(timer);
  byId("map-notice").replaceChildren();
  try {
    const answer = await documentMap(byId("map-field").value);
    if (request !== asked || !byId("map").open) return;
    take(answer);
    if (answer.progress !== null) timer = setTimeout(load, ASK_AGAIN_MS);
  } catch (error) {
    if (request === asked) showError(byId("map-notice"), error, load);
  }
}

function take(answer) {
  const fresh = !points || points.sequence !== answer.sequence;
  points = { ...answer, x: Float32Array.from(answer.x), y: Float32Array.from(answer.y) };
  if (fresh) {
    places = new Map(answer.ids.map((id, index) => [id, index]));
    here = -1;
    view = null;
  }
  placeMatches();
  showFields();
  showLegend();
  showState();
  draw();
}

function showState() {
  const { ids, documents, progress } = points;
  const shown = ids.length < documents ? `${count(ids.length)} of ` : "";
  const parts = [];
  const near = ids.length > 1 ? "; those near each other resemble each other" : "";
  if (ids.length) parts.push(`${shown}${counted(documents, "document")}${near}.`);
  else if (progress === null) parts.push("There are no documents yet.");
  if (progress !== null) {
    parts.push(`The map is being ${ids.length ? "brought up to date" : "made"}: ${Math.floor(100 * progress)} %.`);
  }
  if (query) parts.push("Your document is the cross, its matches have their numbers.");
  byId("map-status").textContent = parts.join(" ");
  byId("map-view").hidden = ids.length === 0;
}

function showFields() {
  const choice = byId("map-field");
  const names = ["", ...points.fields];
  if ([...choice.options].map((option) => option.value).join("\n") === names.join("\n")) return;
  const chosen = choice.value;
  choice.replaceChildren(...names.map((name) => element("option", { value: name }, name || "cluster")));
  choice.value = names.includes(chosen) ? chosen : "";
}

function showLegend() {
  const counts = new Map();
  for (const group of groups()) counts.set(group, (counts.get(group) ?? 0) + 1);
  const names = points.values.length ? points.values.map(String)
    : points.clusters.map((cluster) => cluster.words.join(", ") || "no shared words");
  const items = names.map((name, number) => [name, number]);
  if (counts.has(-1)) items.push(["other, or none", -1]);
  byId("map-legend").replaceChildren(...items.filter(([, number]) => counts.has(number)).map(
    ([name, number]) => element("li", {}, swatch(number), " ", foreign(shorten(name)), " ",
      element("small", {}, count(counts.get(number))))));
}

function swatch(number) {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("class", "swatch");
  made.setAttribute("aria-hidden", "true");
  const disc = document.createElementNS(SVG, "circle");
  for (const [name, value] of Object.entries({ cx: 6, cy: 6, r: 5, fill: colourOf(number) })) {
    disc.setAttribute(name, value);
  }
  made.append(disc);
  return made;
}

/** Find where the last query and its matches are: a text that is not stored, amid its matches. */
function placeMatches() {
  ranks = new Map();
  query = null;
  const found = lastFound();
  if (!found) return;
  let total = 0;
  const middle = { x: 0, y: 0 };
  found.matches.forEach((match, index) => {
    const place = places.get(match.id);
    if (place === undefined) return;
    ranks.set(place, index + 1);
    const weight = Math.max(match.score, 0) ** 4; // the best of them count
    total += weight;
    middle.x += weight * points.x[place];
    middle.y += weight * points.y[place];
  });
  const itself = places.get(found.query.id);
  if (itself !== undefined) query = { x: points.x[itself], y: points.y[itself] };
  else if (total > 0) query = { x: middle.x / total, y: middle.y / total };
}

function draw() {
  if (!drawn) {
    drawn = requestAnimationFrame(() => {
      drawn = 0;
      if (points?.ids.length && byId("map").open) paint();
    });
  }
}

function fit(width, height) {
  const room = Math.min(width, height) * 0.08;
  const scale = Math.min(width - 2 * room, height - 2 * room) / SIDE;
  return { scale, x: (width - SIDE * scale) / 2, y: (height - SIDE * scale) / 2, least: scale };
}

function paint() {
  const at = canvas();
  const ratio = Math.max(devicePixelRatio, 2); // scaled down, discs of pixels have smooth edges
  const width = at.clientWidth;
  const height = at.clientHeight;
  if (at.width !== Math.round(width * ratio) || at.height !== Math.round(height * ratio)) {
    at.width = Math.round(width * ratio);
    at.height = Math.round(height * ratio);
    view = null;
  }
  view ??= fit(width, height);
  const context = at.getContext("2d");
  context.putImageData(pixels(context, at.width, at.height, ratio), 0, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(at);
  const ink = style.color;
  const paper = style.backgroundColor;
  paintMatches(context, ink, paper);
  paintNames(context, width, height, ink, paper);
}

/** The points as pixels: the nearer the eye is, the larger they are. */
function pixels(context, width, height, ratio) {
  if (image?.width !== width || image.height !== height) image = context.createImageData(width, height);
  const cells = new Uint32Array(image.data.buffer);
  cells.fill(0);
  const dense = Math.sqrt((width * height) / points.ids.length) / 8;
  const zoom = Math.sqrt(view.scale / view.least);
  const radius = Math.max(ratio * 1.2, Math.min(ratio * 6, dense * zoom));
  const disc = Int32Array.from(discOf(radius), ([dx, dy]) => dy * width + dx);
  const colours = COLOURS.map(packed);
  const of = groups();
  const { x: xs, y: ys } = points;
  const reach = Math.ceil(radius);
  for (let point = 0; point < xs.length; point += 1) {
    const x = Math.round((xs[point] * view.scale + view.x) * ratio);
    const y = Math.round((ys[point] * view.scale + view.y) * ratio);
    if (x < reach || y < reach || x >= width - reach || y >= height - reach) continue;
    const colour = colours[of[point] < 0 ? colours.length - 1 : of[point] % (colours.length - 1)];
    const middle = y * width + x;
    for (let pixel = 0; pixel < disc.length; pixel += 1) cells[middle + disc[pixel]] = colour;
  }
  return image;
}

function discOf(radius) {
  const found = [];
  const reach = Math.ceil(radius);
  for (let y = -reach; y <= reach; y += 1) {
    for (let x = -reach; x <= reach; x += 1) {
      if (x * x + y * y <= radius * radius) found.push([x, y]);
    }
  }
  return found;
}

const packed = (colour) => {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return ((0xff << 24) | (blue << 16) | (green << 8) | red) >>> 0; // little endian, as all browsers are
};

const onScreen = ({ x, y }) => ({ x: x * view.scale + view.x, y: y * view.scale + view.y });

/** The words of the clusters, in their middle or just above or below, where there is room. */
function paintNames(context, width, height, ink, paper) {
  context.font = "600 13px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  const taken = [...ranks.keys()].map((place) => {
    const { x, y } = onScreen({ x: points.x[place], y: points.y[place] });
    return { left: x - 8, right: x + 22, top: y - 15, bottom: y + 8 }; // ring and number
  });
  const room = (box) => taken.every((other) => box.right < other.left || box.left > other.right ||
    box.bottom < other.top || box.top > other.bottom);
  for (const cluster of points.clusters) {
    const text = visible(cluster.words.join(", "));
    const { x, y: middle } = onScreen(cluster);
    if (!text || x < 0 || middle < 0 || x > width || middle > height) continue;
    const half = context.measureText(text).width / 2 + 4;
    const centre = Math.min(Math.max(x, half), width - half);
    for (const y of [0, -24, 24, -48, 48].map((shift) => middle + shift)) {
      const box = { left: centre - half, right: centre + half, top: y - 11, bottom: y + 11 };
      if (!room(box)) continue;
      taken.push(box);
      write(context, text, centre, y, ink, paper);
      break;
    }
  }
}

function write(context, text, x, y, ink, paper) {
  context.strokeStyle = paper;
  context.lineWidth = 4;
  context.strokeText(text, x, y);
  context.fillStyle = ink;
  context.fillText(text, x, y);
}

function paintMatches(context, ink, paper) {
  const ring = (place, width) => {
    const { x, y } = onScreen({ x: points.x[place], y: points.y[place] });
    for (const [colour, line] of [[paper, width + 3], [ink, width]]) {
      context.beginPath();
      context.arc(x, y, 8, 0, 2 * Math.PI);
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.stroke();
    }
    return { x, y };
  };
  for (const [place, rank] of ranks) {
    const { x, y } = ring(place, 2);
    write(context, String(rank), x + 15, y - 9, ink, paper);
  }
  if (here >= 0) ring(here, 3);
  if (!query) return;
  const { x, y } = onScreen(query);
  for (const [colour, line] of [[paper, 8], [ink, 4]]) {
    context.beginPath();
    context.moveTo(x - 10, y);
    context.lineTo(x + 10, y);
    context.moveTo(x, y - 10);
    context.lineTo(x, y + 10);
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.stroke();
  }
}

function zoom(factor, at) {
  if (!view) return;
  const { clientWidth: width, clientHeight: height } = canvas();
  const { x, y } = at ?? { x: width / 2, y: height / 2 };
  const scale = Math.min(Math.max(view.scale * factor, view.least / 2), view.least * CLOSEST);
  const by = scale / view.scale;
  view = { ...view, scale, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
  draw();
}

const within = (event) => {
  const { left, top } = canvas().getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
};

function nearest({ x, y }) {
  let best = -1;
  let least = REACH * REACH;
  if (!view) return best;
  for (let point = 0; point < points.x.length; point += 1) {
    const dx = points.x[point] * view.scale + view.x - x;
    const dy = points.y[point] * view.scale + view.y - y;
    if (dx * dx + dy * dy < least) {
      least = dx * dx + dy * dy;
      best = point;
    }
  }
  return best;
}

async function titled(id) {
  if (!titles.has(id)) titles.set(id, await storedDocument(id));
  return titles.get(id);
}

/** Name the point under the pointer. */
async function point(at) {
  const found = nearest(at);
  if (found === here) return;
  here = found;
  canvas().classList.toggle("over", here >= 0);
  draw();
  const id = points.ids[found];
  byId("map-here").replaceChildren(...(found < 0 ? [] : [foreign(id)]));
  if (found < 0) return;
  const stored = await titled(id).catch(() => null); // deleted since: its id is all there is
  if (here === found && stored?.title) byId("map-here").replaceChildren(foreign(stored.title));
}

async function choose(at) {
  const found = nearest(at);
  if (found < 0) return;
  try {
    const stored = await titled(points.ids[found]);
    byId("map").close();
    onChosen(stored);
  } catch (error) {
    showError(byId("map-notice"), error);
  }
}

function move(event) {
  const at = within(event);
  const before = pressed.get(event.pointerId);
  if (!before) {
    point(at);
    return;
  }
  const other = [...pressed].find(([id]) => id !== event.pointerId)?.[1];
  pressed.set(event.pointerId, at);
  moved += Math.hypot(at.x - before.x, at.y - before.y);
  if (moved <= MOVED || !view) return;
  view = { ...view, x: view.x + (at.x - before.x) / pressed.size, y: view.y + (at.y - before.y) / pressed.size };
  if (other) {
    const apart = Math.max(Math.hypot(before.x - other.x, before.y - other.y), 1);
    zoom(Math.hypot(at.x - other.x, at.y - other.y) / apart, other);
  }
  draw();
}

function listen() {
  const at = canvas();
  at.addEventListener("pointerdown", (event) => {
    at.setPointerCapture(event.pointerId);
    if (pressed.size === 0) moved = 0;
    pressed.set(event.pointerId, within(event));
  });
  at.addEventListener("pointermove", move);
  at.addEventListener("pointerup", (event) => {
    const alone = pressed.size === 1;
    pressed.delete(event.pointerId);
    if (alone && moved <= MOVED) choose(within(event));
  });
  at.addEventListener("pointercancel", (event) => pressed.delete(event.pointerId));
  at.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    zoom(Math.exp(-event.deltaY * lines * 0.002), within(event));
  }, { passive: false });
  new ResizeObserver(draw).observe(at);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function follow() {
  const open = location.hash === "#map";
  if (open === byId("map").open) return;
  if (!open) {
    byId("map").close();
    return;
  }
  byId("map").showModal();
  load();
}

/** Forget the map: it is that of another collection. */
export function forgetMap() {
  points = null;
  titles.clear();
}

/** Show the map at #map; `chosen` is called with the document that is to be matched. */
export function startMap(chosen) {
  onChosen = chosen;
  byId("map-button").addEventListener("click", () => { location.hash = "map"; });
  byId("close-map").addEventListener("click", () => byId("map").close());
  byId("map-list").addEventListener("click", () => { location.hash = "browse"; });
  byId("map").addEventListener("close", () => {
    clearTimeout(timer);
    pressed.clear();
    if (location.hash === "#map") history.replaceState(null, "", location.pathname + location.search);
  });
  byId("map-field").addEventListener("change", load);
  byId("map-in").addEventListener("click", () => zoom(1.6));
  byId("map-out").addEventListener("click", () => zoom(1 / 1.6));
  byId("map-fit").addEventListener("click", () => {
    view = null;
    draw();
  });
  listen();
  addEventListener("hashchange", follow);
  follow();
}
