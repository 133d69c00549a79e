"""Measure the vectors of a model: settings of `lv.evaluate(model, data=…, vectors=…)` and of `evaluate --vectors`.

evaluate("runs/faq", data="sts.tsv", vectors="sts", baselines=True).metrics["spearman"]
evaluate("runs/faq", data="test.tsv", train="train.tsv", vectors="classification", shots=10, draws=10)
evaluate("runs/faq", data="scifact/", vectors="retrieval")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from larvatus.core.ranges import Count
from larvatus.core.settings import Flag, Settings
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.problems import Errors
from larvatus.evaluation.vectors.evaluate import VectorEvaluation, VectorKind, VectorRequest, evaluate_vectors
from larvatus.inference.model import Model
from larvatus.interfaces.api.task_settings import SAMPLES, SEEDS
from larvatus.interfaces.settings import read_settings
from larvatus.tasks.registry import parse_file_options


class VectorEvaluationSettings(Settings):
    """What vectors are measured by."""

    vectors: VectorKind | None = None
    """Measure the vectors of any encoder on --data: retrieval, sts, pairs, classification or clustering."""
    queries: Annotated[str | None, Flag(metavar="FILE")] = None
    """Queries of retrieval (JSONL, SMART), where --data is a file of documents."""
    judgements: Annotated[str | None, Flag(metavar="FILE")] = None
    """Judgements of retrieval (TREC, BEIR, SMART)."""
    shots: Count = 10
    """Classification: training examples of each class in a sample."""
    draws: Annotated[int, SEEDS] = 10
    """Number of samples of training examples, or of k-means seeds, from 0."""
    baselines: bool = False
    """Also score TF-IDF, and BM25 where texts are ranked."""
    samples: Annotated[int, SAMPLES] = 1000
    """Samples of the bootstrap."""


def evaluate_model_vectors(
    model: Model, data: Examples, columns: Mapping[str, Any], settings: Mapping[str, object], *, errors: Errors
) -> VectorEvaluation:
    """Measure vectors from the keywords of `evaluate`; `train` may be anything that holds examples."""
    others = {name: value for name, value in settings.items() if name != "train"}
    (chosen,) = read_settings(others, VectorEvaluationSettings, function="evaluate")
    return run_vector_evaluation(model, data, chosen, train=settings.get("train"), columns=columns, errors=errors)


def run_vector_evaluation(
    model: Model,
    data: Examples,
    chosen: VectorEvaluationSettings,
    *,
    train: Examples | None,
    columns: Mapping[str, Any],
    errors: Errors,
    progress: Callable[[int], None] = lambda done: None,
) -> VectorEvaluation:
    """Measure vectors from a struct."""
    assert chosen.vectors is not None
    request = VectorRequest(
        kind=chosen.vectors,
        data=data,
        train=train,
        queries=chosen.queries,
        judgements=chosen.judgements,
        columns=parse_file_options("classify", columns),
        errors=errors,
        shots=chosen.shots,
        draws=chosen.draws,
        samples=chosen.samples,
        baselines=chosen.baselines,
    )
    return evaluate_vectors(model, request, name=str(model.bundle.path), progress=progress)
