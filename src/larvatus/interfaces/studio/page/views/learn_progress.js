// A training under way: how far it is, its curve, what it says, and a button that stops it.

import { fill, h } from "../lib/dom.js";
import { count, notice, percent } from "../lib/parts.js";
import { recordReader } from "../lib/records.js";
import { href } from "../lib/router.js";
import { runCharts } from "./run_charts.js";

const PHASES = { training: "Training", stopping: "Stopping…", stopped: "Stopped", loading: "Loading…", ready: "Done", failed: "Failed" };
const EVERY = { by: "step", smooth: "0", log: false };

function facts(state) {
  const parts = [];
  if (state.step && state.steps) parts.push(`step ${count(state.step)} of ${count(state.steps)}`);
  if (state.loss !== undefined && state.loss !== null) parts.push(`training loss ${Number(state.loss).toFixed(3)}`);
  if (state.speed) parts.push(`${count(Math.round(state.speed))} texts a second`);
  if (state.metric && state.figures?.[state.metric] !== undefined && state.figures[state.metric] !== null) parts.push(`held-out ${state.metric} ${Number(state.figures[state.metric]).toFixed(3)}`);
  parts.push(`${Math.round(state.seconds ?? 0)} s`);
  return parts.join(" · ");
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
  const element = h("section", { class: "stack", "aria-label": "Training" }, h("div", { class: "card" }, h("div", { class: "card-head" }, title, buttons), bar, line, outcome, h("details", { open: true }, h("summary", null, "What it says"), log)), place);
  let reader = null;
  let named = "";
  let phase = "";
  let lines = -1;

  function settled(state) {
    if (state.phase === "ready") {
      return [notice("good", `${state.model} is served now, next to the others.`), h("div", { class: "row row-middle" }, h("a", { class: "button button-main", href: href("label", { model: state.model }) }, "Try it in Label"), h("a", { class: "button", href: href("card", { model: state.model }) }, "See its card"))];
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
      }
      title.textContent = `${PHASES[state.phase] ?? state.phase}: ${state.name}`;
      const share = state.steps ? state.step / state.steps : null;
      bar.hidden = !state.busy;
      if (share === null) bar.removeAttribute("value");
      else bar.value = share;
      line.textContent = share === null || !state.busy ? facts(state) : `${percent(Math.min(1, share))} · ${facts(state)}`;
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
