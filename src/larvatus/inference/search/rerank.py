"""Rerank candidates with a model that reads query and passage together (Nogueira & Cho 2019).

    reranker = open_reranker("runs/rerank")
    reranker.score("who may appeal?", ["Any party may appeal.", "The court sat on Monday."])

Anything with a method `score(query, passages)` is a reranker. A directory must hold a model of the task `rerank`: of
`larvatus finetune rerank`, or a cross-encoder of `sentence-transformers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from larvatus.core.errors import NumericsError, UsageError
from larvatus.inference.model.loading import load
from larvatus.inference.model.model import Model
from larvatus.inference.model.ranking import check_reranker, score_passages
from larvatus.inference.search.exact import Matches, ranked
from larvatus.tasks.inputs import PredictOptions


class Reranker(Protocol):
    def score(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        """How relevant each passage is to the query; larger is more."""


class PairReranker:
    """A fine-tuned model that scores pairs of query and passage."""

    def __init__(self, model: Model) -> None:
        check_reranker(model.bundle)
        self._model = model

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        model = self._model
        scored = score_passages(model.bundle, query, passages, PredictOptions(), device=str(model.device))
        return [passage.score for passage in scored]


def open_reranker(given: str | Path | Model | Reranker, *, device: str = "auto") -> Reranker:
    """A reranker from a directory or a loaded model; a model of another task is refused."""
    if not isinstance(given, str | Path | Model):
        return given
    return cast(Reranker, PairReranker(given if isinstance(given, Model) else load(given, device=device)))


def rerank(reranker: Reranker, query: str, matches: Matches, passages: Sequence[str], *, top: int) -> Matches:
    """The candidates in the order of the reranker's scores."""
    scores = np.asarray(list(reranker.score(query, passages)), dtype=np.float64)
    if scores.shape != matches.rows.shape:
        raise UsageError(
            f"the reranker gave {scores.size} scores for {len(matches)} passages; it must give one for each"
        )
    if not np.isfinite(scores).all():
        raise NumericsError("a score of the reranker is not finite; check its weights")
    return ranked(matches.rows, scores, top)
