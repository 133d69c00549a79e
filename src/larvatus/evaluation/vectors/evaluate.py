"""Evaluate the vectors of a model on a set: embed each distinct text once, and score, next to baselines if requested.

    evaluation = evaluate_vectors(lv.load(), VectorRequest(kind="sts", data="sts-dev.tsv", baselines=True))
    evaluation.metrics["spearman"].value                     # of the model
    evaluation.systems["TF-IDF"]["spearman"].low             # of a baseline
    print(evaluation)

| kind | data | metrics | intervals over |
| --- | --- | --- | --- |
| `retrieval` | documents, queries, judgements | nDCG@10, MRR@10, recall@10, recall@100, MAP | queries |
| `sts` | pairs with a number | spearman, pearson of cosines | pairs |
| `pairs` | pairs with 0 or 1 | average precision, best accuracy | pairs |
| `classification` | texts with a class, others to train on | accuracy of logistic regression | draws, test examples |
| `clustering` | texts with a class | v-measure of mini-batch k-means | documents and seeds |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import UsageError
from larvatus.core.tables import Row, Table, Tabular
from larvatus.data.labelled.file_options import FileOptions
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.problems import Errors
from larvatus.data.labelled.records import Dataset, Kind, TextExample
from larvatus.data.labelled.retrieval_sets import RetrievalCollection, read_collection
from larvatus.evaluation.retrieval import score_rankings
from larvatus.evaluation.vectors.measures import (
    BM25,
    MODEL,
    TF_IDF,
    Embeds,
    LabelledSample,
    VectorTable,
    classification_metrics,
    clustering_metrics,
    embed_distinct,
    matching_labels,
    matching_metrics,
    rank_by_vectors,
    rank_by_words,
    sample_shots,
    similarity_metrics,
    tf_idf,
)
from larvatus.metrics.intervals import Interval
from larvatus.tasks.examples import read_examples

Metrics = Mapping[str, Interval]


@dataclass(frozen=True, kw_only=True, repr=False)
class VectorEvaluation(Tabular):
    """Metrics with 95% intervals, whose unit is stated: queries, pairs, or documents and draws."""

    kind: str
    """What was measured: retrieval, sts, pairs, classification or clustering."""
    model: str
    data: str
    unit: str
    """What the intervals are over."""
    how: str
    """What was sampled, with seeds: one line."""
    systems: Mapping[str, Metrics]
    """Metrics of the model, and of the baselines."""

    @property
    def metrics(self) -> Metrics:
        """Metrics of the model; the first is the main one."""
        return self.systems[MODEL]

    def to_dict(self) -> dict[str, Any]:
        names = ("kind", "model", "data", "unit", "how")
        return {**{name: getattr(self, name) for name in names}, "scores": self.to_dicts()}

    def to_dicts(self) -> list[Row]:
        """A row for each system and metric."""
        return [
            {"system": system, "metric": name, "value": score.value, "low": score.low, "high": score.high}
            for system, metrics in self.systems.items()
            for name, score in metrics.items()
        ]

    def table(self) -> Table:
        rows = [
            (row["system"], row["metric"], f"{row['value']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}")
            for row in self.to_dicts()
        ]
        notes = (f"model: {self.model}", f"data: {self.data}", self.how, f"intervals over {self.unit}")
        return Table(("system", "metric", "score", "95% interval"), rows, title=self.kind, left=2, notes=notes)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        name, score = next(iter(self.metrics.items()))
        return f"<VectorEvaluation: {self.kind}, {name} {score.value:.4f}>"


# Running an evaluation.

VectorKind = Literal["retrieval", "sts", "pairs", "classification", "clustering"]


@dataclass(frozen=True, kw_only=True)
class VectorRequest:
    """What is measured, and on which files."""

    kind: VectorKind
    data: Examples
    """Labelled examples; of retrieval a BEIR folder, a file of documents, or a `RetrievalCollection`."""
    train: Examples | None = None
    """Examples to sample from, of classification."""
    queries: str | None = None
    judgements: str | None = None
    columns: FileOptions = field(default_factory=FileOptions)
    errors: Errors = "refuse"
    shots: int = 10
    draws: int = 10
    samples: int = 1000
    baselines: bool = False

    def examples(self, given: Examples, kind: Kind) -> Dataset[TextExample]:
        """Read examples with labels of a kind."""
        return read_examples("classify", given, self.columns, kind=kind, errors=self.errors)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """A set that was read: its texts, and the metrics of vectors of them."""

    data: str
    unit: str
    how: str
    texts: Sequence[str]
    score: Callable[[VectorTable], Metrics]
    words: Callable[[], Metrics] | None = None
    """Metrics of BM25."""


def evaluate_vectors(
    model: Embeds, request: VectorRequest, *, name: str = "", progress: Callable[[int], None] = lambda done: None
) -> VectorEvaluation:
    """Metrics of the vectors of a model, and of TF-IDF and BM25 as baselines.

    Args:
        model: Anything whose `embed` gives vectors of texts: what `lv.load` returns.
        request: What is measured.
        name: Name of the model in the result.
        progress: Called with how many texts are embedded.
    """
    _check(request)
    measured = _SETS[request.kind](request)
    systems: dict[str, Metrics] = {}
    baselines: dict[str, Metrics] = {}
    if request.baselines:  # first: it is quick, and what it needs may be missing
        baselines[TF_IDF] = measured.score(tf_idf(measured.texts))
        if measured.words is not None:
            baselines[BM25] = measured.words()
    systems[MODEL] = measured.score(embed_distinct(model, measured.texts, progress=progress))
    return VectorEvaluation(
        kind=request.kind,
        model=name or type(model).__name__,
        data=measured.data,
        unit=measured.unit,
        how=measured.how,
        systems=systems | baselines,
    )


def _check(request: VectorRequest) -> None:
    if (request.train is not None) != (request.kind == "classification"):
        needs = "classification samples training examples from separate files: give train"
        raise UsageError(needs if request.train is None else f"train is of classification, not of {request.kind}")
    if request.kind != "retrieval" and (request.queries is not None or request.judgements is not None):
        raise UsageError(f"queries and judgements are of retrieval, not of {request.kind}; leave them out")
    if request.kind == "retrieval" and request.columns != type(request.columns)():
        raise UsageError("files of retrieval have known fields (_id, title, text); leave columns out")


def _retrieval(request: VectorRequest) -> _Measurement:
    given: Any = request.data
    if isinstance(given, list | tuple) and len(given) == 1:
        (given,) = given
    if not isinstance(given, RetrievalCollection | str | Path):
        raise UsageError("retrieval reads one BEIR folder, or one file of documents with queries and judgements")
    if isinstance(given, RetrievalCollection):
        collection, source = given, "a collection in memory"
    else:
        collection = read_collection(given, queries=request.queries, judgements=request.judgements)
        source = str(given)

    def score(rankings: dict[str, list[str]]) -> Metrics:
        return score_rankings(rankings, collection, samples=request.samples)[0]

    queries = [collection.queries[query] for query in collection.judged]
    return _Measurement(
        source,
        "queries",
        f"{len(queries):,} queries, {len(collection.documents):,} documents, all compared",
        [*queries, *collection.documents.values()],
        lambda vectors: score(rank_by_vectors(vectors, collection)),
        lambda: score(rank_by_words(collection)),
    )


def _sts(request: VectorRequest) -> _Measurement:
    data = request.examples(request.data, "regression")
    scores = np.array([float(str(example.label)) for example in data])
    how = f"cosine against scores from {min(scores):g} to {max(scores):g}"
    return _over_pairs(data, how, lambda cosines: similarity_metrics(cosines, scores, samples=request.samples))


def _matching(request: VectorRequest) -> _Measurement:
    data = request.examples(request.data, "multi-class")
    matches = matching_labels([example.label for example in data])
    how = f"{matches.mean():.1%} match; best accuracy: threshold from the same pairs"
    return _over_pairs(data, how, lambda cosines: matching_metrics(cosines, matches, samples=request.samples))


def _over_pairs(data: Dataset[TextExample], how: str, score: Callable[[Doubles], Metrics]) -> _Measurement:
    first, second = _pairs(data)
    return _Measurement(
        data.source,
        "pairs",
        _how(f"{len(data):,} pairs, {how}", data),
        [*first, *second],
        lambda vectors: score(vectors.cosines(first, second)),
    )


def _classification(request: VectorRequest) -> _Measurement:
    train = LabelledSample.of(sampled := request.examples(request.train, "multi-class"))
    test = LabelledSample.of(data := request.examples(request.data, "multi-class"))
    draws = [train.at(sample_shots(train.labels, shots=request.shots, seed=seed)) for seed in range(request.draws)]
    shared = len(set(test.texts) & set(train.texts))
    largest = max(Counter(test.labels).values()) / len(test.labels)
    how = (
        f"{request.shots} examples of each of {len(set(train.labels)):,} classes in a draw, {request.draws} draws "
        f"(seeds 0 to {request.draws - 1}); {len(test.texts):,} test examples, largest class {largest:.1%}"
    )
    if shared:
        how += f"; {shared:,} test texts also occur in the training file"
    return _Measurement(
        data.source,
        "draws and test examples",
        _how(how, sampled, data),
        [*(text for draw in draws for text in draw.texts), *test.texts],
        lambda vectors: classification_metrics(vectors, draws, test, samples=request.samples),
    )


def _clustering(request: VectorRequest) -> _Measurement:
    data = request.examples(request.data, "multi-class")
    texts, labels = (given := LabelledSample.of(data)).texts, given.labels
    return _Measurement(
        data.source,
        "documents and seeds",
        _how(
            f"{len(data):,} documents in {len(set(labels)):,} clusters, mini-batch k-means, {request.draws} seeds "
            f"(0 to {request.draws - 1})",
            data,
        ),
        texts,
        lambda vectors: clustering_metrics(vectors.of(texts), labels, draws=request.draws),
    )


_SETS: dict[VectorKind, Callable[[VectorRequest], _Measurement]] = {
    "retrieval": _retrieval,
    "sts": _sts,
    "pairs": _matching,
    "classification": _classification,
    "clustering": _clustering,
}


def _how(line: str, *data: Dataset[TextExample]) -> str:
    """The line, and which rows were skipped."""
    return "; ".join([line, *(f"{each.source}: {note}" for each in data for note in each.notes)])


def _pairs(data: Dataset[TextExample]) -> tuple[list[str], list[str]]:
    for example in data:
        if example.pair is None:
            raise UsageError(f"{example.place} has one text; pairs need two: name the second with pair (--pair COLUMN)")
    return [example.text for example in data], [str(example.pair) for example in data]
