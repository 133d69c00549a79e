"""Scores of many texts, block by block, in this process or on a Ray cluster.

for block in Scoring(model, "original", executor)(blocks):
    block.scores, block.faults
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.skipped import compute_good_rows, skips_bad_rows
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.cloze.pseudo_likelihood import score_texts
from larvatus.inference.cloze.scores import Score
from larvatus.models.bundle.directory import Bundle
from larvatus.models.network import Network


class Scorer(Protocol):
    """A loaded model."""

    @property
    def bundle(self) -> Bundle: ...

    @property
    def network(self) -> Network: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def fingerprint(self) -> str: ...


class Labelled(NamedTuple):
    """A text, and what messages call it: a file and line."""

    label: str
    text: str


@dataclass(frozen=True)
class ScoredBlock:
    scores: list[Score]
    faults: list[str]
    """Of texts that were set aside."""


@dataclass(frozen=True)
class _Work:
    model: Scorer
    method: Method
    aside: bool


@dataclass(frozen=True)
class Scoring:
    """Blocks of texts to blocks of scores, in order."""

    model: Scorer
    method: Method
    executor: Executor

    def __call__(self, blocks: Iterable[list[Labelled]]) -> Iterator[ScoredBlock]:
        state = partial(_Work, self.model, self.method, aside=skips_bad_rows())
        fix = "run the same command again; with --resume what was written stands"
        with self.executor.pool(state, score_block, what="a scoring worker", fix=fix) as pool:
            yield from pool.map(blocks)


def score_block(work: _Work, block: list[Labelled]) -> ScoredBlock:
    """What is done with a block, wherever that is."""
    model = work.model

    def scores(rows: list[Labelled]) -> list[Score]:
        labels, texts = [row.label for row in rows], [row.text for row in rows]
        name = str(model.bundle.path)
        return list(score_texts(model.network, model.tokenizer, texts, method=work.method, labels=labels, name=name))

    if not work.aside:
        return ScoredBlock(scores(block), [])
    _, good, faults = compute_good_rows(scores, block, lambda row: "")  # messages name their text
    return ScoredBlock(list(good), faults)
