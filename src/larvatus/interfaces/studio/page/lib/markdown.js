// A small part of Markdown as elements: headings, paragraphs, lists, tables, code, bold, italics, links. What it does not
// know stays text as it was written; HTML is text, too. Comments (<!-- … -->) are left out, as every reader of Markdown does.
//
//   fill(root, markdown("# A card\n\nwith **bold** words"));

import { h } from "./dom.js";

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|\*(?=\S)([^*]*?\S)\*|!\[([^\]]*)\]\([^)\s]*\)|\[([^\]]+)\]\(([^)\s]+)\)|<(https?:\/\/[^>\s]+)>/g;
const DEEPEST = 4; // emphasis within emphasis
const DIGEST = /^[0-9a-f]{40,}$/; // a checksum, of which the beginning is shown
const NUMBER = /^[-+−±]?\d[\d.,]*\s?%?(\s(to|±)\s[-+−]?\d[\d.,]*\s?%?)?$/; // in a cell: never broken across lines

/** Text within a line, as nodes. */
export function inline(text, depth = 0) {
  const parts = [];
  let place = 0;
  for (const match of text.matchAll(INLINE)) {
    parts.push(unescaped(text.slice(place, match.index)));
    place = match.index + match[0].length;
    parts.push(piece(match, depth));
  }
  parts.push(unescaped(text.slice(place)));
  return parts;
}

const unescaped = (text) => text.replace(/\\([\\`*_{}[\]()#+\-.!|<>])/g, "$1");
const within = (text, depth) => (depth < DEEPEST ? inline(text, depth + 1) : [text]);

function piece(match, depth) {
  const [, , code, bold, italic, image, name, target, address] = match;
  if (code !== undefined) return DIGEST.test(code) ? h("code", { title: code }, `${code.slice(0, 12)}…`) : h("code", null, code.replace(/^ (.*) $/s, "$1"));
  if (bold !== undefined) return h("strong", null, within(bold, depth));
  if (italic !== undefined) return h("em", null, within(italic, depth));
  if (image !== undefined) return `[${image}]`; // pictures elsewhere are not fetched
  if (address !== undefined) return link(address, [address]);
  return /^https?:[/]{2}/i.test(target) ? link(target, within(name, depth)) : h("span", { title: target }, within(name, depth));
}

const link = (target, children) => h("a", { href: target, rel: "noopener noreferrer", target: "_blank" }, children);

/** The lines between two lines of three dashes at the beginning, and the rest. */
export function frontMatter(text) {
  const match = /^\s*---\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)/.exec(text);
  return match ? { head: match[1], body: text.slice(match[0].length) } : { head: "", body: text };
}

const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
const isRule = (line) => /^\s*\|?[\s:|-]*-[\s:|-]*\|?\s*$/.test(line) && line.includes("-") && line.includes("|");

function table(lines) {
  const [head, , ...rows] = lines;
  const numeric = cells(rows[0] ?? "").map((cell) => NUMBER.test(cell));
  const kind = (tag, cell, column) => (tag === "td" ? NUMBER.test(cell) : numeric[column]) && "number";
  const row = (tag, line) => h("tr", null, cells(line).map((cell, column) => h(tag, { scope: tag === "th" ? "col" : null, class: kind(tag, cell, column) }, inline(cell))));
  return h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Table" }, h("table", { class: "table" }, h("thead", null, row("th", head)), h("tbody", null, rows.map((line) => row("td", line)))));
}

const BULLET = /^(\s*)(?:[-*+]|(\d+)[.)])\s+(.*)$/;

function list(lines) {
  const items = [];
  let ordered = false;
  for (const line of lines) {
    const match = BULLET.exec(line);
    if (match && (match[1].length < 2 || !items.length)) {
      ordered ||= match[2] !== undefined && !items.length;
      items.push([match[3]]);
    } else items.at(-1).push(match ? `\n${match[0].trim()}` : line.trim());
  }
  return h(ordered ? "ol" : "ul", null, items.map((item) => h("li", null, nested(item))));
}

/** An item, and the list within it, one level deep. */
function nested(item) {
  const first = item.findIndex((part) => part.startsWith("\n"));
  if (first < 0) return inline(item.join(" "));
  return [inline(item.slice(0, first).join(" ")), list(item.slice(first).map((part) => part.trim()))];
}

// Blocks, each by how its first line looks: how many lines it takes, and what it becomes.
function block(lines, at, level) {
  const line = lines[at];
  const until = (test) => {
    let end = at + 1;
    while (end < lines.length && test(lines[end], end)) end++;
    return end;
  };
  const fence = /^\s*(```+|~~~+)/.exec(line);
  if (fence) {
    const end = until((next) => !next.trim().startsWith(fence[1]));
    return [end + 1, h("pre", { class: "code", tabindex: 0 }, lines.slice(at + 1, end).join("\n"))];
  }
  const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
  if (heading) return [at + 1, h(`h${Math.min(6, heading[1].length + level)}`, null, inline(heading[2]))];
  if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) return [at + 1, h("hr", null)];
  if (line.includes("|") && at + 1 < lines.length && isRule(lines[at + 1])) {
    const end = until((next) => next.includes("|"));
    return [end, table(lines.slice(at, end))];
  }
  if (BULLET.test(line)) {
    const end = until((next) => next.trim() && (BULLET.test(next) || /^\s{2,}/.test(next)));
    return [end, list(lines.slice(at, end))];
  }
  if (/^ {4}|^\t/.test(line)) {
    const end = until((next) => /^ {4}|^\t/.test(next));
    return [end, h("pre", { class: "code", tabindex: 0 }, lines.slice(at, end).map((each) => each.replace(/^ {4}|^\t/, "")).join("\n"))];
  }
  if (line.startsWith(">")) {
    const end = until((next) => next.startsWith(">"));
    return [end, h("blockquote", null, inline(lines.slice(at, end).map((each) => each.replace(/^>\s?/, "")).join("\n")))];
  }
  const end = until((next) => next.trim() && !/^(#{1,6}\s|>|\s*(```|~~~))/.test(next) && !BULLET.test(next));
  return [end, h("p", null, inline(lines.slice(at, end).join("\n")))];
}

/** The elements of a text; headings begin `level` levels below those of the text. */
export function markdown(text, level = 1) {
  const lines = text.replace(/<!--[\s\S]*?-->/g, "").split(/\r?\n/);
  const elements = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const [next, element] = block(lines, at, level);
    elements.push(element);
    at = next;
  }
  return elements;
}
