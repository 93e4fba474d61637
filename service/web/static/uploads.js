// Uploads of a corpus, and the jobs that index them.

import { Refusal, cancelJob, job, jobs, upload, version } from "./api.js";
import { acceptDrops, byId, bytes, count, counted, element, foreign, percent } from "./dom.js";
import { refreshIndex } from "./index_panel.js";
import { showError } from "./notices.js";

const SHOWN_JOBS = 5;
const EVERY_MS = 1_000;
const ACTIVE = ["waiting", "running"];

let sending = null;
let timer = 0;

/** Send the one file of a choice or a drop; refuse several, and a second one while one is sent. */
function choose(files) {
  if (files.length === 1 && !sending) return send(files[0]);
  const refusal = sending
    ? new Refusal("One upload at a time", "Wait until the file is sent, or cancel it.")
    : new Refusal("One file at a time",
      `These are ${count(files.length)} files. For many, run longmatch index FOLDER.`);
  showError(byId("upload-notice"), refusal);
}

async function send(file) {
  const controller = new AbortController();
  byId("upload-notice").replaceChildren();
  try {
    sending = controller;
    const name = file.name.toLowerCase();
    refuseOther(file, name);
    showSending(0); // with its button: the answer below can take long
    refuseLarge(file, (await Promise.race([version(), aborted(controller.signal)])).limits);
    const accepted = await upload(file, {
      gzip: name.endsWith(".gz"), signal: controller.signal, progress: showSending,
    });
    byId("upload-status").textContent =
      `Received ${counted(accepted.accepted, "line")}; they are being indexed.`;
  } catch (error) {
    if (error.name === "AbortError") byId("upload-status").textContent = "Cancelled.";
    else {
      byId("upload-status").textContent = "";
      showError(byId("upload-notice"), error, () => send(file));
    }
  } finally {
    sending = null;
    for (const id of ["upload-progress", "cancel-upload"]) byId(id).hidden = true;
    byId("corpus").value = "";
    refreshJobs();
  }
}

function refuseOther(file, name) {
  if ([".jsonl", ".ndjson", ".gz"].some((suffix) => name.endsWith(suffix))) return;
  throw new Refusal("This is not a corpus",
    `${file.name}: the page uploads JSON Lines (.jsonl, .ndjson, .gz).`);
}

function refuseLarge(file, { max_upload_bytes: limit }) {
  if (file.size <= limit) return;
  throw new Refusal("The file is too large", `${file.name} has ${bytes(file.size)}; the limit ` +
    `(max_upload_bytes) is ${bytes(limit)}.`);
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
  byId("upload-status").textContent = share < 1 ? "Sending …" : "The server stores it …";
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
    showError(byId("upload-notice"), error, refreshJobs);
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
  byId("corpus").addEventListener("change", (event) => {
    if (event.target.files.length) choose([...event.target.files]);
  });
  byId("cancel-upload").addEventListener("click", () => sending?.abort());
  byId("index-button").addEventListener("click", refreshJobs);
  acceptDrops(byId("index-panel"), byId("upload"), choose);
}
