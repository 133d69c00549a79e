// The model beside the page, so that the page stays responsive: {path, body} in, {answer} or {error} out.

import * as ort from "../runtime/ort.js";
import { makeModel } from "./model.js";
import { makeTokenizer } from "./tokenizer.js";

const at = (name) => new URL(`../model/${name}`, import.meta.url);
const tell = (loaded, total) => postMessage({ loaded, total });

async function fetched(name) {
  const answer = await fetch(at(name));
  if (!answer.ok) throw new Error(`${name} of this page cannot be read (${answer.status}); export it again.`);
  return answer;
}

/** The bytes of a file, telling how many came. */
async function bytes(name, total) {
  const all = new Uint8Array(total);
  let place = 0;
  for (const reader = (await fetched(name)).body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    if (place + value.length > total) throw new Error(`${name} of this page is longer than it says; export it again.`);
    all.set(value, place);
    tell((place += value.length), total);
  }
  if (place < total) throw new Error(`${name} of this page ended early; load the page again.`);
  return all;
}

async function start() {
  const card = await (await fetched("page.json")).json();
  ort.env.wasm.numThreads = 1; // more need headers that a plain file server does not send
  ort.env.wasm.wasmPaths = { wasm: new URL("../runtime/ort.wasm", import.meta.url).href };
  const [settings, weights] = await Promise.all([fetched("tokenizer.json").then((answer) => answer.json()), bytes("model.onnx", card.bytes)]);
  const session = await ort.InferenceSession.create(weights, { executionProviders: ["wasm"] });
  const tensor = ([values, shape]) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
  const run = async (given, names) => {
    const made = await session.run(Object.fromEntries(Object.entries(given).map(([name, value]) => [name, tensor(value)])), names);
    return Object.fromEntries(Object.entries(made).map(([name, value]) => [name, value.data]));
  };
  return makeModel(card, run, makeTokenizer(settings, card.classes));
}

const model = start();
let last = Promise.resolve(); // the session runs one request at a time
model.then(() => tell(1, 1), (error) => postMessage({ failed: error.message }));
addEventListener("message", ({ data: { number, path, body } }) => {
  last = last.then(async () => {
    try {
      postMessage({ number, answer: await (await model).post(path, body) });
    } catch (error) {
      postMessage({ number, error: error.message });
    }
  });
});
