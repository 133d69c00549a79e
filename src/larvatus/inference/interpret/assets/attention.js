"use strict";
// One head's weights at a time on one canvas. Each head lies in a block of its own: base64, deflate, bytes 255·√α.
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const tokens = data.tokens, size = tokens.length;
const canvas = find("canvas"), context = canvas.getContext("2d"), picture = document.createElement("canvas");
const HUES = { self: "#9ecae1", previous: "#fdae6b", next: "#fdd0a2", cls: "#c7b9e2", separator: "#a1d99b", punctuation: "#f4a6b8", broad: "#d5cfc0", mixed: "#ececec" };
const SIGNS = { self: "=", previous: "←", next: "→", cls: "c", separator: "s", punctuation: ".", broad: "b", mixed: "m" };
const RAMP = [[251, 250, 247], [253, 219, 172], [240, 138, 75], [183, 46, 55], [68, 11, 72]]; // of √α, so that small weights show
let layer = data.layer, head = data.head, weights = null, from = -1, to = -1, cell = 1, edge = 0;
const kept = new Map(), MOST = 24; // decoded heads

find("about").textContent = data.about;
for (let n = 1; n <= data.layers; n++) find("layer").add(new Option(n, n));
for (let n = 1; n <= data.heads; n++) find("head").add(new Option(n, n));

async function decoded(layer, head) {
  const name = `w-${layer}-${head}`;
  if (!kept.has(name)) {
    const text = atob(find(name).textContent), packed = new Uint8Array(text.length);
    for (let n = 0; n < text.length; n++) packed[n] = text.charCodeAt(n);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    kept.set(name, new Uint8Array(await new Response(stream).arrayBuffer()));
    if (kept.size > MOST) kept.delete(kept.keys().next().value);
  }
  return kept.get(name);
}

const alpha = (i, j) => (weights[i * size + j] / 255) ** 2;

function ramp(part) {
  const place = part * (RAMP.length - 1), low = Math.min(RAMP.length - 2, Math.floor(place)), rest = place - low;
  return RAMP[low].map((value, n) => Math.round(value + (RAMP[low + 1][n] - value) * rest));
}
const COLOURS = Array.from({ length: 256 }, (_, byte) => ramp(byte / 255));

