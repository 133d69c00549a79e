// Probe: what each layer knows of a labelled file, next to controls; measured here in the background, or read from a report.

import { newest } from "../lib/api.js";
import { copyButtons, keywords, literal, pythonFor, studioCurl } from "../lib/copy.js";
import { fill, h, pictured } from "../lib/dom.js";
import { jobRequests } from "../lib/jobs.js";
import { modelPicker } from "../lib/models.js";
import { count, field, notice, percent, select, within } from "../lib/parts.js";
import { every } from "../lib/polling.js";
import { studioToken } from "../lib/token.js";
import { fileChooser } from "./learn_file.js";
import { EXAMPLE } from "./probe_example.js";

const API = "/studio/api/probe";
const LOOK_MS = 1000;
const TASKS = [["", "recognised from the file"], ["tag", "tags of words"], ["spans", "types of spans"], ["relations", "relations of spans"], ["arcs", "dependency relations"], ["roles", "semantic roles"], ["coref", "coreference"], ["structure", "trees"]];
const KINDS = [["linear", "linear"], ["mlp", "one hidden layer"], ["both", "both"]];
const LIMITS = ["100", "300", "1000", "2000"];
const PHASES = { training: "Probing", stopping: "Stopping…", stopped: "Stopped", loading: "Probing", ready: "Done", failed: "Failed" };
const CONTROLS = "A score counts by what it has over its controls: the control task gives every word a random label, which can only be memorised; random weights are those of a model that learned nothing; the level lines need no model at all.";

/** How a probe is run here, as arguments of `larvatus.probe`. */
function asPython(state, model) {
  const given = keywords({ task: state.task || undefined, tag: state.tag || undefined, probe: state.probe, limit: Number(state.limit), description_length: false });
  return pythonFor(model, `report = larvatus.probe(model, ${literal(state.file?.name ?? "words.conll")}, ${given})`, "print(report)");
}

function progressOf({ api, act }) {
  const title = h("h2", null);
  const bar = h("progress", { class: "learn-bar", "aria-label": "Texts read" });
  const line = h("p", { class: "soft number" });
  const buttons = h("div", { class: "row row-middle" });
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  const element = h("section", { class: "card", "aria-label": "Probe that runs" }, h("div", { class: "card-head" }, title, buttons), bar, line, outcome);
  let phase = "";
  return {
    element,
    show(state) {
      title.textContent = `${PHASES[state.phase] ?? state.phase}: ${state.name}`;
      bar.hidden = !state.busy;
      const share = state.steps ? state.step / state.steps : null;
      if (share === null || share >= 1) bar.removeAttribute("value");
      else bar.value = share;
      const read = state.steps ? `${percent(share)} of the texts read` : "starting";
      line.textContent = [...(state.busy ? [read, state.lines?.at(-1)] : []), `${Math.round(state.seconds ?? 0)} s`].filter(Boolean).join(" · ");
      if (phase === `${state.name} ${state.phase}`) return;
      phase = `${state.name} ${state.phase}`;
      fill(buttons, state.phase === "training" && h("button", { type: "button", class: "button", onclick: () => act("stop") }, "Stop"));
      fill(outcome, state.phase === "failed" && notice("bad", state.error), state.phase === "stopped" && notice("warn", "Stopped before it was done; nothing was measured."));
    },
  };
}

