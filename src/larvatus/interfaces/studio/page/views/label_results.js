// What a model says of a text: classes as bars, tags under words, spans as brackets, an answer marked in its passage,
// endings with their shares, a text that was written; trees, clusters and roles as the server draws them.

import { bracketed, colourOf, marked } from "../lib/brackets.js";
import { h, pictured } from "../lib/dom.js";
import { codePoints } from "../lib/offsets.js";
import { count, percent } from "../lib/parts.js";
import { bars } from "./fill_results.js";

const MOST_BARS = 30;
const MOST_ROWS = 200;
const MOST_WORDS = 2_000;

/** "Read 60 of 90 tokens, in 2 windows." where there is something to say. */
export function coverage(item) {
  if (item.tokens === undefined || (item.windows <= 1 && item.tokens_read >= item.tokens)) return null;
  const read = item.tokens_read < item.tokens ? `Read ${count(item.tokens_read)} of ${count(item.tokens)} tokens` : `Read all ${count(item.tokens)} tokens`;
  return h("p", { class: "faint" }, `${read}, in ${count(item.windows)} ${item.windows === 1 ? "window" : "windows"}.`);
}

function classified(item) {
  if (item.value !== undefined) return h("p", { class: "answer number" }, Number(item.value).toFixed(3));
  const rows = Object.entries(item.probabilities ?? {}).sort((a, b) => b[1] - a[1]).map(([name, share]) => ({ name, share, title: name }));
  const several = item.labels !== undefined;
  const said = several ? item.labels.join(", ") || "no label" : item.label;
  const rest = rows.length > MOST_BARS && h("p", { class: "faint" }, `The ${MOST_BARS} likeliest of ${count(rows.length)} classes.`);
  return [h("p", { class: "answer", dir: "auto" }, said), bars(rows.slice(0, MOST_BARS), several ? "Labels" : "Classes"), rest];
}

/** A table of spans; what is beyond its end is counted. */
function spanTable(spans) {
  if (!spans.length) return null;
  const rows = spans.slice(0, MOST_ROWS).map((span) =>
    h("tr", null, h("td", { class: "material", dir: "auto" }, span.text), h("td", { dir: "auto" }, span.label), h("td", { class: "number" }, `${span.start}–${span.end}`), h("td", { class: "number" }, percent(span.score))),
  );
  const heads = ["text", "label", "characters", "score"].map((head, number) => h("th", { scope: "col", class: number > 1 ? "number" : null }, head));
  const more = spans.length > MOST_ROWS && h("p", { class: "faint" }, `… and ${count(spans.length - MOST_ROWS)} more.`);
  return h("div", { class: "stack" }, h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Spans" }, h("table", { class: "table" }, h("thead", null, h("tr", null, heads)), h("tbody", null, rows))), more);
}

/** Each word over its tag; the text between words stays as it is. */
function taggedWords(item, labels) {
  const at = codePoints(item.text);
  const colour = colourOf(labels);
  const parts = [];
  let place = 0;
  for (const word of item.words.slice(0, MOST_WORDS)) {
    const tag = h("span", { class: "tag-name", style: { color: `var(--series-${colour(word.tag)})` } }, word.tag);
    parts.push(at.slice(place, word.start), h("span", { class: "tagged", title: `${word.tag} ${percent(word.probability)}` }, at.slice(word.start, word.end), tag));
    place = word.end;
  }
  const more = item.words.length > MOST_WORDS && h("p", { class: "faint" }, `Tags of the first ${count(MOST_WORDS)} of ${count(item.words.length)} words are drawn.`);
  return [h("div", { class: "tags material", dir: "auto" }, parts, at.slice(place)), more];
}

const names = (model) => (model.labels ?? []).map((label) => label.replace(/^[BILUES]-/, ""));

function tagged(item, model) {
  const marks = item.words.some((word) => word.tag === "O") || item.entities.length > 0;
  if (!marks) return taggedWords(item, model.labels ?? item.words.map((word) => word.tag));
  return spanned(item, model);
}

function spanned(item, model) {
  const none = !item.entities.length && h("p", { class: "soft" }, "The model finds nothing in this text.");
  return [bracketed(item.text, item.entities, names(model)), none, spanTable(item.entities), relations(item)];
}

function relations(item) {
  if (!item.relations?.length) return null;
  const name = (number) => item.entities[number]?.text ?? `#${number}`;
  return h("ul", { class: "relations" }, item.relations.map((each) => h("li", null, h("span", { class: "material" }, name(each.head)), " ", h("span", { class: "chip" }, each.label), " ", h("span", { class: "material" }, name(each.tail)), ` ${percent(each.score)}`)));
}

function answered(item, model, passage) {
  const none = item.start === null || item.start === undefined;
  const others = (item.others ?? []).map((span) => ({ name: span.text, share: span.score, title: `characters ${span.start} to ${span.end}` }));
  return [
    h("p", { class: "answer", dir: "auto" }, none ? "The passage has no answer." : item.text, h("span", { class: "faint" }, ` ${percent(item.score)}`)),
    marked(passage, none ? null : item),
    others.length > 1 && [h("h3", null, "Other spans"), bars(others, "Likeliest spans")],
  ];
}

/** Endings in full, each with its share, the likeliest first. */
function chosen(item) {
  const rows = Object.entries(item.probabilities).sort((a, b) => b[1] - a[1]);
  const row = ([text, share]) =>
    h("li", { class: "choice", "aria-current": text === item.ending ? "true" : null },
      h("span", { class: "material", dir: "auto" }, text),
      h("span", { class: "number" }, percent(share)),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar", style: { "inline-size": `${Math.max(0.4, 100 * share)}%` } })),
    );
  return [h("p", { class: "answer", dir: "auto" }, item.ending, h("span", { class: "faint" }, ` ${percent(item.probability)}`)), h("ol", { class: "choices", "aria-label": "Endings and their probabilities" }, rows.map(row))];
}

const written = (item) => h("p", { class: "answer", dir: "auto" }, item.written || "The model writes nothing.");

const BY_TASK = { classify: classified, tag: tagged, spans: spanned, answer: answered, choose: chosen, prompt: classified, write: written };

/** What is said where the picture has nothing to show. */
const NOTHING = {
  coref: (item) => !item.clusters.length && "The model finds nothing in this text that is mentioned again.",
  roles: (item) => !item.frames.length && "The model finds no predicate in this text.",
};

function drawn(task, item, picture) {
  const nothing = NOTHING[task]?.(item);
  return [pictured(picture), nothing && h("p", { class: "soft" }, nothing)];
}

/** One answer as a card. `passage`: of a question; `picture`: of a task that the server draws. */
export const labelResult = (task, item, model, { passage, picture }) =>
  h("article", { class: "card", "aria-label": `What ${model.name} says` }, picture ? drawn(task, item, picture) : BY_TASK[task](item, model, passage), coverage(item));
