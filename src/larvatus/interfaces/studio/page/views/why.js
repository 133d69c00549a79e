// Why: a filled blank, a class, a tag or an answer, attributed to the words of its text by four methods; and controls that
// say which of them to trust here.

import { newest, onlyItem } from "../lib/api.js";
import { copyButtons, keywords, literal, pythonFor, studioCurl } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { carried, clickableWords, readIndices, words, writeIndices } from "../lib/marks.js";
import { codePoints } from "../lib/offsets.js";
import { empty, expect, field, rest, select, textBox, within } from "../lib/parts.js";
import { blanked } from "./fill.js";
import { METHODS, explained } from "./why_results.js";

const EXAMPLES = {
  fill: "The keys to the cabinet are on the table.",
  classify: "A quiet, clever film with a wonderful ending.",
  tag: "Ada Lovelace met Charles Babbage in London.",
  answer: "The bridge was built in 1890. It crosses the firth west of the city.",
};
const QUESTION = "When was the bridge built?";
const STEPS = ["32", "128", "512"];
const WAIT_MS = 700;

/** What of a model is explained: its fine-tuned task, or the fill of a blank. */
const kindOf = (model) => ["classify", "tag", "answer"].find((task) => model.can.includes(task)) ?? "fill";

/** The words that a tagger reads, in the units of JavaScript. */
function tagged(item) {
  const at = codePoints(item.text);
  return item.words.map((word) => {
    const start = at.slice(0, word.start).length;
    return { text: at.slice(word.start, word.end), start, end: start + at.slice(word.start, word.end).length, mask: false, tag: word.tag };
  });
}