function paint() { // T × T pixels once a head; scaling is the browser's work
  picture.width = picture.height = size;
  const pen = picture.getContext("2d"), image = pen.createImageData(size, size);
  for (let n = 0; n < weights.length; n++) {
    const [r, g, b] = COLOURS[weights[n]];
    image.data[4 * n] = r; image.data[4 * n + 1] = g; image.data[4 * n + 2] = b; image.data[4 * n + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
}

function draw() {
  const ratio = window.devicePixelRatio || 1, room = Math.max(320, Math.min(window.innerWidth - 60, window.innerHeight - 190, 900));
  const labels = size <= 64;
  context.font = "12px system-ui, sans-serif";
  edge = labels ? Math.min(120, 12 + Math.max(...tokens.map((token) => context.measureText(token).width))) : 8;
  cell = Math.max(1, Math.min(42, (room - edge) / size));
  const whole = edge + cell * size + 6;
  canvas.width = canvas.height = Math.round(whole * ratio);
  canvas.style.width = canvas.style.height = `${whole}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, whole, whole);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, edge, edge, cell * size, cell * size);
  const style = getComputedStyle(document.documentElement);
  context.font = `${Math.min(13, cell)}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  for (let n = 0; labels && cell >= 8 && n < size; n++) {
    const middle = edge + (n + 0.5) * cell;
    context.fillStyle = style.getPropertyValue(n === from ? "--mark" : "--ink");
    context.textAlign = "right";
    context.fillText(tokens[n], edge - 5, middle, edge - 8);
    context.save();
    context.translate(middle, edge - 5);
    context.rotate(-Math.PI / 2);
    context.fillStyle = style.getPropertyValue(n === to ? "--mark" : "--ink");
    context.textAlign = "left";
    context.fillText(tokens[n], 0, 0, edge - 8);
    context.restore();
  }
  if (from >= 0) {
    context.strokeStyle = style.getPropertyValue("--accent");
    context.lineWidth = 1.5;
    context.strokeRect(edge, edge + from * cell, cell * size, cell);
    if (to >= 0) context.strokeRect(edge + to * cell, edge + from * cell, cell, cell);
  }
}

function look(i, j = -1) { // token i looks: shade every token by its weight
  from = i; to = j;
  const spans = find("words").children;
  for (let n = 0; n < size; n++) {
    spans[n].style.backgroundColor = i < 0 ? "" : `rgb(224 96 48 / ${Math.sqrt(alpha(i, n)).toFixed(3)})`;
    spans[n].className = n === i ? "from" : "";
  }
  if (i < 0) find("reading").textContent = "";
  else if (j >= 0) find("reading").textContent = `${tokens[i]} → ${tokens[j]}: ${alpha(i, j).toFixed(3)}`;
  else {
    const order = tokens.map((_, n) => n).sort((a, b) => alpha(i, b) - alpha(i, a)).slice(0, 4);
    find("reading").textContent = `${tokens[i]} looks at ` + order.map((n) => `${tokens[n]} ${alpha(i, n).toFixed(3)}`).join(", ");
  }
  draw();
}

async function choose(newLayer, newHead) {
  layer = newLayer; head = newHead;
  const asked = `${layer}-${head}`, found = await decoded(layer, head);
  if (asked !== `${layer}-${head}`) return; // another head was asked for meanwhile
  weights = found;
  find("layer").value = layer; find("head").value = head;
  for (const button of find("heads").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.name === asked));
  }
  const row = data.table[(layer - 1) * data.heads + head - 1];
  find("kind").textContent = `${row.type} · entropy ${row.entropy.toFixed(2)} of ${row.uniform.toFixed(2)} nats · distance ${row.distance.toFixed(1)} tokens`;
  paint();
  look(from);
  document.body.dataset.shown = asked;
}

function overview() {
  const table = find("heads"), top = table.insertRow();
  top.append(document.createElement("th"));
  for (let h = 1; h <= data.heads; h++) top.append(Object.assign(document.createElement("th"), { textContent: h }));
  for (let l = 1; l <= data.layers; l++) {
    const row = table.insertRow();
    row.append(Object.assign(document.createElement("th"), { textContent: l }));
    for (let h = 1; h <= data.heads; h++) {
      const kind = data.table[(l - 1) * data.heads + h - 1].type, button = document.createElement("button");
      button.type = "button"; button.dataset.name = `${l}-${h}`; button.style.backgroundColor = HUES[kind];
      button.textContent = SIGNS[kind]; button.title = `layer ${l}, head ${h}: ${kind}`;
      button.setAttribute("aria-label", button.title);
      button.addEventListener("click", () => choose(l, h));
      row.insertCell().append(button);
    }
  }
  const counts = {};
  for (const row of data.table) counts[row.type] = (counts[row.type] || 0) + 1;
  find("types").textContent = Object.entries(counts).map(([kind, count]) => `${SIGNS[kind]} ${kind} ${count}`).join(" · ");
  find("words").replaceChildren(...tokens.map((token, n) => {
    const span = document.createElement("span");
    span.textContent = token;
    span.addEventListener("mouseenter", () => look(n));
    return span;
  }));
}

canvas.addEventListener("pointermove", (event) => {
  const i = Math.floor((event.offsetY - edge) / cell), j = Math.floor((event.offsetX - edge) / cell);
  if (i >= 0 && i < size && j < size && (i !== from || Math.max(-1, j) !== to)) look(i, Math.max(-1, j));
});
canvas.addEventListener("pointerleave", () => look(-1));
canvas.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!step) return;
  event.preventDefault();
  const clip = (value, most) => Math.max(1, Math.min(most, value));
  choose(clip(layer + step[0], data.layers), clip(head + step[1], data.heads));
});
for (const name of ["layer", "head"]) {
  find(name).addEventListener("change", () => choose(Number(find("layer").value), Number(find("head").value)));
}
window.addEventListener("resize", () => { if (weights) draw(); });
overview();
choose(layer, head);
