// A training under way: how far it is and how long it takes, its curve, its log, and a button that stops it; at the end the
// comparison with a bag of words.

import { fill, h } from "../lib/dom.js";
import { metricName } from "../lib/metric_names.js";
import { count, notice, percent } from "../lib/parts.js";
import { recordReader } from "../lib/records.js";
import { href } from "../lib/router.js";
import { runCharts } from "./run_charts.js";

const PHASES = { training: "Training", stopping: "Stopping…", stopped: "Stopped", loading: "Loading…", ready: "Done", failed: "Failed" };
const EVERY = { by: "step", smooth: "0", log: false };

const STAGES = { reading: "reading the examples", searching: "comparing ways to train", training: null, comparing: "comparing with a bag of words" };
const OUTCOMES = { model: "good", baseline: "warn", unclear: "warn" };

/** 75 → "1 min 15 s", without a place for a line break. */
function duration(seconds) {
  const whole = Math.round(seconds);
  const parts = whole < 60 ? [whole, "s"] : whole < 3600 ? [Math.floor(whole / 60), "min", whole % 60, "s"] : [Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min"];
  return parts.join("\u00a0");
}

/** How far a training is, from 0 to 1; null while that is not known. */
function share(state) {
  if (state.stage === "searching") return state.left === null || state.left === undefined ? null : state.seconds / (state.seconds + state.left || 1);
  return state.steps ? Math.min(1, state.step / state.steps) : null;
}

function facts(state) {
  const parts = [];
  if (state.busy) parts.push(state.phase === "loading" ? "serving the model" : (state.stage ? STAGES[state.stage] : "starting"));
  if (state.busy && typeof state.left === "number") parts.push(state.stage === "searching" ? `at most about ${duration(state.left)} left` : `about ${duration(state.left)} left`);
  if (state.step && state.steps) parts.push(`step ${count(state.step)} of ${count(state.steps)}`);
  if (state.loss !== undefined && state.loss !== null) parts.push(`training loss ${Number(state.loss).toFixed(3)}`);
  if (state.speed) parts.push(`${count(Math.round(state.speed))} texts a second`);
  if (state.metric && state.figures?.[state.metric] !== undefined && state.figures[state.metric] !== null) parts.push(`held-out ${metricName(state.metric)} ${Number(state.figures[state.metric]).toFixed(3)}`);
  parts.push(state.busy ? `${duration(state.seconds ?? 0)} so far` : duration(state.seconds ?? 0));
  return parts.filter(Boolean).join(" · ");
}

const score = (value) => Number(value).toFixed(3);

/** The candidates of a search, or the model and the bag of words, as a table; above it the outcome in plain words. */
function comparison(state) {
  const both = state.comparison;
  if (!both && !state.candidates) return null;
  const rows = state.candidates
    ? state.candidates.map((each) => [each.name === state.chosen ? `${each.name} (kept)` : each.name, each])
    : [["this model", { score: both.model, low: both.model_low, high: both.model_high }], ["bag of words (TF-IDF, logistic regression)", { score: both.baseline, low: both.baseline_low, high: both.baseline_high }]];
  const timed = rows.every(([, each]) => each.seconds !== undefined);
  const heads = [["trained as"], [metricName(both?.metric ?? state.metric ?? "accuracy"), true], ["95% interval", true], ...(timed ? [["seconds", true]] : [])];
  const head = h("tr", null, heads.map(([name, numeric]) => h("th", { scope: "col", class: numeric ? "number" : null }, name)));
  const body = rows.map(([name, each]) => h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "number" }, score(each.score)), h("td", { class: "number" }, `${score(each.low)} to ${score(each.high)}`), timed && h("td", { class: "number" }, Math.round(each.seconds))));
  return h("section", { class: "stack", "aria-label": "Comparison" }, both && notice(OUTCOMES[both.outcome], both.verdict), h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Scores" }, h("table", { class: "table" }, h("thead", null, head), h("tbody", null, body))), (state.not_tried ?? []).map((reason) => h("p", { class: "faint" }, reason.replace(" (--minutes)", ""))));
}

/** `show(state)` draws a state of /studio/api/learn, `read(signal)` what is new of the curve. */
export function progressCard({ api, act }) {
  const title = h("h2", null);
  const bar = h("progress", { class: "learn-bar", "aria-label": "Steps done" });
  const line = h("p", { class: "soft number" });
  const buttons = h("div", { class: "row row-middle" });
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  const place = h("div", { class: "stack" });
  const log = h("ol", { class: "said" });
  const charts = runCharts(place);
  const element = h("section", { class: "stack", "aria-label": "Training" }, h("div", { class: "card" }, h("div", { class: "card-head" }, title, buttons), bar, line, outcome, h("details", { open: true }, h("summary", null, "Log"), log)), place);
  let reader = null;
  let named = "";
  let phase = "";
  let lines = -1;

  function settled(state) {
    if (state.phase === "ready") {
      return [notice("good", `${state.model} is served now, next to the others.`), comparison(state), h("div", { class: "row row-middle" }, h("a", { class: "button button-main", href: href("label", { model: state.model }) }, "Try it in Label"), h("a", { class: "button", href: href("card", { model: state.model }) }, "See its card"))];
    }
    if (state.phase === "failed") return notice("bad", state.error);
    if (state.phase === "stopped") return notice("warn", state.resumable ? "Stopped; its checkpoint is saved." : "Stopped before anything was saved.");
    return null;
  }

  function action(state) {
    if (state.phase === "training") return h("button", { type: "button", class: "button", onclick: () => act("stop") }, "Stop");
    if (state.phase === "stopped" && state.resumable) return h("button", { type: "button", class: "button", onclick: () => act("resume") }, "Resume");
    return null;
  }

  return {
    element,
    show(state) {
      const key = `${state.name} ${state.phase}`;
      if (named !== state.name) {
        reader = recordReader((query, signal) => api.get(`/studio/api/learn/records?${query}`, { signal }));
        named = state.name;
        lines = -1;
        charts.remove(); // those of the training before
        fill(place);
      }
      title.textContent = `${PHASES[state.phase] ?? state.phase}: ${state.name}`;
      const done = share(state);
      bar.hidden = !state.busy;
      if (done === null || state.stage === "comparing") bar.removeAttribute("value");
      else bar.value = done;
      line.textContent = done === null || !state.busy || state.stage === "comparing" ? facts(state) : `${percent(done)} · ${facts(state)}`;
      if (phase !== key) {
        phase = key;
        fill(buttons, action(state));
        fill(outcome, settled(state));
      }
      if (lines !== state.lines?.length) {
        lines = state.lines?.length ?? 0;
        fill(log, (state.lines ?? []).map((each) => h("li", null, each)));
      }
    },
    async read(state, signal) {
      if (!reader) return;
      if ((await reader.read(signal)) && reader.records.length) charts.show([{ name: state.name, records: reader.records }], { ...EVERY, score: state.metric ?? "" });
    },
    remove: () => charts.remove(),
  };
}
