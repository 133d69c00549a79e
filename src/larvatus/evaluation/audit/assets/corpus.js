"use strict";
const { name: title, check, words } = JSON.parse(document.getElementById("data").textContent);
const number = (value) => Number(value).toLocaleString("en");

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text; // text of the corpus is never markup
  if (parent) parent.append(made);
  return made;
}

function table(title, head, rows) {
  if (!rows.length) return;
  const place = document.getElementById("tables");
  element("h2", title, place);
  const made = element("table", undefined, place);
  const first = element("tr", undefined, element("thead", undefined, made));
  head.forEach((cell) => element("th", cell, first));
  const body = element("tbody", undefined, made);
  rows.forEach((row) => {
    const line = element("tr", undefined, body);
    row.forEach((cell) => element("td", cell, line));
  });
}

function examples(title, list) {
  if (!list.length) return;
  const place = document.getElementById("examples");
  element("h2", title, place);
  const lines = element("ul", undefined, place);
  lines.className = "lines";
  list.forEach((example) => {
    const line = element("li", example.text, lines);
    element("small", example.repeats ? `${example.place} repeats ${example.repeats}` : example.place, line);
  });
}

document.getElementById("title").textContent = title;
document.getElementById("size").textContent =
  `${number(check.documents)} documents · ${number(check.words)} words · ${number(check.bytes)} bytes · ` +
  `${number(check.left_out)} documents would be left out`;
const share = (count) => `${((100 * count) / Math.max(1, check.documents)).toFixed(2)}%`;
table("Documents", ["", "documents", "share", "words"],
  Object.entries(check.reasons).map(([key, each]) => [words[key], number(each.documents), share(each.documents), number(each.words)]));
table("Near duplicates by similarity", ["at least", "documents"],
  Object.entries(check.near).map(([level, count]) => [level, number(count)]));
table("Languages identified", ["language", "documents", "share"],
  Object.entries(check.languages).map(([code, count]) => [code, number(count), share(count)]));
table("Personal data", ["kind", "places", "documents"],
  Object.entries(check.personal).map(([kind, each]) => [kind, number(each.places), number(each.documents)]));
table("Evaluation sets", ["set", "examples", "judged", "shared", "by half or more"],
  check.sets.map((each) => [each.name, number(each.examples), number(each.judged), number(each.shared), number(each.mostly)]));
for (const [heading, told] of [["Words of a document", check.lengths], ["Share of letters", check.letters]]) {
  table(heading, Object.keys(told), [Object.values(told).map((value) => number(Math.round(value * 1000) / 1000))]);
}
Object.entries(check.reasons).forEach(([key, each]) => examples(words[key], each.examples));
Object.entries(check.personal).forEach(([kind, each]) => examples(kind, each.examples));
check.sets.forEach((each) => examples(`${each.name}: shared`, each.texts.map((text) => ({ text, place: each.name, repeats: "" }))));
