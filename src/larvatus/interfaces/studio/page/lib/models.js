// Which models there are, which of them can do what a view needs, and a control to choose one.

import { h } from "./dom.js";
import { count, field, select } from "./parts.js";

/** What a task is called in a sentence "a model that can …". */
const WORDS = {
  fill: "fill blanks (a masked-LM head)",
  embed: "give vectors",
  score: "score texts (a masked-LM head)",
  attention: "show its attention (a transformer, run by torch)",
  similar: "compare words (vectors)",
  senses: "tell senses (vectors)",
  classify: "classify (a classifier: larvatus finetune classify)",
  tag: "tag words (a tagger: larvatus finetune tag)",
  spans: "find spans (larvatus finetune spans)",
  parse: "parse sentences (larvatus finetune parse)",
  coref: "resolve coreference (larvatus finetune coref)",
  roles: "label semantic roles (larvatus finetune roles)",
  answer: "answer questions (larvatus finetune answer)",
  choose: "choose among endings (larvatus finetune choose)",
  prompt: "classify by a prompt (larvatus finetune prompt)",
  write: "write texts (larvatus finetune write)",
};

const listed = (needs) => (needs === null || needs === undefined ? [] : [needs].flat());

/** Whether a model can do one of what is needed. */
export const able = (model, needs) => listed(needs).length === 0 || listed(needs).some((task) => model.can?.includes(task));

/** The model of that name, else the first, of those that can; undefined where none can. */
export function pick(models, needs, name) {
  const fitting = models.filter((model) => able(model, needs));
  return fitting.find((model) => model.name === name) ?? fitting[0];
}

/** "a model that can fill blanks (a masked-LM head)" */
export const wanted = (needs) => `a model that can ${listed(needs).map((task) => WORDS[task] ?? task).join(", or ")}`;

/** "6 layers, 12 heads, 22.7M parameters" */
export function sizes(model) {
  const parts = [];
  if (model.layers) parts.push(`${count(model.layers)} layers`);
  if (model.heads) parts.push(`${count(model.heads)} heads`);
  if (model.parameters) parts.push(model.parameters >= 1e6 ? `${(model.parameters / 1e6).toFixed(1)}M parameters` : `${count(model.parameters)} parameters`);
  return parts.join(", ");
}

/** A select of models that can; `none` is the name of a first choice without a model. */
export function modelPicker({ models, needs, value, onchange, label = "Model", none = null, sized = true }) {
  const fitting = models.filter((model) => able(model, needs));
  const options = [...(none ? [["", none]] : []), ...fitting.map((model) => [model.name, model.name])];
  const chosen = fitting.find((model) => model.name === value);
  return h("div", { class: "model-picker" }, field(label, select(options, value ?? "", onchange), sized && chosen ? sizes(chosen) : null));
}
