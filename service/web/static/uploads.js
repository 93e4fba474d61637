// Files and folders that are added to the corpus, and the jobs that index JSON Lines.

import {
  Problem, Refusal, Unreachable, cancelJob, job, jobs, store, textOf, upload, version,
} from "./api.js";
import { acceptDrops, byId, bytes, count, counted, element, foreign, percent } from "./dom.js";
import { kindOf, refuseLarge, suffixOf } from "./files.js";
import { refreshIndex } from "./index_panel.js";
import { showError } from "./notices.js";

const SHOWN_JOBS = 5;
const EVERY_MS = 1_000;
const ACTIVE = ["waiting", "running"];
const CORPUS = [".jsonl", ".ndjson", ".gz"];
const TIMED_FILES = 3; // after so many the remaining time is estimated

let sending = null;
let timer = 0;

/** Add what was chosen or dropped: a JSON Lines file, or the files of folders one by one. */
export async function choose(files, entries = []) {
  if (sending) {
    const refusal = new Refusal("One upload at a time", "Wait until it is sent, or cancel it.");
    showError(byId("upload-notice"), refusal);
    return;
  }
  if (files.length === 1 && CORPUS.includes(suffixOf(files[0].name))) {
    await during((signal) => sendCorpus(files[0], signal), () => choose(files));
    return;
  }
  const found = await filesOf(files, entries);
  if (found.length) await addFiles(new Addition(found));
}

/** Work on one upload; an error is shown with what tries again. */
async function during(work, again) {
  const controller = new AbortController();
  for (const id of ["upload-notice", "skipped"]) byId(id).replaceChildren();
  try {
    sending = controller;
    await work(controller.signal);
  } catch (error) {
    if (error.name === "AbortError") say("Cancelled.");
    else {
      say("");
      showError(byId("upload-notice"), error, again);
    }
  } finally {
    sending = null;
    for (const id of ["upload-progress", "cancel-upload"]) byId(id).hidden = true;
    for (const id of ["corpus", "folder"]) byId(id).value = "";
    refreshJobs();
  }
}

const say = (text) => { byId("upload-status").textContent = text; };

async function sendCorpus(file, signal) {
  showSending(0); // with its button: the answer below can take long
  const { max_upload_bytes: limit } = (await Promise.race([version(), aborted(signal)])).limits;
  if (file.size > limit) {
    throw new Refusal("The file is too large", `${file.name} has ${bytes(file.size)}; the limit ` +
      `(max_upload_bytes) is ${bytes(limit)}.`);
  }
  const gzip = file.name.toLowerCase().endsWith(".gz");
  const accepted = await upload(file, { gzip, signal, progress: showSending });
  say(`Received ${counted(accepted.accepted, "line")}; they are being indexed.`);
}

/** Files that are added one by one, by path: what is left, and what was skipped. */
class Addition {
  constructor(files) {
    this.files = files;
    this.next = 0;
    this.skipped = [];
    this.unchanged = 0;
    this.started = performance.now();
  }

  /** What a person reads at the end. */
  get result() {
    const parts = [`${counted(this.next - this.unchanged - this.skipped.length, "file")} added`];
    if (this.unchanged) parts.push(`${count(this.unchanged)} unchanged`);
    if (this.skipped.length) parts.push(`${count(this.skipped.length)} skipped`);
    return `${parts.join(", ")}.`;
  }

  /** What a person reads meanwhile. */
  get state() {
    const said = `${count(this.next)} of ${counted(this.files.length, "file")}`;
    if (this.next < TIMED_FILES || this.next === this.files.length) return said;
    const each = (performance.now() - this.started) / this.next / 1_000;
    const seconds = Math.ceil(each * (this.files.length - this.next));
    return `${said}, about ${seconds < 90 ? counted(seconds, "second")
      : counted(Math.round(seconds / 60), "minute")} left`;
  }
}

/** Add files from the next one on; after a failure of the server it goes on where it was. */
async function addFiles(addition) {
  await during(async (signal) => {
    const { limits } = await Promise.race([version(), aborted(signal)]);
    while (addition.next < addition.files.length) {
      const { path, file } = addition.files[addition.next];
      showSending(addition.next / addition.files.length);
      say(`${addition.state}: ${path}`);
      const { skipped, unchanged } = await addFile(path, file, limits, signal);
      if (skipped) addition.skipped.push([path, skipped]);
      if (unchanged) addition.unchanged += 1;
      addition.next += 1;
    }
    say(addition.result);
  }, () => addFiles(addition));
  showSkipped(addition.skipped);
}

/** Add a file; return whether it was there, {unchanged}, or why it was left out, {skipped}. */
async function addFile(path, file, limits, signal) {
  const kind = kindOf(path);
  if (CORPUS.includes(suffixOf(path))) return { skipped: "is a corpus: add it by itself" };
  if (!kind) return { skipped: "is of a kind that the server does not read" };
  try {
    refuseLarge(file, limits);
    const { title, text, metadata } = await textOf(await readBytes(file), kind, signal);
    const document = { id: path, title: title || readable(path), text, metadata };
    return { unchanged: await store(document, signal) };
  } catch (error) {
    if (error instanceof Refusal) return { skipped: error.message.replace(`${file.name} `, "") };
    if (error instanceof Problem && [413, 422].includes(error.status)) {
      return { skipped: error.errors.map((one) => one.detail).join(", ") || error.message };
    }
    throw error;
  }
}

