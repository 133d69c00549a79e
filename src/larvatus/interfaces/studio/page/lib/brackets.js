// A text with brackets over its spans, nested or crossing; lines break as they do in any text.

import { h } from "./dom.js";
import { levels, pieces } from "./offsets.js";

const COLOURS = 8;
const MOST = 2_000; // spans that are drawn; a page with more is slow

/** A colour of a label: the same label has the same one, in the order of `labels`. */
export function colourOf(labels) {
  const known = new Map([...new Set(labels)].map((label, number) => [label, (number % COLOURS) + 1]));
  return (label) => known.get(label) ?? 1;
}

// Each span that covers a piece is a line over it, drawn as a background: it continues where the text continues on a new line.
function painted(piece, height) {
  const layers = [];
  for (const span of piece.spans) {
    const colour = `var(--series-${span.colour})`;
    const y = `calc(var(--bracket) * ${height - 1 - span.level} + var(--bracket) - 5px)`;
    layers.push(`linear-gradient(${colour}, ${colour}) 0 ${y} / 100% 2px no-repeat`);
    if (span.start === piece.start) layers.push(`linear-gradient(${colour}, ${colour}) 0 ${y} / 2px 6px no-repeat`);
    if (span.end === piece.end) layers.push(`linear-gradient(${colour}, ${colour}) 100% ${y} / 2px 6px no-repeat`);
  }
  return layers.join(", ");
}

function named(span, height) {
  const style = { "inset-block-start": `calc(var(--bracket) * ${height - 1 - span.level})`, "max-inline-size": `${Math.max(0.5 * span.room, 0.9)}rem`, color: `var(--series-${span.colour})` };
  return h("span", { class: "bracket-name", "aria-hidden": "true", style }, span.label);
}

/** Characters until the next bracket of the same height begins: a name that is longer is cut there. */
function roomOf(span, all) {
  const next = all.filter((other) => other.level === span.level && other.start > span.start).map((other) => other.start);
  return next.length ? Math.min(...next) - span.start : Infinity;
}

/** The text with its spans [{start, end, label}]; the table next to it has the same content, for people who do not see the brackets. */
export function bracketed(text, spans, labels = []) {
  const colour = colourOf([...labels, ...spans.map((span) => span.label)]);
  const drawn = spans.slice(0, MOST);
  const level = levels(drawn);
  const dressed = drawn.map((span, index) => ({ ...span, level: level[index], colour: colour(span.label) }));
  for (const span of dressed) span.room = Math.min(roomOf(span, dressed), 40);
  const height = dressed.length ? 1 + Math.max(...level) : 0;
  const parts = pieces(text, dressed).map((piece) => {
    if (!piece.spans.length) return piece.text;
    const begins = piece.spans.filter((span) => span.start === piece.start).map((span) => named(span, height));
    return h("span", { class: "bracketed", style: { background: painted(piece, height) } }, begins, piece.text);
  });
  const element = h("div", { class: "brackets material", dir: "auto", style: { "--height": height } }, parts);
  const note = spans.length > MOST ? h("p", { class: "faint" }, `The first ${MOST} of ${spans.length} spans are drawn; the table has all.`) : null;
  return [element, note];
}

/** The text with one span marked, such as the answer to a question. */
export function marked(text, span) {
  const parts = pieces(text, span ? [span] : []).map((piece) => (piece.spans.length ? h("mark", null, piece.text) : piece.text));
  return h("div", { class: "material passage", dir: "auto" }, parts);
}
