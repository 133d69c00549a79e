// Layers: what each layer would fill in, by the masked-LM head on its states (the logit lens, nostalgebraist 2020).

import { newest } from "../lib/api.js";
import { debounce, fill, h } from "../lib/dom.js";
import { carried, clickableWords, readIndices, words, writeIndices } from "../lib/marks.js";
import { empty, expect, field, percent, rest, textBox, within } from "../lib/parts.js";
import { blanked } from "./fill.js";
import { shownToken } from "./fill_results.js";

const EXAMPLE = "The capital of France is Paris.";
const TOP = 5;

/** One blank as a table: a row for each layer, the last first. */
function tableOf({ answer, layers }, number, several) {
  const title = several ? `Blank ${number + 1}: “${shownToken(answer)}”` : `“${shownToken(answer)}”, layer by layer`;
  const row = ({ layer, fills, probability, rank }) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, layer),
      h("td", null, h("span", { class: "bar-track lens-track", "aria-hidden": "true" }, h("span", { class: "bar", style: { "inline-size": `${Math.max(0.4, 100 * probability)}%` } })), h("span", { class: "number" }, percent(probability))),
      h("td", { class: "number" }, rank.toLocaleString("en")),
      fills.map((each) => h("td", { class: each.token === answer ? "lens-answer" : null }, h("span", { class: "material", dir: "auto" }, shownToken(each.token)), " ", h("span", { class: "number faint" }, percent(each.probability)))),
    );
  const ordinals = layers[0].fills.map((_, n) => h("th", { scope: "col" }, n + 1));
  const head = h("tr", null, h("th", { scope: "col" }, "Layer"), h("th", { scope: "col" }, `“${shownToken(answer)}”`), h("th", { scope: "col", class: "number" }, "Rank"), ordinals);
  return h(
    "article",
    { class: "card", "aria-label": title },
    h("h2", null, title),
    h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": title }, h("table", { class: "table lens" }, h("thead", null, head), h("tbody", null, [...layers].reverse().map(row)))),
  );
}

function mount(root, { api, params, setParams, model }) {
  const state = { text: params.text ?? EXAMPLE, chosen: readIndices(params.blanks ?? (params.text === undefined ? "5" : "")) };
  let list = words(state.text);
  const run = newest();
  const results = h("section", { class: "results", "aria-label": "What each layer expects" });
  const note = h("p", { class: "faint" });
  const blanks = () => list.map((_, index) => index).filter((index) => list[index].mask || state.chosen.has(index));
  const strip = clickableWords({
    label: "Words of the text: choose one to blank it",
    onToggle: (index) => {
      if (list[index].mask) return;
      if (!state.chosen.delete(index)) state.chosen.add(index);
      changed();
    },
    face: (word, index) => (word.mask || state.chosen.has(index) ? { class: "blank", children: ["\u2003", word.mask ? null : h("span", { class: "was" }, word.text)], label: `Blank${word.mask ? "" : `, was ${word.text}`}` } : { title: "Click to blank this word" }),
  });

  function changed(typing = false) {
    setParams({ text: state.text, blanks: writeIndices(state.chosen) });
    note.textContent = strip.show(state.text, list, new Set(blanks())) || "Click a word to blank it; click it again to put it back.";
    expect(results);
    if (typing) askLater();
    else askLater.now();
  }

  async function ask() {
    run.stop();
    if (!blanks().length) return rest(results, empty("Nothing is blank yet", "Click a word of the text above: each layer says what it would put there."));
    await within(results, async () => {
      const text = blanked(state.text, list, state.chosen);
      const answer = await run((signal) => api.post("/v1/lens", { text, top: TOP, model: model.name }, { signal }));
      const about = h("p", { class: "soft" }, "Each row reads the states of one layer, 0 before all, with the head that was trained on the last. Lower layers were never trained to be read so: a word far down in the ranks may be known there in another form.");
      fill(results, about, answer.blanks.map((blank, number) => tableOf(blank, number, answer.blanks.length > 1)), answer.read < answer.total && h("p", { class: "faint" }, `Read ${answer.read} of ${answer.total} tokens, around the blanks.`));
      return answer.blanks.map((blank) => `${blank.answer}, first at the top in ${firstLayer(blank)}`).join("; ");
    }, { words: "Reading…" });
  }

  const askLater = debounce(ask);
  const edited = (text) => {
    const next = words(text);
    state.chosen = carried(list, next, state.chosen);
    [state.text, list] = [text, next];
    changed(true);
  };
  const box = textBox(state.text, edited, { placeholder: "Type a text…" });
  fill(root, h("div", { class: "card" }, field("Text", box), strip.element, note), results);
  changed();
  return () => [askLater.cancel, run.stop].forEach((stop) => stop());
}

/** The lowest layer from which on the answer stays first. */
function firstLayer({ layers }) {
  let first = layers.length - 1;
  while (first > 0 && layers[first - 1].rank === 1) first--;
  return first ? `layer ${first}` : "the embeddings";
}

export const view = {
  id: "layers",
  title: "Layers",
  about: "What each layer would fill in: when is a blank decided?",
  needs: "fill",
  mount,
};
