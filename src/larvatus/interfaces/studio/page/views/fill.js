// Fill: words of a text that are clicked become blanks, and the model predicts them.

import { newest, onlyItem } from "../lib/api.js";
import { copyButtons, curlFor, keywords, literal, pythonFor } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { carried, clickableWords, readIndices, words, writeIndices } from "../lib/marks.js";
import { modelPicker } from "../lib/models.js";
import { check, empty, errorNotice, expect, field, notice, rest, select, textBox, within } from "../lib/parts.js";
import { fillResults, shownToken } from "./fill_results.js";

const EXAMPLES = ["The capital of France is Paris.", "She deposited the money in the bank.", "The river ran through the old town."];
const TOPS = ["5", "10", "20"];

/** The text that is sent: chosen words, and marks that were typed, become [MASK]. */
export function blanked(text, list, chosen) {
  const parts = [];
  let place = 0;
  list.forEach((word, index) => {
    if (!word.mask && !chosen.has(index)) return;
    parts.push(text.slice(place, word.start), "[MASK]");
    place = word.end;
  });
  return parts.join("") + text.slice(place);
}

function mount(root, { api, params, setParams, models, model }) {
  const state = { text: params.text ?? EXAMPLES[0], chosen: readIndices(params.blanks ?? (params.text === undefined ? "5" : "")), top: TOPS.includes(params.top) ? params.top : "5", whole: params.whole !== "0", joint: params.joint !== "0", second: params.second ?? "" };
  let list = words(state.text);
  let best = []; // what the model expects in each blank, to be shown in it
  const run = newest();

  const blanks = () => list.map((word, index) => index).filter((index) => list[index].mask || state.chosen.has(index));
  const note = h("p", { class: "faint" });
  const results = h("section", { class: "results", "aria-label": "What the model expects" });
  const sent = () => ({ texts: [blanked(state.text, list, state.chosen)], top: Number(state.top), joint: state.joint, words_only: state.whole });
  const chosenModels = () => [model, models.find((each) => each.name === state.second && each.name !== model.name)].filter(Boolean);

  const strip = clickableWords({
    label: "Words of the text: choose one to blank it",
    onToggle: (index) => {
      if (list[index].mask) return removeMark(index);
      if (state.chosen.has(index)) state.chosen.delete(index);
      else state.chosen.add(index);
      best = [];
      changed();
    },
    face: (word, index) => {
      if (!word.mask && !state.chosen.has(index)) return { title: "Click to blank this word" };
      const guess = best[blanks().indexOf(index)];
      const was = word.mask ? null : h("span", { class: "was" }, word.text);
      const label = `Blank${word.mask ? "" : `, was ${word.text}`}${guess ? `, expected: ${guess}` : ""}`;
      return { class: "blank", children: [guess ?? "\u2003", was], label, title: word.mask ? "Click to remove the blank" : "Click to put the word back" };
    },
  });

  function removeMark(index) {
    const { start, end } = list[index];
    edited(state.text.slice(0, start) + state.text.slice(end).replace(/^ /, ""));
    box.value = state.text;
    box.grow();
  }

  function edited(text) {
    const next = words(text);
    state.chosen = carried(list, next, state.chosen);
    state.text = text;
    list = next;
    best = [];
    changed(true);
  }

  function drawStrip() {
    const cut = strip.show(state.text, list, new Set(blanks()));
    note.textContent = cut || (list.length ? "Click a word to blank it; click it again to put it back. Arrow keys move between words." : "");
    strip.element.hidden = list.length === 0;
  }

  function changed(typing = false) {
    setParams({ text: state.text, blanks: writeIndices(state.chosen), top: state.top === "5" ? "" : state.top, whole: state.whole ? "" : "0", joint: state.joint ? "" : "0", second: state.second });
    drawStrip();
    expect(results);
    if (typing) askLater();
    else askLater.now();
  }

  async function answerOf(each, signal) {
    try {
      return { model: each, item: onlyItem(await api.post("/v1/fill", { ...sent(), model: each.name }, { signal })) };
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return { model: each, error };
    }
  }

  async function ask() {
    run.stop();
    if (!list.length) return rest(results, empty("Type a text", "Then click a word: the model shows which words it expects in its place.", examples()));
    if (!blanks().length) return rest(results, empty("Nothing is blank yet", "Click a word of the text above, or type [MASK] where a word is missing."));
    await within(results, async () => {
      const answers = await run((signal) => Promise.all(chosenModels().map((each) => answerOf(each, signal))));
      const first = answers[0].item;
      best = first ? first.marginals.map((fills, blank) => shownToken((first.fills[0]?.tokens ?? [first.fills[0]?.token])[blank] ?? fills[0]?.token ?? "")) : [];
      drawStrip();
      fill(results, h("div", { class: "columns" }, answers.map((answer) => (answer.error ? failed(answer) : fillResults(answer, answers.length > 1)))), copies());
      return `Expected: ${best.join(", ")}`;
    }, { words: "Filling…" });
  }

  const failed = ({ model: each, error }) => h("div", { class: "card" }, h("h2", null, each.name), errorNotice(error));
  const copies = () =>
    copyButtons({
      python: () => pythonFor(model, `fills = model.fill(${literal(sent().texts[0])}, ${keywords({ top: sent().top, words_only: state.whole ? undefined : false, joint: state.joint ? undefined : false })})`, "print(fills)"),
      curl: () => curlFor("/v1/fill", { ...sent(), model: model.name }),
    });
  const examples = () =>
    EXAMPLES.map((text) => h("button", { type: "button", class: "button button-small", onclick: () => ((box.value = text), box.grow(), (state.chosen = new Set()), edited(text)) }, text));

  const askLater = debounce(ask);
  const box = textBox(state.text, edited, { placeholder: "Type a text…", "aria-label": "Text" });
  const second = models.length > 1 && modelPicker({ models: models.filter((each) => each.name !== model.name), needs: "fill", value: state.second, label: "Beside it", none: "no second model", sized: false, onchange: (name) => ((state.second = name), changed()) });
  const controls = h(
    "div",
    { class: "row" },
    field("Candidates", select(TOPS.map((top) => [top, top]), state.top, (top) => ((state.top = top), changed()))),
    second,
    check("Several blanks together", state.joint, (joint) => ((state.joint = joint), changed())),
    check("Whole words only", state.whole, (whole) => ((state.whole = whole), changed())),
  );
  fill(root, h("div", { class: "card" }, field("Text", box), strip.element, note, controls), results);
  if (state.second && !models.some((each) => each.name === state.second)) fill(note, notice("warn", `${state.second} is not on this server.`));
  changed();
  return () => [askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "fill",
  title: "Fill",
  about: "Blank a word of a text and see what the model expects in its place.",
  needs: "fill",
  mount,
};
