// What Senses and Compare words ask the server, and how they read its answers.

/** [value, name] of the layers that may be chosen. */
export function layerChoices(model) {
  const numbers = Array.from({ length: (model.layers ?? 0) + 1 }, (_, n) => [String(n), n === 0 ? "0, before all layers" : `layer ${n}`]);
  const choices = [["last", "last"], ...(model.layers >= 4 ? [["last4", "mean of the last four"]] : []), ...numbers];
  const own = ownLayers(model);
  return choices.some(([value]) => value === own) ? choices : [[own, own], ...choices];
}

/** The layers that the model's word vectors are of by default. */
export const ownLayers = (model) => model.word_layers ?? "last";

/** A choice of layers as requests say it. */
export const layersOf = (choice) => (/^\d+$/.test(choice) ? Number(choice) : choice);

/** For each sentence the others, nearest first: [[{index, cosine}]]. */
function nearestByCosine(cosines) {
  return cosines.map((row, i) => row.map((cosine, index) => ({ index, cosine })).filter(({ index }) => index !== i).sort((a, b) => b.cosine - a.cosine));
}

/** The pairs of sentences, nearest first: [{pair: [i, j], cosine}]. */
export const nearestPairsOf = (cosines) =>
  cosines.flatMap((row, i) => row.slice(i + 1).map((cosine, n) => ({ pair: [i, i + 1 + n], cosine }))).sort((a, b) => b.cosine - a.cosine);

/** Answers of /v1/senses and /v1/similar about the same sentences, by their number from 0: {points, clusters, names, nearest, pairs, senses}. */
export function sensesOf(answer, similar) {
  return {
    points: answer.instances.map((each) => each.point),
    clusters: answer.instances.map((each) => each.cluster),
    names: answer.clusters.map((each) => (/^(all|cluster \d+)$/.test(each.name) ? "" : each.name)), // typical words, where there are any
    nearest: nearestByCosine(similar.cosines),
    pairs: nearestPairsOf(similar.cosines),
    senses: answer.instances.map((each) => each.sense ?? null),
  };
}
