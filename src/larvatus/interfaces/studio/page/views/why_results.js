// An explanation as marked text, a table of all methods, its completeness, and the controls of each method.

import { fill, h } from "../lib/dom.js";
import { codePoints } from "../lib/offsets.js";
import { notice, percent, segmented, signed, tableBox } from "../lib/parts.js";

export const METHODS = {
  "integrated-gradients": { name: "integrated gradients", says: "Effects of each word on the way from a text of baseline vectors to this one; they add up to the difference." },
  "gradient-x-input": { name: "gradient × input", says: "The slope at this text, times the way from the baseline: one step of integrated gradients." },
  "leave-one-out": { name: "leave-one-out", says: "What the score loses when the word alone is masked." },
  "attention-rollout": { name: "attention rollout", says: "Share of attention that reaches the word through all layers; it has no sign." },
};
const TRUSTED = 0.95;
const signless = (method) => method === "attention-rollout";
const shown = (value, method) => (signless(method) ? value.toFixed(3) : signed(value, 3));

/** The texts with their words marked: blue raises the score, orange lowers it; the largest of a method is darkest. */
function marked(answer, method) {
  const texts = [answer.text, answer.pair].filter((text) => text !== undefined && text !== null);
  const most = Math.max(...answer.words.map((word) => Math.abs(word.scores[method])), 1e-12);
  return texts.map((text, part) => {
    const at = codePoints(text);
    const parts = [];
    let place = 0;
    for (const word of answer.words.filter((each) => each.part === part)) {
      const score = word.scores[method];
      const face = { class: score < 0 ? "why-word why-less" : "why-word", style: { "--share": Math.abs(score) / most }, title: shown(score, method) };
      parts.push(at.slice(place, word.start), h("span", face, at.slice(word.start, word.end)));
      place = word.end;
    }
    return h("p", { class: "why-text material", dir: "auto" }, parts, at.slice(place));
  });
}

/** All scores: a row for each word, a column for each method. */
function scoreTable(answer, method) {
  const names = answer.methods.map((each) => h("th", { scope: "col", class: each === method ? "number chosen" : "number" }, METHODS[each].name));
  const row = (word) => h("tr", null, h("th", { scope: "row", class: "material", dir: "auto" }, word.text), answer.methods.map((each) => h("td", { class: each === method ? "number chosen" : "number" }, shown(word.scores[each], each))));
  return tableBox("Scores of words by method", h("table", { class: "table why" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Word"), names)), h("tbody", null, answer.words.map(row))));
}

/** Whether the scores of integrated gradients add up, and a way to make them. */
function completeness(answer, moreSteps) {
  if (answer.gap === null || answer.gap === undefined) return h("p", { class: "faint" }, "8-bit weights have no gradients: methods that use them are left out.");
  const said = `Integrated gradients from the ${answer.baseline} baseline after ${answer.steps} steps: their sum differs from the difference of the scores by ${Math.abs(answer.gap).toFixed(4)} nats`;
  if (answer.complete) return h("p", { class: "soft number" }, `${said}: complete.`);
  return notice("warn", `${said}: not complete. `, moreSteps && h("button", { type: "button", class: "button button-small", onclick: moreSteps }, "Use more steps"));
}

const better = (row) => row.beaten >= TRUSTED;
const listed = (rows) => rows.map((row) => METHODS[row.method].name).join(", ").replace(/, ([^,]*)$/, " and $1");

function verdict({ rows, orders }) {
  const trusted = rows.filter(better);
  if (!trusted.length) return notice("warn", `No method beats ${100 * TRUSTED}% of ${orders} random orders of the words on this text: none is better than chance here.`);
  const others = rows.filter((row) => !better(row));
  return h("p", null, `On this text ${listed(trusted)} ${trusted.length > 1 ? "beat" : "beats"} at least ${100 * TRUSTED}% of ${orders} random orders of the words`, others.length ? `; ${listed(others)} ${others.length > 1 ? "do" : "does"} not.` : ".");
}

/** Each method next to random orders of the words and to leave-one-out. */
function controls(checked, method) {
  if (!checked) return h("p", { class: "faint" }, "Controls need a probability and two words or more.");
  const share = (value) => value.toFixed(3).replace("-", "−");
  const row = (each) =>
    h(
      "tr",
      { class: each.method === method ? "chosen" : null },
      h("th", { scope: "row" }, METHODS[each.method].name),
      h("td", { class: "number" }, share(each.comprehensiveness)),
      h("td", { class: "number" }, share(each.sufficiency)),
      h("td", { class: "number" }, percent(each.beaten)),
      h("td", { class: "number" }, each.agreement === null ? "–" : signed(each.agreement)),
    );
  const random = h("tr", null, h("th", { scope: "row" }, `${checked.orders} random orders, mean`), checked.random.map((value) => h("td", { class: "number" }, share(value))), h("td", { class: "number" }, "50%"), h("td", { class: "number" }, "–"));
  const heads = ["Method", "Comprehensiveness", "Sufficiency", "Beats random orders", "Agrees with leave-one-out (ρ)"].map((name, n) => h("th", { scope: "col", class: n ? "number" : null }, name));
  return [
    verdict(checked),
    tableBox("Controls of the methods", h("table", { class: "table why-controls" }, h("thead", null, h("tr", null, heads)), h("tbody", null, checked.rows.map(row), random))),
    h("p", { class: "faint" }, "Comprehensiveness: how much probability is lost without the words that a method puts first; higher is better. Sufficiency: how much is lost with only these; lower is better. Both mask words, which favours leave-one-out. One text shows little: larvatus explain --data FILE measures on many, with intervals."),
  ];
}

/** Everything about one prediction, named by `of` where there are several; a chosen method is drawn without a new request. */
export function explained(answer, first, { onMethod, moreSteps, of }) {
  const place = h("div", { class: "stack", "aria-live": "polite" });
  const trust = h("div", { class: "stack" });
  const options = answer.methods.map((name) => [name, METHODS[name].name]);
  const start = answer.methods.includes(first) ? first : answer.methods[0];
  const draw = (method) => {
    const colours = signless(method) ? "Darker words get more attention." : "Blue words raise the score, orange ones lower it; the largest of a method is darkest.";
    fill(place, marked(answer, method), h("p", { class: "faint" }, `${METHODS[method].says} ${colours}`), scoreTable(answer, method));
    fill(trust, controls(answer.controls, method));
  };
  const choose = segmented("Method", options, start, (method) => (onMethod(method), draw(method)));
  const value = answer.probability === null || answer.probability === undefined ? signed(answer.score, 3) : percent(answer.probability);
  draw(start);
  return [
    h("article", { class: "card", "aria-label": "Words that carry the prediction" }, h("div", { class: "card-head" }, h("h2", null, of, h("span", { dir: "auto" }, answer.label), " ", h("span", { class: "number soft" }, value)), choose), place, completeness(answer, moreSteps)),
    h("article", { class: "card", "aria-label": "Which method to trust" }, h("h2", null, "Which method to trust here"), trust),
  ];
}