function mount(root, { api, params, setParams, model }) {
  const kind = kindOf(model);
  const fresh = params.text === undefined;
  const state = {
    text: params.text ?? EXAMPLES[kind],
    pair: params.pair ?? (kind === "answer" && fresh ? QUESTION : ""),
    chosen: readIndices(params.blanks ?? (fresh && kind === "fill" ? "5" : "")),
    at: Number(params.at) || 0,
    target: params.target ?? "",
    method: METHODS[params.method] ? params.method : "integrated-gradients",
    baseline: params.baseline === "zero" ? "zero" : "mask",
    steps: STEPS.includes(params.steps) ? params.steps : "32",
  };
  let list = kind === "fill" ? words(state.text) : [];
  const run = newest();
  const results = h("section", { class: "results", "aria-label": "Why" });
  const note = h("p", { class: "faint" });
  const which = h("div", { hidden: true });
  const blanks = () => list.map((_, index) => index).filter((index) => list[index].mask || state.chosen.has(index));
  /** Which blank of several, or which word, is explained. */
  const picked = () => (kind === "fill" ? blanks()[Math.max(0, Math.min(blanks().length, state.at || 1) - 1)] : state.at - 1);

  const strip = clickableWords({
    label: kind === "tag" ? "Words of the text: choose the one whose tag is explained" : "Words of the text: choose one to blank it",
    onToggle: (index) => {
      if (kind === "tag") state.at = state.at === index + 1 ? 0 : index + 1;
      else if (!list[index].mask && !state.chosen.delete(index)) state.chosen.add(index);
      else if (list[index].mask) state.at = blanks().indexOf(index) + 1;
      changed();
    },
    face: (word, index) => {
      if (kind === "tag") return { children: [word.text], title: word.tag, label: `${word.text}, ${word.tag}` };
      return word.mask || state.chosen.has(index) ? { class: "blank", children: ["\u2003", word.mask ? null : h("span", { class: "was" }, word.text)], label: `Blank${word.mask ? "" : `, was ${word.text}`}` } : { title: "Click to blank this word" };
    },
  });

  /** A choice among several blanks. */
  function drawWhich() {
    const several = blanks().length;
    which.hidden = several < 2;
    if (which.dataset.blanks !== String(several)) {
      which.dataset.blanks = several;
      fill(which, field("Blank to explain", select(blanks().map((_, n) => [String(n + 1), String(n + 1)]), "1", (value) => ((state.at = Number(value)), changed()))));
    }
    if (several > 1) which.querySelector("select").value = String(blanks().indexOf(picked()) + 1);
  }

  function drawStrip() {
    if (kind === "fill") drawWhich();
    const marked = kind === "fill" ? new Set(blanks()) : new Set(state.at ? [state.at - 1] : []);
    const cut = strip.show(state.text, list, marked);
    note.textContent = cut || (kind === "tag" ? "Choose the word whose tag is explained; otherwise it is the surest tag other than O." : "Click a word to blank it; click it again to put it back.");
    strip.element.hidden = list.length === 0;
  }

  function changed(typing = false) {
    setParams({ text: state.text, pair: state.pair, blanks: writeIndices(state.chosen), at: state.at || "", target: state.target, method: state.method === "integrated-gradients" ? "" : state.method, baseline: state.baseline === "mask" ? "" : state.baseline, steps: state.steps === "32" ? "" : state.steps });
    if (kind === "fill" || list.length) drawStrip();
    expect(results);
    if (typing) askLater();
    else askLater.now();
  }

  /** The request, and the same as arguments of `Model.explain`. */
  function request() {
    const text = kind === "fill" ? blanked(state.text, list, state.chosen) : state.text;
    const pair = kind === "answer" ? [state.pair, text] : state.pair.trim() && kind === "classify" ? [text, state.pair] : null;
    const at = kind === "fill" && blanks().length > 1 ? blanks().indexOf(picked()) + 1 : kind === "tag" && state.at ? state.at : undefined;
    const options = { ...(state.target.trim() ? { target: state.target.trim() } : {}), ...(at ? { at } : {}), ...(state.baseline === "mask" ? {} : { baseline: state.baseline }), steps: Number(state.steps) };
    const body = { text: pair ? pair[0] : text, ...(pair ? { pair: pair[1] } : {}), ...options, model: model.name };
    return { body, given: pair ? `(${literal(pair[0])}, ${literal(pair[1])})` : literal(text), options };
  }

  async function ask() {
    run.stop();
    if (!state.text.trim()) return rest(results, empty("Type a text", "The words that carry the model's prediction are marked here."));
    if (kind === "fill" && !blanks().length) return rest(results, empty("Nothing is blank yet", "Click a word of the text above: the words that make the model fill it in are marked."));
    if (kind === "answer" && !state.pair.trim()) return rest(results, empty("Type a question", "The words of the passage, and of the question, that lead to the answer are marked here."));
    await within(results, async () => {
      if (kind === "tag") {
        list = tagged(onlyItem(await run((signal) => api.post("/v1/tag", { texts: [state.text], model: model.name }, { signal }))));
        if (state.at > list.length) state.at = 0;
        drawStrip();
      }
      const { body, given, options } = request();
      const answer = await run((signal) => api.post("/studio/api/explain", body, { signal }));
      const shown = explained(answer, state.method, {
        of: kind === "fill" && options.at ? `Blank ${options.at}: ` : null,
        onMethod: (method) => ((state.method = method), setParams({ method: method === "integrated-gradients" ? "" : method })),
        moreSteps: state.steps === STEPS.at(-1) ? null : () => ((state.steps = STEPS[STEPS.indexOf(state.steps) + 1]), (steps.value = state.steps), changed()),
      });
      const python = () => pythonFor(model, `why = model.explain(${given}, ${keywords({ methods: answer.methods, ...options })})`, "print(why)");
      fill(results, shown, copyButtons({ python, curl: () => studioCurl("/studio/api/explain", body) }));
      return `${answer.label}, by ${METHODS[state.method].name}`;
    }, { words: "Explaining…" });
  }

  const askLater = debounce(ask, WAIT_MS);
  const edited = (text) => {
    if (kind === "fill") {
      const next = words(text);
      state.chosen = carried(list, next, state.chosen);
      list = next;
    } else {
      state.at = 0;
      list = [];
    }
    state.text = text;
    changed(true);
  };
  const set = (name) => (value) => ((state[name] = value), changed(true));
  const line = (name, placeholder) => h("input", { type: "text", dir: "auto", value: state[name], placeholder, oninput: (event) => set(name)(event.target.value) });
  const steps = select(STEPS.map((each) => [each, each]), state.steps, (value) => ((state.steps = value), changed()));
  const labels = model.labels ?? [];
  const choice = kind === "fill" || kind === "answer" ? line("target", "what the model predicts") : select([["", "what the model predicts"], ...labels.map((label) => [label, label])], state.target, (value) => ((state.target = value), changed()));
  const controls = h(
    "div",
    { class: "row" },
    which,
    field({ fill: "Word to explain", classify: "Class to explain", tag: "Tag to explain", answer: "Answer to explain" }[kind], choice),
    field("Baseline", select([["mask", "mask tokens"], ["zero", "zeros"]], state.baseline, (value) => ((state.baseline = value), changed()))),
    field("Steps", steps),
  );
  const box = textBox(state.text, edited, { placeholder: "Type a text…" });
  const second = kind === "classify" && textBox(state.pair, set("pair"), { placeholder: "Only for models that judge pairs", rows: 1 });
  fill(root, h("div", { class: "card" }, kind === "answer" && field("Question", line("pair", "")), field(kind === "answer" ? "Passage" : "Text", box), second && field("Second text", second), kind === "fill" || kind === "tag" ? [strip.element, note] : null, controls), results);
  changed();
  return () => [askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "why",
  title: "Why",
  about: "Which words carry a filled blank, a class, a tag or an answer, and which method to trust.",
  needs: ["fill", "classify", "tag", "answer"],
  mount,
};
