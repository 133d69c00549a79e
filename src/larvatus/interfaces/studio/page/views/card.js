// Card: the model card as it stands, and its claims as a table.

import { newest } from "../lib/api.js";
import { copyButtons, curlFor, literal } from "../lib/copy.js";
import { fill, h } from "../lib/dom.js";
import { frontMatter, markdown } from "../lib/markdown.js";
import { modelPicker } from "../lib/models.js";
import { empty, field, notice, within } from "../lib/parts.js";

const number = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(4)).toString());
const interval = (claim) => (claim.low === null || claim.high === null ? "" : `${number(claim.low)} to ${number(claim.high)}`);

function measured(claim) {
  return claim.data.map((data) => h("div", { title: `SHA-256 ${data.sha256}` }, data.name));
}

function claimRows(claims) {
  return claims.map((claim) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, claim.figure, claim.estimate && h("div", { class: "faint" }, `estimated: ${claim.estimate}`)),
      h("td", { class: "number" }, claim.value),
      h("td", { class: "number" }, interval(claim)),
      h("td", null, measured(claim)),
      h("td", null, claim.command, h("div", { class: "faint" }, [claim.date, claim.machine].filter(Boolean).join(", "))),
    ),
  );
}

/** All claims, or those that hold a word. */
function claimTable(claims) {
  const sections = [...new Set(claims.map((claim) => claim.section))];
  const heads = ["figure", "value", "95% interval", "measured on", "command"];
  const bodies = sections.map((section) =>
    h("tbody", null, h("tr", null, h("th", { colspan: heads.length, scope: "colgroup", class: "section" }, section)), claimRows(claims.filter((claim) => claim.section === section))),
  );
  return h(
    "div",
    { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Claims" },
    h("table", { class: "table claims" }, h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))), bodies),
  );
}

function claimsCard(claims, params, setParams) {
  if (!claims.length) return null;
  const place = h("div", { "aria-live": "polite" });
  const show = (word) => {
    const wanted = word.trim().toLowerCase();
    const chosen = claims.filter((claim) => [claim.figure, claim.section, claim.command, ...claim.data.map((data) => data.name)].some((part) => part.toLowerCase().includes(wanted)));
    fill(place, chosen.length ? claimTable(chosen) : h("p", { class: "soft" }, "No claim holds this."));
  };
  const search = h("input", { type: "search", value: params.find ?? "", oninput: (event) => (setParams({ find: event.target.value }), show(event.target.value)) });
  show(params.find ?? "");
  return h("section", { class: "card", "aria-label": "Claims" }, h("div", { class: "card-head" }, h("h2", null, `${claims.length.toLocaleString("en")} claims`), field("Find", search)), place);
}

function cardText(text) {
  const { head, body } = frontMatter(text);
  const facts = head && h("details", null, h("summary", null, "Facts for the hub"), h("pre", { class: "code", tabindex: 0 }, head));
  return h("article", { class: "card prose", "aria-label": "Model card", dir: "auto" }, markdown(body), facts);
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
    const edited = card.edited && notice("warn", "README.md was changed since its figures were vouched for; the claims below are those of larvatus.json.");
    fill(place, edited, card.text && cardText(card.text), claimsCard(card.claims, params, setParams));
  });
  return () => run.stop();
}

export const view = {
  id: "card",
  title: "Card",
  about: "What is known of a model: its card, and every figure with what it was measured on.",
  needs: null,
  mount,
};
