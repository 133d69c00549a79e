// Swap: states of the second of two sentences put into the first, word by word and layer by layer (activation patching,
// Vig et al. 2020): which of them move the answer.

import { newest } from "../lib/api.js";
import { copyButtons, literal, pythonFor, studioCurl } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { ramp, readableOn } from "../lib/heat.js";
import { clickableWords, words } from "../lib/marks.js";
import { empty, expect, field, rest, segmented, signed, tableBox, textBox, within } from "../lib/parts.js";
import { onTheme } from "../lib/theme.js";

const EXAMPLE = { first: "The key to the cabinets [MASK] here.", second: "The keys to the cabinets [MASK] here.", answers: ["is", "are"] };
const SITES = { residual: "whole state", attention: "attention", feedforward: "feedforward" };
const SAYS = {
  residual: "All that a layer hands to the next one; layer 0 is the embeddings.",
  attention: "Only what the attention of a layer adds.",
  feedforward: "Only what the feedforward part of a layer adds.",
};
const ALL = "all words";
const LEAST = 0.05; // effects below it are not named
const WAIT_MS = 700;

const shown = (value) => (Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2).replace("-", "−"));

/** Effects of a site by word and layer, shaded: 0 changes nothing, 1 gives the answer of the second sentence. */
export function swapMap({ words: names, effects, first_layer: starts }, site) {
  const [more, less] = [ramp(), ramp("--heat-less")];
  const cell = (value) => {
    const tint = (value < 0 ? less : more)(Math.abs(value));
    return h("td", { style: { background: `rgb(${tint.join(" ")})`, color: readableOn(tint) } }, shown(value));
  };
  const rows = [...names, ALL].map((name, place) => h("tr", { class: name === ALL && place === names.length ? "everything" : null }, h("th", { scope: "row", dir: "auto", title: name }, name), effects[site].map((row) => cell(row[place]))));
  const heads = effects[site].map((_, n) => h("th", { scope: "col" }, n + starts[site]));
  const label = `Effects of ${SITES[site]} by word and layer`;
  return tableBox(label, h("table", { class: "swap-map number" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Word, layer"), heads)), h("tbody", null, rows)));
}

/** Layers in a row at which the same word moves most: [{word, effect, from, to}]. */
export function path({ words: names, effects, first_layer: starts }, site) {
  const stages = [];
  effects[site].forEach((row, n) => {
    const single = row.slice(0, names.length);
    const place = single.indexOf(Math.max(...single));
    const [layer, last] = [n + starts[site], stages.at(-1)];
    if (single[place] < LEAST) return;
    if (last?.place === place && last.to === layer - 1) Object.assign(last, { to: layer, effect: Math.max(last.effect, single[place]) });
    else stages.push({ place, word: names[place], from: layer, to: layer, effect: single[place] });
  });
  return stages;
}

const layersOf = ({ from, to }) => (from === to ? `layer ${from}` : `layers ${from} to ${to}`);

function mount(root, { api, params, setParams, model }) {
  const state = { first: params.first ?? EXAMPLE.first, second: params.second ?? EXAMPLE.second, a: params.a ?? EXAMPLE.answers[0], b: params.b ?? EXAMPLE.answers[1], site: SITES[params.site] ? params.site : "residual" };
  let chosen = -1; // the word of the first sentence that is to be replaced
  let item = null;
  let untouched = params.first === undefined; // the example is shown, which is not for every model
  const run = newest();
  const results = h("section", { class: "results", "aria-label": "What moves" });
  const map = h("div", { class: "stack" });
  const swapping = h("form", { class: "row", hidden: true, onsubmit: (event) => (event.preventDefault(), replace()) });
  const list = () => words(state.first);
  const replacement = h("input", { type: "text", dir: "auto" });

  const strip = clickableWords({
    label: "Words of the first sentence: choose one to change it in the second",
    onToggle: (index) => {
      const word = list()[index];
      if (word.mask) return;
      chosen = index;
      fill(swapping, field(`Instead of “${word.text}”`, replacement), h("button", { class: "button" }, "Change it"));
      swapping.hidden = false;
      replacement.value = "";
      drawStrip();
      replacement.focus();
    },
    face: (word) => (word.mask ? { class: "blank", children: ["\u2003"], label: "Blank" } : { title: "Click to change this word in the second sentence" }),
  });
  const drawStrip = () => strip.show(state.first, list(), new Set(chosen < 0 ? [] : [chosen]));

  /** The second sentence becomes the first one with another word. */
  function replace() {
    const word = list()[chosen];
    if (!word || !replacement.value.trim()) return replacement.focus();
    state.second = state.first.slice(0, word.start) + replacement.value.trim() + state.first.slice(word.end);
    second.value = state.second;
    second.grow();
    changed();
  }

  function changed(typing = false) {
    untouched &&= JSON.stringify([state.first, state.second, state.a, state.b]) === JSON.stringify([EXAMPLE.first, EXAMPLE.second, ...EXAMPLE.answers]);
    setParams({ ...state, site: state.site === "residual" ? "" : state.site });
    drawStrip();
    expect(results);
    if (typing) askLater();
    else askLater.now();
  }

  function drawMap() {
    if (!item) return;
    const stages = path(item, state.site);
    const moves = stages.map((stage) => h("li", null, h("span", { class: "material", dir: "auto" }, stage.word), ` in ${layersOf(stage)}: up to ${shown(stage.effect)}`));
    fill(map, h("p", { class: "faint" }, `${SAYS[state.site]} 0 changes nothing, 1 gives the log-odds of the second sentence; below 0 moves away from it.`), swapMap(item, state.site), moves.length ? h("div", { class: "stack" }, h("h3", null, "The word that moves most, layer by layer"), h("ul", { class: "relations" }, moves)) : h("p", { class: "soft" }, "No single word moves the answer here."));
  }

  async function ask() {
    run.stop();
    const [first, second_] = [state.first.trim(), state.second.trim()];
    if (!first || !second_ || !state.a.trim() || !state.b.trim()) return rest(results, empty("Two sentences and two answers", "Type both sentences with [MASK] at the same place, and the word that belongs there in each."));
    await within(results, async () => {
      const answers = [state.a.trim(), state.b.trim()];
      const body = { first: state.first, second: state.second, answers, model: model.name };
      try {
        item = await run((signal) => api.post("/studio/api/patch", body, { signal }));
      } catch (error) {
        if (!untouched || error.status !== 422) throw error;
        return void fill(results, empty("Type two sentences", `The English example does not suit this model: ${error.message}`));
      }
      const site = segmented("What is swapped", Object.entries(SITES), state.site, (name) => ((state.site = name), setParams({ site: name === "residual" ? "" : name }), drawMap()));
      const odds = `Log-odds of “${answers[1]}” against “${answers[0]}”, in nats: ${signed(item.odds[0])} in the first sentence, ${signed(item.odds[1])} in the second.`;
      const python = () => pythonFor(model, `swapped = model.patch(${literal(state.first)}, ${literal(state.second)}, answers=${literal(answers)})`, "print(swapped)");
      fill(results, h("article", { class: "card", "aria-label": "What moves the answer" }, h("div", { class: "card-head" }, h("h2", null, "What moves the answer"), site), h("p", { class: "number" }, odds), map), copyButtons({ python, curl: () => studioCurl("/studio/api/patch", body) }));
      drawMap();
      return odds;
    }, { words: "Swapping…" });
  }

  const askLater = debounce(ask, WAIT_MS);
  const first = textBox(state.first, (text) => ((state.first = text), (chosen = -1), (swapping.hidden = true), changed(true)), { placeholder: "A sentence with [MASK]" });
  const second = textBox(state.second, (text) => ((state.second = text), changed(true)), { placeholder: "The same with another word" });
  const answer = (name) => h("input", { type: "text", dir: "auto", value: state[name], oninput: (event) => ((state[name] = event.target.value), changed(true)) });
  const hint = h("p", { class: "faint" }, "Click a word to change it in the second sentence, or type both sentences. They need as many words and tokens, and one [MASK] at the same place.");
  fill(root, h("div", { class: "card" }, field("First sentence", first), strip.element, hint, swapping, field("Second sentence", second), h("div", { class: "row" }, field("Answer to the first", answer("a")), field("Answer to the second", answer("b")))), results);
  const forget = onTheme(drawMap);
  changed();
  return () => [forget, askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "swap",
  title: "Swap",
  about: "Change a word and see which states, at which layer, move the model's answer.",
  needs: "fill",
  mount,
};
