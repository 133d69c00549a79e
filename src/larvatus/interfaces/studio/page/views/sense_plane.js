// Words in their contexts as numbered dots in the plane: near means used alike. One tab stop; arrow keys move.

import { fill, h, s } from "../lib/dom.js";

const WIDTH = 480;
const HEIGHT = 360;
const EDGE = 26;
const RADIUS = 12;
const ROUNDS = 80;

/** Points scaled into the picture, both axes alike. */
export function placed(points) {
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min((WIDTH - 2 * EDGE) / (right - left || 1), (HEIGHT - 2 * EDGE) / (high - low || 1));
  return points.map(([x, y]) => [WIDTH / 2 + (x - (left + right) / 2) * scale, HEIGHT / 2 - (y - (low + high) / 2) * scale]);
}

/** Dots that would cover each other moved apart, as little as it takes; the same every time. */
export function apart(places, distance = 2 * RADIUS + 2) {
  const moved = places.map((place) => [...place]);
  for (let round = 0; round < ROUNDS; round++) {
    let clear = true;
    for (let i = 0; i < moved.length; i++) {
      for (let j = i + 1; j < moved.length; j++) {
        let [dx, dy] = [moved[j][0] - moved[i][0], moved[j][1] - moved[i][1]];
        const far = Math.hypot(dx, dy);
        if (far >= distance) continue;
        clear = false;
        if (far === 0) [dx, dy] = [Math.cos(i + j), Math.sin(i + j)];
        const push = (distance - far) / 2 / (far || 1);
        moved[i] = [moved[i][0] - dx * push, moved[i][1] - dy * push];
        moved[j] = [moved[j][0] + dx * push, moved[j][1] + dy * push];
      }
    }
    if (clear) break;
  }
  return moved.map(([x, y]) => [Math.max(RADIUS + 2, Math.min(WIDTH - RADIUS - 2, x)), Math.max(RADIUS + 2, Math.min(HEIGHT - RADIUS - 2, y))]);
}

/** {element, show(map, items, chosen)}; `onChoose(index)` when a dot is chosen. */
export function sensePlane({ onChoose }) {
  const picture = s("svg", { class: "plane", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Words in the plane; arrow keys move from word to word" });
  const element = h("div", null, picture);

  picture.addEventListener("keydown", (event) => {
    const dot = event.target.closest("[data-index]");
    if (!dot) return;
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onChoose(Number(dot.dataset.index));
    } else if (step) {
      event.preventDefault();
      const all = picture.querySelectorAll("[data-index]").length;
      const next = (Number(dot.dataset.index) + step + all) % all;
      onChoose(next);
      picture.querySelector(`[data-index="${next}"]`)?.focus();
    }
  });

  function dotOf(map, items, chosen, places, index) {
    const [x, y] = places[index];
    const cluster = map.clusters[index];
    return s(
      "g",
      {
        class: `dot series-${(cluster % 8) + 1}`,
        transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
        role: "button",
        tabindex: index === Math.max(0, chosen) ? 0 : -1,
        "aria-pressed": String(index === chosen),
        "aria-label": `${index + 1}, group ${cluster + 1}: ${items[index].text.slice(0, 200)}`,
        dataset: { index },
        onclick: () => onChoose(index),
      },
      s("title", null, items[index].text.slice(0, 400)),
      s("circle", { r: RADIUS }),
      s("text", { "text-anchor": "middle", dy: "0.35em" }, index + 1),
    );
  }

  return {
    element,
    show(map, items, chosen) {
      const focused = picture.contains(document.activeElement);
      const places = apart(placed(map.points));
      const near = chosen >= 0 ? map.nearest[chosen] ?? [] : [];
      const lines = near.slice(0, 3).map(({ index, cosine }) => s("line", { class: "near", x1: places[chosen][0], y1: places[chosen][1], x2: places[index][0], y2: places[index][1], "stroke-opacity": Math.max(0.25, cosine).toFixed(2) }));
      fill(picture, lines, items.map((_, index) => dotOf(map, items, chosen, places, index)));
      if (focused) picture.querySelector('[tabindex="0"]')?.focus();
    },
  };
}
