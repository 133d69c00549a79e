// Names of metrics for people. A run's records have names such as "scores/masked-lm/accuracy" and "tag.entity-f1".
//
//   metricName("entity-f1")        // "entity F1"
//   isScore("scores/masked-lm/count")   // false: a count is no score

const PARTS = {
  "masked-lm": "masked tokens", "causal-lm": "next token", "permutation-lm": "tokens in a random order", "next-sentence": "next sentence",
  "sentence-order": "sentence order", "replaced-token-detection": "replaced tokens", "span-boundary": "span boundaries",
  las: "labelled attachment (LAS)", uas: "unlabelled attachment (UAS)", clas: "attachment of content words (CLAS)", upos: "parts of speech", ufeats: "features",
  muc: "MUC", b3: "B³", ceafe: "CEAF-φ4", lea: "LEA", ndcg: "nDCG", mrr: "MRR", map: "MAP", rmse: "RMSE", f1: "F1",
  matthews: "Matthews correlation", spearman: "Spearman correlation", pearson: "Pearson correlation", loss: "loss",
  guess_accuracy: "accuracy of a constant guess", guess_loss: "loss of a constant guess",
};
const DROPPED = new Set(["scores", "languages", "dev", "valid"]);
const NO_SCORE = /(^|[/_.])(loss|epoch|seconds|seen|tokens|count|positive|guess_accuracy|guess_loss)$/;

/** Whether a field of an evaluation says how good a model is. */
export const isScore = (field) => !NO_SCORE.test(field);

function part(name) {
  if (PARTS[name]) return PARTS[name];
  const [, stem, depth] = /^(.*?)(@\d+)?$/.exec(name);
  if (depth) return `${PARTS[stem] ?? stem}${depth}`;
  const score = /^(.*)[-_]f1$/.exec(name);
  if (score) return `${part(score[1])} F1`;
  return name.replace(/[-_]/g, " ");
}

export const metricName = (field) => field.split(/[/.]/).filter((each) => !DROPPED.has(each)).map(part).join(": ");
