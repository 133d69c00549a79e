// Small parts of views: fields, notices, empty states, a busy sign.

import { fill, h, newId } from "./dom.js";
import { isAbort } from "./api.js";

/** A labelled control; `control` gets the id that the label names. */
export function field(label, control, hint = null) {
  const id = control.id || (control.id = newId("field"));
  const said = hint && h("span", { class: "hint", id: newId("hint") }, hint);
  if (said) control.setAttribute("aria-describedby", said.id);
  return h("div", { class: "field" }, h("label", { class: "label", for: id }, label), control, said);
}

/** A select of [value, name] pairs. */
export function select(options, value, onchange) {
  return h(
    "select",
    { value, onchange: (event) => onchange(event.target.value) },
    options.map(([each, name]) => h("option", { value: each }, name)),
  );
}

/** A checkbox with its words. */
export function check(label, checked, onchange) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", checked, onchange: (event) => onchange(event.target.checked) }), label);
}

/** A few choices side by side, of which one holds. */
export function segmented(label, options, value, onchange) {
  const group = h("div", { class: "segmented", role: "group", "aria-label": label });
  const show = (chosen) => {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.value === chosen));
  };
  for (const [each, name] of options) {
    group.append(
      h("button", { type: "button", dataset: { value: each }, onclick: () => (show(each), onchange(each)) }, name),
    );
  }
  show(value);
  return group;
}

/** A text box that grows with its text and knows the direction of its script. */
export function textBox(value, oninput, attributes = {}) {
  const box = h("textarea", { rows: 1, dir: "auto", spellcheck: "false", class: "material", ...attributes, value });
  const grow = () => {
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight + 2, 320)}px`;
  };
  box.addEventListener("input", () => (grow(), oninput(box.value)));
  requestAnimationFrame(grow);
  box.grow = grow;
  return box;
}

/** A place to drop files on; `dropped` gets a list of them. */
export function dropZone(dropped, ...children) {
  const zone = h(
    "div",
    {
      class: "drop",
      ondragover: (event) => (event.preventDefault(), zone.classList.add("over")),
      ondragleave: () => zone.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        zone.classList.remove("over");
        dropped([...event.dataTransfer.files]);
      },
    },
    ...children,
  );
  return zone;
}

export const notice = (kind, ...children) => h("div", { class: `notice notice-${kind}`, role: kind === "bad" ? "alert" : "status" }, ...children);

/** An error where it happened; one of a request that was replaced is none. */
export const errorNotice = (error) => (isAbort(error) ? null : notice("bad", error.message || String(error)));

/** What a view shows before there is anything to show. */
export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("h2", null, title), text && h("p", null, text), actions.length > 0 && h("div", { class: "row row-middle" }, actions));
}

export const busy = (text = "Reading…") => h("span", { class: "busy", role: "status" }, text);

/** Says something to those who hear the page, in a few words. */
export function say(text) {
  const place = document.getElementById("said");
  if (place) place.textContent = text;
}

const turns = new WeakMap(); // how often a place was promised something, so that an older answer does not end a newer wait

/** Says that what a place shows is about to be replaced. */
export function expect(place) {
  const turn = (turns.get(place) ?? 0) + 1;
  turns.set(place, turn);
  place.setAttribute("aria-busy", "true");
  return turn;
}

/** Fills a place with what needs no request; nothing is expected any more. */
export function rest(place, ...children) {
  expect(place);
  place.removeAttribute("aria-busy");
  return fill(place, ...children);
}

/** Runs a task that fills `place`: a busy sign if it takes long, an error in its place if it fails. What the task gives is said. */
export async function within(place, task, { words = "Reading…" } = {}) {
  const turn = expect(place);
  const timer = setTimeout(() => place.hasChildNodes() || fill(place, busy(words)), 250);
  try {
    const told = await task();
    if (typeof told === "string") say(told);
    return true;
  } catch (error) {
    if (!isAbort(error)) {
      if (!(error instanceof Error) || error.name !== "ApiError") console.error(error);
      fill(place, errorNotice(error));
    }
    return false;
  } finally {
    clearTimeout(timer);
    if (turns.get(place) === turn) place.removeAttribute("aria-busy");
  }
}

/** A table in a box that scrolls sideways where it is wide, also by keys. */
export const tableBox = (label, table) => h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": label }, table);

/** 12345 → "12,345". */
export const count = (number) => Number(number).toLocaleString("en");

/** 0.0312 → "3.1%"; small shares keep a digit. */
export function percent(share) {
  const value = 100 * share;
  if (value >= 99.95 || value === 0) return `${Math.round(value)}%`;
  return value >= 0.1 ? `${value.toFixed(1)}%` : `${value.toPrecision(1)}%`;
}

/** 0.123 → "+0.12" */
export const signed = (value, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
