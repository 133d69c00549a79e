// What a model expects in the blanks of a text, as bars: of one blank, or of several together and each alone.

import { h } from "../lib/dom.js";
import { count, percent } from "../lib/parts.js";

/** A token as people read it; one that is white space alone is named. */
export const shownToken = (token) => (String(token).trim() ? String(token) : String(token).length ? "␣" : "∅");

/** Rows of name, bar and share; `[{name, share, title}]`, with bars relative to 1. */
export function bars(rows, label) {
  return h(
    "ol",
    { class: "bars", "aria-label": label },
    rows.map(({ name, share, title }) =>
      h(
        "li",
        { class: "bar-row", title },
        h("span", { class: "bar-name material", dir: "auto" }, name),
        h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar", style: { "inline-size": `${Math.max(0.4, 100 * share)}%` } })),
        h("span", { class: "bar-share number" }, percent(share)),
      ),
    ),
  );
}

const rowsOf = (fills) => fills.map((each) => ({ name: shownToken(each.token), share: each.probability, title: each.text }));

function jointly(item) {
  const rows = item.fills.map((each) => ({ name: (each.tokens ?? [each.token]).map(shownToken).join(" … "), share: each.probability, title: each.text }));
  return h("div", { class: "stack" }, h("h3", null, `All ${item.marginals.length} blanks together`), bars(rows, "All blanks together"));
}

/** One model's answer, as a card. */
export function fillResults({ model, item }, named) {
  const several = item.marginals.length > 1;
  const rest = item.marginals.map((fills, blank) =>
    h("div", { class: "stack" }, h("h3", null, several ? `Blank ${blank + 1} alone` : "In the blank"), bars(rowsOf(several ? fills : item.fills), several ? `Blank ${blank + 1} alone` : "In the blank")),
  );
  return h(
    "article",
    { class: "card", "aria-label": `Expected by ${model.name}` },
    named && h("h2", null, model.name),
    several && item.fills.length > 0 && jointly(item),
    several ? h("div", { class: "columns columns-narrow" }, rest) : rest,
    item.read < item.total && h("p", { class: "faint" }, `Read ${count(item.read)} of ${count(item.total)} tokens, around the blanks: the model sees no more at once.`),
  );
}
