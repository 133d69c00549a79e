// Runs: training folders as they grow, several over each other.

import { copyButtons, curlFor, literal } from "../lib/copy.js";
import { fill, h } from "../lib/dom.js";
import { count, empty, errorNotice, field, notice, segmented, select } from "../lib/parts.js";
import { every } from "../lib/polling.js";
import { isScore, metricName } from "../lib/metric_names.js";
import { fields, recordReader } from "../lib/records.js";
import { runCharts } from "./run_charts.js";

const LIST_MS = 5_000;
const READ_MS = 2_000;
const MOST_CHOSEN = 8; // colours
const SMOOTHING = [["0", "none"], ["0.6", "some"], ["0.9", "much"]];

const split = (text) => (text ?? "").split(",").filter(Boolean).map(decodeURIComponent);
const join = (names) => names.map(encodeURIComponent).join(",");

function ago(seconds) {
  if (seconds < 90) return "now";
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129_600 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86_400)} d ago`;
}

function mount(root, { api, params, setParams }) {
  const state = { chosen: null, by: params.by === "time" ? "time" : "step", smooth: params.smooth ?? "0", log: params.log === "1", score: params.score ?? "" };
  if (params.runs !== undefined) state.chosen = split(params.runs);
  const readers = new Map();
  const list = h("ul", { class: "run-list" });
  const said = h("div", { "aria-live": "polite" });
  const place = h("div", { class: "stack" });
  const scores = h("div", null);
  const charts = runCharts(place);
  let listed = [];
  let folder = "runs";

  function readerOf(name) {
    if (!readers.has(name)) readers.set(name, recordReader((query, signal) => api.get(`/studio/api/runs/records?name=${encodeURIComponent(name)}&${query}`, { signal })));
    return readers.get(name);
  }

  const chosenRuns = () => (state.chosen ?? []).slice(0, MOST_CHOSEN);

  function draw() {
    const runs = chosenRuns().map((name) => ({ name, records: readerOf(name).records }));
    drawScores(runs);
    charts.show(runs.filter((run) => run.records.length), state);
    const broken = runs.map((run) => [run.name, readers.get(run.name).broken]).filter(([, lines]) => lines);
    const thinned = charts.thinned();
    fill(said, broken.map(([name, lines]) => notice("warn", `${name}: ${count(lines)} lines of metrics.jsonl are no records, and were skipped.`)), thinned > 1 && h("p", { class: "faint" }, `Long lines show every ${thinned}th point.`));
  }

  function drawScores(runs) {
    const names = [...new Set(runs.flatMap((run) => fields(run.records, "valid")))].filter(isScore);
    const key = names.join("\n");
    if (scores.dataset.names === key) return;
    scores.dataset.names = key;
    if (names.length && !names.includes(state.score)) state.score = names[0];
    fill(scores, names.length > 1 && field("Held-out score", select(names.map((name) => [name, metricName(name)]), state.score, (name) => change({ score: name }))));
  }

  function change(changes) {
    Object.assign(state, changes);
    setParams({ runs: join(state.chosen ?? []), by: state.by === "step" ? "" : state.by, smooth: state.smooth === "0" ? "" : state.smooth, log: state.log ? "1" : "", score: state.score });
    draw();
  }

  function choose(name, on) {
    const names = chosenRuns().filter((each) => each !== name);
    change({ chosen: on ? [...names, name].slice(-MOST_CHOSEN) : names });
    drawList();
    if (on) read(undefined).catch((error) => fill(said, errorNotice(error)));
  }

  function row(run) {
    const chosen = chosenRuns();
    const number = chosen.indexOf(run.name);
    const box = h("input", { type: "checkbox", checked: number >= 0, onchange: (event) => choose(run.name, event.target.checked) });
    const mark = h("span", { class: "run-mark", "aria-hidden": "true", style: number >= 0 ? { background: `var(--series-${(number % 8) + 1})` } : {} });
    const facts = [run.step === null || run.step === undefined ? "nothing yet" : `step ${count(run.step)}`, run.live ? "live" : ago(Date.now() / 1000 - run.changed)].join(", ");
    return h("li", null, h("label", { class: "run" }, box, mark, h("span", { class: "run-name" }, run.name), h("span", { class: run.live ? "run-facts live" : "run-facts" }, facts)));
  }

  function drawList() {
    const focused = list.contains(document.activeElement) ? [...list.querySelectorAll("input")].indexOf(document.activeElement) : -1;
    fill(list, listed.map(row));
    if (focused >= 0) list.querySelectorAll("input")[focused]?.focus();
  }

  async function look(signal) {
    const answer = await api.get("/studio/api/runs", { signal });
    listed = answer.runs;
    folder = answer.path;
    if (!listed.length) {
      const where = answer.exists ? `Nothing below ${answer.folder}/ has trained yet.` : `There is no folder ${answer.folder}/ yet.`;
      fill(list, h("li", { class: "soft" }, where));
      if (!chosenRuns().length) fill(place, empty("No training to watch", "A run shows up here as soon as it writes its first step. Start one, or name another folder with --runs:", h("code", null, "larvatus pretrain bert --size tiny --corpus embedded --out runs/mine")));
      return;
    }
    if (state.chosen === null) {
      state.chosen = [listed[0].name];
      await read(signal);
    }
    drawList();
    if (!answer.whole) list.append(h("li", { class: "faint" }, "There are more runs than can be listed; name a folder further down with --runs."));
  }

  async function read(signal) {
    const news = await Promise.all(chosenRuns().map((name) => readerOf(name).read(signal).catch((error) => (error.status === 404 ? (readers.delete(name), true) : Promise.reject(error)))));
    if (news.some(Boolean) || !charts.drawn) draw();
  }

  const controls = h(
    "div",
    { class: "row" },
    segmented("Horizontal axis", [["step", "Steps"], ["time", "Seconds"]], state.by, (by) => change({ by })),
    field("Smoothing", select(SMOOTHING, state.smooth, (smooth) => change({ smooth }))),
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.log, onchange: (event) => change({ log: event.target.checked }) }), "Loss on a logarithmic axis"),
    scores,
  );
  const copies = copyButtons({
    python: () => `import json\nfrom pathlib import Path\n\nrun = Path(${literal(folder)}) / ${literal(chosenRuns()[0] ?? "mine")}\nrecords = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]\n`,
    curl: () => curlFor(`/studio/api/runs/records?name=${encodeURIComponent(chosenRuns()[0] ?? "")}`),
  });
  fill(root, h("div", { class: "runs" }, h("section", { class: "card run-side", "aria-label": "Training folders" }, h("h2", null, "Training folders"), list), h("section", { class: "stack", "aria-label": "Curves" }, h("div", { class: "card" }, controls), said, place, copies)));
  const stops = [every(LIST_MS, look), every(READ_MS, read)];
  return () => {
    stops.forEach((stop) => stop());
    charts.remove();
  };
}

export const view = {
  id: "runs",
  title: "Runs",
  about: "Loss, speed and learning rate of training folders, while they run and after.",
  needs: null,
  mount,
};
