// Learn: fine-tune a model on a small file of labelled examples, watch its curve, and try the result.

import { newest } from "../lib/api.js";
import { copyButtons, curlFor, keywords, literal } from "../lib/copy.js";
import { fill, h } from "../lib/dom.js";
import { jobRequests } from "../lib/jobs.js";
import { modelPicker } from "../lib/models.js";
import { field, notice, select, within } from "../lib/parts.js";
import { every } from "../lib/polling.js";
import { studioToken } from "../lib/token.js";
import { fileChooser } from "./learn_file.js";
import { progressCard } from "./learn_progress.js";
import { seenCard } from "./learn_seen.js";

const API = "/studio/api/learn";
const LOOK_MS = 700;
const TRAINED = [["all", "all of the model"], ["lora", "small added matrices (LoRA)"], ["last2", "its last two layers"], ["head", "only the head, the fastest"]];
const AUTO = ["auto", "the best of several ways"];
const MINUTES = 2; // of the comparison, where no other budget is given

/** The options that were set, as the server takes them. */
function choicesOf(state) {
  const number = (text) => (text.trim() === "" ? undefined : Number(text));
  if (state.trained === "auto") return { trained: "auto", minutes: number(state.minutes) };
  return { epochs: number(state.epochs), rate: number(state.rate), trained: state.trained === "all" ? undefined : state.trained };
}

const HINT = "A tenth of the examples is held out to select the best checkpoint. Empty options have the defaults of larvatus finetune. A classifier of texts is compared with a bag of words at the end.";
const SEARCH_HINT = "Linear heads on the model's sentence vectors, fine-tuning and a bag of words are compared by cross-validation on all examples, and the best model is trained on all of them. For up to 1,000 examples this is the default.";

/** The parts of a model that can be trained on a file. */
const partsOf = (seen) => (seen.searchable ? [AUTO, ...TRAINED] : TRAINED);
const skipping = (state) => (state.skip ? { errors: "skip" } : {});
const orderOf = (state, model) => ({ ...state.file, ...skipping(state), task: state.seen.task, model: model.name, choices: choicesOf(state) });
const TRY = { answer: '("Which question?", "The passage that answers it.")', choose: '("A beginning", "one ending", "another")' };

function asPython(state, model) {
  const { trained, ...options } = choicesOf(state);
  const how = trained === "auto" ? { auto: true, ...options } : { ...options, trained };
  const given = { train: state.file.name, out: `runs/${state.file.name.replace(/\.[^.]*$/, "")}`, ...skipping(state), ...how };
  const base = model.packaged ? "larvatus.load()" : literal(model.path);
  return `import larvatus\n\nmodel = larvatus.finetune(${literal(state.seen.task)}, ${base}, ${keywords(given)})\nprint(model.predict(${TRY[state.seen.task] ?? '"A text to try it on."'}))\n`;
}

const copies = (state, model) =>
  copyButtons({
    python: () => asPython(state, model),
    curl: () => curlFor(`${API}/start`, orderOf(state, model), { "X-Studio-Token": studioToken() }),
  });

