// The curves of runs: loss, held-out score, speed, learning rate; several runs in each, a colour a run.

import { fill, h } from "../lib/dom.js";
import { metricName } from "../lib/metric_names.js";
import { drawPlot, plain, seriesColour } from "../lib/plot.js";
import { fields, series, smooth } from "../lib/records.js";

const LOSSES = [["train", "loss", "solid"], ["valid", "training_loss", "solid"], ["valid", "validation_loss", "dash"], ["valid", "loss", "dash"]];
const SPEEDS = [["train", "tokens/s", "solid"], ["train", "texts/s", "solid"]];
const RATES = [["train", "rate", "solid"]];

/** Fields of a run that are shown: the mean loss between two evaluations only where there is none of each step. */
function without(run, wanted) {
  const everyStep = run.records.some((record) => record.kind === "train" && record.loss !== undefined);
  return wanted.filter(([, name]) => name !== "training_loss" || !everyStep);
}

/** The losses of pretraining on held-out text, one of each objective. */
const heldOutLosses = (runs) => [...new Set(runs.flatMap((run) => fields(run.records, "valid")))].filter((name) => /^scores\/[^/]+\/loss$/.test(name)).map((name) => ["valid", name, "dash"]);

/** The name of a line. The loss of training and that on held-out text have the same name in the records. */
function lineName(kind, name) {
  if (kind === "valid") return name === "training_loss" ? metricName(name) : `held-out ${metricName(name).replace("validation ", "")}`;
  return name === "loss" ? "training loss" : name.endsWith("/s") ? name : metricName(name);
}

/** Lines of all runs for these fields. */
function lines(runs, wanted, state, { smoothed = false } = {}) {
  return runs.flatMap((run, number) =>
    without(run, wanted).flatMap(([kind, name, dash]) => {
      const { x, y, every } = series(run.records, name, { by: state.by, kind });
      if (!x.length) return [];
      const shown = lineName(kind, name);
      const label = plain(runs.length > 1 ? `${run.name} ${shown}` : shown);
      const values = smoothed ? smooth(y, Number(state.smooth)) : y;
      return [{ x, y: values, every, name: label, mode: x.length < 40 ? "lines+markers" : "lines", line: { color: seriesColour(number), dash, width: 2 }, marker: { size: 5 }, type: "scatter" }];
    }),
  );
}

const unitOf = (runs) => SPEEDS.map(([, name]) => name).filter((name) => runs.some((run) => run.records.some((record) => record[name] !== undefined))).join(", ");

const layout = (state, title, { log = false } = {}) => ({
  height: 280,
  xaxis: { title: { text: state.by === "time" ? "seconds" : "step" } },
  yaxis: { title: { text: plain(title) }, type: log ? "log" : "linear" },
  legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
  margin: { l: 56, r: 12, t: 12, b: 44 },
  uirevision: `${title}-${state.by}-${log}`, // a zoom stays while points come in
});

/** Charts in `place`: `show(runs, state)` again and again. */
export function runCharts(place) {
  const charts = new Map();
  let most = 1;
  let drawn = false;

  function chart(title, data, options) {
    most = Math.max(most, ...data.map((line) => line.every));
    let known = charts.get(title);
    if (!known) {
      const element = h("div", null);
      known = { figure: null, card: h("section", { class: "card chart", "aria-label": title }, h("h2", null, title), element) };
      known.figure = { data, layout: options };
      known.plot = drawPlot(element, () => known.figure, { label: `${title}: ${data.map((line) => line.name).join(", ")}` });
      charts.set(title, known);
    } else {
      known.figure = { data, layout: options };
      known.plot.update();
    }
    return known.card;
  }

  return {
    show(runs, state) {
      most = 1;
      const wanted = [
        ["Loss", lines(runs, [...LOSSES, ...heldOutLosses(runs)], state, { smoothed: true }), layout(state, "loss", { log: state.log })],
        ["Held-out score", state.score ? lines(runs, [["valid", state.score, "solid"]], state) : [], layout(state, metricName(state.score))],
        ["Speed", lines(runs, SPEEDS, state, { smoothed: true }), layout(state, unitOf(runs))],
        ["Learning rate", lines(runs, RATES, state), layout(state, "rate")],
      ].filter(([, data]) => data.length);
      const titles = wanted.map(([title]) => title);
      for (const [title, known] of charts) {
        if (!titles.includes(title)) {
          known.plot.remove();
          charts.delete(title);
        }
      }
      const cards = wanted.map(([title, data, options]) => chart(title, data, options));
      if (cards.length !== place.childElementCount || cards.some((card, number) => card !== place.children[number])) fill(place, cards.length ? cards : h("p", { class: "soft" }, "Choose a training folder; one that has written nothing yet shows up as it begins."));
      drawn = true;
    },
    /** Of how many points one is drawn, at most. */
    thinned: () => most,
    get drawn() {
      return drawn;
    },
    remove() {
      for (const known of charts.values()) known.plot.remove();
      charts.clear();
    },
  };
}
