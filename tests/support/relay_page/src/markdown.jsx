// Enough Markdown for an answer: paragraphs, headings, lists, tables, fenced code; **bold**, `code`, [links](/path).
// It makes React elements, never HTML, so that nothing in an answer can run in the page.
import { safeHref } from "./message.js";

export function Markdown({ text }) {
  return blocks(text).map((block, index) => <Block key={index} {...block} />);
}

function blocks(text) {
  const found = [];
  text.split(/^```/m).forEach((piece, index) => {
    if (index % 2 === 1) {
      found.push({ kind: "code", text: piece.replace(/^[^\n]*\n?/, "").trimEnd() });
      return;
    }
    for (const part of piece.split(/\n{2,}/)) {
      const lines = part.trim().split("\n");
      if (lines[0] === "") continue;
      const heading = /^(#{1,4}) (.*)$/.exec(lines[0]);
      if (heading && lines.length === 1) found.push({ kind: "heading", text: heading[2] });
      else if (lines.every((line) => /^([-*]|\d+\.) /.test(line))) found.push({ kind: "list", lines });
      else if (lines.every((line) => line.startsWith("|"))) found.push({ kind: "table", lines });
      else found.push({ kind: "paragraph", text: part.trim() });
    }
  });
  return found;
}

function Block({ kind, text, lines }) {
  if (kind === "code") return <pre><code>{text}</code></pre>;
  if (kind === "heading") return <h3>{spans(text)}</h3>;
  if (kind === "list") {
    const Tag = /^\d/.test(lines[0]) ? "ol" : "ul";
    return <Tag>{lines.map((line, index) => <li key={index}>{spans(line.replace(/^([-*]|\d+\.) /, ""))}</li>)}</Tag>;
  }
  if (kind === "table") return <Table lines={lines} />;
  return <p>{spans(text)}</p>;
}

function Table({ lines }) {
  const cells = (line) => line.replace(/^\||\|\s*$/g, "").split("|").map((cell) => spans(cell.trim()));
  const [head, ...rows] = lines.filter((line) => !/^[|\s:-]+$/.test(line)).map(cells);
  if (!head) return null;
  return (
    <table>
      <thead><tr>{head.map((cell, index) => <th key={index}>{cell}</th>)}</tr></thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={index}>{row.map((cell, column) => <td key={column}>{cell}</td>)}</tr>
        ))}
      </tbody>
    </table>
  );
}

function spans(text) {
  return text.split(/(\*\*[^*]+\*\*|`[^`]+`|\[[^\]]+\]\([^)\s]+\))/).map((piece, index) => {
    if (index % 2 === 0) return piece;
    if (piece.startsWith("**")) return <strong key={index}>{piece.slice(2, -2)}</strong>;
    if (piece.startsWith("`")) return <code key={index}>{piece.slice(1, -1)}</code>;
    const [, label, href] = /^\[([^\]]+)\]\(([^)\s]+)\)$/.exec(piece);
    return <a key={index} href={safeHref(href)} target="_blank" rel="noreferrer">{label}</a>;
  });
}
