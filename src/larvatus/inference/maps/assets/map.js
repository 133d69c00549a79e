"use strict";
// A map of word instances on one canvas: hover, search, colours, legend, pan and zoom. All text is set as text.
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6bc9", "#7f7f7f", "#a6761d", "#1b9e77"];
const SHAPES = 5; // circle, square, triangle, diamond, cross: groups can be told apart without colour
const LISTED = 60;
const canvas = find("canvas"), context = canvas.getContext("2d"), tip = find("tip");
const points = data.points;
let field = data.colour, groups = [], groupOf = [], hidden = new Set(), matches = null;
let view = { scale: 1, x: 0, y: 0 }, hovered = -1, pinned = -1, drag = null, waiting = false;

find("title").textContent = data.title;
find("about").textContent = data.about;
for (const name of data.fields) {
  const option = new Option(name, name, name === field, name === field);
  find("colour").add(option);
}

function regroup() {
  const counts = new Map();
  for (const point of points) counts.set(point.fields[field], (counts.get(point.fields[field]) || 0) + 1);
  groups = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const numbers = new Map(groups.map(([name], number) => [name, number]));
  groupOf = points.map((point) => numbers.get(point.fields[field]));
  hidden = new Set();
  legend();
}

function symbol(number, size, shape = number % SHAPES) {
  const path = new Path2D(), s = size;
  if (shape === 0) path.arc(0, 0, s, 0, 2 * Math.PI);
  else if (shape === 1) path.rect(-s * 0.85, -s * 0.85, 1.7 * s, 1.7 * s);
  else if (shape === 2) { path.moveTo(0, -s * 1.15); path.lineTo(s * 1.05, s * 0.8); path.lineTo(-s * 1.05, s * 0.8); path.closePath(); }
  else if (shape === 3) { path.moveTo(0, -s * 1.25); path.lineTo(s * 1.1, 0); path.lineTo(0, s * 1.25); path.lineTo(-s * 1.1, 0); path.closePath(); }
  else { const a = s * 0.42, b = s * 1.15; path.rect(-a, -b, 2 * a, 2 * b); path.rect(-b, -a, 2 * b, 2 * a); }
  return path;
}
const colour = (number) => PALETTE[number % PALETTE.length];

function legend() {
  const box = find("legend");
  box.replaceChildren(...groups.map(([name, count], number) => {
    const button = document.createElement("button"), sign = document.createElement("canvas"), small = document.createElement("small");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    sign.width = sign.height = 32; sign.style.width = sign.style.height = "16px";
    const pen = sign.getContext("2d");
    pen.translate(16, 16); pen.fillStyle = colour(number); pen.fill(symbol(number, 10));
    small.textContent = count.toLocaleString("en");
    button.append(sign, document.createTextNode(name), small);
    button.addEventListener("click", () => {
      if (hidden.has(number)) hidden.delete(number); else hidden.add(number);
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      refresh();
    });
    return button;
  }));
}

function place(point) {
  const margin = 40, box = canvas.getBoundingClientRect();
  return [
    (margin + point.x * (box.width - 2 * margin)) * view.scale + view.x,
    (margin + (1 - point.y) * (box.height - 2 * margin)) * view.scale + view.y,
  ];
}

const shown = (number) => !hidden.has(groupOf[number]);
const lit = (number) => shown(number) && (matches === null || matches[number]);

function draw() {
  waiting = false;
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  const width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, box.width, box.height);
  const size = Math.max(2.2, Math.min(5, 130 / Math.sqrt(points.length))) * Math.min(2, Math.sqrt(view.scale));
  const paths = groups.map((_, number) => symbol(number, size));
  for (const bright of [false, true]) {
    for (let number = 0; number < points.length; number++) {
      if (!shown(number) || lit(number) !== bright) continue;
      stamp(number, paths[groupOf[number]], ratio, bright ? 0.78 : 0.1);
    }
  }
  for (const number of [pinned, hovered]) {
    if (number < 0 || !shown(number)) continue;
    stamp(number, symbol(groupOf[number], size * 1.7), ratio, 1);
    context.lineWidth = 1.5;
    context.strokeStyle = getComputedStyle(document.body).color;
    context.stroke(symbol(groupOf[number], size * 1.7));
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 1;
  names();
}

function stamp(number, path, ratio, alpha) {
  const [x, y] = place(points[number]);
  context.setTransform(ratio, 0, 0, ratio, x * ratio, y * ratio);
  context.globalAlpha = alpha;
  context.fillStyle = colour(groupOf[number]);
  context.fill(path);
}

const CELL = 6;

function counted(width, height) { // points above and left of each corner of a grid: how many lie in a box is four sums
  const columns = Math.ceil(width / CELL) + 1, rows = Math.ceil(height / CELL) + 1, line = columns + 1;
  const sums = new Float64Array((rows + 1) * line);
  for (let number = 0; number < points.length; number++) {
    if (!lit(number)) continue;
    const [x, y] = place(points[number]);
    if (x < 0 || y < 0 || x >= width || y >= height) continue;
    sums[(Math.floor(y / CELL) + 1) * line + Math.floor(x / CELL) + 1] += 1;
  }
  for (let row = 1; row <= rows; row++) {
    for (let column = 1, before = 0; column <= columns; column++) {
      before += sums[row * line + column];
      sums[row * line + column] = before + sums[(row - 1) * line + column];
    }
  }
  const at = (value, most) => Math.max(0, Math.min(most, value));
  return (left, top, right, bottom) => {
    const a = at(Math.floor(top / CELL), rows) * line, b = at(Math.ceil(bottom / CELL), rows) * line;
    const c = at(Math.floor(left / CELL), columns), d = at(Math.ceil(right / CELL), columns);
    return sums[b + d] - sums[a + d] - sums[b + c] + sums[a + c];
  };
}

