// Compare words: cosines of marked words in their contexts, as they are and after standardisation.

import { newest } from "../lib/api.js";
import { copyButtons, curlFor, keywords, literal, pythonFor } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { empty, expect, field, notice, rest, select, within } from "../lib/parts.js";
import { sentenceEditor } from "../lib/sentences.js";
import { onTheme } from "../lib/theme.js";
import { cosineTable, nearestPairs } from "./cosine_table.js";
import { layerChoices, layersOf, ownLayers } from "./word_requests.js";

const EXAMPLE = [
  "The *bank* of the river was steep and muddy.",
  "We had lunch on the *bank* of the canal.",
  "The *bank* raised its interest rates again.",
  "She works for a *bank* in the city.",
  "The *money* was paid on Friday.",
].join("\n");

function mount(root, { api, params, setParams, model }) {
  const standardisers = model.standardisers ?? []; // an exported page has none, and no way to fit one
  const state = { texts: params.texts ?? EXAMPLE, layers: params.layers ?? ownLayers(model), by: standardisers.includes(params.by) ? params.by : standardisers[0] ?? "" };
  const run = newest();
  const place = h("section", { class: "results", "aria-label": "Cosines" });
  let redraw = () => {};
  const body = (items, standardise) => ({ texts: items.map((item) => item.starred), layers: layersOf(state.layers), ...(standardise ? { standardise } : {}), model: model.name });

  function keep() {
    setParams({ texts: state.texts, layers: state.layers === ownLayers(model) ? "" : state.layers, by: state.by === standardisers[0] ? "" : state.by });
  }

  function show(items, before, after) {
    redraw = () => {
      const tables = [
        h("div", { class: "card" }, h("h2", null, after ? "As the model gives them" : "Cosines"), cosineTable(items, before, "Cosines as the model gives them")),
        after && h("div", { class: "card" }, h("h2", null, `Standardised by “${state.by}”`), cosineTable(items, after, "Cosines after standardisation")),
      ];
      const without = !after && model.standardisers && notice("note", "Dimensions with mean 0 and deviation 1 distinguish words better. This model has no standardiser; fit one with ", h("code", null, "larvatus isotropy fit --model DIR --corpus TEXT --name z"), ", and start the studio again.");
      fill(place, h("div", { class: "columns columns-wide" }, tables), without, h("div", { class: "card" }, h("h2", null, "Pairs, nearest first"), nearestPairs(items, before, after)), copies(items));
    };
    redraw();
  }

  const copies = (items) =>
    copyButtons({
      python: () => pythonFor(model, `texts = [\n    ${items.map((item) => literal(item.starred)).join(",\n    ")},\n]`, `print(model.similarities(texts, ${keywords({ layers: layersOf(state.layers) })}))`, ...(state.by ? [`print(model.similarities(texts, ${keywords({ layers: layersOf(state.layers), standardise: state.by })}))`] : [])),
      curl: () => curlFor("/v1/similar", body(items, state.by)),
    });

  async function ask() {
    run.stop();
    const items = editor.items();
    if (items.length < 2) {
      redraw = () => {};
      return rest(place, empty("Mark a word in two sentences", "Cosines are between words in their contexts: write one sentence per line, and click a word in each."));
    }
    await within(place, async () => {
      const requests = [body(items, ""), ...(state.by ? [body(items, state.by)] : [])];
      const [before, after] = await run((signal) => Promise.all(requests.map(async (each) => (await api.post("/v1/similar", each, { signal })).cosines)));
      show(items, before, after ?? null);
      return `${items.length} words compared`;
    }, { words: "Comparing…" });
  }

  const askLater = debounce(ask, 500);
  const editor = sentenceEditor({ value: state.texts, onChange: (value, clicked) => ((state.texts = value), keep(), expect(place), clicked ? askLater.now() : askLater()) });
  const controls = h(
    "div",
    { class: "row" },
    field("Layers", select(layerChoices(model), state.layers, (layers) => ((state.layers = layers), keep(), askLater.now()))),
    standardisers.length > 0 && field("Standardise by", select(standardisers.map((name) => [name, name]), state.by, (by) => ((state.by = by), keep(), askLater.now()))),
  );
  editor.element.append(controls);
  fill(root, editor.element, place);
  const forget = onTheme(() => redraw());
  keep();
  ask();
  return () => [forget, askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "compare",
  title: "Compare words",
  about: "How similar words are in their contexts: one word may have two senses.",
  needs: "similar",
  mount,
};
