"""Pairs of a query and a passage as the model reads them, and the scores and orders that it predicts.

    data = encode_relevance(bundle, examples, windows, listwise=True)
    data.batch(np.array([3, 0]))                       # two queries, each with all its candidates
    scores = pair_scores(model, data.sequences, scoring)     # [P] a score for each pair

    ranked = model.rerank("Where does a river end?", ["The bank is steep.", "A river ends in the sea."], top=1)
    ranked[0].passage, ranked[0].score, ranked[0].index

A pair longer than the window is read in several windows, and its score is the highest of theirs: one relevant part
makes a passage relevant. The windows of a long passage all hold the query, unless it is long too.

A step has about `--batch` pairs. Where the loss compares candidates, it has whole queries: as many steps as pairs need,
with as many queries in each. P pairs, E lists, S sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats, Ints
from larvatus.core.rng import stream
from larvatus.core.tables import Tabular
from larvatus.core.targets import RelevanceTargets
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.sequence_score import Reranking
from larvatus.models.network import Network
from larvatus.tasks.classify.classify import merge_windows
from larvatus.tasks.encoding.sequences import PairLists, Sequences, WindowOptions, text_sequences
from larvatus.tasks.rerank.reader import RelevanceExample, by_query
from larvatus.tasks.results import Coverage, Piece
from larvatus.tasks.scoring import ScoringOptions, head_as, score_sequences


@dataclass(frozen=True, eq=False)
class EncodedRelevance(PairLists):
    """E lists: pairs of a query with each of its passages, or one pair each."""

    candidates: Ints  # [E] pairs of each list
    grades: Floats  # [P]

    @property
    def sizes(self) -> Ints:
        return self.candidates

    def targets(self, examples: Ints) -> RelevanceTargets[Ints]:
        pairs = self.pairs_of(examples)
        return RelevanceTargets(
            windows=self.sequences.parts[pairs],
            candidates=self.candidates[examples],
            grades=self.grades[pairs],  # type: ignore[arg-type]
        )

    def steps(self, size: int) -> int:
        """Steps of an epoch, of about `size` pairs each."""
        return min(len(self), -(-len(self.grades) // size))

    def epoch_batches(self, seed: int, epoch: int, size: int) -> list[Ints]:
        """The lists of each step: as many in each as possible, by seed and epoch only."""
        order = stream(seed, "finetune order", epoch).permutation(len(self))
        return [np.asarray(part, np.int64) for part in np.array_split(order, self.steps(size))]

    def remarks(self, size: int) -> list[str]:
        if len(self) == len(self.grades):
            return []
        queries, pairs = len(self) / self.steps(size), len(self.grades) / self.steps(size)
        return [f"a step has whole queries with their candidates: {queries:.1f} queries, {pairs:.1f} pairs on average"]


def encode_relevance(
    bundle: Bundle, examples: Sequence[RelevanceExample], windows: WindowOptions, *, listwise: bool
) -> EncodedRelevance:
    """Examples, labelled or not, as the model reads them. `listwise`: the candidates of a query are one list."""
    lists = list(by_query(examples).values()) if listwise else [[example] for example in examples]
    pairs = [example for rows in lists for example in rows]
    sequences = text_sequences(
        bundle.tokenizer,
        [(example.query, example.passage) for example in pairs],
        limit=windows.limit,
        truncate=windows.truncate,
        overlap=windows.overlap,
    )
    sequences.check_tokens(pairs)
    return EncodedRelevance(
        sequences,
        candidates=np.array([len(rows) for rows in lists], np.int64),
        grades=np.array([example.grade or 0.0 for example in pairs], np.float32),
    )


def reranker_of(model: Network, name: str = "the model") -> Reranking:
    """The head of a model that reranks."""
    return head_as(model, Reranking, "score passages for a query", name)


def pair_scores(model: Network, sequences: Sequences, scoring: ScoringOptions) -> Floats:
    """The score of each pair, before the activation: [P], of its best window."""
    return best_windows(score_sequences(model, sequences, scoring), sequences)


def best_windows(scores_S1: Floats, sequences: Sequences) -> Floats:
    """[S, 1] → [P], the highest score of each pair's windows."""
    return merge_windows(scores_S1, sequences.parts, "max")[:, 0]


# Predictions.


@dataclass(frozen=True, kw_only=True)
class ScoredPassage(Tabular):
    """A passage with its relevance to a query."""

    query: str
    passage: str
    score: float
    """With the model's activation: of a sigmoid between 0 and 1."""
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        return {"query": self.query, "passage": self.passage, "score": self.score, **self.coverage.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        yield Piece(f"{self.score:.3f}", "bold")
        yield Piece("  ")
        yield Piece(self.query)
        yield Piece(" ⟵ ", "dim")
        yield Piece(self.passage)

    def __str__(self) -> str:
        return f"{self.score:.3f}"


@dataclass(frozen=True, kw_only=True)
class RankedPassage(ScoredPassage):
    """A passage among those of a query."""

    rank: int
    """From 1, the most relevant."""
    index: int
    """Place among the passages as they were given, from 0."""

    def to_dict(self) -> dict[str, Any]:
        return {"rank": self.rank, "index": self.index, **super().to_dict()}

    def __str__(self) -> str:
        return f"{self.rank}. {self.score:.3f} {self.passage}"