function names() { // the typical words of each cluster, beside its points
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink"), ground = style.getPropertyValue("--panel");
  context.font = "600 13px system-ui, sans-serif";
  context.textAlign = "center"; context.textBaseline = "middle"; context.lineJoin = "round";
  const taken = [], { width, height } = canvas.getBoundingClientRect(), under = counted(width, height);
  for (const cluster of data.clusters) {
    if (field === "cluster" && hidden.has(groups.findIndex(([name]) => name === cluster.name))) continue;
    const [middleX, middleY] = place(cluster), half = context.measureText(cluster.name).width / 2 + 6;
    if (middleX < 0 || middleY < 0 || middleX > width || middleY > height) continue;
    let x = middleX, y = middleY, least = Infinity;
    for (let b = 12; b <= height - 12; b += 8) {
      for (let a = half; a <= Math.max(half, width - half); a += 8) {
        const clash = taken.some(([c, d, h]) => Math.abs(d - b) < 19 && Math.abs(c - a) < h + half);
        const cost = under(a - half, b - 10, a + half, b + 10) + 0.02 * Math.hypot(a - middleX, b - middleY) + (clash ? 1e6 : 0);
        if (cost < least) { least = cost; x = a; y = b; }
      }
    }
    taken.push([x, y, half]);
    if (Math.abs(y - middleY) > 17 || Math.abs(x - middleX) > half) {
      context.lineWidth = 0.8; context.strokeStyle = ink;
      context.beginPath(); context.moveTo(x, y); context.lineTo(middleX, middleY); context.stroke();
    }
    context.lineWidth = 4; context.strokeStyle = ground; context.strokeText(cluster.name, x, y);
    context.fillStyle = ink; context.fillText(cluster.name, x, y);
  }
}

function later() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } }

function sentence(point) {
  const text = document.createElement("span"), word = document.createElement("mark"), small = document.createElement("small");
  const [before, own, after] = point.text;
  word.textContent = own;
  text.append(before, word, after);
  small.textContent = [...data.fields.filter((name) => name !== "source").map((name) => point.fields[name]), point.at].join(" · ");
  return [text, small];
}

function nearest(x, y) {
  let best = -1, least = 14 * 14;
  for (let number = 0; number < points.length; number++) {
    if (!lit(number)) continue;
    const [a, b] = place(points[number]), far = (a - x) ** 2 + (b - y) ** 2;
    if (far < least) { least = far; best = number; }
  }
  return best;
}

function tell(number) {
  hovered = number;
  const subject = number >= 0 ? number : pinned;
  tip.hidden = subject < 0 || !shown(subject);
  if (!tip.hidden) {
    tip.replaceChildren(...sentence(points[subject]));
    const [x, y] = place(points[subject]), box = canvas.getBoundingClientRect();
    const left = x + 14 + tip.offsetWidth > box.width ? x - 14 - tip.offsetWidth : x + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(box.height - tip.offsetHeight - 4, y + 12))}px`;
  }
  later();
}

function refresh() {
  const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  matches = words.length ? points.map((point) => words.every((word) => point.text.join("").toLowerCase().includes(word))) : null;
  const found = points.map((_, number) => number).filter(lit);
  find("count").textContent = `${found.length.toLocaleString("en")} of ${points.length.toLocaleString("en")} instances`;
  find("lines").replaceChildren(...found.slice(0, LISTED).map((number) => {
    const item = document.createElement("li");
    item.append(...sentence(points[number]));
    item.addEventListener("mouseenter", () => tell(number));
    item.addEventListener("mouseleave", () => tell(-1));
    return item;
  }));
  if (found.length > LISTED) {
    const item = document.createElement("li");
    item.textContent = `… and ${(found.length - LISTED).toLocaleString("en")} more: search to see them`;
    find("lines").append(item);
  }
  if (pinned >= 0 && !lit(pinned)) pinned = -1;
  tell(-1);
}

function zoom(factor, x, y) {
  const scale = Math.max(1, Math.min(40, view.scale * factor)), real = scale / view.scale;
  view = scale === 1 ? { scale, x: 0, y: 0 } : { scale, x: x - (x - view.x) * real, y: y - (y - view.y) * real };
  later();
}

canvas.addEventListener("pointermove", (event) => {
  if (drag) {
    view = { ...view, x: drag.x + event.offsetX, y: drag.y + event.offsetY };
    drag.moved = true;
    return later();
  }
  const number = nearest(event.offsetX, event.offsetY);
  if (number !== hovered) tell(number);
});
canvas.addEventListener("pointerleave", () => tell(-1));
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: view.x - event.offsetX, y: view.y - event.offsetY, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) { pinned = nearest(event.offsetX, event.offsetY); tell(pinned); }
  drag = null;
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const box = canvas.getBoundingClientRect(), step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
  if (step) view = { ...view, x: view.x + step[0], y: view.y + step[1] };
  else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.3 : 1 / 1.3, box.width / 2, box.height / 2);
  else return;
  event.preventDefault();
  later();
});
find("colour").addEventListener("change", (event) => { field = event.target.value; regroup(); refresh(); });
find("search").addEventListener("input", refresh);
find("whole").addEventListener("click", () => { view = { scale: 1, x: 0, y: 0 }; pinned = -1; find("search").value = ""; regroup(); refresh(); });
new ResizeObserver(later).observe(canvas);
regroup();
refresh();
