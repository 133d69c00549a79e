// The exported page: the studio's shell and views over a model in a worker instead of a server.

import { ApiError } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { startShell } from "../shell.js";

const banner = document.getElementById("banner");
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const waiting = new Map();
let asked = 0;

function progress({ loaded, total }) {
  const done = loaded >= total;
  const parts = `${(loaded / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB`;
  fill(banner, total > 1 && h("div", { class: "gone" }, h("span", null, done ? "Starting the model…" : `Loading the model: ${parts}`), h("progress", { value: loaded, max: total, "aria-label": "Loading the model" })));
}

worker.addEventListener("message", ({ data }) => {
  if (data.total) return progress(data);
  if (data.failed) return fill(banner, h("div", { class: "gone", role: "alert" }, data.failed));
  const { resolve, reject } = waiting.get(data.number);
  waiting.delete(data.number);
  if (data.error) reject(new ApiError(data.error));
  else resolve(data.answer);
});
worker.addEventListener("error", (event) => fill(banner, h("div", { class: "gone", role: "alert" }, `The model cannot run here: ${event.message ?? "this browser has no module workers"}`)));

const api = {
  post: (path, body, { signal } = {}) =>
    new Promise((resolve, reject) => {
      const number = ++asked;
      waiting.set(number, { resolve, reject });
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      worker.postMessage({ number, path, body });
    }),
};

const VIEWS = [
  { id: "fill", title: "Fill", load: () => import("../views/fill.js") },
  { id: "layers", title: "Layers", load: () => import("../views/layers.js") },
  { id: "inside", title: "Inside", load: () => import("../views/inside.js") },
  { id: "senses", title: "Senses", load: () => import("../views/senses.js") },
  { id: "compare", title: "Compare words", load: () => import("../views/compare.js") },
];

const card = await (await fetch(new URL("../model/page.json", import.meta.url))).json();
const left = new Set(card.left_out.map(({ view }) => view));
const note = card.left_out.map(({ view, reason }) => ` ${VIEWS.find(({ id }) => id === view).title} is left out: ${reason}.`);
startShell({
  api,
  groups: [{ title: card.name, views: VIEWS.filter(({ id }) => !left.has(id)) }],
  loadModels: async () => [card],
  foot: h("footer", { class: "page-foot faint" }, "Everything is computed in this browser; nothing is sent anywhere.", note, " ", h("a", { href: "LICENCES.txt" }, "Licences")),
});
for (const { load } of VIEWS) load(); // now, so that the page needs no network once it is open
