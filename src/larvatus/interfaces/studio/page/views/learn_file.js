// The file of labelled examples: dropped, chosen, or pasted.

import { fill, h } from "../lib/dom.js";
import { count, dropZone, field, notice, textBox } from "../lib/parts.js";

const EXAMPLE = {
  name: "weather.csv",
  text: `text,label\n${[
    ["It rained all day", "wet"], ["The sun burned the fields", "dry"], ["Puddles stood in every street", "wet"], ["Not a cloud for weeks", "dry"],
    ["The storm flooded the cellar", "wet"], ["Dust lay on all the leaves", "dry"], ["Umbrellas filled the square", "wet"],
    ["The well has run dry", "dry"], ["Heavy showers are expected tonight", "wet"], ["The grass turned yellow in the heat", "dry"],
    ["The river rose over its banks", "wet"], ["There was no rain from May to August", "dry"], ["Water dripped from every roof", "wet"],
    ["The lake shrank to a pool", "dry"], ["Our boots were full of water", "wet"], ["Hot days and clear nights", "dry"],
    ["Rain fell on the town until morning", "wet"], ["The earth cracked in the sun", "dry"], ["The fields were under water for a week", "wet"],
    ["The desert stretched to the horizon", "dry"], ["Everyone came home soaked to the skin", "wet"], ["A long drought killed the crops", "dry"],
    ["A wet wind blew in from the sea", "wet"], ["The sky was blue and without a cloud", "dry"], ["Snow and rain fell all through March", "wet"],
    ["Fires spread through the dry forest", "dry"], ["The clouds burst over the valley", "wet"], ["The streams had dried up by July", "dry"],
    ["Mud covered the road after the rain", "wet"], ["We sat in the shade all afternoon", "dry"], ["The gutters overflowed", "wet"],
    ["A hot wind carried sand into the town", "dry"], ["It has been raining since Monday", "wet"], ["The soil turned to dust", "dry"],
    ["A cold drizzle fell on the harbour", "wet"], ["It was the sunniest summer in years", "dry"], ["The match was stopped by heavy rain", "wet"],
    ["The heat lasted for three weeks", "dry"], ["The floods carried away two bridges", "wet"], ["Cattle died for want of water", "dry"],
    ["Damp coats hung in the hall", "wet"], ["The riverbed was dry stones", "dry"], ["The monsoon began in June", "wet"],
    ["The sun shone on the white walls", "dry"], ["Thunder and hail spoiled the picnic", "wet"], ["The harvest was lost to the drought", "dry"],
    ["Fog and rain hid the coast", "wet"], ["Clear skies and sunshine until Friday", "dry"],
  ].map((row) => row.join(",")).join("\n")}\n`,
};

/** The text of a file, which must be UTF-8: other bytes are refused, not replaced. */
async function textOf(file, most) {
  if (file.size > most) throw new Error(`${file.name} has ${count(file.size)} bytes; files up to ${count(most)} are learnt from here. Use larvatus finetune for it.`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not UTF-8 text. Save it as UTF-8, or use larvatus finetune with --encoding.`);
  }
}

/** A place to drop a file, a button to choose one, a box to paste into. `given({name, text})` is told of each. */
export function fileChooser({ limits, given, example = EXAMPLE }) {
  const said = h("div", { "aria-live": "polite" });
  const box = textBox("", () => {}, { placeholder: "text,label\nA fine film,good\n…", rows: 4, class: "paste" });
  const input = h("input", { type: "file", class: "visually-hidden", tabindex: -1, "aria-label": "File of labelled examples", accept: [...limits.endings, "text/plain", "text/csv"].join(","), onchange: () => input.files[0] && take(input.files[0]) });

  async function take(file) {
    try {
      const text = await textOf(file, limits.bytes);
      fill(said);
      given({ name: file.name, text });
    } catch (error) {
      fill(said, notice("bad", error.message));
    } finally {
      input.value = ""; // the same file can be chosen again
    }
  }

  const zone = dropZone(
    ([file]) => {
      if (file) take(file);
      else fill(said, notice("bad", "That is not a file; drop a file of labelled examples."));
    },
    h("p", null, h("strong", null, "Drop a file of labelled examples"), " or choose one."),
    h("p", { class: "faint" }, `CSV, TSV, CoNLL or JSONL, UTF-8, up to ${count(limits.bytes / 1e6)} MB. It stays on this machine.`),
    h("div", { class: "row row-middle" }, h("button", { type: "button", class: "button button-main", onclick: () => input.click() }, "Choose a file"), h("button", { type: "button", class: "button", onclick: () => given(example) }, "Take an example")),
    input,
  );
  const paste = h("details", { class: "stack" }, h("summary", null, "Or paste rows"), field("Rows", box, "Tables with a header, or words and tags a line."), h("div", null, h("button", { type: "button", class: "button", onclick: () => given({ name: "pasted.txt", text: box.value }) }, "Look at these rows")));
  return h("section", { class: "card", "aria-label": "Examples" }, zone, said, paste);
}
