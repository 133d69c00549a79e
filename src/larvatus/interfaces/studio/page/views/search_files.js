// Documents to index: dropped or chosen, listed, and sent with a name, a model and the text column of tables.

import { fill, h } from "../lib/dom.js";
import { modelPicker } from "../lib/models.js";
import { count, dropZone, field, notice } from "../lib/parts.js";

const TABLE = /\.(csv|tsv|jsonl)$/i;
const EXAMPLE = [
  { name: "library.md", text: "# The library\n\nThe library is open from nine to six, except on Sundays. Books may be kept for four weeks. If nobody else has reserved a book, the loan can be extended twice, at the desk or by telephone. A late book costs ten cents a day.\n\nChildren need the signature of a parent for their first card. A lost card is replaced for two euros.\n" },
  { name: "garden.md", text: "# The garden\n\nTomatoes want sun and a warm wall. Water them in the morning, at the root, because wet leaves fall ill. Pinch out the side shoots every week.\n\nSlugs eat young lettuce at night. A ring of sand keeps most of them away; a hedgehog keeps away the rest. Compost is ready when it smells of forest.\n" },
  { name: "train.txt", text: "The night train leaves at a quarter past ten and arrives at seven. Bicycles travel in the last carriage and must be reserved a day before. If a train is more than an hour late, a quarter of the fare is paid back; after two hours, it is half. Dogs that fit into a bag travel free of charge.\n" },
];

/** The text of a file, which must be UTF-8: other bytes are refused, not replaced. */
async function textOf(file, limits) {
  if (!limits.endings.some((ending) => file.name.toLowerCase().endsWith(ending))) throw new Error(`${file.name} cannot be indexed here; give files that end in ${limits.endings.join(", ")}. larvatus search build reads other formats.`);
  if (file.size > limits.bytes) throw new Error(`${file.name} has ${count(file.size)} bytes; files up to ${count(limits.bytes)} are indexed here. Use larvatus search build for it.`);
  let text = "";
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not UTF-8 text. Save it as UTF-8, or use larvatus search build with --encoding.`);
  }
  if (!text.trim()) throw new Error(`${file.name} is empty.`);
  return { name: file.name, text };
}

/** `begin({name, files, column, model})` sends what was chosen, and gives whether a build has begun. */
export function documentChooser({ limits, models, model, begin }) {
  let files = [];
  let by = model;
  const said = h("div", { class: "stack", "aria-live": "polite" });
  const list = h("div", { class: "stack" });
  const input = h("input", { type: "file", multiple: true, class: "visually-hidden", tabindex: -1, "aria-label": "Documents", accept: [...limits.endings, "text/plain", "text/csv"].join(","), onchange: () => take([...input.files]) });

  async function take(given) {
    const problems = [];
    for (const file of given) {
      try {
        files.push(await textOf(file, limits));
      } catch (error) {
        problems.push(error.message);
      }
    }
    if (!given.length) problems.push("That is not a file; drop files of text.");
    if (files.length > limits.files) problems.push(`${count(files.length)} files are too many here, ${count(limits.files)} at most; use larvatus search build.`);
    files = files.slice(0, limits.files);
    input.value = ""; // the same file can be chosen again
    fill(said, problems.map((problem) => notice("bad", problem)));
    draw();
  }

  function draw() {
    if (!files.length) return fill(list);
    const name = h("input", { type: "text", value: files.length === 1 ? files[0].name.replace(/\.[^.]*$/, "") : "documents", required: true, maxlength: 80 });
    const column = h("input", { type: "text", placeholder: "guessed", autocomplete: "off" });
    const pick = modelPicker({ models, needs: "embed", value: by.name, sized: false, onchange: (chosen) => (by = models.find((each) => each.name === chosen)) });
    const remove = (place) => () => ((files = files.filter((_, each) => each !== place)), draw());
    const rows = files.map((file, place) => h("li", null, h("span", { class: "file-name" }, file.name), h("span", { class: "faint number" }, `${count(file.text.length)} characters`), h("button", { type: "button", class: "button button-small button-quiet", "aria-label": `Leave out ${file.name}`, onclick: remove(place) }, "Leave out")));
    const button = h("button", { type: "submit", class: "button button-main" }, "Build the index");
    const send = async (event) => {
      event.preventDefault();
      button.disabled = true;
      const begun = await begin({ name: name.value, files, column: column.value.trim(), model: by.name });
      button.disabled = false;
      if (begun) (files = []), draw();
    };
    const tables = files.some((file) => TABLE.test(file.name));
    fill(list, h("form", { class: "stack", "aria-label": "Documents to index", onsubmit: send }, h("ul", { class: "file-list" }, rows), h("div", { class: "row" }, field("Name of the index", name), pick, tables && field("Text column of tables", column)), h("div", null, button)));
  }

  const zone = dropZone(
    take,
    h("p", null, h("strong", null, "Drop documents"), " or choose them."),
    h("p", { class: "faint" }, `Text, Markdown, CSV, TSV or JSONL, UTF-8, up to ${count(limits.bytes / 1e6)} MB each. They stay on this machine.`),
    h("div", { class: "row row-middle" }, h("button", { type: "button", class: "button button-main", onclick: () => input.click() }, "Choose files"), h("button", { type: "button", class: "button", onclick: () => ((files = [...EXAMPLE]), fill(said), draw()) }, "Take an example")),
    input,
  );
  return h("section", { class: "card", "aria-label": "Documents" }, zone, said, list);
}
