// Inside: the attention of every layer and head on a text; one head as lines between tokens, or as a matrix.

import { newest } from "../lib/api.js";
import { copyButtons, curlFor, literal, pythonFor } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { empty, expect, field, percent, rest, segmented, select, textBox, within } from "../lib/parts.js";
import { onTheme } from "../lib/theme.js";
import { headGrid } from "./head_grid.js";
import { headLines } from "./head_lines.js";
import { headMatrix } from "./head_matrix.js";
import { typeClass, typeOf } from "./head_types.js";

const EXAMPLE = "The keys to the old cabinet are on the table.";
const SHARES = ["self", "previous", "next", "cls", "separator", "punctuation"];

/** The heads of a response: [[{layer, head, matrix, row}]], requested layers from top to bottom. */
export function arranged(answer) {
  const rows = new Map((answer.types ?? []).map((row) => [`${row.layer}-${row.head}`, row]));
  return answer.layers.map((layer, l) => answer.heads.map((head, n) => ({ layer, head, matrix: answer.weights[l][n], row: rows.get(`${layer}-${head}`) ?? null })));
}

/** The head whose attention is least spread: the first to show, where none was chosen. */
function sharpest(grid) {
  const spread = ({ row }) => (row ? row.entropy / row.uniform : 1);
  return grid.flat().reduce((best, each) => (spread(each) < spread(best) ? each : best));
}

function mount(root, { api, params, setParams, model }) {
  const state = { text: params.text ?? EXAMPLE, layer: Number(params.layer) || 0, head: Number(params.head) || 0, show: params.show === "matrix" ? "matrix" : "lines", only: params.only ?? "", token: Number(params.token ?? -1) };
  let item = null; // {tokens, grid} of the newest answer
  const run = newest();
  const onToken = (token) => ((state.token = token), keep(), drawHead());
  const grid = headGrid({ onChoose: (layer, head) => ((state.layer = layer), (state.head = head), keep(), drawHead()) });
  const faces = { lines: headLines({ onToken }), matrix: headMatrix({ onToken }) };
  const place = h("section", { class: "results", "aria-label": "Attention" });
  const title = h("h2", { class: "head-title" });
  const facts = h("div", { class: "facts" });
  const figure = h("div", null);
  const sent = () => ({ text: state.text, ...(state.only ? { layer: Number(state.only) } : {}), model: model.name });

  const keep = () =>
    setParams({ text: state.text, layer: state.layer || "", head: state.head || "", show: state.show === "lines" ? "" : state.show, only: state.only, token: state.token >= 0 ? state.token : "" });

  function drawHead() {
    if (!item) return;
    const cell = item.grid.flat().find((each) => each.layer === state.layer && each.head === state.head) ?? sharpest(item.grid);
    [state.layer, state.head] = [cell.layer, cell.head];
    if (!(state.token >= 0 && state.token < item.tokens.length)) state.token = -1;
    const row = cell.row;
    const type = row?.type ?? "mixed";
    fill(title, h("span", null, `Layer ${state.layer}, head ${state.head}`), " ", h("span", { class: `chip ${typeClass(type)}` }, `${type}: ${typeOf(type).says}`));
    fill(facts, row && factsOf(row));
    grid.mark(state.layer, state.head);
    fill(figure, faces[state.show].element);
    faces[state.show].show(item.tokens, cell.matrix, state.token, `Attention of layer ${state.layer}, head ${state.head}, ${item.tokens.length} tokens`);
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
    grid.show(item.grid, state.layer, state.head);
    drawHead();
    keep();
  }

  async function ask() {
    run.stop();
    if (!state.text.trim()) {
      item = null;
      return rest(place, empty("Type a text", "Its tokens, and what every head of the model looks at from each of them, appear here."));
    }
    await within(place, async () => {
      const answer = await run((signal) => api.post("/v1/attention", sent(), { signal }));
      item = { tokens: answer.tokens, grid: arranged(answer) };
      drawAll();
      return `Attention between ${item.tokens.length} tokens`;
    }, { words: "Looking…" });
  }

  const askLater = debounce(ask, 450);
  const box = textBox(state.text, (text) => ((state.text = text), (state.token = -1), keep(), expect(place), askLater()), { placeholder: "Type a text…" });
  const layers = [["", "all"], ...Array.from({ length: model.layers ?? 0 }, (_, n) => [String(n + 1), `only ${n + 1}`])];
  const chosen = select(layers, state.only, (only) => ((state.only = only), keep(), askLater.now()));
  fill(root, h("div", { class: "card" }, field("Text", box, "A sentence or two: the picture of a head grows with the square of its tokens."), h("div", { class: "row" }, field("Layers", chosen))), place);
  const forget = onTheme(() => item && (grid.repaint(), drawHead()));
  keep();
  ask();
  return () => [forget, askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "inside",
  title: "Inside",
  about: "What each attention head of each layer looks at in your text.",
  needs: "attention",
  mount,
};
