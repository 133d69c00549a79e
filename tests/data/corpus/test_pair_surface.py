"""Pairs do not tell their label by their surface: on real prose a classifier that sees no words, only what stands at
the ends of A and B and how long they are, stays within 2 points of the commoner label. The same classifier sees leaks
that are planted in the same pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import islice

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from larvatus.core import rng
from larvatus.core.batch import edges
from larvatus.core.pretraining_targets import OrderLabels, PairLabels
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.packing import PackingConfig, SentenceOrderPackingConfig, SentencePairsConfig, pack
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.template import Template
from larvatus.data.text.words import split_sentences

MARGIN = 0.02
SEEDS = {64: 1, 128: 2, 512: 5}  # packed so often: there are few long pairs in a megabyte
DOCUMENTS = 250
PIECE = 5  # characters: longer words go on in further pieces, as WordPiece has it
PACKINGS: list[tuple[PackingConfig, type]] = [
    (SentencePairsConfig(), PairLabels),
    (SentenceOrderPackingConfig(), OrderLabels),
]
Pair = tuple[Sequence[int], Sequence[int], int]


@cache
def pieces() -> list[str]:
    """The vocabulary, which grows as text is read; a piece that continues a word starts with ##."""
    return ["[CLS]", "[SEP]"]


@cache
def halves() -> tuple[TextBlock, TextBlock]:
    """Embedded documents, every other one in either half: what is fitted on one is tried on the other."""
    ids: dict[str, int] = {piece: i for i, piece in enumerate(pieces())}
    documents: list[tuple[list[list[int]], list[bool]]] = []
    for document in islice(embedded_documents(), DOCUMENTS):
        sentences, words = [], []
        for sentence in split_sentences(document.text):
            row = []
            for word in re.findall(r"\w+|[^\w\s]", sentence):
                for start in range(0, len(word), PIECE):
                    piece = ("##" if start else "") + word[start : start + PIECE]
                    row.append(ids.setdefault(piece, len(ids)))
                    words.append(start == 0)
            if row:
                sentences.append(row)
        documents.append((sentences, words))
    pieces().extend(list(ids)[2:])
    both = documents[::2], documents[1::2]
    one, two = (TextBlock.of([d for d, _ in half], [w for _, words in half for w in words]) for half in both)
    return one, two


def packed(block: TextBlock, length: int, seed: int, config: PackingConfig, kind: type) -> list[Pair]:
    batch = pack(block, config, length=length, template=Template.bert(0, 1), random=rng.stream(seed, "surface"))
    edge, ids = edges(batch.tokens.lengths).tolist(), batch.tokens.ids.tolist()
    seconds = np.add.reduceat(batch.tokens.segments, edge[:-1]).tolist()
    return [
        (ids[start + 1 : stop - second - 1], ids[stop - second : stop - 1], label)
        for start, stop, second, label in zip(
            edge[:-1], edge[1:], seconds, batch.targets[kind].labels.tolist(), strict=True
        )
    ]


def surface(pairs: Sequence[Pair], room: int) -> npt.NDArray[np.float64]:
    """No word, only kinds of marks at the four ends, and lengths."""
    names = pieces()
    rows = []
    for a, b, _ in pairs:
        row: list[float] = [len(a), len(b), len(a) + len(b), len(a) - len(b), len(a) + len(b) >= room - 1]
        for end in (a[0], a[-1], b[0], b[-1]):
            name = names[end]
            row += [name in ".!?", not name[-1].isalnum(), name[0].isupper(), name[0].islower(), name[0] == "#"]
        rows.append(row)
    return np.array(rows, np.float64)


def over_the_majority(make: Callable[[TextBlock, int, int], list[Pair]], length: int) -> float:
    """How far the classifier gets beyond always giving the commoner label, on documents that it was not fitted on."""
    halves()
    data = []
    for block in halves():
        pairs = [pair for seed in range(SEEDS[length]) for pair in make(block, length, seed)]
        data.append((surface(pairs, length - 3), np.array([label for *_, label in pairs])))
    gains = []
    for (x, y), (other_x, other_y) in (data, data[::-1]):
        trees = HistGradientBoostingClassifier(
            max_iter=30, max_leaf_nodes=8, min_samples_leaf=100, early_stopping=False
        )
        right = trees.fit(x, y).predict(other_x) == other_y
        gains.append(right.mean() - max(other_y.mean(), 1 - other_y.mean()))
    return float(np.mean(gains))


@pytest.mark.parametrize("length", [*(pytest.param(length, marks=pytest.mark.proof) for length in (64, 128)), 512])
@pytest.mark.parametrize(("config", "kind"), PACKINGS, ids=["sentence-pairs", "sentence-order"])
def test_surface_cues_do_not_give_away_the_label(config: PackingConfig, kind: type, length: int) -> None:
    assert over_the_majority(partial(packed, config=config, kind=kind), length) < MARGIN


def without_full_stop(a: Sequence[int], b: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    return a, b[:-1]


def half_as_long(a: Sequence[int], b: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    return a, [*b[: len(b) // 2], b[-1]]


def from_inside_a_sentence(a: Sequence[int], b: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    return a, b[2:]


@pytest.mark.parametrize("leak", [without_full_stop, half_as_long, from_inside_a_sentence])
@pytest.mark.parametrize(("config", "kind"), PACKINGS, ids=["sentence-pairs", "sentence-order"])
def test_a_planted_leak_is_seen(
    config: PackingConfig, kind: type, leak: Callable[..., tuple[Sequence[int], Sequence[int]]]
) -> None:
    """One in three pairs of label 1 is changed a little."""

    def leaky(block: TextBlock, length: int, seed: int) -> list[Pair]:
        pairs = packed(block, length, seed, config, kind)
        return [
            (*leak(a, b), 1) if label and i % 3 == 0 and len(b) > 4 else (a, b, label)
            for i, (a, b, label) in enumerate(pairs)
        ]

    assert over_the_majority(leaky, 128) > MARGIN