function mount(root, { api, params, setParams, models, model }) {
  const state = { model: models.find((each) => each.name === params.model) ?? model, file: null, task: params.task ?? "", tag: params.tag ?? "", probe: KINDS.some(([name]) => name === params.probe) ? params.probe : "linear", limit: LIMITS.includes(params.limit) ? params.limit : "300", saved: params.saved ?? "" };
  const choose = h("div", null);
  const form = h("div", { class: "stack" });
  const said = h("div", { "aria-live": "polite" });
  const under = h("div", { class: "stack" });
  const kept = h("div", null);
  const results = h("section", { class: "results", "aria-label": "What each layer knows" });
  const run = newest();
  const { start, act } = jobRequests({ api, address: API, order, said, show, under });
  const progress = progressOf({ api, act });
  let names = null; // of saved reports, as they are listed
  let waited = ""; // the probe that was seen running

  const set = (name) => (value) => ((state[name] = value), setParams({ [name]: value }));

  function order() {
    const { name, text } = state.file;
    return { name, text, model: state.model.name, probe: state.probe, limit: Number(state.limit), ...(state.task ? { task: state.task } : {}), ...(state.tag ? { tag: state.tag } : {}) };
  }

  function options() {
    const tag = h("input", { type: "text", value: state.tag, placeholder: "last column, or UPOS", oninput: (event) => set("tag")(event.target.value.trim()) });
    const picker = modelPicker({ models, needs: null, value: state.model.name, label: "Model to probe", onchange: (name) => ((state.model = models.find((each) => each.name === name)), setParams({ model: name })) });
    const begin = h("button", { type: "submit", class: "button button-main" }, "Probe");
    return h(
      "form",
      { class: "card", "aria-label": "Options of the probe", onsubmit: (event) => (event.preventDefault(), start(begin)) },
      h("h2", null, state.file.name),
      h("div", { class: "row" }, picker, field("What is probed", select(TASKS, state.task, set("task"))), field("Column or feature", tag), field("Probe", select(KINDS, state.probe, set("probe"))), field("Most texts", select(LIMITS.map((each) => [each, count(each)]), state.limit, set("limit")))),
      h("p", { class: "faint" }, "A fifth of the texts is held out and scored. Every layer is probed, and an encoder with random weights, too."),
      h("div", { class: "row row-middle" }, begin, copyButtons({ python: () => asPython(state, state.model), curl: () => studioCurl(`${API}/start`, order()) })),
    );
  }

  async function given(file) {
    fill(said);
    if (file.name.toLowerCase().endsWith(".json") && /"best_layer"/.test(file.text)) return draw(() => api.post(`${API}/show`, file), "");
    state.file = file;
    fill(form, options());
  }

  function show(now) {
    if (now.phase === "idle") return;
    if (!progress.element.isConnected) fill(under, progress.element);
    progress.show(now);
    if (now.busy) waited = now.name;
    if (now.phase === "ready" && waited === now.name) {
      waited = "";
      open(now.name);
    }
  }

  /** A report, as its picture with controls and its table. */
  async function draw(ask, name) {
    state.saved = name;
    names = null; // the list is drawn again, with this one chosen
    setParams({ saved: name });
    await within(results, async () => {
      const { report, picture } = await run(ask);
      const drawn = h("div", { class: "probe-picture" }, pictured(picture));
      for (const table of drawn.querySelectorAll("details")) table.open = true;
      for (const wide of drawn.querySelectorAll(".lv-wide")) for (const [key, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "Scores by layer"]]) wide.setAttribute(key, value);
      const best = Object.entries(report.best_layer).map(([kind, layer]) => `${kind}: layer ${layer}`).join(", ");
      fill(results, h("article", { class: "card", "aria-label": "Scores by layer" }, h("h2", null, `What ${report.model} knows of ${report.data}`), h("p", null, `Best layer (${best}).`), drawn, h("p", { class: "faint" }, CONTROLS)));
      return `Best layer, ${best}`;
    }, { words: "Reading…" });
  }

  const open = (name) => draw((signal) => api.get(`${API}/report?${new URLSearchParams({ name })}`, { signal }), name);

  function list(saved) {
    if (names === saved.join()) return;
    names = saved.join();
    const choice = select([["", "none"], ...saved.map((name) => [name, name])], saved.includes(state.saved) ? state.saved : "", (name) => (name ? open(name) : (fill(results), setParams({ saved: "" }))));
    fill(kept, saved.length > 0 && h("div", { class: "card" }, field("Saved probes", choice)));
  }

  async function watch(signal) {
    const now = await api.get(API, { signal });
    if (!choose.hasChildNodes()) fill(choose, fileChooser({ limits: { ...now.limits, endings: [...now.limits.endings] }, given, example: EXAMPLE }));
    list(now.saved);
    show(now);
  }

  const locked = !studioToken() && notice("warn", "This page was opened without the token of its address, so it can show but not probe. Open the whole address that larvatus studio printed.");
  if (!model) fill(root, notice("bad", "The server has no model to probe."));
  else fill(root, locked, choose, form, said, under, kept, results);
  if (state.saved) open(state.saved);
  const stop = every(LOOK_MS, watch);
  return () => [stop, run.stop].forEach((end) => end());
}

export const view = {
  id: "probe",
  title: "Probe",
  about: "What each layer knows of a labelled file, next to controls that keep its scores honest.",
  needs: null,
  mount,
};
