// Sentences with one marked word each, a line a sentence: stars in the text, moved by clicking words.
//
//   const editor = sentenceEditor({value: "the *bank* of the river", onChange: (value, clicked) => …});
//   editor.items()      // [{line, text, start, end, word, starred}], the lines that have a mark

import { fill, h } from "./dom.js";
import { clickableWords, starred, words } from "./marks.js";
import { field, textBox } from "./parts.js";

const MOST_ROWS = 100; // lines that are shown as words

/** A line without its stars, and the characters between them; `\*` is a star. {text, start, end}, start −1 where none is marked. */
export function readMark(line) {
  const borders = [];
  let text = "";
  let place = 0;
  for (const star of line.matchAll(/\\\*|\*/g)) {
    text += line.slice(place, star.index) + (star[0] === "*" ? "" : "*");
    place = star.index + star[0].length;
    if (star[0] === "*") borders.push(text.length);
  }
  text += line.slice(place);
  if (borders.length !== 2) return { text, start: -1, end: -1, wrong: borders.length > 0 };
  const part = text.slice(borders[0], borders[1]);
  const start = borders[0] + part.length - part.trimStart().length;
  return part.trim() ? { text, start, end: start + part.trim().length, wrong: false } : { text, start: -1, end: -1, wrong: true };
}

/** The lines of a value that say something. */
export function readLines(value) {
  return value
    .split("\n")
    .map((line, number) => ({ number, ...readMark(line) }))
    .filter((line) => line.text.trim());
}

const same = (a, b) => a.toLocaleLowerCase() === b.toLocaleLowerCase();

export function sentenceEditor({ value, onChange, label = "Sentences", hint }) {
  let text = value;
  const rows = h("ol", { class: "sentences" });
  const offer = h("div", { class: "row row-middle" });
  const box = textBox(value, (next) => ((text = next), draw(), onChange(text)), { rows: 5, class: "material sentence-box", placeholder: "The *bank* of the river was steep.\nThe *bank* raised its rates." });
  const strips = [];

  function setLine(number, line) {
    const lines = text.split("\n");
    lines[number] = line;
    set(lines.join("\n"));
  }

  function set(next) {
    text = next;
    box.value = next;
    box.grow();
    draw();
    onChange(text, true);
  }

  function toggle(line, list, index) {
    const word = list[index];
    const off = word.start === line.start && word.end === line.end;
    const escaped = line.text.replaceAll("*", "\\*");
    setLine(line.number, off ? escaped : starred(line.text, word.start, word.end));
  }

  function drawRow(line, place) {
    const list = words(line.text);
    const chosen = new Set(list.map((_, index) => index).filter((index) => list[index].start < line.end && list[index].end > line.start && line.start >= 0));
    strips[place] ??= { strip: clickableWords({ label: "", small: true, onToggle: (index) => strips[place].act(index) }), row: h("li", { class: "sentence" }), note: h("span", { class: "faint" }) };
    const { strip, row, note } = strips[place];
    strips[place].act = (index) => toggle(line, list, index);
    strip.element.setAttribute("aria-label", `Sentence ${place + 1}: choose the word that is meant`);
    const cut = strip.show(line.text, list, chosen);
    note.textContent = cut || (line.start >= 0 ? "" : line.wrong ? "Put two stars around one word, or click it." : "Click the word that is meant.");
    if (!row.hasChildNodes()) row.append(strip.element, note);
    return row;
  }

  function drawOffer(lines) {
    const marked = lines.find((line) => line.start >= 0);
    const word = marked?.text.slice(marked.start, marked.end);
    const open = word ? lines.filter((line) => line.start < 0 && words(line.text).some((each) => same(each.text, word))) : [];
    const markAll = () => {
      const all = text.split("\n");
      for (const line of open) {
        const hit = words(line.text).find((each) => same(each.text, word));
        all[line.number] = starred(line.text, hit.start, hit.end);
      }
      set(all.join("\n"));
    };
    fill(offer, open.length > 0 && h("button", { type: "button", class: "button button-small", onclick: markAll }, `Mark “${word.length > 30 ? `${word.slice(0, 29)}…` : word}” in ${open.length === 1 ? "the other sentence" : `${open.length} other sentences`}`));
    offer.hidden = open.length === 0;
  }

  function draw() {
    const lines = readLines(text);
    const shown = lines.slice(0, MOST_ROWS).map(drawRow);
    shown.forEach((row, place) => rows.children[place] === row || rows.insertBefore(row, rows.children[place] ?? null));
    while (rows.children.length > shown.length) rows.lastChild.remove();
    fill(more, lines.length > MOST_ROWS && `${MOST_ROWS} of ${lines.length.toLocaleString("en")} sentences are shown as words; mark the others with stars. All are used.`);
    drawOffer(lines);
  }

  const more = h("p", { class: "faint" });
  const marked = h("div", { class: "field" }, h("span", { class: "label" }, "The word that is meant"), rows, more, offer);
  const typed = field(label, box, hint ?? "One sentence a line, the word that is meant between stars; or click it.");
  const element = h("div", { class: "card" }, h("div", { class: "editor" }, typed, marked));
  draw();
  return {
    element,
    set,
    get value() {
      return text;
    },
    items: () =>
      readLines(text)
        .filter((line) => line.start >= 0)
        .map((line) => ({ ...line, word: line.text.slice(line.start, line.end), starred: starred(line.text, line.start, line.end) })),
  };
}

/** A sentence with its word marked, around the word; long ones are cut there, which dots say. */
export function inContext({ text, start, end }, around = 60) {
  const left = text.slice(0, start);
  const right = text.slice(end);
  const before = left.length > around ? `… ${left.slice(-around)}` : left;
  const after = right.length > around ? `${right.slice(0, around)} …` : right;
  return h("span", { class: "context", dir: "auto", title: text.length > 400 ? `${text.slice(0, 400)} …` : text }, before, h("mark", null, text.slice(start, end)), after);
}
