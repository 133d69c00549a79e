// Passages that answer a question: each with its place, its score, and the words that match a word of the question.

import { fill, h } from "../lib/dom.js";
import { codePoints } from "../lib/offsets.js";
import { resultMap } from "./search_map.js";

const series = (number) => `series-${(number % 8) + 1}`;

/** A passage with its matching words marked, stronger matches more. Places are counted in code points, as in Python. */
export function markedPassage(text, words, names, strongest) {
  const at = codePoints(text);
  const parts = [];
  let place = 0;
  for (const word of words) {
    if (word.start < place) continue;
    const share = strongest > 0 ? Math.min(1, word.strength / strongest) : 0;
    parts.push(at.slice(place, word.start), h("mark", { class: `match ${series(word.query)}`, style: { "--strength": share.toFixed(2) }, title: `matches “${names[word.query] ?? ""}”, ${word.strength.toFixed(2)}` }, at.slice(word.start, word.end)));
    place = word.end;
  }
  return [...parts, at.slice(place)];
}

/** `show(item)` draws the result of /v1/search, `mark(marks)` adds the words and the map of /studio/api/search/marks. */
export function resultList() {
  const legend = h("p", { class: "legend", "aria-label": "Words of the question" });
  const list = h("ol", { class: "hits" });
  const mapCard = h("section", { class: "card hit-map", "aria-label": "Map of the results", hidden: true });
  const element = h("div", { class: "search-results" }, h("div", { class: "stack" }, legend, list), mapCard);
  const map = resultMap({ onChoose: choose });
  let item = null;

  function choose(number) {
    for (const [place, row] of [...list.children].entries()) row.classList.toggle("chosen", place === number);
    list.children[number]?.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    map.choose(number);
  }

  function row(hit, number) {
    const metadata = Object.entries(hit).filter(([name, value]) => name.startsWith("metadata.") && value !== null);
    return h(
      "li",
      { class: "hit card", onclick: () => choose(number) },
      h("div", { class: "hit-head" }, h("span", { class: "hit-rank number" }, hit.rank), h("strong", { class: "hit-document" }, hit.document), h("span", { class: "faint number" }, `line ${hit.line} · characters ${hit.start}–${hit.end} · score ${hit.score.toFixed(3)}`)),
      metadata.length > 0 && h("div", { class: "row" }, metadata.map(([name, value]) => h("span", { class: "chip" }, `${name.slice("metadata.".length)}: ${value}`))),
      h("p", { class: "passage material", dir: "auto", tabindex: 0 }, hit.text),
    );
  }

  return {
    element,
    show(given) {
      item = given;
      fill(legend);
      fill(list, item.hits.map(row));
      mapCard.hidden = true;
    },
    mark(marks) {
      const strongest = Math.max(0, ...marks.passages.flat().map((word) => word.strength));
      const used = new Set(marks.passages.flat().map((word) => word.query));
      fill(legend, marks.query_words.map((word, number) => used.has(number) && h("span", { class: `match-key ${series(number)}` }, word)));
      for (const [number, words] of marks.passages.entries()) {
        const passage = list.children[number]?.querySelector(".passage");
        if (passage) fill(passage, markedPassage(item.hits[number].text, words, marks.query_words, strongest));
      }
      mapCard.hidden = marks.points.length === 0;
      if (mapCard.hidden) return;
      fill(mapCard, h("h2", null, "Map"), map.element, h("p", { class: "faint" }, "The question (?) and the passages by their two principal components; near means similar. Choose a dot to go to its passage."));
      map.show(marks.points, item);
    },
  };
}
