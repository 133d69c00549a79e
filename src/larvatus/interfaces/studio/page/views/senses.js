// Senses: sentences with a marked word, clustered by how the word is used; nearest uses; WordNet's senses.

import { newest } from "../lib/api.js";
import { copyButtons, curlFor, keywords, literal, pythonFor } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { empty, expect, field, notice, rest, select, within } from "../lib/parts.js";
import { inContext, sentenceEditor } from "../lib/sentences.js";
import { sensePlane } from "./sense_plane.js";
import { layerChoices, layersOf, ownLayers, sensesOf } from "./word_requests.js";

const EXAMPLE = [
  "The *bank* of the river was steep and muddy.",
  "We had lunch on the *bank* of the canal.",
  "Willows grow along the *bank* of the stream.",
  "They pulled the boat up onto the *bank*.",
  "The *bank* raised its interest rates again.",
  "She works for a *bank* in the city.",
  "He paid the money into the *bank* on Friday.",
  "The *bank* refused to give them a loan.",
].join("\n");
const GROUPS = [["", "as many as fit"], ...[2, 3, 4, 5, 6].map((n) => [String(n), String(n)])];
const NEAREST = 5;

/** The same groups and cosines in Python. */
function groupingCode(state) {
  const layers = keywords({ layers: layersOf(state.layers) });
  return [
    "import numpy as np",
    "from larvatus.interfaces.serve.operations.instances import clusters",
    "",
    `vectors = np.concatenate(model.embed(texts, unit="span", ${layers}))`,
    `print(clusters(vectors.astype(np.float64)${state.clusters ? `, ${state.clusters}` : ""}))`,
    `print(model.similarities(texts, ${layers}))`,
  ];
}

function mount(root, { api, params, setParams, model }) {
  const state = { texts: params.texts ?? EXAMPLE, clusters: params.clusters ?? "", layers: params.layers ?? ownLayers(model), at: params.at === undefined ? -1 : Number(params.at) - 1 };
  const run = newest();
  const place = h("section", { class: "results", "aria-label": "Senses" });
  const detail = h("div", { class: "card" });
  const lists = h("div", null);
  const plane = sensePlane({ onChoose: choose });
  let items = [];
  let map = null;
  const body = () => ({ texts: items.map((item) => item.starred), layers: layersOf(state.layers), ...(state.clusters ? { clusters: Number(state.clusters) } : {}), model: model.name });

  const keep = () => setParams({ texts: state.texts, clusters: state.clusters, layers: state.layers === ownLayers(model) ? "" : state.layers, at: state.at >= 0 ? state.at + 1 : "" });

  function choose(index) {
    state.at = index;
    keep();
    drawMap();
  }

  function drawMap() {
    if (!(state.at >= 0 && state.at < items.length)) state.at = -1;
    plane.show(map, items, state.at);
    fill(detail, state.at < 0 ? nearestOfAll() : nearestOf(state.at));
    drawGroups();
  }

  function nearestOfAll() {
    const rows = map.pairs.slice(0, NEAREST).map(({ pair: [i, j], cosine }) =>
      h("li", null, h("button", { type: "button", class: "near-row", onclick: () => choose(i) }, h("span", { class: "number" }, cosine.toFixed(2)), h("span", { class: "pair material" }, h("span", null, `${i + 1} `, inContext(items[i], 30)), h("span", null, `${j + 1} `, inContext(items[j], 30))))),
    );
    return [h("h2", null, "Nearest pairs"), h("p", { class: "soft" }, "Choose a dot, or a sentence, to see which uses are nearest to it."), h("ol", { class: "near-list" }, rows)];
  }

  function nearestOf(index) {
    const near = map.nearest[index] ?? [];
    return [
      h("h2", null, `Nearest to ${index + 1}`),
      h("p", { class: "material" }, inContext(items[index])),
      senseOf(index),
      h("ol", { class: "near-list" }, near.slice(0, NEAREST).map((each) => h("li", null, h("button", { type: "button", class: "near-row", onclick: () => choose(each.index) }, h("span", { class: "number" }, each.cosine.toFixed(2)), h("span", { class: "material" }, `${each.index + 1} `, inContext(items[each.index], 40)))))),
    ];
  }

  function senseOf(index) {
    const sense = map.senses[index];
    if (!sense) return null;
    return h("p", { class: "sense" }, h("span", { class: "chip" }, "WordNet"), " ", h("strong", null, sense.key ?? sense.synset), sense.definition ? ` ${sense.definition}` : "");
  }

  function drawGroups() {
    const groups = [...new Set(map.clusters)].sort((a, b) => a - b);
    fill(
      lists,
      h(
        "div",
        { class: "columns" },
        groups.map((group) => {
          const members = items.map((_, index) => index).filter((index) => map.clusters[index] === group);
          return h(
            "section",
            { class: `card group series-${(group % 8) + 1}`, "aria-label": `Group ${group + 1}` },
            h("h2", null, h("span", { class: "swatch", "aria-hidden": "true" }), map.names[group] ? `Group ${group + 1}: ${map.names[group]}` : `Group ${group + 1}`),
            h("ul", { class: "members" }, members.map((index) => h("li", null, h("button", { type: "button", class: "member material", "aria-pressed": String(index === state.at), onclick: () => choose(index) }, h("span", { class: "number faint" }, index + 1), inContext(items[index])), senseOf(index)))),
          );
        }),
      ),
    );
  }

  /** Why there is one group, if no number of groups was chosen. */
  function single() {
    return !state.clusters && Math.max(...map.clusters) === 0 && notice("note", "All uses are in one group, because no split is clear. Choose a number of groups to split them anyway.");
  }

  function drawAll() {
    fill(
      place,
      single(),
      h("div", { class: "columns columns-wide" }, h("div", { class: "card" }, h("h2", null, "In the plane"), plane.element, h("p", { class: "faint" }, "Near dots are similar uses. Dots that would overlap are moved apart.")), detail),
      lists,
      copyButtons({
        python: () => pythonFor(model, `texts = [\n    ${items.map((item) => literal(item.starred)).join(",\n    ")},\n]`, ...groupingCode(state)),
        curl: () => curlFor("/v1/senses", body()),
      }),
    );
    drawMap();
  }

  async function ask() {
    run.stop();
    items = editor.items();
    if (items.length < 3) return rest(place, empty("Mark a word in three sentences or more", "Write sentences that use a word in several senses, one per line, and click the word in each: similar uses are grouped together."));
    await within(place, async () => {
      const asked = body();
      const { clusters, ...same } = asked;
      map = sensesOf(...(await run((signal) => Promise.all([api.post("/v1/senses", asked, { signal }), api.post("/v1/similar", same, { signal })]))));
      drawAll();
      return `${items.length} words in ${Math.max(...map.clusters) + 1} groups`;
    }, { words: "Reading…" });
  }

  const askLater = debounce(ask, 600);
  const editor = sentenceEditor({ value: state.texts, onChange: (value, clicked) => ((state.texts = value), (state.at = -1), keep(), expect(place), clicked ? askLater.now() : askLater()) });
  editor.element.append(
    h(
      "div",
      { class: "row" },
      field("Groups", select(GROUPS, state.clusters, (clusters) => ((state.clusters = clusters), keep(), askLater.now()))),
      field("Layers", select(layerChoices(model), state.layers, (layers) => ((state.layers = layers), keep(), askLater.now()))),
    ),
  );
  fill(root, editor.element, place);
  keep();
  ask();
  return () => [askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "senses",
  title: "Senses",
  about: "Sentences that use a word, grouped by similar use.",
  needs: "senses",
  mount,
};
