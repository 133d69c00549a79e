// The build of an index: how far it is, and buttons that stop and continue it.

import { fill, h } from "../lib/dom.js";
import { count, notice } from "../lib/parts.js";

const PHASES = { building: "Indexing", stopping: "Stopping…", stopped: "Stopped", loading: "Opening…", ready: "Indexed", failed: "Failed" };

function facts(state) {
  const read = state.passages === null ? `${count(state.vectors)} passages read` : `${count(state.passages)} passages of ${count(state.documents)} documents`;
  return `${read} · ${Math.round(state.seconds)} s`;
}

/** `show(state)` draws a state of /studio/api/search; `again(request)` continues a build. */
export function buildCard({ again, stop }) {
  const title = h("h2", null);
  const bar = h("progress", { class: "learn-bar", "aria-label": "Passages read" });
  const line = h("p", { class: "soft number" });
  const buttons = h("div", { class: "row row-middle" });
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  const element = h("section", { class: "card", "aria-label": "Build" }, h("div", { class: "card-head" }, title, buttons), bar, line, outcome);
  let drawn = "";

  function settle(state) {
    const request = { collection: state.name, model: state.model, ...(state.column ? { column: state.column } : {}) };
    if (state.phase === "building") return fill(buttons, h("button", { type: "button", class: "button", onclick: stop }, "Stop"));
    if (state.phase !== "stopped" && state.phase !== "failed") return fill(buttons);
    return fill(buttons, h("button", { type: "button", class: "button", onclick: () => again(request) }, "Continue"));
  }

  return {
    element,
    show(state) {
      title.textContent = `${PHASES[state.phase] ?? state.phase}: ${state.name}`;
      line.textContent = facts(state);
      bar.hidden = !state.busy;
      if (state.share === null) bar.removeAttribute("value");
      else bar.value = state.share;
      const key = `${state.name} ${state.phase} ${state.error}`;
      if (key === drawn) return;
      drawn = key;
      settle(state);
      fill(outcome, state.phase === "failed" && notice("bad", state.error), state.phase === "stopped" && notice("warn", "Stopped; what was read is kept."), state.phase === "ready" && notice("good", `${state.name} can be searched now.`));
    },
  };
}
