// Shows Markdown. HTML in an answer is shown as text, links are checked, and the result is sanitised once more.
import { memo, useMemo, useRef } from "react";
import ReactMarkdown from "react-markdown";
import rehypeHighlight from "rehype-highlight";
import rehypeSanitize, { defaultSchema } from "rehype-sanitize";
import remarkGfm from "remark-gfm";
import { CopyButton } from "./copy_button.jsx";
import { isOwnPicture, safeHref } from "./message.js";

const REMARK_PLUGINS = [remarkGfm];
const REHYPE = { clobberPrefix: "", handlers: { html: asText } }; // the sanitiser adds the prefix

// Documentation speaks of <Card> and <img>: HTML is shown, and never becomes an element.
function asText(state, { value }, parent) {
  const text = { type: "text", value };
  return parent.type === "root" ? { type: "element", tagName: "p", properties: {}, children: [text] } : text;
}

// `id` begins the ids of footnotes, so that two answers never share one.
export const Markdown = memo(function Markdown({ text, id }) {
  const prefix = `${id}-`;
  const rehypePlugins = useMemo(
    () => [[rehypeSanitize, { ...defaultSchema, clobberPrefix: prefix }], rehypeHighlight],
    [prefix],
  );
  const components = useMemo(
    () => ({
      ...COMPONENTS,
      a: ({ node, href, children, ...rest }) => (
        <Link {...rest} href={href?.startsWith("#") ? `#${prefix}${href.slice(1)}` : href}>{children}</Link>
      ),
    }),
    [prefix],
  );
  return (
    <ReactMarkdown
      remarkPlugins={REMARK_PLUGINS}
      remarkRehypeOptions={REHYPE}
      rehypePlugins={rehypePlugins}
      urlTransform={safeHref}
      components={components}
    >
      {text}
    </ReactMarkdown>
  );
});

export function Link({ href, children, ...rest }) {
  if (!href) return <span>{children}</span>;
  if (href.startsWith("#")) return <a {...rest} href={href}>{children}</a>;
  return <a {...rest} href={href} target="_blank" rel="noopener noreferrer">{children}</a>;
}

function CodeBlock({ children }) {
  const block = useRef(null);
  const language = /language-([\w+#-]+)/.exec(children?.props?.className)?.[1];
  return (
    <div className="code">
      <div className="bar">
        <span>{language}</span>
        <CopyButton label="Copy code" text={() => block.current.textContent.replace(/\n$/, "")} />
      </div>
      <pre ref={block} tabIndex={0}>{children}</pre>
    </div>
  );
}

// The page has the first heading and each message the second, so those of an answer begin with the third.
function heading(Tag, large) {
  return ({ node, ...rest }) => <Tag {...rest} className={large ? "large" : rest.className} />;
}

const COMPONENTS = {
  h1: heading("h3", true),
  h2: ({ node, ...rest }) => <h3 {...rest} />, // a footnotes' heading keeps its class, which hides it
  h3: heading("h3"),
  h4: heading("h4"),
  h5: heading("h4"),
  h6: heading("h4"),
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  table: ({ children }) => (
    <div className="wide" tabIndex={0} role="group" aria-label="Table"><table>{children}</table></div>
  ),
  img: ({ src, alt }) => {
    if (!src) return null;
    if (!isOwnPicture(src)) return <Link href={src}>{alt || src}</Link>; // fetched only if the reader wants it
    return <img src={src} alt={alt ?? ""} loading="lazy" referrerPolicy="no-referrer" />;
  },
  input: ({ checked }) => (
    <input type="checkbox" checked={Boolean(checked)} disabled readOnly aria-label={checked ? "Done" : "To do"} />
  ),
};
