// All heads of a model on a text: a small picture each, layers from top to bottom. One tab stop; arrow keys move.

import { fill, h } from "../lib/dom.js";
import { paint } from "../lib/heat.js";
import { TYPES, typeClass, typeOf } from "./head_types.js";

/** A grid with `.element`, `.show(grid, layer, head)` and `.repaint()`; layers and heads count from 1. */
export function headGrid({ onChoose }) {
  const table = h("table", { class: "heads" });
  const legend = h("div", { class: "legend", role: "group", "aria-label": "Kinds of heads: choose one to see its heads alone" });
  const element = h("div", { class: "stack" }, h("div", { class: "table-wrap heads-wrap" }, table), legend);
  let cells = [];
  let only = null;

  const each = (task) => cells.forEach((row, l) => row.forEach((cell, n) => task(cell, l, n)));

  table.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const button = event.target.closest("button");
    const l = cells.findIndex((row) => row.some((cell) => cell.button === button));
    if (!step || l < 0) return;
    event.preventDefault();
    const next = cells[l + step[0]]?.[cells[l].findIndex((cell) => cell.button === button) + step[1]];
    if (!next) return;
    next.button.focus();
    onChoose(next.layer, next.head);
  });

  function mark(layer, head) {
    each((cell) => {
      const chosen = cell.layer === layer && cell.head === head;
      cell.button.setAttribute("aria-pressed", String(chosen));
      cell.button.tabIndex = chosen ? 0 : -1;
    });
  }

  function dim() {
    each((cell) => cell.button.classList.toggle("dim", only !== null && cell.type !== only));
    for (const button of legend.children) button.setAttribute("aria-pressed", String(button.dataset.type === only));
  }

  function drawLegend() {
    const counts = {};
    each((cell) => (counts[cell.type] = (counts[cell.type] ?? 0) + 1));
    if (only && !counts[only]) only = null;
    const names = [...Object.keys(TYPES), ...Object.keys(counts).filter((name) => !(name in TYPES))].filter((name) => counts[name]);
    fill(
      legend,
      names.map((name) =>
        h(
          "button",
          { type: "button", class: `legend-item ${typeClass(name)}`, dataset: { type: name }, title: `${name}: ${typeOf(name).says}`, onclick: () => ((only = only === name ? null : name), dim()) },
          h("span", { class: "sign", "aria-hidden": "true" }, typeOf(name).sign),
          `${name} ${counts[name]}`,
        ),
      ),
    );
    dim();
  }

  function cellOf({ layer, head, matrix, row }) {
    const type = row?.type ?? "mixed";
    const canvas = h("canvas", { "aria-hidden": "true" });
    const name = `Layer ${layer}, head ${head}: ${type}`;
    const button = h(
      "button",
      { type: "button", class: `head ${typeClass(type)}`, dataset: { name: `${layer}-${head}` }, title: name, "aria-label": name, onclick: () => onChoose(layer, head) },
      canvas,
      h("span", { class: "sign", "aria-hidden": "true" }, typeOf(type).sign),
    );
    return { layer, head, type, canvas, button, matrix };
  }

  return {
    element,
    show(grid, layer, head) {
      cells = grid.map((row) => row.map(cellOf));
      table.style.setProperty("--heads", cells[0].length);
      fill(
        table,
        h("caption", { class: "visually-hidden" }, "Heads of all layers; arrow keys move from head to head"),
        h("thead", null, h("tr", null, h("td", null), cells[0].map((cell) => h("th", { scope: "col" }, cell.head)))),
        h("tbody", null, cells.map((row) => h("tr", null, h("th", { scope: "row" }, row[0].layer), row.map((cell) => h("td", null, cell.button))))),
      );
      each((cell) => paint(cell.canvas, cell.matrix));
      mark(layer, head);
      drawLegend();
    },
    mark,
    repaint: () => each((cell) => paint(cell.canvas, cell.matrix)),
  };
}
