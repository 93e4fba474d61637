// The public API as this page uses it. Addresses are relative: a proxy may add a prefix.

import { authorization, requireKey } from "./key.js";

/** A refusal or failure that the service answered: application/problem+json. */
export class Problem extends Error {
  constructor(status, content) {
    super(content.detail ?? content.title ?? `HTTP status ${status}`);
    if (status === 401) requireKey();
    this.status = status;
    this.title = content.title ?? `HTTP status ${status}`;
    this.errors = content.errors ?? [];
    this.limit = content.limit;
    this.retryAfter = content.retry_after;
    this.requestId = content.request_id;
  }
}

/** No answer arrived at all. */
export class Unreachable extends Error {}

/** What this page refuses by itself, before it sends anything; `place`: where it says so. */
export class Refusal extends Error {
  constructor(title, detail, place) {
    super(detail);
    this.title = title;
    this.place = place;
  }
}

async function request(path, options = {}) {
  let response;
  try {
    const headers = { ...options.headers, ...authorization() };
    response = await fetch(path, {
      ...options, headers, cache: "no-store", credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("The server does not answer.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const content = await response.json().catch(() => ({}));
  return new Problem(response.status, content ?? {});
}

const json = (body, headers = {}) => ({
  method: "POST",
  headers: { "Content-Type": "application/json", ...headers },
  body: JSON.stringify(body),
});

async function get(path, signal) {
  return (await request(path, { signal })).json();
}

let prefix = ""; // of the paths of one collection

/** Work with a collection from now on; null for that of paths without a prefix. */
export function useCollection(name) {
  prefix = name === null ? "" : `collections/${name}/`;
}

export const collections = () => get("collections");
export const collection = (name) => get(`collections/${name}`);

export async function match(body, signal) {
  return (await request(`${prefix}match`, { ...json(body), signal })).json();
}

/** Store a document in place of one of the same id; return whether its text was stored already. */
export async function store(document, signal) {
  const answer = await request(`${prefix}index`, { ...json({ documents: [document] }), signal });
  return (await answer.json()).documents[0].unchanged;
}

/** Return {title, text} of a file, as the server reads it. */
export async function textOf(content, kind, signal) {
  const options = { method: "POST", headers: { "Content-Type": kind }, body: content, signal };
  return (await request("text", options)).json();
}

/** Return the page of a comparison, as HTML in a Blob. */
export async function compare(left, right, signal) {
  const options = json({ left, right }, { Accept: "text/html" });
  const page = await (await request(`${prefix}compare`, { ...options, signal })).text();
  return new Blob([page], { type: "text/html;charset=utf-8" });
}

export async function giveFeedback(body) {
  return (await request(`${prefix}feedback`, json(body))).json();
}

export async function deleteFeedback(id) {
  await request(`${prefix}feedback/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Return a page of the stored documents; without a cursor, the first. */
export const documents = (limit, cursor = "", sort = "id", filter = null) =>
  get(`${prefix}documents?${parameters({ limit, cursor, sort, filter })}`);
export const facets = (filter) => get(`${prefix}facets?${parameters({ filter })}`);

/** The query of an address; what is empty is left out, a filter is JSON. */
function parameters(given) {
  const named = Object.entries(given).filter(([, value]) => value !== null && value !== "");
  return new URLSearchParams(named.map(([name, value]) =>
    [name, typeof value === "object" ? JSON.stringify(value) : value]));
}

export const storedDocument = (id) => get(`${prefix}documents/${encodeURIComponent(id)}`);

/** Return the map, coloured by a field of the metadata if one is named. */
export const documentMap = (field) =>
  get(`${prefix}map?${parameters({ field })}`);
export const ready = () => get("readyz");
export const jobs = (limit) => get(`${prefix}jobs?limit=${limit}`);
export const job = (id) => get(`${prefix}jobs/${encodeURIComponent(id)}`);

export async function cancelJob(id) {
  const path = `${prefix}jobs/${encodeURIComponent(id)}/cancel`;
  return (await request(path, { method: "POST" })).json();
}

let described = null;

/** Return version, checkpoint and limits; asked for once, and again after a failure. */
export function version() {
  described ??= get("version").catch((error) => {
    described = null;
    throw error;
  });
  return described;
}

/** Return the metrics by name and labels as they stand in /metrics. */
export async function metrics() {
  const text = await (await request("metrics")).text();
  const lines = text.split("\n").filter((line) => line.startsWith("longmatch_"));
  return new Map(lines.map((line) => {
    const end = line.lastIndexOf(" ");
    return [line.slice(0, end), Number(line.slice(end + 1))];
  }));
}

/** Send a corpus; `progress` gets the share that was sent, which fetch() cannot report. */
export function upload(file, { gzip, signal, progress }) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", `${prefix}index`);
    sending.responseType = "text";
    sending.setRequestHeader("Content-Type", "application/x-ndjson");
    if (gzip) sending.setRequestHeader("Content-Encoding", "gzip");
    for (const [name, value] of Object.entries(authorization())) {
      sending.setRequestHeader(name, value);
    }
    sending.upload.addEventListener("progress", (event) => progress(event.loaded / event.total));
    sending.addEventListener("load", () => {
      let content = {};
      try {
        content = JSON.parse(sending.responseText);
      } catch {
        // A proxy in between may answer something else; the status says enough.
      }
      if (sending.status === 202) resolve(content);
      else reject(new Problem(sending.status, content));
    });
    sending.addEventListener("error", () => reject(new Unreachable("The upload was interrupted.")));
    sending.addEventListener("abort", () => reject(new DOMException("cancelled", "AbortError")));
    signal.addEventListener("abort", () => sending.abort());
    sending.send(file);
  });
}
