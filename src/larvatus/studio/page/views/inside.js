// Inside: the attention of every layer and head on a text; one head as lines between tokens, or as a matrix.

import { newest, onlyItem } from "../lib/api.js";
import { copyButtons, curlFor, literal, pythonFor } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { empty, field, percent, segmented, textBox, within } from "../lib/parts.js";
import { onTheme } from "../lib/theme.js";
import { headGrid } from "./head_grid.js";
import { headLines } from "./head_lines.js";
import { headMatrix } from "./head_matrix.js";
import { typeClass, typeOf } from "./head_types.js";

const EXAMPLE = "The keys to the old cabinet are on the table.";
const SHARES = ["self", "previous", "next", "cls", "separator", "punctuation"];

/** The answer with `types[layer][head]` and `rows[layer][head]`, whatever order its statistics come in. */
export function arranged(item) {
  const rows = item.weights.map((layer) => layer.map(() => null));
  for (const row of item.heads ?? []) if (rows[row.layer - 1]) rows[row.layer - 1][row.head - 1] = row;
  return { ...item, rows, types: rows.map((layer) => layer.map((row) => row?.type ?? "mixed")) };
}

/** [layer, head] of the head whose attention is least spread: the first to show, where none was chosen. */
function sharpest(rows) {
  const spread = (row) => (row ? row.entropy / row.uniform : 1);
  const all = rows.flatMap((layer, l) => layer.map((row, n) => [l + 1, n + 1, spread(row)]));
  return all.reduce((best, each) => (each[2] < best[2] ? each : best)).slice(0, 2);
}

function mount(root, { api, params, setParams, model }) {
  const state = { text: params.text ?? EXAMPLE, layer: Number(params.layer) || 0, head: Number(params.head) || 0, show: params.show === "matrix" ? "matrix" : "lines", token: Number(params.token ?? -1) };
  let item = null;
  const run = newest();
  const onToken = (token) => ((state.token = token), keep(), drawHead());
  const grid = headGrid({ onChoose: (layer, head) => ((state.layer = layer), (state.head = head), keep(), drawHead()) });
  const faces = { lines: headLines({ onToken }), matrix: headMatrix({ onToken }) };
  const place = h("section", { class: "stack", "aria-label": "Attention" });
  const title = h("h2", null);
  const facts = h("div", { class: "facts" });
  const figure = h("div", null);
  const sent = () => ({ texts: [state.text], model: model.name });

  const keep = () =>
    setParams({ text: state.text, layer: state.layer || "", head: state.head || "", show: state.show === "lines" ? "" : state.show, token: state.token >= 0 ? state.token : "" });

  function drawHead() {
    if (!item) return;
    if (!state.layer || !state.head) [state.layer, state.head] = sharpest(item.rows);
    state.layer = Math.max(1, Math.min(state.layer, item.weights.length));
    state.head = Math.max(1, Math.min(state.head, item.weights[0].length));
    if (!(state.token >= 0 && state.token < item.tokens.length)) state.token = -1;
    const row = item.rows[state.layer - 1][state.head - 1];
    const type = row?.type ?? "mixed";
    fill(title, `Layer ${state.layer}, head ${state.head} `, h("span", { class: `chip ${typeClass(type)}` }, `${type}: ${typeOf(type).says}`));
    fill(facts, row && factsOf(row));
    grid.mark(state.layer, state.head);
    fill(figure, faces[state.show].element);
    faces[state.show].show(item.tokens, item.weights[state.layer - 1][state.head - 1], state.token, `Attention of layer ${state.layer}, head ${state.head}, ${item.tokens.length} tokens`);
  }

  function factsOf(row) {
    const shares = SHARES.filter((name) => row[name] !== undefined).sort((a, b) => row[b] - row[a]);
    return [
      h("span", null, `entropy ${row.entropy.toFixed(2)} of ${row.uniform.toFixed(2)} nats`),
      h("span", null, `mean distance ${row.distance.toFixed(1)} tokens`),
      ...shares.slice(0, 3).map((name) => h("span", null, `${name} ${percent(row[name])}`)),
    ];
  }

  function drawAll() {
    const faced = segmented("Show the head as", [["lines", "Lines"], ["matrix", "Matrix"]], state.show, (show) => ((state.show = show), keep(), drawHead()));
    fill(
      place,
      h(
        "div",
        { class: "inside" },
        h("div", { class: "card" }, h("h2", null, "All heads"), h("p", { class: "faint" }, "Layers from top to bottom, heads from left to right; in each, rows look at columns."), grid.element),
        h("div", { class: "card" }, h("div", { class: "card-head" }, title, faced), facts, figure),
      ),
      copyButtons({
        python: () => pythonFor(model, `attention = model.attention(${literal(state.text)})`, `attention.tokens, attention.head(${state.layer}, ${state.head})  # [T, T], row i says what token i looks at`),
        curl: () => curlFor("/v1/attention", sent()),
      }),
    );
    grid.show(item, state.layer, state.head);
    drawHead();
    keep();
  }

  async function ask() {
    run.stop();
    if (!state.text.trim()) {
      item = null;
      return fill(place, empty("Type a text", "Its tokens, and what every head of the model looks at from each of them, appear here."));
    }
    await within(place, async () => {
      item = arranged(onlyItem(await run((signal) => api.post("/v1/attention", sent(), { signal }))));
      drawAll();
    }, { words: "Looking…" });
  }

  const askLater = debounce(ask, 450);
  const box = textBox(state.text, (text) => ((state.text = text), (state.token = -1), keep(), askLater()), { placeholder: "Type a text…" });
  fill(root, h("div", { class: "card" }, field("Text", box, "A sentence or two: the picture of a head grows with the square of its tokens.")), place);
  const forget = onTheme(() => item && (grid.repaint(), drawHead()));
  keep();
  ask();
  return () => {
    forget();
    askLater.cancel();
    run.stop();
  };
}

export const view = {
  id: "inside",
  title: "Inside",
  about: "What each attention head of each layer looks at, in a text of yours.",
  needs: "attention",
  mount,
};
