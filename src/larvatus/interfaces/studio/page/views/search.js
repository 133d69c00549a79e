// Search: drop documents, have them indexed, ask a question, and see which passages and which of their words answer it.

import { newest, onlyItem } from "../lib/api.js";
import { copyButtons, curlFor, keywords, literal } from "../lib/copy.js";
import { fill, h } from "../lib/dom.js";
import { check, count, empty, errorNotice, field, notice, rest, select, within } from "../lib/parts.js";
import { every } from "../lib/polling.js";
import { studioToken } from "../lib/token.js";
import { documentChooser } from "./search_files.js";
import { buildCard } from "./search_build.js";
import { resultList } from "./search_results.js";

const API = "/studio/api/search";
const LOOK_MS = 800;
const TOPS = ["5", "10", "20"].map((top) => [top, `${top} passages`]);

function asPython(state, index) {
  const options = keywords({ top: Number(state.top), hybrid: state.hybrid || undefined });
  return `import larvatus\n\nindex = larvatus.Index.open(${literal(index.path)})\nfor hit in index.search(${literal(state.query)}, ${options}):\n    print(f"{hit.score:.4f}  {hit.document} [{hit.start}:{hit.end}]  {hit.text}")\n`;
}

function mount(root, { api, params, setParams, models, model }) {
  const state = { index: params.index ?? "", query: params.query ?? "", top: TOPS.some(([top]) => top === params.top) ? params.top : "5", hybrid: params.hybrid === "1" };
  const run = newest();
  const asking = h("div", null);
  const place = h("section", { class: "results", "aria-label": "Passages" });
  const said = h("div", { "aria-live": "polite" });
  const documents = h("div", { class: "stack" });
  const under = h("div", null);
  const progress = buildCard({ again, stop: () => act("stop") });
  const results = resultList();
  let indexes = null;
  let chooser = null;
  let built = "";

  const keep = () => setParams({ index: state.index, query: state.query, top: state.top === "5" ? "" : state.top, hybrid: state.hybrid ? "1" : "" });
  const chosen = () => indexes?.find((index) => index.name === state.index);
  const body = () => ({ query: state.query, index: state.index, top: Number(state.top), ...(state.hybrid && chosen()?.hybrid ? { hybrid: true } : {}) });

  function drawForm() {
    if (!indexes.length) return fill(asking, empty("Nothing is indexed yet", "Drop some documents below, and ask them a question."));
    const question = h("input", { type: "text", class: "material", dir: "auto", value: state.query, placeholder: "Write a question, or some words", autocomplete: "off", oninput: () => ((state.query = question.value), keep()) });
    const names = indexes.map((index) => [index.name, `${index.name} (${count(index.passages)} passages)`]);
    const pick = select(names, state.index, (name) => ((state.index = name), keep(), drawForm(), ask()));
    const words = chosen().hybrid && check("Also by words (BM25)", state.hybrid, (on) => ((state.hybrid = on), keep(), ask()));
    fill(
      asking,
      h(
        "form",
        { class: "card", "aria-label": "Search", onsubmit: (event) => (event.preventDefault(), ask()) },
        field("Question", question),
        h("div", { class: "row" }, field("Index", pick), field("Show", select(TOPS, state.top, (top) => ((state.top = top), keep(), ask()))), words, h("button", { type: "submit", class: "button button-main" }, "Search")),
      ),
    );
  }

  async function ask() {
    run.stop();
    if (!chosen()) return rest(place);
    if (!state.query.trim()) return rest(place, empty("Ask a question", "The passages that are nearest to it in meaning are shown here, with the words that match."));
    await within(place, async () => {
      const sent = body();
      const item = onlyItem(await run((signal) => api.post("/v1/search", sent, { signal })));
      draw(item);
      const marks = { index: sent.index, query: sent.query, passages: item.hits.map((hit) => hit.text) };
      if (studioToken()) results.mark(await run((signal) => api.post(`${API}/marks`, marks, { signal })));
      return `${item.hits.length} passages of ${item.index}`;
    }, { words: "Searching…" });
  }

  function draw(item) {
    const changed = item.changed.length > 0 && notice("warn", `${item.changed.join("; ")} since it was indexed. Build the index again to search its text.`);
    const code = copyButtons({ python: () => asPython(state, chosen()), curl: () => curlFor("/v1/search", body()) });
    results.show(item);
    fill(place, changed, results.element, code);
  }

  async function begin({ name, files, column, model: by }) {
    fill(said);
    try {
      const { collection } = await api.post(`${API}/new`, { name });
      for (const [number, file] of files.entries()) {
        fill(said, h("p", { class: "faint" }, `Sending ${count(number + 1)} of ${count(files.length)}: ${file.name}`));
        await api.post(`${API}/file`, { collection, ...file });
      }
      fill(said);
      show(await api.post(`${API}/build`, { collection, model: by, ...(column ? { column } : {}) }));
      under.scrollIntoView({ block: "nearest" });
      return true;
    } catch (error) {
      fill(said, errorNotice(error));
      return false;
    }
  }

  async function act(what, given = {}) {
    try {
      show(await api.post(`${API}/${what}`, given));
    } catch (error) {
      fill(said, errorNotice(error));
    }
  }

  function again(request) {
    act("build", request);
  }

  function show(now) {
    if (now.phase === "idle") return;
    if (!progress.element.isConnected) fill(under, progress.element);
    progress.show(now);
  }

  async function watch(signal) {
    const now = await api.get(API, { signal });
    const before = indexes;
    indexes = now.indexes;
    if (!chooser) {
      chooser = documentChooser({ limits: now.limits, models, model, begin });
      const unavailable = Object.entries(now.unavailable).map(([name, why]) => notice("warn", `${name} cannot be searched: ${why}`));
      const summary = h("summary", null, "Index other documents");
      fill(documents, unavailable, now.indexes.length ? h("details", null, summary, chooser) : chooser);
    }
    show(now);
    const ready = now.phase === "ready" ? now.name : "";
    const fresh = ready && ready !== built && before !== null;
    built = ready;
    if (fresh) window.dispatchEvent(new Event("models-changed"));
    const same = before !== null && before.map((index) => index.name).join() === indexes.map((index) => index.name).join();
    if (same && !fresh) return;
    if (fresh || !chosen()) state.index = fresh ? ready : (indexes[0]?.name ?? "");
    drawForm();
    ask();
  }

  const locked = !studioToken() && notice("warn", "This page was opened without the token of its address, so it can search but not index. Open the whole address that larvatus studio printed.");
  if (!model) fill(root, notice("bad", "The server has no model to embed documents with."));
  else fill(root, locked, asking, place, said, under, documents);
  const stop = every(LOOK_MS, watch);
  return () => [stop, run.stop].forEach((end) => end());
}

export const view = {
  id: "search",
  title: "Search",
  about: "Passages of your documents that answer a question, with the words that match.",
  needs: null,
  mount,
};
