"""Relations between the mentions of a treebank with `Entity=` brackets (GUM), learnt beside the mentions.

    python benchmarks/span_relations.py --model DIR --train train.conllu.xz --dev dev.conllu.xz [--sentences 1000]

What two mentions are to each other is read from the annotated tree: `nmod`, `nmod:poss` and `appos` where the
head word of the one depends on that of the other, and `subject-of`, from the subject of a verb to its object. Shown are
strict F1 of spans and relations on --dev; F1 of relations given the gold spans, beside that of a baseline that knows no
words (the label which training has most often for the two types and their distance); and F1 of spans of a model that
learns no relations. Epoch and thresholds are chosen on a tenth of the training set. JSON comes last.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict

import torch
from span_ner import evenly, training_parser

from larvatus.data.labelled.conllu import Sentence, read_brackets, sentences
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.span_records import SpannedWords, SpanRelation
from larvatus.data.text.streams import numbered_lines
from larvatus.metrics.entities import relation_f1
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.nn.span_scorer import distances, gaps
from larvatus.tasks.spans.evaluation import SpanValidation
from larvatus.tasks.spans.spans import spans_head
from larvatus.tasks.spans.task import SpansOptions, encode_spans
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig, scoring_options
from larvatus.tasks.trainer.finetune import finetune
from larvatus.training.engine.settings import Runtime

DIRECT = ("nmod", "nmod:poss", "appos")
SUBJECT_OF = "subject-of"


def read(name: str) -> Dataset[SpannedWords]:
    problems = Problems()
    examples, _ = read_brackets(name, problems)
    trees = sentences(name, problems, numbered_lines(name))
    return Dataset(tuple(with_relations(one, tree) for one, tree in zip(examples, trees, strict=True)), name)


def with_relations(example: SpannedWords, tree: Sentence) -> SpannedWords:
    above = [int(cells[6]) - 1 for _, cells in tree.rows]
    names = [cells[7] for _, cells in tree.rows]
    heads = {}  # the word of a mention that depends on one outside it
    for number, (start, end, _) in enumerate(example.spans or ()):
        tops = [word for word in range(start, end) if not start <= above[word] < end]
        if len(tops) == 1:
            heads[number] = tops[0]
    found = set()
    for a, word in heads.items():
        for b, other in heads.items():
            if word == other:
                continue
            if above[other] == word and names[other] in DIRECT:
                found.add(SpanRelation(a, b, names[other]))
            elif above[word] == above[other] and (names[word], names[other]) == ("nsubj", "obj"):
                found.add(SpanRelation(a, b, SUBJECT_OF))
    return dataclasses.replace(example, relations=tuple(sorted(found)))


def pairs_of(example: SpannedWords) -> dict[tuple[int, int], tuple[str, str, int]]:
    """The pairs of an example: types and distance of the two."""
    spans = example.spans or ()
    if not spans:
        return {}
    first, last = (torch.tensor(own) for own in zip(*((start, end - 1) for start, end, _ in spans), strict=True))
    heads, tails = (torch.arange(len(spans)).repeat_interleave(len(spans)), torch.arange(len(spans)).repeat(len(spans)))
    far = distances(gaps(first, last, heads, tails)).tolist()
    pairs = zip(heads.tolist(), tails.tolist(), far, strict=True)
    return {(a, b): (spans[a].label, spans[b].label, distance) for a, b, distance in pairs if a != b}


def baseline(train: Dataset[SpannedWords], dev: Dataset[SpannedWords]) -> float:
    """F1 on gold spans of the label that is most frequent for the types and the distance of a pair."""
    counts: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for example in train:
        labels = {(head, tail): label for head, tail, label in example.relations}
        for pair, key in pairs_of(example).items():
            counts[key][labels.get(pair, "")] += 1
    gold, guess = [], []
    for example in dev:
        spans = [tuple(span) for span in example.spans or ()]
        gold.append({(spans[head], spans[tail], label) for head, tail, label in example.relations})
        best = {pair: counts[key].most_common(1)[0][0] for pair, key in pairs_of(example).items() if counts[key]}
        guess.append({(spans[a], spans[b], label) for (a, b), label in best.items() if label})
    return relation_f1(gold, guess).micro.f1


def main() -> None:
    parser = training_parser(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    train, dev = read(given.train), read(given.dev)
    train = evenly(train, given.sentences)
    for data in (train, dev):
        counts = Counter(label for one in data for _, _, label in one.relations)
        print(f"{len(data):,} sentences, {sum(len(one.spans or ()) for one in data):,} spans, relations {dict(counts)}")
    job = FineTuneArguments(
        config=TrainConfig(epochs=given.epochs, batch=given.batch),
        runtime=Runtime(device=given.device, precision=given.precision),
        seeds=(given.seed,),
        callbacks=Callbacks(say=print, epoch=lambda seed, epoch: print(f"epoch {epoch.epoch:g}: {epoch.scores}")),
    )
    figures = {"baseline given spans": baseline(train, dev)}
    for name, options in (("joint", SpansOptions()), ("spans alone", SpansOptions(relations=False))):
        tuned = finetune(
            "spans", load_bundle(given.model), train, None, dataclasses.replace(job, options=options)
        ).bundle
        config = spans_head(tuned.network).config
        held = SpanValidation(encode_spans(tuned, dev, config, job), config)
        values = held.scores(tuned.network, scoring_options(job.runtime)).values
        figures |= {f"{name} {metric}": value for metric, value in values.items() if "f1" in metric}
        if config.relations is not None:
            score = held.relations(tuned.network, scoring_options(job.runtime), given=True)
            figures |= {f"given spans {label}": one.f1 for label, one in score.by_label.items()}
    for name, value in figures.items():
        print(f"{name:>34}: {value:.4f}")
    print(json.dumps({**{k: str(v) for k, v in vars(given).items()}, "figures": figures}))


if __name__ == "__main__":
    main()
