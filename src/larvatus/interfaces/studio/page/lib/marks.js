// Text whose words can be clicked: one tab stop, arrow keys move from word to word, Enter or Space chooses.
//
//   const text = clickableWords({label: "Words of the text", onToggle: (index) => …});
//   text.show(words("the river ran"), new Set([1]));
//   root.append(text.element);

import { fill, h } from "./dom.js";

const MOST = 2_000; // words that can be clicked; more make a page slow, and are shown as text
const BLANK = /\[MASK\]|<mask>/g;
const segmenter = typeof Intl !== "undefined" && Intl.Segmenter ? new Intl.Segmenter(undefined, { granularity: "word" }) : null;

function* pieces(text) {
  if (segmenter) {
    for (const { segment, index } of segmenter.segment(text)) yield [segment, index];
    return;
  }
  for (const match of text.matchAll(/\s+|[\p{L}\p{M}\p{N}'’]+|[^\s\p{L}\p{M}\p{N}]/gu)) yield [match[0], match.index];
}

const RIGHT_TO_LEFT = /^[^\p{L}]*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;
/** Whether a text is read from right to left, by its first letter. */
export const rightToLeft = (text) => RIGHT_TO_LEFT.test(text);

/** The words of a text: [{text, start, end, mask}], in UTF-16 units; `mask` where the text itself has a blank. */
export function words(text) {
  const list = [];
  const add = (part, offset) => {
    for (const [segment, index] of pieces(part)) {
      if (segment.trim()) list.push({ text: segment, start: offset + index, end: offset + index + segment.length, mask: false });
    }
  };
  let place = 0;
  for (const match of text.matchAll(BLANK)) {
    add(text.slice(place, match.index), place);
    place = match.index + match[0].length;
    list.push({ text: match[0], start: match.index, end: place, mask: true });
  }
  add(text.slice(place), place);
  return list;
}

/** Where chosen words are after an edit: words before and after what changed keep their choice. */
export function carried(before, after, chosen) {
  let head = 0;
  while (head < before.length && head < after.length && before[head].text === after[head].text) head++;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail).text === after.at(-1 - tail).text) tail++;
  const next = new Set();
  for (const index of chosen) {
    if (index < head) next.add(index);
    else if (index >= before.length - tail) next.add(index + after.length - before.length);
  }
  return next;
}

/** "3,7" ↔ {3, 7}: chosen words in an address. */
export const readIndices = (text) => new Set((text ?? "").split(",").filter((part) => /^\d+$/.test(part)).map(Number));
export const writeIndices = (chosen) => [...chosen].sort((a, b) => a - b).join(",");

/** The text with one word between stars, as the server reads it; stars of the text itself are escaped. */
export function starred(text, start, end) {
  const escaped = (part) => part.replaceAll("*", "\\*");
  return `${escaped(text.slice(0, start))}*${escaped(text.slice(start, end))}*${escaped(text.slice(end))}`;
}

/** A text as clickable words. `face(word, index)` may give other children and classes for a word. */
export function clickableWords({ label, onToggle, face = null, small = false }) {
  const element = h("div", { class: small ? "words words-small" : "words", role: "group", "aria-label": label });
  let buttons = [];
  let stop = 0;

  function move(to) {
    if (!buttons.length) return;
    buttons[stop]?.setAttribute("tabindex", "-1");
    stop = Math.max(0, Math.min(buttons.length - 1, to));
    buttons[stop].setAttribute("tabindex", "0");
    buttons[stop].focus();
  }

  element.addEventListener("click", (event) => {
    const button = event.target.closest(".word");
    if (!button) return;
    stop = Number(button.dataset.index);
    onToggle(stop);
  });
  element.addEventListener("keydown", (event) => {
    const word = event.target.closest(".word");
    if (word && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      return word.click();
    }
    const back = rightToLeft(element.textContent) ? 1 : -1;
    const to = { ArrowLeft: stop + back, ArrowRight: stop - back, ArrowUp: stop - 8, ArrowDown: stop + 8, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  });

  function button(word, index, chosen) {
    const made = face?.(word, index) ?? {};
    const attributes = {
      role: "button", // an element that flows like text: buttons break lines and the order of right-to-left scripts
      class: `word ${made.class ?? ""}`.trim(),
      tabindex: index === stop ? 0 : -1,
      "aria-pressed": String(chosen.has(index)),
      "aria-label": made.label,
      dataset: { index },
      title: made.title,
    };
    return h("span", attributes, made.children ?? word.text);
  }

  return {
    element,
    /** Draws the words of a text; focus stays on the word that had it. */
    show(text, list, chosen) {
      const focused = element.contains(document.activeElement);
      stop = Math.max(0, Math.min(stop, list.length - 1, MOST - 1));
      const parts = [];
      let place = 0;
      buttons = list.slice(0, MOST).map((word, index) => {
        const made = button(word, index, chosen);
        parts.push(text.slice(place, word.start), made);
        place = word.end;
        return made;
      });
      parts.push(text.slice(place));
      fill(element, parts);
      element.dir = rightToLeft(text) ? "rtl" : "ltr";
      if (focused) buttons[stop]?.focus({ preventScroll: true });
      return list.length > MOST ? `The first ${MOST.toLocaleString("en")} of ${list.length.toLocaleString("en")} words can be clicked; to blank a later word, type [MASK] in its place.` : "";
    },
  };
}
