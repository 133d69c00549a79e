// What was recognised in a file: the task, the columns, labels with their counts, and what is wrong with it.

import { h } from "../lib/dom.js";
import { count, field, notice, select } from "../lib/parts.js";
import { bars } from "./fill_results.js";

const MOST_LABELS = 20;
const SHOWN_ROWS = 8; // more are folded
const WORDS = { classify: "Classify texts", tag: "Tag words", spans: "Find spans", answer: "Answer questions", choose: "Choose endings" };

function findings(kind, list) {
  return list.map((finding) =>
    notice(kind, h("strong", null, finding.name), `: ${finding.message}`, finding.examples.length > 0 && h("ul", { class: "places" }, finding.examples.map((place) => h("li", null, place)), finding.count > finding.examples.length && h("li", null, `… and ${count(finding.count - finding.examples.length)} more`))),
  );
}

function balance(seen) {
  const labels = Object.entries(seen.balance.train ?? {});
  if (!labels.length) return null;
  const total = labels.reduce((sum, [, times]) => sum + times, 0);
  const rows = labels.slice(0, MOST_LABELS).map(([name, times]) => ({ name: `${name} (${count(times)})`, share: times / total, title: name }));
  const more = labels.length > MOST_LABELS && h("p", { class: "faint" }, `… and ${count(labels.length - MOST_LABELS)} labels more.`);
  return h("div", { class: "stack" }, h("h3", null, `${count(labels.length)} ${labels.length === 1 ? "label" : "labels"}`), bars(rows, "Labels and how often each occurs"), more);
}

function examples(seen) {
  const rows = seen.examples.map((example) => h("tr", null, h("td", { class: "material", dir: "auto" }, example.reads), h("td", { dir: "auto" }, example.answer)));
  const heads = ["input", "label"].map((head) => h("th", { scope: "col" }, head));
  return h("div", { class: "stack" }, h("h3", null, "First examples"), h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "First examples" }, h("table", { class: "table" }, h("thead", null, h("tr", null, heads)), h("tbody", null, rows))));
}

/** Rows that cannot be used, with a button that skips them, or takes them back. */
function unusableRows(seen, skipped, onSkip) {
  if (!seen.unusable) return null;
  const rows = seen.unusable === 1 ? "1 row" : `${count(seen.unusable)} rows`;
  const places = seen.unusable_rows.flatMap((kind) => [
    ...kind.places.map((place) => h("li", null, place)),
    kind.count > kind.places.length && h("li", null, `… and ${count(kind.count - kind.places.length)} more: ${kind.name}`),
  ]);
  const list = h("details", { open: places.length <= SHOWN_ROWS }, h("summary", null, skipped ? "Skipped rows" : "These rows"), h("ul", { class: "places" }, places));
  const button = h("button", { type: "button", class: "button", onclick: () => onSkip(!skipped) }, skipped ? "Do not skip them" : `Skip ${seen.unusable === 1 ? "it" : "them"}`);
  const said = skipped ? `${rows} skipped; the others are trained on.` : `${rows} cannot be used.`;
  return h("div", { class: skipped ? "notice notice-warn stack" : "notice notice-bad stack", role: skipped ? "status" : "alert" }, h("div", { class: "spread" }, h("strong", null, said), button), list);
}

/** A card; `onTask(name)` where another task is chosen, `onSkip(yes)` where unusable rows are to be skipped. */
export function seenCard(seen, { skipped, onTask, onSkip }) {
  const ofRows = new Set(seen.unusable_rows.map((kind) => kind.name));
  const others = (list) => list.filter((finding) => !ofRows.has(finding.name));
  const task = select(seen.tasks.map((name) => [name, WORDS[name] ?? name]), seen.task, onTask);
  return h(
    "section",
    { class: "card", "aria-label": "What was recognised" },
    h("div", { class: "card-head" }, h("h2", null, "What was recognised"), field("Task", task, seen.guessed ? "guessed from the file" : null)),
    h("p", { class: "read" }, seen.read),
    unusableRows(seen, skipped, onSkip),
    findings("bad", others(seen.errors)),
    findings("warn", others(seen.warnings)),
    h("div", { class: "columns" }, balance(seen), examples(seen)),
  );
}
