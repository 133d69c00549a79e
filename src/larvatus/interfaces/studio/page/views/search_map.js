// The question and the passages of a search as dots in the plane. One tab stop; arrow keys move, and choose.

import { fill, h, s } from "../lib/dom.js";
import { apart, placed } from "./sense_plane.js";

const WIDTH = 480;
const HEIGHT = 360;
const RADIUS = 12;

/** {element, show(points, item), choose(number)}; the first point is that of the question. */
export function resultMap({ onChoose }) {
  const picture = s("svg", { class: "plane", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Question and passages in the plane; arrow keys move from passage to passage" });
  const element = h("div", null, picture);
  const dots = () => [...picture.querySelectorAll("[data-index]")];

  picture.addEventListener("keydown", (event) => {
    const dot = event.target.closest("[data-index]");
    if (!dot) return;
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Enter: 0, " ": 0 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = (Number(dot.dataset.index) + step + dots().length) % dots().length;
    onChoose(next);
    dots()[next].focus();
  });

  function dotOf([x, y], hit, number) {
    return s(
      "g",
      { class: "dot series-1", transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, role: "button", tabindex: number === 0 ? 0 : -1, "aria-pressed": "false", "aria-label": `Passage ${hit.rank} of ${hit.document}`, dataset: { index: number }, onclick: () => onChoose(number) },
      s("title", null, `${hit.document}: ${hit.text.slice(0, 200)}`),
      s("circle", { r: RADIUS }),
      s("text", { "text-anchor": "middle", dy: "0.35em" }, hit.rank),
    );
  }

  return {
    element,
    show(points, item) {
      const [query, ...places] = apart(placed(points));
      const lines = places.map(([x, y]) => s("line", { class: "near", x1: query[0], y1: query[1], x2: x, y2: y, "stroke-opacity": 0.35 }));
      const asked = s("g", { class: "dot asked", transform: `translate(${query[0].toFixed(1)} ${query[1].toFixed(1)})`, role: "img", "aria-label": "The question" }, s("title", null, item.query.slice(0, 200)), s("rect", { x: -RADIUS, y: -RADIUS, width: 2 * RADIUS, height: 2 * RADIUS, rx: 4 }), s("text", { "text-anchor": "middle", dy: "0.35em" }, "?"));
      fill(picture, lines, asked, places.map((place, number) => dotOf(place, item.hits[number], number)));
    },
    choose(number) {
      for (const [place, dot] of dots().entries()) {
        dot.setAttribute("aria-pressed", String(place === number));
        dot.setAttribute("tabindex", place === number ? "0" : "-1");
      }
    },
  };
}
