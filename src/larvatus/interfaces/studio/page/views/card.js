// Card: what a model is, five figures, its limits; then the sections of its card and all its claims, folded.

import { newest } from "../lib/api.js";
import { copyButtons, curlFor, literal } from "../lib/copy.js";
import { fill, h } from "../lib/dom.js";
import { inline, markdown } from "../lib/markdown.js";
import { modelPicker } from "../lib/models.js";
import { count, empty, field, notice, within } from "../lib/parts.js";

const number = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(4)).toString());
const interval = (claim) => (claim.low === null || claim.high === null ? "" : `${number(claim.low)} to ${number(claim.high)}`);

function table(label, heads, bodies, kind = "") {
  const head = h("thead", null, h("tr", null, heads.map(([name, numeric]) => h("th", { scope: "col", class: numeric ? "number" : null }, name))));
  return h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: `table ${kind}`.trim() }, head, bodies));
}

function figureTable(figures) {
  const rows = figures.map((claim) => h("tr", null, h("th", { scope: "row" }, claim.figure), h("td", { class: "number" }, claim.value), h("td", { class: "number" }, interval(claim) || "–")));
  return table("Main figures", [["figure"], ["value", true], ["95% interval", true]], h("tbody", null, rows), "figures");
}

function facts(list) {
  return list.length > 0 && h("dl", { class: "facts" }, list.map(({ name, value }) => h("div", null, h("dt", null, name), h("dd", { class: "number" }, value))));
}

function summaryCard(model, { title, about, facts: sizes, figures, limits }) {
  return h(
    "article",
    { class: "card prose", "aria-label": "Model card", dir: "auto" },
    h("h2", null, title || model.name),
    about && h("p", null, inline(about)),
    facts(sizes),
    figures.length > 0 && [h("h3", null, "Main figures"), figureTable(figures)],
    h("h3", null, "Limits"),
    limits ? markdown(limits, 2) : h("p", { class: "soft" }, "The card states no limits. Measure the model on your own text before decisions rest on it."),
  );
}

const folded = (title, said, body, open = false) => h("details", { class: "fold", open }, h("summary", null, h("span", { class: "fold-title" }, title), said && h("span", { class: "faint" }, ` ${said}`)), h("div", { class: "fold-body stack prose", dir: "auto" }, body));

/** A section is built when it is opened: a card may have thousands of rows. */
function section(title, said, build) {
  const fold = folded(title, said, null);
  fold.addEventListener("toggle", () => fold.open && fill(fold.lastChild, build()), { once: true });
  return fold;
}

function textCard({ sections, front_matter: front }) {
  if (!sections.length && !front) return null;
  const folds = sections.map(({ title, text }) => section(title, null, () => markdown(text, 2)));
  const hub = front && section("Facts for the hub", null, () => h("pre", { class: "code", tabindex: 0 }, front));
  return h("section", { class: "card folds", "aria-label": "Sections of the card" }, h("h2", null, "Sections of the card"), h("div", null, folds, hub));
}

function claimRows(claims) {
  return claims.map((claim) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, claim.figure, claim.estimate && h("div", { class: "faint" }, `estimated: ${claim.estimate}`)),
      h("td", { class: "number" }, claim.value),
      h("td", { class: "number" }, interval(claim)),
      h("td", null, claim.data.map((data) => h("div", { title: `SHA-256 ${data.sha256}` }, data.name))),
      h("td", null, claim.command, h("div", { class: "faint" }, [claim.date, claim.machine].filter(Boolean).join(", "))),
    ),
  );
}

const CLAIM_HEADS = [["figure"], ["value", true], ["95% interval", true], ["measured on"], ["command"]];
const claimTable = (title, claims) => table(`Claims: ${title}`, CLAIM_HEADS, h("tbody", null, claimRows(claims)), "claims");

const holds = (claim, wanted) => [claim.figure, claim.section, claim.command, ...claim.data.map((data) => data.name)].some((part) => part.toLowerCase().includes(wanted));

/** The claims of each section, folded; those that hold a word, open. */
function claimFolds(claims, word) {
  const wanted = word.trim().toLowerCase();
  const chosen = claims.filter((claim) => holds(claim, wanted));
  if (!chosen.length) return h("p", { class: "soft" }, "No claim holds this.");
  return [...new Set(chosen.map((claim) => claim.section))].map((title) => {
    const mine = chosen.filter((claim) => claim.section === title);
    const said = `${count(mine.length)} ${mine.length === 1 ? "figure" : "figures"}`;
    return wanted ? folded(title, said, claimTable(title, mine), true) : section(title, said, () => claimTable(title, mine));
  });
}

function claimsCard(claims, params, setParams) {
  if (!claims.length) return null;
  const place = h("div", { "aria-live": "polite" });
  const show = (word) => fill(place, claimFolds(claims, word));
  const search = h("input", { type: "search", value: params.find ?? "", oninput: (event) => (setParams({ find: event.target.value }), show(event.target.value)) });
  show(params.find ?? "");
  return h("section", { class: "card folds", "aria-label": "Claims" }, h("div", { class: "card-head" }, h("h2", null, `${count(claims.length)} claims`), field("Find", search)), place);
}

function mount(root, { api, params, setParams, models, model, choose }) {
  const run = newest();
  if (!model) return fill(root, empty("No model", "The server has no model whose card could be shown.")) && undefined;
  const place = h("div", { class: "stack" });
  const path = `/studio/api/card?model=${encodeURIComponent(model.name)}`;
  const copies = copyButtons({
    python: () => `import larvatus\n\nchecked = larvatus.verify_card(${literal(model.path)})\nprint(checked.ok, len(checked.outcomes))\n`,
    curl: () => curlFor(path),
  });
  fill(root, h("div", { class: "row" }, modelPicker({ models, needs: null, value: model.name, onchange: choose })), place, copies);
  within(place, async () => {
    const card = await run((signal) => api.get(path, { signal }));
    if (!card.text && !card.claims.length) return fill(place, empty("No card", `${model.name} has no README.md. One that Larvatus wrote gets one with`, h("code", null, "larvatus card DIR")));
    const edited = card.edited && notice("warn", "README.md was changed after its checksum was written; the figures below are those of larvatus.json.");
    fill(place, edited, summaryCard(model, card.summary), textCard(card), claimsCard(card.claims, params, setParams));
  });
  return () => run.stop();
}

export const view = {
  id: "card",
  title: "Card",
  about: "What a model is, how good it is and what it is not fit for, with every figure and what it was measured on.",
  needs: null,
  mount,
};
