// Reads {name: Markdown} from standard input, and prints what GitHub would show of each page.
import { text as textOf } from "node:stream/consumers";
import GithubSlugger from "github-slugger";
import { toString } from "hast-util-to-string";
import rehypeRaw from "rehype-raw";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import remarkParse from "remark-parse";
import remarkRehype from "remark-rehype";
import { unified } from "unified";
import { SKIP, visit } from "unist-util-visit";

const form = unified()
  .use(remarkParse)
  .use(remarkGfm)
  .use(remarkRehype, { allowDangerousHtml: true })
  .use(rehypeRaw)
  .use(rehypeSanitize); // its default schema is GitHub's

function shown(markdown) {
  const tree = form.runSync(form.parse(markdown));
  const slugger = new GithubSlugger();
  const page = { titles: [], anchors: [], links: [], images: [], texts: [], tags: [] };
  visit(tree, (node) => {
    if (node.type === "text") page.texts.push(node.value);
    if (node.type !== "element") return undefined;
    if (!page.tags.includes(node.tagName)) page.tags.push(node.tagName);
    if (/^h[1-6]$/.test(node.tagName)) page.anchors.push(slugger.slug(toString(node)));
    if (node.tagName === "h1") page.titles.push(toString(node));
    if (node.tagName === "a") page.links.push(node.properties.href ?? "");
    if (node.tagName === "img") page.images.push(node.properties.src ?? "");
    if (node.tagName === "source") page.images.push(...[node.properties.srcSet].flat());
    return node.tagName === "code" ? SKIP : undefined;
  });
  return page;
}

const pages = Object.entries(JSON.parse(await textOf(process.stdin)));
console.log(JSON.stringify(Object.fromEntries(pages.map(([name, text]) => [name, shown(text)]))));
