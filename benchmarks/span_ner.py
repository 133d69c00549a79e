"""Nested entities by spans, against our own BIO tagger on the outer level: same encoder, same sentences, same settings.

    python benchmarks/span_ner.py --model DIR --train train.iob2.xz --dev dev.iob2.xz [--device cuda] [--epochs 4]

The tagger learns the outer spans of each sentence in BIO, the only ones that tags can spell; the span model learns all.
Epochs are chosen, and the threshold is fitted, on a tenth of the training set that both hold out; --dev only scores.
Shown are strict F1 of both on the outer spans, and precision, recall and F1 of the span model over all and by depth,
for each seed and on average. JSON comes last.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

from larvatus.data.labelled.conll import levels_of
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, TaggedExample
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.labelled.tagged import read_spanned
from larvatus.data.text.tag_schemes import EntitySpan, write_tags
from larvatus.metrics.entities import entity_f1, span_f1
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads import TaggingConfig
from larvatus.tasks.spans.decoding import decode_spans
from larvatus.tasks.spans.spans import span_candidates, spans_head
from larvatus.tasks.spans.task import SpansOptions, encode_spans
from larvatus.tasks.tag.tag import tagged_words
from larvatus.tasks.tag.task import TagValidation
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig, scoring_options
from larvatus.tasks.trainer.finetune import finetune
from larvatus.training.engine.settings import Runtime


def outer(example: SpannedWords) -> list[EntitySpan]:
    """The spans of the first level: none in another, no two that overlap."""
    levels = levels_of(example)
    return sorted(levels[0]) if levels else []


def tagged(data: Dataset[SpannedWords]) -> Dataset[TaggedExample]:
    examples = [
        TaggedExample(
            one.words,
            tuple(write_tags(outer(one), len(one.words), "BIO")),
            one.place,
            one.text,
            one.places,
            one.id,
        )
        for one in data
    ]
    return Dataset(tuple(examples), data.source)


def predicted(bundle: Bundle, dev: Dataset[SpannedWords], job: FineTuneArguments) -> list[SpannedWords]:
    config = spans_head(bundle.network).config
    data = encode_spans(bundle, dev, config, job)
    found = span_candidates(bundle.network, data.encoded, scoring_options(job.runtime))
    answers = []
    for example, own in zip(dev, found, strict=True):
        kept = own.spans(decode_spans(own, config.decoding, config.threshold))
        spans = tuple(sorted(EntitySpan(start, end, config.labels[label]) for start, end, label in kept))
        answers.append(dataclasses.replace(example, spans=spans))
    return answers


def compare(
    bundle: Bundle,
    train: Dataset[SpannedWords],
    dev: Dataset[SpannedWords],
    job: FineTuneArguments,
    options: SpansOptions,
) -> dict[str, Any]:
    tuned = finetune("spans", bundle, train, None, dataclasses.replace(job, options=options))
    answers = predicted(tuned.bundle, dev, job)
    score = span_f1([one.spans or () for one in dev], [one.spans or () for one in answers])
    on_outer = entity_f1([outer(one) for one in dev], [outer(one) for one in answers]).micro
    tagger = finetune("tag", bundle, tagged(train), None, job).bundle
    (tags,) = tagger.objectives
    assert isinstance(tags, TaggingConfig)
    held = TagValidation(tagged_words(tagger, tagged(dev).examples, tags, job.windows(tagger)), tags, "entity-f1")
    on_tags = held.scores(tagger.network, scoring_options(job.runtime))
    figures = {
        "outer_f1_spans": on_outer.f1,
        "outer_f1_tags": on_tags.main,
        "all_f1_spans": score.all.micro.f1,
        "all_precision_spans": score.all.micro.precision,
        "all_recall_spans": score.all.micro.recall,
    }
    for depth, one in score.by_depth.items():
        if not one.support:  # deeper than any gold span
            continue
        figures |= {f"depth{depth}_f1": one.f1, f"depth{depth}_recall": one.recall, f"depth{depth}_gold": one.support}
    return figures


def training_parser(description: str | None) -> argparse.ArgumentParser:
    """Options of a benchmark that fine-tunes a model on spans."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--sentences", type=int, default=0, help="of the training set, evenly chosen; 0: all")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    return parser


def evenly(data: Dataset[SpannedWords], count: int) -> Dataset[SpannedWords]:
    """About so many of the examples; all of them for 0."""
    return dataclasses.replace(data, examples=data.examples[:: max(1, len(data) // count)]) if count else data


def main() -> None:
    parser = training_parser(__doc__)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--representation", default="boundaries", choices=["mean", "boundaries", "attention"])
    parser.add_argument("--longest", type=int)
    given = parser.parse_args()
    problems = Problems()
    train, dev = (read_spanned(name, problems=problems) for name in (given.train, given.dev))
    train = evenly(train, given.sentences)
    print(f"{train.describe()}; {dev.describe()}; {problems}")
    runs = []
    for seed in given.seeds:
        job = FineTuneArguments(
            config=TrainConfig(epochs=given.epochs, batch=given.batch, rate=given.rate),
            runtime=Runtime(device=given.device, precision=given.precision),
            seeds=(seed,),
            callbacks=Callbacks(
                say=print, epoch=lambda seed, epoch: print(f"seed {seed}, epoch {epoch.epoch:g}: {epoch.scores}")
            ),
        )
        options = SpansOptions(representation=given.representation, longest=given.longest)
        runs.append(compare(load_bundle(given.model), train, dev, job, options))
    means = {name: statistics.fmean(run.get(name, 0.0) for run in runs) for name in runs[0]}
    for name, mean in means.items():
        print(f"{name:>22}: {mean:.4f}" if not name.endswith("gold") else f"{name:>22}: {mean:.0f}")
    print(json.dumps({**{k: str(v) for k, v in vars(given).items()}, "runs": runs, "means": means}))


if __name__ == "__main__":
    main()
