// One head as a matrix: rows look at columns. Hover a cell, or move with arrow keys, and its weight is said.

import { h } from "../lib/dom.js";
import { paint } from "../lib/heat.js";
import { colour } from "../lib/theme.js";

const NAMED = 64; // tokens that still have room for their names
const SMALLEST = 8;
const LARGEST = 36;
const ROOM = 620;

/** {element, show(tokens, matrix, token)}; `onToken(row)` when a row is chosen. */
export function headMatrix({ onToken }) {
  const canvas = h("canvas", { tabindex: 0, role: "img", class: "matrix" });
  const reading = h("p", { class: "reading number", role: "status" });
  const element = h("div", { class: "stack" }, reading, h("div", { class: "table-wrap" }, canvas));
  const picture = document.createElement("canvas");
  let tokens = [];
  let matrix = [];
  let at = [-1, -1];
  let cell = 1;
  let edge = 0;

  function measure() {
    const pen = canvas.getContext("2d");
    pen.font = `13px ${getComputedStyle(document.body).fontFamily}`;
    const named = tokens.length <= NAMED;
    edge = named ? Math.min(130, 14 + Math.max(...tokens.map((token) => pen.measureText(token).width))) : 6;
    const room = Math.max(240, Math.min(ROOM, element.clientWidth || ROOM));
    cell = Math.max(named ? SMALLEST : 2, Math.min(LARGEST, (room - edge) / tokens.length));
    const whole = edge + cell * tokens.length + 4;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(whole * ratio);
    canvas.style.inlineSize = canvas.style.blockSize = `${whole}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return named && cell >= 11;
  }

  function draw() {
    if (!tokens.length) return;
    const named = measure();
    const pen = canvas.getContext("2d");
    const [i, j] = at;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(picture, edge, edge, cell * tokens.length, cell * tokens.length);
    pen.font = `${Math.min(13, cell - 1)}px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    for (let n = 0; named && n < tokens.length; n++) {
      const middle = edge + (n + 0.5) * cell;
      pen.fillStyle = colour(n === i ? "--accent-text" : "--ink-soft");
      pen.textAlign = "right";
      pen.fillText(tokens[n], edge - 6, middle, edge - 10);
      pen.save();
      pen.translate(middle, edge - 6);
      pen.rotate(-Math.PI / 2);
      pen.fillStyle = colour(n === j ? "--accent-text" : "--ink-soft");
      pen.textAlign = "left";
      pen.fillText(tokens[n], 0, 0, edge - 10);
      pen.restore();
    }
    if (i < 0) return;
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2;
    pen.strokeRect(edge, edge + i * cell, cell * tokens.length, cell);
    if (j >= 0) pen.strokeRect(edge + j * cell, edge + i * cell, cell, cell);
  }

  function say() {
    const [i, j] = at;
    if (i < 0) reading.textContent = "Rows look at columns. Point at a cell, or use the arrow keys.";
    else if (j >= 0) reading.textContent = `${tokens[i]} → ${tokens[j]}: ${matrix[i][j].toFixed(3)}`;
    else reading.textContent = `${tokens[i]} looks at ${tokens.map((_, n) => n).sort((a, b) => matrix[i][b] - matrix[i][a]).slice(0, 4).map((n) => `${tokens[n]} ${matrix[i][n].toFixed(2)}`).join(", ")}`;
  }

  function look(i, j) {
    if (i === at[0] && j === at[1]) return;
    at = [i, j];
    draw();
    say();
  }

  const inside = (value) => (value >= 0 && value < tokens.length ? value : -1);
  canvas.addEventListener("pointermove", (event) => look(inside(Math.floor((event.offsetY - edge) / cell)), inside(Math.floor((event.offsetX - edge) / cell))));
  canvas.addEventListener("click", () => at[0] >= 0 && onToken(at[0]));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const last = tokens.length - 1;
    look(...at.map((value, n) => Math.max(0, Math.min(last, value + step[n]))));
  });

  return {
    element,
    show(names, weights, token, label) {
      tokens = names;
      matrix = weights;
      at = [token, -1];
      canvas.setAttribute("aria-label", label);
      paint(picture, matrix);
      draw();
      say();
    },
  };
}
