// One head as lines between tokens: left the token that looks, right what it looks at. Choose a token to see its lines alone.

import { fill, h, s } from "../lib/dom.js";
import { percent } from "../lib/parts.js";

const ROW = 26;
const MIDDLE = 220;
const LEAST = 0.03; // weaker lines are not drawn

/** {element, show(tokens, matrix, token)}; `onToken(index)` is called when a token is chosen, −1 when none is. */
export function headLines({ onToken }) {
  const element = h("div", { class: "lines", role: "group", "aria-label": "Tokens: what each looks at" });

  function column(tokens, side, matrix, token) {
    return h(
      "div",
      { class: `lines-${side}` },
      tokens.map((name, index) => {
        const weight = token >= 0 && side === "to" ? matrix[token][index] : null;
        const share = weight === null ? null : h("span", { class: "number faint" }, weight >= 0.005 ? percent(weight) : "");
        const text = h("span", { class: "token", dir: "auto" }, name);
        if (side === "to") return h("div", { class: "line-token", style: { "--weight": weight === null ? 0 : Math.sqrt(weight).toFixed(3) } }, text, share);
        return h(
          "button",
          { type: "button", class: "line-token", tabindex: index === Math.max(0, token) ? 0 : -1, "aria-pressed": String(index === token), dataset: { index }, onclick: () => onToken(index === token ? -1 : index) },
          text,
        );
      }),
    );
  }

  element.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const button = event.target.closest("button");
    if (!step || !button) return;
    event.preventDefault();
    const next = element.querySelector(`button[data-index="${Number(button.dataset.index) + step}"]`);
    if (next) onToken(Number(next.dataset.index));
  });

  return {
    element,
    show(tokens, matrix, token) {
      const focused = element.contains(document.activeElement);
      const size = tokens.length;
      const drawn = s("svg", { class: "lines-drawn", viewBox: `0 0 ${MIDDLE} ${ROW * size}`, preserveAspectRatio: "none", height: ROW * size, "aria-hidden": "true" });
      matrix.forEach((row, i) => {
        if (token >= 0 && i !== token) return;
        row.forEach((weight, j) => {
          if (weight < LEAST) return;
          drawn.append(s("line", { x1: 0, y1: (i + 0.5) * ROW, x2: MIDDLE, y2: (j + 0.5) * ROW, "stroke-opacity": weight.toFixed(3), "stroke-width": token >= 0 ? 1 + 3 * weight : 1.6, "vector-effect": "non-scaling-stroke" }));
        });
      });
      fill(element, column(tokens, "from", matrix, token), drawn, column(tokens, "to", matrix, token));
      if (focused) element.querySelector('button[tabindex="0"]')?.focus({ preventScroll: true });
    },
  };
}
