// A file that a person drops or chooses -> its text and title. UTF-8 is read here; what a browser
// cannot read, the server reads.

import { Problem, Refusal, textOf } from "./api.js";
import { bytes, count } from "./dom.js";

const HTML = [".html", ".htm"];
const MARKDOWN = [".md", ".markdown"];
const SENT = {
  ".pdf": "application/pdf",
  ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
  ".epub": "application/epub+zip",
};
const TEXT = {
  ".txt": "text/plain", ".text": "text/plain", ".md": "text/markdown", ".markdown": "text/markdown",
  ".rst": "text/x-rst", ".html": "text/html", ".htm": "text/html",
};
/** The media type by which the server reads a file; undefined where it reads none. */
export const kindOf = (name) => ({ ...SENT, ...TEXT })[suffixOf(name)];

export const suffixOf = (name) => (/\.[^./]*$/.exec(name.toLowerCase()) ?? [""])[0];

const READ = [...Object.keys(TEXT), ...Object.keys(SENT)];
const CORPUS = [".jsonl", ".ndjson", ".gz"];
const LEFT_OUT = new Set(["SCRIPT", "STYLE", "TEMPLATE", "TITLE", "NOSCRIPT"]);
const PARAGRAPHS = new Set(
  ("ADDRESS ARTICLE ASIDE BLOCKQUOTE BODY CAPTION DD DETAILS DIALOG DIV DL DT FIELDSET FIGCAPTION " +
    "FIGURE FOOTER FORM H1 H2 H3 H4 H5 H6 HEAD HEADER HGROUP HR HTML LEGEND MAIN NAV OL P PRE " +
    "SECTION SUMMARY TABLE UL").split(" "),
);
const LINES = new Set(["BR", "LI", "TR", "OPTION"]);
const CELLS = new Set(["TD", "TH"]);

/** Return {text, title} of a file; refuse one by its name and size before a byte is read. */
export async function readFile(file, limits) {
  const suffix = suffixOf(file.name);
  refuseKind(file.name, suffix);
  refuseLarge(file, limits);
  const data = await readBytes(file);
  const content = suffix in SENT ? null : decode(data);
  if (content === null) return readByServer(file.name, data, kindOf(file.name));
  const { text, title } = HTML.includes(suffix) ? readHtml(content) : { text: content, title: "" };
  if (!text.trim()) throw new Refusal("The file is empty", `${file.name} has no text.`);
  refuseLong(file.name, text, limits);
  return { text, title: title || (MARKDOWN.includes(suffix) ? markdownTitle(text) : "") };
}

/** Refuse a file that is larger than the body of a request. */
export function refuseLarge(file, { max_body_bytes: limit }) {
  if (file.size <= limit) return;
  throw new Refusal("The file is too large",
    `${file.name} has ${bytes(file.size)}; the limit (max_body_bytes) is ${bytes(limit)}.`);
}

function refuseKind(name, suffix) {
  if (READ.includes(suffix)) return;
  if (CORPUS.includes(suffix)) {
    throw new Refusal("This is a corpus, not a document",
      `${name}: add it under “Add documents”.`);
  }
  throw new Refusal("The page cannot read this file",
    `${name}: it reads ${READ.join(" ")}. Many files are added under “Add documents”.`);
}

/** Refuse a text that the service would refuse, which counts characters, not UTF-16 units. */
export function refuseLong(name, text, limits) {
  const most = limits.max_text_characters;
  if (text.length <= most) return;
  let characters = 0;
  for (const _ of text) characters += 1;
  if (characters <= most) return;
  throw new Refusal("The document is too long",
    `${name} has ${count(characters)} characters; the limit (max_text_characters) is ${count(most)}.`);
}

async function readBytes(file) {
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new Refusal("The file could not be read", `${file.name}: it was moved or changed.`);
  }
}

/** Read a file that no browser reads, or a text of an encoding that takes more than this page knows. */
async function readByServer(name, data, kind) {
  try {
    const { text, title } = await textOf(data, kind);
    return { text, title };
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 422) throw error;
    const why = error.errors.map((one) => one.detail).join(", ");
    throw new Refusal("The file cannot be read", `${name}: ${why}`);
  }
}

/** Decode UTF-8, or UTF-16 with a byte order mark; null for everything else. */
function decode(data) {
  const encoding = data[0] === 0xff && data[1] === 0xfe ? "utf-16le"
    : data[0] === 0xfe && data[1] === 0xff ? "utf-16be" : "utf-8";
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(data);
    return text.includes("\0") ? null : text.replace(/\r\n?/g, "\n");
  } catch {
    return null;
  }
}

/** Text and title of a page. The parser neither runs scripts nor loads anything. */
function readHtml(markup) {
  const page = new DOMParser().parseFromString(markup, "text/html");
  const lines = pieces(page.documentElement).join("").split("\n");
  const text = lines.map((line) => line.replace(/\s+/g, " ").trim()).join("\n");
  return { text: text.replace(/\n{3,}/g, "\n\n").trim(), title: oneLine(page.title) };
}

/** The pieces of text in order; a stack, since pages nest deeper than functions can. */
function pieces(root) {
  const found = [];
  const stack = [root];
  while (stack.length) {
    const node = stack.pop();
    if (typeof node === "string") found.push(node);
    else if (node.nodeType === Node.TEXT_NODE) found.push(node.data.replace(/\s+/g, " "));
    else if (node.nodeType === Node.ELEMENT_NODE) stack.push(...opened(node).reverse());
  }
  return found;
}

function opened(node) {
  if (LEFT_OUT.has(node.tagName)) return [];
  if (node.tagName === "PRE") return ["\n\n", node.textContent, "\n\n"];
  if (PARAGRAPHS.has(node.tagName)) return ["\n\n", ...node.childNodes, "\n\n"];
  if (LINES.has(node.tagName)) return ["\n", ...node.childNodes];
  return CELLS.has(node.tagName) ? [" ", ...node.childNodes] : [...node.childNodes];
}

function markdownTitle(text) {
  const heading = /^#{1,6}[ \t]+(.+?)[ \t#]*$/m.exec(text.slice(0, 65_536));
  return heading ? oneLine(heading[1]) : "";
}

const oneLine = (title) => title.replace(/\s+/g, " ").trim().slice(0, 200);
