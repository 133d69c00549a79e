// What Senses and Compare words ask the server, and how they read its answers.

import { ApiError } from "../lib/api.js";

/** An answer's own fields, or those of its single result. */
function itemOf(answer) {
  const item = answer.results ? answer.results[0] : answer;
  if (!item) throw new ApiError("The answer holds no result.");
  if (item.error) throw new ApiError(item.error.message, { type: item.error.type });
  return item;
}

/** The cosines of /v1/similar, [N][N]. */
export function similarityOf(answer) {
  return itemOf(answer).cosines;
}

export { itemOf };

/** [value, name] of the layers that may be chosen. */
export function layerChoices(model) {
  const numbers = Array.from({ length: (model.layers ?? 0) + 1 }, (_, n) => [String(n), n === 0 ? "0, before all layers" : `layer ${n}`]);
  return [["last", "last"], ["last4", "mean of the last four"], ...numbers];
}

/** The answer of /v1/senses: {points, clusters, names, nearest, senses, notes}, each by the number of the sentence, from 0. */
export function sensesOf(answer, items) {
  const item = itemOf(answer);
  const nearest = items.map(() => []);
  const cosines = item.cosines ?? null;
  if (cosines) {
    items.forEach((_, i) => {
      nearest[i] = items.map((__, j) => ({ index: j, cosine: cosines[i][j] })).filter(({ index }) => index !== i).sort((a, b) => b.cosine - a.cosine);
    });
  }
  return {
    points: item.points,
    clusters: item.clusters,
    names: item.names ?? [],
    nearest,
    senses: item.senses ?? [],
    notes: item.notes ?? [],
  };
}
