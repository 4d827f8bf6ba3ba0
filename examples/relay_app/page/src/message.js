// Reads a UIMessage: its text, images, sources and suggestions, and which of its links are safe.

// The documentation's address, for paths such as /quickstart; "" means that it is on this page's own site.
const SITE = (document.querySelector("meta[name=docs-site]")?.content ?? "").replace(/\/+$/, "");

export function textOf(message) {
  return message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n\n");
}

// Returns whether the assistant is looking something up: it has written nothing, or nothing since its last search.
export function isSearching(message) {
  const last = message.parts.findLast(({ type }) => type === "text" || /^(tool-|dynamic-tool$)/.test(type));
  return last?.type !== "text" || last.text.trim() === "";
}

// Links and images of an answer come from a service: only web and mail addresses, and paths of the documentation,
// become links. Returns undefined for all others.
export function safeHref(href) {
  if (typeof href !== "string" || href === "") return undefined;
  if (href.startsWith("#")) return href;
  if (/^[a-z][a-z0-9+.-]*:/i.test(href) || href.startsWith("//")) {
    return /^(https?:\/\/|mailto:)/i.test(href) ? href : undefined;
  }
  return `${SITE}/${href.replace(/^[./\\]+/, "")}`;
}

// The address of any other picture could carry away what the reader asked. app.py's policy says the same.
export function isOwnPicture(href) {
  if (/^data:image\//i.test(href)) return true;
  try {
    return new URL(href, location.href).origin === new URL(SITE || location.href).origin;
  } catch {
    return false;
  }
}

export function imagesOf(message) {
  return message.parts
    .filter((part) => part.type === "file" && part.mediaType?.startsWith("image/"))
    .filter((part) => isOwnPicture(part.url));
}

// Pages that the answer used, each once, with the section: those that the service names, and results of the search
// that the text links to. The search finds more than an answer uses.
export function sourcesOf(message) {
  const found = new Map();
  const add = (path, title) => {
    const href = safeHref(path);
    if (!href || /^mailto:|^#/i.test(href)) return;
    if (!found.has(pageOf(href))) found.set(pageOf(href), { href, title: title || pageOf(href) });
  };
  for (const part of message.parts) if (part.type === "source-url") add(part.url, part.title);
  const { text } = splitSuggestions(textOf(message));
  const linked = new Set([...text.matchAll(/\]\(([^()\s]+)/g)].map(([, path]) => pageOf(safeHref(path))));
  for (const part of message.parts) {
    if (part.type !== "tool-search" || !Array.isArray(part.output?.results)) continue;
    for (const { path, metadata } of part.output.results) if (linked.has(pageOf(safeHref(path)))) add(path, metadata?.title);
  }
  return [...found.values()];
}

export function pageOf(href) {
  return href && new URL(href, "https://docs.invalid").pathname;
}

// An answer that was stopped or cut: one of its parts never ended.
export function isCut(message) {
  return message.parts.some(({ state }) => state === "streaming");
}

// A chat whose last question has no answer, or only a part of one.
export function isIncomplete(last) {
  return last?.role === "user" || Boolean(last && isCut(last));
}

const FENCE = "```suggestions";

// The service ends many answers with a fenced block of suggested pages: (Title)[/path] or [Title](/path) per line.
// While the answer is being written, the beginning of the fence is left out, too.
export function splitSuggestions(text, live) {
  const start = text.search(/^```suggestions[ \t]*$/m);
  if (start < 0) return { text: live ? withoutBeginningOfFence(text) : text, suggestions: [] };
  const [block, ...rest] = text.slice(start).split(/^```[ \t]*$/m);
  const suggestions = [...block.matchAll(/^[ \t]*(?:[-*][ \t]+)?(?:\((.+)\)\[(\S+)\]|\[(.+)\]\((\S+)\))[ \t]*$/gm)]
    .map(([, title, path, title2, path2]) => ({ title: title ?? title2, href: safeHref(path ?? path2) }))
    .filter(({ href }) => href !== undefined);
  return { text: (text.slice(0, start) + rest.join("```")).trim(), suggestions };
}

function withoutBeginningOfFence(text) {
  const line = text.slice(text.lastIndexOf("\n") + 1);
  return line !== "" && FENCE.startsWith(line) ? text.slice(0, text.length - line.length) : text;
}

const PIECE = 1000; // characters; smaller pieces would cost more than they save

// Splits Markdown at blank lines before a heading or a paragraph, so that only the last piece of a growing answer has
// to be drawn again: 50 KB drawn whole, 20 times a second, would freeze the page.
export function piecesOf(text) {
  if (/^ {0,3}\[[^\]]+\]:/m.test(text)) return [text]; // a footnote or a link's address may be used anywhere
  const pieces = [""];
  let fence = "";
  let blank = false;
  for (const line of text.split(/(?<=\n)/)) {
    if (!fence && blank && pieces.at(-1).length >= PIECE && /^(?:#|\p{L}|\*\*|```)/u.test(line)) pieces.push("");
    const mark = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})\s*(\S*)/.exec(line);
    if (mark && !fence) fence = mark[1];
    else if (mark && mark[1].startsWith(fence) && !mark[2]) fence = "";
    blank = line.trim() === "";
    pieces[pieces.length - 1] += line;
  }
  return pieces;
}