async function readBytes(file) {
  try {
    return await file.arrayBuffer();
  } catch {
    throw new Refusal("The file could not be read", "it was moved or changed");
  }
}

/** The name of a file as a title. */
const readable = (path) => path.replace(/^.*\//, "").replace(/\.[^.]*$/, "").replace(/[-_]+/g, " ");

function showSkipped(skipped) {
  if (!skipped.length) return;
  byId("skipped").replaceChildren(element("details", {},
    element("summary", {}, `${counted(skipped.length, "file")} skipped`),
    element("ul", {}, ...skipped.map(([path, reason]) =>
      element("li", {}, foreign(path), ": ", foreign(reason))))));
}

/** Return {path, file} of each file, hidden ones left out; a folder by itself is not in its paths. */
async function filesOf(files, entries) {
  const found = entries.some((entry) => entry.isDirectory)
    ? (await Promise.all(entries.map(walk))).flat()
    : files.map((file) => ({ path: file.webkitRelativePath || file.name, file }));
  const tops = new Set(found.map(({ path }) => /^[^/]*\//.exec(path)?.[0]));
  const within = tops.size === 1 ? ([...tops][0] ?? "").length : 0;
  return found.map(({ path, file }) => ({ path: path.slice(within), file }))
    .filter(({ path }) => !path.split("/").some((part) => part.startsWith(".")))
    .sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Return {path, file} of the files below an entry of a drop. */
async function walk(entry) {
  const path = entry.fullPath.slice(1);
  if (entry.isFile) {
    return [{ path, file: await new Promise((done, failed) => entry.file(done, failed)) }];
  }
  const reader = entry.createReader();
  const within = [];
  for (;;) { // a call returns a part of them
    const some = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!some.length) break;
    within.push(...some);
  }
  return (await Promise.all(within.map(walk))).flat();
}

/** Fail once a signal is aborted. */
function aborted(signal) {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

function showSending(share) {
  byId("upload-progress").hidden = false;
  byId("upload-progress").value = share;
  byId("cancel-upload").hidden = false;
  say(share < 1 ? "Sending …" : "The server stores it …");
}

/** Show the newest jobs, and follow them while one is active. */
export async function refreshJobs() {
  clearTimeout(timer);
  let active = true;
  try {
    const found = (await jobs(SHOWN_JOBS)).jobs;
    active = found.some((one) => ACTIVE.includes(one.state));
    const failed = found.filter((one) => one.failed > 0);
    const detailed = new Map(await Promise.all(
      failed.map(async (one) => [one.id, await job(one.id)])));
    show(found.map((one) => detailed.get(one.id) ?? one));
  } catch (error) {
    // The state of the index, below, says by itself that the server is away.
    if (!(error instanceof Unreachable)) showError(byId("upload-notice"), error, refreshJobs);
  }
  refreshIndex();
  if (active && byId("index-panel").open) timer = setTimeout(refreshJobs, EVERY_MS);
}

/** Rows are changed in place: a button that has the focus keeps it. */
function show(found) {
  const list = byId("jobs");
  const known = new Map([...list.children].map((row) => [row.dataset.job, row]));
  list.replaceChildren(...found.map((one) => {
    const row = known.get(one.id) ?? newRow(one.id);
    fill(row, one);
    return row;
  }));
  if (!found.length) list.replaceChildren(element("li", { class: "quiet" }, "None yet."));
}

function newRow(id) {
  const stop = async () => {
    await cancelJob(id).catch((error) => showError(byId("upload-notice"), error));
    refreshJobs();
  };
  return element("li", { "data-job": id },
    element("p", { class: "job-state" }),
    element("progress", { max: "1", "aria-label": "Indexing" }),
    element("ul", { class: "errors" }),
    element("button", { type: "button", click: stop }, "Cancel"));
}

function fill(row, one) {
  const active = ACTIVE.includes(one.state);
  const parts = [`${one.state}, ${percent(one.progress)}`,
    `${count(one.indexed)} of ${counted(one.accepted, "document")} indexed`];
  if (one.unchanged) parts.push(`${count(one.unchanged)} unchanged`);
  if (one.truncated) parts.push(`${count(one.truncated)} too long to be read whole`);
  if (one.failed) parts.push(`${count(one.failed)} refused`);
  if (one.detail) parts.push(one.detail);
  const text = parts.join(", ");
  const state = row.querySelector(".job-state");
  if (state.textContent !== text) state.textContent = text;
  row.querySelector("progress").value = one.progress;
  row.querySelector("progress").hidden = !active;
  row.querySelector("button").hidden = !active;
  row.querySelector(".errors").replaceChildren(...(one.errors ?? []).map((error) =>
    element("li", {}, `line ${count(error.line)}, `, element("code", {}, error.pointer), ": ",
      foreign(error.detail))));
}

export function startUploads() {
  for (const id of ["corpus", "folder"]) {
    byId(id).addEventListener("change", (event) => {
      if (event.target.files.length) choose([...event.target.files]);
    });
  }
  byId("cancel-upload").addEventListener("click", () => sending?.abort());
  byId("index-button").addEventListener("click", refreshJobs);
  acceptDrops(byId("index-panel"), byId("upload"), choose);
  addEventListener("beforeunload", (event) => { // what is not sent yet would be lost
    if (sending) event.preventDefault();
  });
}
