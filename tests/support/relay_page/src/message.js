// What the page reads out of a UIMessage: its text, its sources, its suggestions.

// Where the documentation lives, for links such as "/quickstart".
const DOCS_URL = import.meta.env.VITE_DOCS_URL ?? "";

export function textOf(message) {
  return message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n\n");
}

// An answer's links come from a service: only http(s) and the docs' own paths become links.
export function safeHref(href) {
  if (href.startsWith("/") && !href.startsWith("//")) return DOCS_URL + href;
  return /^https?:\/\//i.test(href) ? href : undefined;
}

// Sources come as parts of their own and as the results of the search tool; each page is shown once.
export function sourcesOf(message) {
  const found = new Map();
  const add = (href, title) => {
    if (typeof href !== "string" || href === "") return;
    const link = /^[a-z][a-z0-9+.-]*:/i.test(href) || href.startsWith("/") ? href : `/${href}`;
    if (safeHref(link) === undefined) return;
    const page = new URL(link, "https://docs.invalid").pathname;
    if (!found.has(page)) found.set(page, { href: link.replace(/#.*/, ""), title: title || page });
  };
  for (const part of message.parts) {
    if (part.type === "source-url") add(part.url, part.title);
    if (part.type === "tool-search" && Array.isArray(part.output?.results)) {
      for (const result of part.output.results) add(result?.path, result?.metadata?.title);
    }
  }
  return [...found.values()];
}

// The service ends many answers with a fenced block of inverted links: (Title)[/path].
export function splitSuggestions(text) {
  const start = text.search(/^```suggestions[ \t]*$/m);
  if (start < 0) return { text, suggestions: [] };
  const [block, ...rest] = text.slice(start).split(/^```[ \t]*$/m);
  const suggestions = [...block.matchAll(/\(([^()\n]+)\)\[([^\]\n]+)\]/g)]
    .map(([, title, href]) => ({ title, href }))
    .filter(({ href }) => safeHref(href) !== undefined);
  return { text: (text.slice(0, start) + rest.join("```")).trim(), suggestions };
}
