// Layers: what each layer would fill in, by the masked-LM head on its states (the logit lens, nostalgebraist 2020) or by a
// tuned lens (Belrose et al. 2023); when a blank is decided, and by which words. The exported page has it, too.

import { newest } from "../lib/api.js";
import { copyButtons, keywords, literal, pythonFor, studioCurl } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { carried, clickableWords, readIndices, words, writeIndices } from "../lib/marks.js";
import { empty, expect, field, percent, rest, select, signed, tableBox, textBox, within } from "../lib/parts.js";
import { blanked } from "./fill.js";
import { shownToken } from "./fill_results.js";

const EXAMPLE = "The keys to the cabinet are on the table.";
const TOP = 5;
const MOST_WORDS = 8;

const layerName = (layer) => (layer ? `layer ${layer}` : "the embeddings");
const answerOf = ({ layers }) => layers.at(-1).top[0].token;

/** One blank as a table: a row for each layer, the last first. */
function tableOf({ layers, decided, context }, number, several) {
  const answer = answerOf({ layers });
  const shown = shownToken(answer);
  const title = several ? `Blank ${number + 1}: “${shown}”` : `“${shown}”, layer by layer`;
  const [second, value] = layers[0].rank === undefined ? ["KL", ({ kl }) => kl.toFixed(2)] : ["Rank", ({ rank }) => rank.toLocaleString("en")];
  const row = (each) =>
    h(
      "tr",
      { class: each.layer === decided ? "lens-decided" : null },
      h("th", { scope: "row" }, each.layer, each.layer === decided && h("span", { class: "visually-hidden" }, ", decided")),
      h("td", null, h("span", { class: "bar-track lens-track", "aria-hidden": "true" }, h("span", { class: "bar", style: { "inline-size": `${Math.max(0.4, 100 * each.final)}%` } })), h("span", { class: "number" }, percent(each.final))),
      h("td", { class: "number" }, value(each)),
      each.top.map((word) => h("td", { class: word.token === answer ? "lens-answer" : null }, h("span", { class: "material", dir: "auto" }, shownToken(word.token)), " ", h("span", { class: "number faint" }, percent(word.probability)))),
    );
  const ordinals = layers[0].top.map((_, n) => h("th", { scope: "col" }, n + 1));
  const head = h("tr", null, h("th", { scope: "col" }, "Layer"), h("th", { scope: "col" }, `“${shown}”`), h("th", { scope: "col", class: "number" }, second), ordinals);
  const when = decided ? `Decided at layer ${decided}: from there on, “${shown}” stays first.` : `“${shown}” is first in every layer, from the embeddings on.`;
  return h(
    "article",
    { class: "card", "aria-label": title },
    h("h2", null, title),
    h("p", null, when),
    tableBox(title, h("table", { class: "table lens" }, h("thead", null, head), h("tbody", null, [...layers].reverse().map(row)))),
    context?.length > 0 && contextOf(context, shown, decided),
  );
}

/** The words of the context, that with the strongest effect on the deciding layer first. */
function contextOf(context, shown, decided) {
  const most = context[0].kl || 1;
  const row = ({ text, kl, change }) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", class: "material", dir: "auto" }, text),
      h("td", null, h("span", { class: "bar-track lens-track", "aria-hidden": "true" }, h("span", { class: "bar", style: { "inline-size": `${Math.max(0.4, (100 * kl) / most)}%` } })), h("span", { class: "number" }, kl.toFixed(2))),
      h("td", { class: "number" }, signed(change)),
    );
  const heads = h("tr", null, h("th", { scope: "col" }, "Word"), h("th", { scope: "col" }, "Change of all (KL)"), h("th", { scope: "col", class: "number" }, `What it adds to “${shown}”`));
  const more = context.length > MOST_WORDS && h("p", { class: "faint" }, `The ${MOST_WORDS} strongest of ${context.length} words.`);
  return h(
    "div",
    { class: "stack" },
    h("h3", null, `Words that “${shown}” depends on`),
    h("p", { class: "faint" }, `Each word of the context is masked in turn, and layer ${decided} is read again; both columns are in nats.`),
    tableBox(`Words that “${shown}” depends on`, h("table", { class: "table" }, h("thead", null, heads), h("tbody", null, context.slice(0, MOST_WORDS).map(row)))),
    more,
  );
}

function mount(root, { api, params, setParams, model }) {
  const state = { text: params.text ?? EXAMPLE, chosen: readIndices(params.blanks ?? (params.text === undefined ? "5" : "")), tuned: params.tuned ?? "" };
  let list = words(state.text);
  const run = newest();
  const results = h("section", { class: "results", "aria-label": "What each layer expects" });
  const note = h("p", { class: "faint" });
  const lenses = h("div", { class: "row" });
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
    setParams({ text: state.text, blanks: writeIndices(state.chosen), tuned: state.tuned });
    note.textContent = strip.show(state.text, list, new Set(blanks())) || "Click a word to blank it; click it again to put it back.";
    expect(results);
    if (typing) askLater();
    else askLater.now();
  }

  /** A choice of lenses, where the model has tuned ones. */
  function offer(names) {
    if (lenses.hasChildNodes() || !names?.length) return;
    const options = [["", "logit lens"], ...names.map((name) => [name, `tuned lens ${name}`])];
    fill(lenses, field("Lens", select(options, state.tuned, (name) => ((state.tuned = name), changed())), "A tuned lens maps the states of each layer to those of the last before the head reads them."));
  }

  async function ask() {
    run.stop();
    if (!blanks().length) return rest(results, empty("Nothing is blank yet", "Click a word of the text above: each layer says what it would put there."));
    await within(results, async () => {
      const text = blanked(state.text, list, state.chosen);
      const body = { text, top: TOP, model: model.name, ...(state.tuned ? { tuned: state.tuned } : {}) };
      const answer = await run((signal) => api.post("/studio/api/lens", body, { signal }));
      offer(answer.lenses);
      const read = state.tuned ? "Each row reads the states of one layer, 0 before all, through the translators of the tuned lens." : "Each row reads the states of one layer, 0 before all, with the head that was trained on the last. Lower layers were never trained to be read so: a word far down may be known there in another form.";
      const kl = answer.blanks[0].layers[0].kl === undefined ? "" : " KL is the distance in nats to what the last layer expects.";
      const part = answer.read < answer.total && h("p", { class: "faint" }, `Read ${answer.read} of ${answer.total} tokens, around the blanks.`);
      const code = copyButtons({ python: () => pythonFor(model, `lens = model.lens(${literal(text)}, ${keywords({ top: TOP, tuned: state.tuned || undefined })})`, "print(lens)"), curl: () => studioCurl("/studio/api/lens", body) });
      fill(results, h("p", { class: "soft" }, read, kl), answer.blanks.map((blank, number) => tableOf(blank, number, answer.blanks.length > 1)), part, code);
      return answer.blanks.map((blank) => `${shownToken(answerOf(blank))}, decided at ${layerName(blank.decided)}`).join("; ");
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
  fill(root, h("div", { class: "card" }, field("Text", box), strip.element, note, lenses), results);
  if (state.tuned) offer([state.tuned]);
  changed();
  return () => [askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "layers",
  title: "Layers",
  about: "What each layer would fill in: when is a blank decided?",
  needs: "fill",
  mount,
};
