"""Scores of a parser, during and after training, by the rules of CoNLL 2018 (`scores.py`).

    validation = TreeValidation(data, examples, config, metric="las")
    validation.scores(model, scoring).main
    result = evaluate_trees(bundle, read_trees("test.conllu"))
    result.metrics["las"].value, result.metrics["raw-las"].value

Metrics are of the gold words; those that begin with `raw-` are of the same sentences as one running text, which the
model cuts into sentences and words itself. Documents are resampled for intervals where the file marks ten or more
(``# newdoc``), otherwise sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart, Table
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.trees import TreeExample, raw_text
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.parsing import ParsingConfig
from larvatus.models.network import Network
from larvatus.tasks.evaluation.evaluation import EvaluationOptions, ResampledEvaluation, plain_metrics, read_statistics
from larvatus.tasks.evaluation.resampling import ResampledMetric
from larvatus.tasks.evaluation.tables import MOST_ROWS
from larvatus.tasks.parse.encode import LabelledTrees, SentenceInput, cut_text, encode_sentences, unknown_relations
from larvatus.tasks.parse.parse import PredictedTrees, parsed_sentences, parser_of, predict_trees
from larvatus.tasks.parse.results import ParsedSentence
from larvatus.tasks.parse.scores import (
    TEXT_METRICS,
    TREE_METRICS,
    WORD_METRICS,
    ScoredTrees,
    answered_trees,
    f1,
    gold_trees,
    score_trees,
)
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.validation import Calibration, Scores

FEWEST_DOCUMENTS = 10
"""Documents of a file from which they, not sentences, are resampled."""
RAW = "raw-"


def word_metrics(config: ParsingConfig) -> list[str]:
    """The metrics that a head can be scored by; the first selects the best checkpoint by default."""
    return [*TREE_METRICS, *(name for name, labels in WORD_METRICS.items() if getattr(config, labels))]


@dataclass(frozen=True, eq=False)
class TreeValidation:
    """Validation sentences with their gold words."""

    data: LabelledTrees
    examples: Sequence[TreeExample]
    config: ParsingConfig
    metric: str

    @cached_property
    def gold(self) -> ScoredTrees:
        return gold_trees(self.examples)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        trees = predict_trees(model, self.data.encoded, scoring, self.data)
        answers = parsed_sentences(trees, [SentenceInput.of_tree(each) for each in self.examples], self.config)
        counts = score_trees(self.gold, answered_trees(answers))
        values = {name: float(f1(counts[name].sum(0))) for name in word_metrics(self.config)}
        return Scores(metric=self.metric, values=values, validation_loss=trees.loss / max(1, len(trees.heads)))

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """None: probabilities of heads are not calibrated."""
        return Calibration()

    def read_once(self, model: Network, scoring: ScoringOptions) -> TreeValidation:
        """Frozen or not, the encoder is run each time."""
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeEvaluation(ResampledEvaluation):
    """Evaluation of a parser."""

    data: Dataset[TreeExample]
    unit: str
    """What is resampled: documents or sentences."""
    units: int
    by_relation: dict[str, tuple[int, int]]
    """Gold words of each relation without its subtype, and how many of them are right by LAS; commonest first."""

    @property
    def headline(self) -> str:
        return "las"

    def details(self) -> dict[str, Any]:
        return {
            "metrics": plain_metrics(self.metrics),
            "resampled": {"unit": self.unit, "units": self.units},
            "relations": [
                {"relation": name, "words": words, "right": right} for name, (words, right) in self.by_relation.items()
            ],
            "notes": list(self.notes),
        }

    def shown(self) -> Iterator[ReportPart]:
        rows = [
            (name, f"{right / words:.4f}", f"{words:,}")
            for name, (words, right) in [*self.by_relation.items()][:MOST_ROWS]
        ]
        yield Table(("relation", "head and relation right", "words"), rows, blank_before=True)
        yield f"\nintervals: bootstrap over {self.units:,} {self.unit}"
        yield "scores are F1 by the rules of CoNLL 2018: subtypes of relations do not count"
        yield from self.notes


def evaluate_trees(
    bundle: Bundle, data: Dataset[TreeExample], options: EvaluationOptions = EvaluationOptions()
) -> TreeEvaluation:
    """Evaluate a parser on gold trees: with their words, and from the running text."""
    config = parser_of(bundle.network, str(bundle.path)).config
    bare = next((example for example in data if example.heads is None), None)
    if bare is not None:
        raise DataError(f"{bare.place}: its words have no heads to hold the model's against")
    unknown = unknown_relations(data.examples, config.labels)
    unknown.check(strict=options.strict)
    bundle.network.to(options.scoring.device)
    inputs = [SentenceInput.of_tree(example) for example in data]
    encoded = encode_sentences(bundle.tokenizer, inputs, options.windows(bundle))
    trees = predict_trees(bundle.network, encoded, options.scoring)
    answers = list(parsed_sentences(trees, inputs, config))
    gold = gold_trees(data)
    counts = score_trees(gold, answered_trees(answers))
    names = word_metrics(config)
    tables = {name: counts[name] for name in names}
    cut, notes = _from_text(bundle, data, options)
    raw = score_trees(gold, answered_trees(cut))
    tables |= {RAW + name: raw[name] for name in (*names, *TEXT_METRICS)}
    unit, groups = resampling_units(data)
    resampled = {name: ResampledMetric(_summed(table, groups), f1) for name, table in tables.items()}
    note = unknown.note("words", "related in ways")
    return TreeEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(resampled),
        resampled=resampled,
        unit=unit,
        units=int(groups.max()) + 1,
        by_relation=_by_relation(data, trees, config),
        notes=tuple(line for line in (note, *notes) if line),
        reading=read_statistics(encoded.sequences, words=len(trees.heads), words_read=len(trees.heads)),
    )


def _from_text(
    bundle: Bundle, data: Dataset[TreeExample], options: EvaluationOptions
) -> tuple[list[ParsedSentence], list[str]]:
    """The trees of the same text, which the model cuts into sentences and words, document by document."""
    config = parser_of(bundle.network).config
    sentences: list[SentenceInput] = []
    notes: list[str] = []
    for _, examples in groupby(data, key=lambda example: (example.place.source, example.place.document)):
        document = list(examples)
        cut, lines = cut_text(raw_text(document)[0], config, document[0].place)
        sentences += cut
        notes += (f"{document[0].place}: {line}" for line in lines)
    encoded = encode_sentences(bundle.tokenizer, sentences, options.windows(bundle))
    trees = predict_trees(bundle.network, encoded, options.scoring)
    return list(parsed_sentences(trees, sentences, config)), notes


def resampling_units(data: Dataset[TreeExample]) -> tuple[str, Ints]:
    """What is resampled, and the unit of each sentence."""
    documents: dict[tuple[str, int | None], int] = {}
    for example in data:
        documents.setdefault((example.place.source, example.place.document), len(documents))
    if len(documents) < FEWEST_DOCUMENTS:
        return "sentences", np.arange(len(data))
    return "documents", np.array([documents[each.place.source, each.place.document] for each in data], np.int64)


def _summed(table: Doubles, groups: Ints) -> Doubles:
    sums = np.zeros((int(groups.max()) + 1, table.shape[1]))
    np.add.at(sums, groups, table)
    return sums


def _by_relation(
    data: Dataset[TreeExample], trees: PredictedTrees, config: ParsingConfig
) -> dict[str, tuple[int, int]]:
    """Words and right words of each relation, without subtypes."""
    names = np.array([name.partition(":")[0] for name in config.labels])
    gold = np.array([name.partition(":")[0] for example in data for name in example.relations or ()])
    heads = np.array([head for example in data for head in example.heads or ()], np.int64)
    right = (heads == trees.heads) & (gold == names[trees.relations])
    by_relation = {str(name): (int((gold == name).sum()), int(right[gold == name].sum())) for name in np.unique(gold)}
    return dict(sorted(by_relation.items(), key=lambda item: (-item[1][0], item[0])))
