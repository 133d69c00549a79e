// The server's requests, answered in the page: fills, layers, attention, cosines and senses of one model.
//
//   const model = makeModel(card, run, tokenizer);        // run({input_ids, places}, names) gives tensors by name
//   await model.post("/v1/fill", { texts: ["The [MASK] ran."], top: 5, joint: true, words_only: true })
//
// Each does what the Python function of that name does, which the tests compare.

import { readMark } from "../lib/sentences.js";
import { clusters, planeOf } from "./grouping.js";

const BEAM = 10;
const MOST_WEIGHTS = 1 << 24; // attention weights of a batch
const LESS = 1 / 3; // an abbreviation keeps less than this share without its period
const BEFORE_BLANK = /[\p{White_Space}\x1c-\x1f]+$/u;
const SHARES = ["self", "previous", "next", "cls", "separator", "punctuation"];
const PUNCTUATION = /^[\p{P}$+<=>^`|~]+$/u;

const points = (text) => Array.from(text);
const largest = (values, allowed, count) =>
  allowed.filter((id) => values[id] > -Infinity).sort((a, b) => values[b] - values[a] || a - b).slice(0, count);

export function makeModel(card, run, tokenizer) {
  const { layers, heads, width, rows: vocabulary, mask, tokens, before, after } = card; // a padded vocabulary has more rows
  const room = card.reach - before.length - after.length;
  const special = new Set(card.special_ids);
  const every = tokens.map((_, id) => id).filter((id) => !special.has(id));
  const isWord = new Set(card.words);
  const glued = new Set(card.glued);
  const known = new Set(card.abbreviations);

  /** Runs rows of equal length; `places` are [layer, row, position of the text]. {states(layer, row, position), log(n), attention}. */
  async function read(rows, places, names) {
    const length = rows[0].length + before.length + after.length;
    const ids = rows.flatMap((row) => [...before, ...row, ...after]);
    const flat = places.map(([layer, row, position]) => (layer * rows.length + row) * length + position + before.length);
    const given = await run({ input_ids: [ids, [rows.length, length]], places: [flat, [flat.length]] }, names);
    const logs = given.log_probabilities;
    return {
      length,
      given,
      log: (n) => logs.subarray(n * vocabulary, (n + 1) * vocabulary),
      state: (layer, row, position) => given.states.subarray(((layer * rows.length + row) * length + position + before.length) * width).subarray(0, width),
    };
  }

  function checked(ids, what = "text") {
    if (!ids.length) throw new Error(`The ${what} has no token; give a text with words.`);
    if (ids.length > room) throw new Error(`The ${what} has ${ids.length.toLocaleString("en")} tokens, and this page reads ${room.toLocaleString("en")}; shorten it.`);
    return ids;
  }

  // — blanks

  function readBlanks(text) {
    const mark = [mask.text, "[MASK]", "<mask>"].find((each) => text.includes(each));
    if (!mark) throw new Error(`Nothing to fill: mark each blank of the text with ${mask.text}.`);
    const parts = text.split(mark);
    const ids = [];
    const places = [];
    parts.forEach((part, n) => {
      if (n) places.push(ids.length), ids.push(mask.id);
      ids.push(...tokenizer.encode(n < parts.length - 1 ? part.replace(BEFORE_BLANK, "") : part).ids);
    });
    return { parts, ids, places, allowed: parts.slice(0, -1).map((part) => (/[\p{L}\p{N}]$/u.test(part) ? every : null)) };
  }

  function windows({ ids, places }, joint) {
    const around = (first, last) => {
      const start = Math.max(0, Math.min(first - Math.floor((room - (last - first)) / 2), ids.length - room));
      return [start, Math.min(ids.length, start + room)];
    };
    const apart = places.at(-1) + 1 - places[0];
    if (apart <= room) return places.map(() => around(places[0], places.at(-1) + 1));
    if (joint) throw new Error(`The blanks are ${apart.toLocaleString("en")} tokens apart and the model's window has ${room.toLocaleString("en")}; fill each by itself.`);
    return places.map((place) => around(place, place + 1));
  }

  /** Log-probabilities at each blank, at some layers: [blank][layer]. */
  async function marginals(blanks, spans, depths = [layers]) {
    const made = [];
    for (let n = 0; n < spans.length; ) {
      let end = n;
      while (end < spans.length && spans[end][0] === spans[n][0]) end++;
      const [start, stop] = spans[n];
      const places = blanks.places.slice(n, end).flatMap((place) => depths.map((layer) => [layer, 0, place - start]));
      const answer = await read([blanks.ids.slice(start, stop)], places, ["log_probabilities"]);
      for (let at = n; at < end; at++) made.push(depths.map((_, depth) => answer.log((at - n) * depths.length + depth)));
      n = end;
    }
    return made;
  }

  const spelt = (id) => (glued.has(id) ? tokens[id].replace(/^##/, "") : tokens[id]);
  const filled = ({ parts }, chosen) =>
    chosen.reduce((text, id, n) => (id === null ? text + mask.text : (glued.has(id) ? text.replace(BEFORE_BLANK, "") : text) + spelt(id)) + parts[n + 1], parts[0]);

  const endsSentence = (part) => /^ *\.(?!\.)/.test(part);

  /** Which tokens may fill each blank: whole words, but none that is likely only because of the period after it. */
  async function candidates(blanks, logs, { words, joint, count }) {
    const allowed = blanks.allowed.map((all) => (words ? all ?? card.words : every));
    const best = logs.flatMap((log, n) => largest(log, allowed[n], count));
    if (!words || !card.other_end || !blanks.parts.slice(1).some(endsSentence) || !best.some((id) => known.has(id))) return allowed;
    const other = readBlanks(blanks.parts.map((part, n) => (n && endsSentence(part) ? part.replace(".", "!") : part)).join(mask.text));
    const others = await marginals(other, windows(other, joint));
    return allowed.map((ids, n) => (endsSentence(blanks.parts[n + 1]) ? ids.filter((id) => !known.has(id) || Math.exp(others[n][0][id] - logs[n][id]) >= LESS) : ids));
  }

  async function beam(blanks, [start, end], logs, allowed, beamWidth) {
    const top = logs.map((log, n) => log[largest(log, allowed[n], 1)[0]]);
    const order = logs.map((_, n) => n).sort((a, b) => top[b] - top[a] || a - b);
    let rows = [{ ids: blanks.ids.slice(start, end), score: 0 }];
    for (const [step, blank] of order.entries()) {
      const place = blanks.places[blank] - start;
      const next = [];
      const together = Math.max(1, Math.floor(MOST_WEIGHTS / (layers * heads * (end - start + 2) ** 2)));
      for (let n = 0; n < rows.length; n += together) {
        const some = rows.slice(n, n + together);
        const answer = step ? await read(some.map(({ ids }) => ids), some.map((_, row) => [layers, row, place]), ["log_probabilities"]) : null;
        some.forEach(({ ids, score }, row) => {
          const log = answer ? answer.log(row) : logs[blank];
          for (const id of largest(log, allowed[blank], beamWidth)) next.push({ ids: ids.with(place, id), score: score + log[id] });
        });
      }
      rows = next.sort((a, b) => b.score - a.score).slice(0, beamWidth);
    }
    return rows.map(({ ids, score }) => ({ ids: blanks.places.map((place) => ids[place - start]), probability: Math.exp(score) }));
  }

  const covered = (spans) => new Set(spans.flatMap(([start, end]) => Array.from({ length: end - start }, (_, n) => start + n))).size;

  async function fill({ texts, top = 5, joint = true, words_only: words = true }) {
    const [text] = [texts].flat();
    const blanks = readBlanks(text);
    const spans = windows(blanks, joint);
    const logs = (await marginals(blanks, spans)).map(([log]) => log);
    const allowed = await candidates(blanks, logs, { words, joint, count: Math.max(BEAM, top) });
    const alone = (n, id) => ({ token: tokens[id], probability: Math.exp(logs[n][id]), id, text: filled(blanks, logs.map((_, at) => (at === n ? id : null))) });
    const each = logs.map((log, n) => largest(log, allowed[n], top).map((id) => alone(n, id)));
    const several = joint && logs.length > 1 ? await beam(blanks, spans[0], logs, allowed, Math.max(BEAM, top)) : [];
    const together = several.slice(0, top).map(({ ids, probability }) => ({ tokens: ids.map((id) => tokens[id]), probability, ids, text: filled(blanks, ids) }));
    return { results: [{ text, fills: logs.length > 1 ? together : each[0], marginals: each, read: covered(spans), total: blanks.ids.length }] };
  }

  /** What each layer would fill in: the masked-LM head on its state (the logit lens). */
  async function lens({ text, top = 5 }) {
    const blanks = readBlanks(text);
    const spans = windows(blanks, false);
    const depths = Array.from({ length: layers + 1 }, (_, layer) => layer);
    const logs = await marginals(blanks, spans, depths);
    const allowed = await candidates(blanks, logs.map((each) => each.at(-1)), { words: true, joint: false, count: Math.max(BEAM, top) });
    const blankOf = (each, n) => {
      const [answer] = largest(each.at(-1), allowed[n], 1);
      const rows = each.map((log, layer) => ({
        layer,
        top: largest(log, allowed[n], top).map((id) => ({ token: tokens[id], probability: Math.exp(log[id]) })),
        final: Math.exp(log[answer]),
        rank: 1 + allowed[n].filter((id) => log[id] > log[answer]).length,
      }));
      const others = rows.filter((row) => row.rank > 1);
      return { layers: rows, decided: others.length ? others.at(-1).layer + 1 : 0 };
    };
    return { text, blanks: logs.map(blankOf), read: covered(spans), total: blanks.ids.length };
  }

  // — attention

  async function attention({ text, layer = null }) {
    const { ids, spans } = tokenizer.encode(text);
    checked(ids);
    const chars = points(text);
    const surfaces = spans.map(([start, end]) => chars.slice(start, end).join(""));
    const names = [...before.map((id) => tokens[id]), ...surfaces.map((part, n) => part.trim() || tokens[ids[n]]), ...after.map((id) => tokens[id])];
    const marks = names.map((_, n) => PUNCTUATION.test(surfaces[n - before.length]?.trim() ?? ""));
    const chosen = layer ? [layer] : Array.from({ length: layers }, (_, n) => n + 1);
    if (chosen.length * heads * names.length ** 2 > MOST_WEIGHTS / 8) throw new Error(`${names.length} tokens make too many weights to draw; shorten the text, or choose one layer.`);
    const { given } = await read([ids], [[layers, 0, 0]], chosen.map((each) => `attention_${each}`));
    const square = (flat, head) => names.map((_, i) => Array.from(flat.subarray((head * names.length + i) * names.length).subarray(0, names.length)));
    const weights = chosen.map((each) => Array.from({ length: heads }, (_, head) => square(given[`attention_${each}`], head)));
    const types = weights.flatMap((of, l) => of.map((matrix, n) => ({ layer: chosen[l], head: n + 1, ...statistics(matrix, marks) })));
    return { text, tokens: names, layers: chosen, heads: Array.from({ length: heads }, (_, n) => n + 1), weights, types };
  }

  // — vectors of marked words

  async function vectorsOf(texts, choice) {
    const chosen = choice === "last" ? [layers] : choice === "last4" ? [layers - 3, layers - 2, layers - 1, layers] : [Number(choice)];
    const vectors = [];
    for (const line of texts) {
      const { text, start, end } = readMark(line);
      const { ids, spans } = tokenizer.encode(text);
      checked(ids, "sentence");
      const [from, to] = [start, end].map((unit) => points(text.slice(0, unit)).length);
      const word = spans.flatMap(([low, high], n) => (low < to && high > from ? [n] : []));
      if (!word.length) throw new Error(`“${text.slice(start, end)}” has no vector: the vocabulary deletes its characters; mark another word.`);
      const answer = await read([ids], [[layers, 0, 0]], ["states"]);
      const sum = new Float64Array(width);
      for (const layer of chosen) for (const n of word) answer.state(layer, 0, n).forEach((value, d) => (sum[d] += value));
      const length = Math.hypot(...sum);
      vectors.push(sum.map((value) => value / length));
    }
    return vectors;
  }

  const cosinesOf = (vectors) => vectors.map((a) => vectors.map((b) => Math.max(-1, Math.min(1, a.reduce((sum, value, d) => sum + value * b[d], 0)))));

  async function senses({ texts, layers: choice, clusters: count = null }) {
    const vectors = await vectorsOf(texts, choice);
    const numbers = clusters(cosinesOf(vectors), count);
    const plane = planeOf(vectors);
    const groups = [...new Set(numbers)].sort((a, b) => a - b);
    return {
      instances: texts.map((_, n) => ({ cluster: numbers[n], point: plane[n] })),
      clusters: groups.map((number) => ({ number, size: numbers.filter((each) => each === number).length, name: "all" })),
    };
  }

  const routes = { "/v1/fill": fill, "/studio/api/lens": lens, "/v1/attention": attention, "/v1/similar": async ({ texts, layers: choice }) => ({ cosines: cosinesOf(await vectorsOf(texts, choice)) }), "/v1/senses": senses };
  return { post: (path, body) => routes[path](body) };
}

/** Statistics of a head on a text (Clark et al. 2019), as `inference/interpret/heads.py` computes them. */
function statistics(matrix, marks) {
  const size = matrix.length;
  const sums = { entropy: 0, uniform: size * Math.log(size), distance: 0, self: 0, previous: 0, next: 0, cls: 0, separator: 0, punctuation: 0 };
  matrix.forEach((row, i) =>
    row.forEach((weight, j) => {
      if (weight > 0) sums.entropy -= weight * Math.log(weight);
      sums.distance += weight * Math.abs(i - j);
      if (i === j) sums.self += weight;
      if (j === i - 1) sums.previous += weight;
      if (j === i + 1) sums.next += weight;
      if (j === 0) sums.cls += weight;
      if (j === size - 1) sums.separator += weight;
      if (marks[j]) sums.punctuation += weight;
    }),
  );
  const means = Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / (name === "previous" || name === "next" ? size - 1 : size)]));
  const best = SHARES.reduce((most, name) => (means[name] > means[most] ? name : most));
  return { ...means, type: means[best] >= 0.5 ? best : means.entropy >= 0.8 * means.uniform ? "broad" : "mixed" };
}
