// Cosines of words in contexts: a shaded table, and the pairs in order.

import { h } from "../lib/dom.js";
import { ramp, readableOn } from "../lib/heat.js";
import { inContext } from "../lib/sentences.js";
import { nearestPairsOf } from "./word_requests.js";

const MOST_PAIRS = 30;

function range(cosines) {
  const others = cosines.flatMap((row, i) => row.filter((_, j) => j !== i));
  return [Math.min(...others), Math.max(...others)];
}

const shownCosine = (value) => value.toFixed(2).replace("-", "−");

/** Rows and columns in the order of the sentences; shades from the least to the greatest cosine of two of them. */
export function cosineTable(items, cosines, label) {
  const shade = ramp();
  const [low, high] = range(cosines);
  const cell = (value, i, j) => {
    if (i === j) return h("td", { class: "cosine cosine-self" }, shownCosine(value));
    const tint = shade(high > low ? 0.08 + (0.92 * (value - low)) / (high - low) : 0.5);
    return h("td", { class: "cosine", title: `${i + 1} and ${j + 1}: ${value.toFixed(4)}`, style: { background: `rgb(${tint.join(" ")})`, color: readableOn(tint) } }, shownCosine(value));
  };
  return h(
    "div",
    { class: "table-wrap", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      { class: "cosines number" },
      h("thead", null, h("tr", null, h("td", null), items.map((_, n) => h("th", { scope: "col" }, n + 1)))),
      h("tbody", null, items.map((item, i) => h("tr", null, h("th", { scope: "row" }, `${i + 1} `, h("span", { class: "material cosine-word", dir: "auto" }, item.word)), cosines[i].map((value, j) => cell(value, i, j))))),
    ),
  );
}

/** All pairs, nearest first by the last of the two matrices; the rest of many is counted. */
export function nearestPairs(items, before, after) {
  const pairs = nearestPairsOf(after ?? before).map(({ pair }) => pair);
  const row = ([i, j]) =>
    h(
      "tr",
      null,
      h("td", null, h("div", { class: "pair material" }, h("span", null, `${i + 1} `, inContext(items[i], 40)), h("span", null, `${j + 1} `, inContext(items[j], 40)))),
      h("td", { class: "number" }, shownCosine(before[i][j])),
      after && h("td", { class: "number" }, shownCosine(after[i][j])),
    );
  return h(
    "div",
    { class: "table-wrap" },
    h("table", { class: "table pairs" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Words"), h("th", { scope: "col", class: "number" }, "Cosine"), after && h("th", { scope: "col", class: "number" }, "Standardised"))), h("tbody", null, pairs.slice(0, MOST_PAIRS).map(row))),
    pairs.length > MOST_PAIRS && h("p", { class: "faint" }, `${MOST_PAIRS} of ${pairs.length.toLocaleString("en")} pairs; all are in the table above.`),
  );
}