function mount(root, { api, params, setParams, models, model }) {
  const state = { file: null, seen: null, task: null, skip: false, epochs: params.epochs ?? "", rate: params.rate ?? "", minutes: params.minutes ?? "", trained: "all", model };
  const run = newest();
  const choose = h("div", null);
  const seen = h("div", { class: "stack", "aria-live": "polite" });
  const said = h("div", { "aria-live": "polite" });
  const under = h("div", null);
  const { start, act } = jobRequests({ api, address: API, order: () => orderOf(state, state.model), said, show, under });
  const progress = progressCard({ api, act });
  let served = null;

  async function given(file) {
    Object.assign(state, { file, seen: null, task: null, skip: false });
    await look();
  }

  async function look() {
    fill(said);
    fill(seen);
    await within(seen, async () => {
      state.seen = await run((signal) => api.post(`${API}/check`, { ...state.file, ...skipping(state), ...(state.task ? { task: state.task } : {}) }, { signal }));
      choosePart();
      drawSeen();
    }, { words: "Reading the file…" });
    if (!state.seen && state.task) state.task = null;
  }

  /** What is trained: as the address has it, else as it suits the file. */
  function choosePart() {
    const offered = partsOf(state.seen).map(([name]) => name);
    state.trained = offered.includes(params.trained) ? params.trained : state.seen.trained;
    if (!params.trained && (state.epochs || state.rate)) state.trained = "all";
  }

  function drawSeen() {
    const card = seenCard(state.seen, { skipped: state.skip, onTask: (task) => ((state.task = task), look()), onSkip: (skip) => ((state.skip = skip), look()) });
    const way = state.seen.unusable && !state.skip ? "Training would stop at these rows: skip them above, or repair the file and drop it again." : "Training would stop at these errors; repair the file and drop it again.";
    fill(seen, card, state.seen.may_learn ? order() : notice("bad", way));
  }

  function order() {
    const set = (name) => (event) => {
      state[name] = event.target.value;
      setParams({ [name]: state[name] });
    };
    const epochs = h("input", { type: "number", min: 1, max: 1000, step: 1, value: state.epochs, placeholder: "by size", oninput: set("epochs") });
    const rate = h("input", { type: "number", min: 0, step: "any", value: state.rate, placeholder: "by task", oninput: set("rate") });
    const minutes = h("input", { type: "number", min: 0.1, max: 1000, step: "any", value: state.minutes, placeholder: MINUTES, oninput: set("minutes") });
    const trained = select(partsOf(state.seen), state.trained, (name) => ((state.trained = name), setParams({ trained: name }), draw()));
    const options = h("div", { class: "row" });
    const hint = h("p", { class: "faint" });
    const draw = () => {
      const searches = state.trained === "auto";
      fill(options, searches ? field("Minutes, at most", minutes) : [field("Epochs", epochs), field("Learning rate", rate)]);
      hint.textContent = searches ? SEARCH_HINT : HINT;
    };
    draw();
    const pick = modelPicker({ models, needs: null, value: state.model.name, label: "Model to fine-tune", onchange: (name) => ((state.model = models.find((each) => each.name === name)), setParams({ model: name })) });
    const begin = h("button", { type: "submit", class: "button button-main" }, "Learn");
    return h(
      "form",
      { class: "card", "aria-label": "Training options", onsubmit: (event) => (event.preventDefault(), start(begin)) },
      h("h2", null, "Training options"),
      h("div", { class: "row" }, pick, field("Trainable", trained), options),
      hint,
      h("div", { class: "row row-middle" }, begin, copies(state, state.model)),
    );
  }

  function show(now) {
    if (now.phase === "idle") return;
    if (!progress.element.isConnected) fill(under, progress.element);
    progress.show(now);
    if (now.phase === "ready" && served !== now.model) {
      served = now.model;
      window.dispatchEvent(new Event("models-changed"));
    }
  }

  async function watch(signal) {
    const now = await api.get(API, { signal });
    if (!choose.hasChildNodes()) fill(choose, fileChooser({ limits: now.limits, given }));
    show(now);
    if (now.phase !== "idle") await progress.read(now, signal);
  }

  const locked = !studioToken() && notice("warn", "This page was opened without the token of its address, so it can show but not train. Open the whole address that larvatus studio printed.");
  if (!model) fill(root, notice("bad", "The server has no model to fine-tune."));
  else fill(root, locked, choose, seen, said, under);
  const stop = every(LOOK_MS, watch);
  return () => [stop, run.stop, () => progress.remove()].forEach((end) => end());
}

export const view = {
  id: "learn",
  title: "Learn",
  about: "Fine-tune a model on a small file of examples.",
  needs: null,
  mount,
};
