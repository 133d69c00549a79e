// Label: predictions of a fine-tuned model for a text, in the form of its task.

import { newest, onlyItem } from "../lib/api.js";
import { copyButtons, curlFor, literal, pythonFor } from "../lib/copy.js";
import { debounce, fill, h } from "../lib/dom.js";
import { empty, field, segmented, textBox, within } from "../lib/parts.js";
import { labelResult } from "./label_results.js";

const TASKS = { classify: "Classes", tag: "Tags", spans: "Spans", parse: "Trees", coref: "Coreference", roles: "Roles", answer: "Answers", choose: "Choices", prompt: "Classes by a prompt", write: "Written texts" };
const TEXT_NAMES = { answer: "Passage", choose: "Context" };
const DRAWN = new Set(["parse", "coref", "roles"]); // by the server, as notebooks and pages show them
const EXAMPLES = {
  classify: "A quiet, clever film with a wonderful ending.",
  tag: "Ada Lovelace met Charles Babbage in London.",
  spans: "The chair of the University of Edinburgh spoke in Glasgow.",
  parse: "The keys to the old cabinet are on the table.",
  coref: "Ada met Charles in London. She told him that her notes were ready.",
  roles: "Ada tried to sell her notes to a printer yesterday.",
  answer: "The bridge was built in 1890. It crosses the firth west of the city.",
  choose: "She opened the umbrella.",
  prompt: "A quiet, clever film with a wonderful ending.",
  write: "A quiet, clever film with a wonderful ending.",
};
const ENDINGS = "It had begun to rain.\nThe bread was stale.\nHe plays the cello.";
const QUESTION = "When was the bridge built?";

const tasksOf = (model) => Object.keys(TASKS).filter((task) => model.can.includes(task));

const endingsOf = (state) => state.endings.split("\n").map((line) => line.trim()).filter(Boolean);

/** Path and body of the request. */
export function request(task, state, model) {
  if (task === "choose") return ["/v1/choose", { questions: [{ context: state.text, endings: endingsOf(state) }], model: model.name }];
  if (task === "answer") return ["/v1/answer", { questions: [{ question: state.question, passage: state.text }], model: model.name }];
  const item = task === "classify" && state.pair.trim() ? [state.text, state.pair] : state.text;
  return [`/v1/${task}`, { texts: [item], model: model.name }];
}

function asPython(task, state, model) {
  const pair = (first, second) => `(${literal(first)}, ${literal(second)})`;
  if (task === "choose") return pythonFor(model, `result = model.predict(${pair(state.text, endingsOf(state))})`, "print(result)");
  const given = task === "answer" ? pair(state.question, state.text) : task === "classify" && state.pair.trim() ? pair(state.text, state.pair) : literal(state.text);
  return pythonFor(model, `result = model.predict(${given})`, "print(result)");
}

function mount(root, { api, params, setParams, model }) {
  const tasks = tasksOf(model);
  const task = tasks.includes(params.task) ? params.task : tasks[0];
  const state = { text: params.text ?? EXAMPLES[task], pair: params.pair ?? "", question: params.question ?? QUESTION, endings: params.endings ?? ENDINGS };
  const results = h("section", { class: "stack", "aria-label": "Predictions", "aria-live": "polite" });
  const run = newest();

  async function ask() {
    run.stop();
    if (!state.text.trim()) return fill(results, empty("Type a text", task === "answer" ? "A passage, and a question that it answers." : "The prediction of the model appears here."));
    if (task === "choose" && endingsOf(state).length < 2) return fill(results, empty("Type two endings or more", "One in each line; the model chooses among them."));
    if (task === "answer" && !state.question.trim()) return fill(results, empty("Type a question", "The model looks for the answer in the passage."));
    await within(results, async () => {
      const [path, body] = request(task, state, model);
      const item = onlyItem(await run((signal) => api.post(path, body, { signal })));
      const picture = DRAWN.has(task) ? await run((signal) => api.post("/studio/api/picture", { task, record: item }, { signal })) : null;
      fill(results, labelResult(task, item, model, { passage: state.text, picture }), copyButtons({ python: () => asPython(task, state, model), curl: () => curlFor(path, body) }));
    }, { words: "Reading…" });
  }

  const askLater = debounce(ask);
  const changed = (name) => (value) => {
    state[name] = value;
    setParams({ [name]: value });
    askLater();
  };
  const box = textBox(state.text, changed("text"), { placeholder: "Type a text…" });
  const question = task === "answer" && h("input", { type: "text", dir: "auto", value: state.question, oninput: (event) => changed("question")(event.target.value) });
  const pair = task === "classify" && textBox(state.pair, changed("pair"), { placeholder: "Only for models that judge pairs", rows: 1 });
  const endings = task === "choose" && textBox(state.endings, changed("endings"), { placeholder: "An ending in each line…", rows: 3 });
  const choice = tasks.length > 1 && segmented("Kind of answer", tasks.map((each) => [each, TASKS[each]]), task, (each) => setParams({ task: each }, { again: true }));
  fill(root, h("div", { class: "card" }, choice, question && field("Question", question), field(TEXT_NAMES[task] ?? "Text", box), pair && field("Second text", pair), endings && field("Endings", endings, "One in each line.")), results);
  askLater.now();
  return () => [askLater.cancel, run.stop].forEach((stop) => stop());
}

export const view = {
  id: "label",
  title: "Label",
  about: "Classes, tags, nested spans, trees, coreference, semantic roles, answers, the choice among endings or a written text: whatever the model was fine-tuned for.",
  needs: Object.keys(TASKS),
  mount,
};
