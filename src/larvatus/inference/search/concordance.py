"""Word instances of a corpus with their vectors, as blocks for `nearest`: read from text, a block at a time.

    options = EmbedOptions(unit="span", layers="last4")
    blocks = instances_in_text(encoder, tokenizer, ["texts/"], Wanted(["bank"]), options)
    nearest(query, blocks, top=10)

Only passages that hold a wanted word go through the model. Upper and lower case are the same word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.errors import UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from larvatus.inference.search.nearest import CONTEXT, Block, Row
from larvatus.inference.vectors.bulk.parts import Piece
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.passages import blocks
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.nn.encoder import Encoder

CHARACTERS = 1 << 16
"""Of a block of passages."""


@dataclass(frozen=True)
class Wanted:
    """Which words: of a list, or all that have a letter or a digit."""

    words: frozenset[str] | None

    @classmethod
    def of(cls, words: Iterable[str] | None) -> Wanted:
        if words is None:
            return cls(None)
        keys = frozenset(key(word) for word in words if word.strip())
        if not keys:
            raise UsageError("no word was named; say --word bank, --words FILE, or all")
        for word in keys:
            if len(segment_words(word)) != 1:
                raise UsageError(f"{word!r} is not one word: a search is for single words; name one of its words")
        return cls(keys)

    def may_hold(self, text: str) -> bool:
        """Whether a wanted word can be in a text; most texts are told apart by this alone."""
        if self.words is None:
            return True
        folded = text.casefold()
        return any(word in folded for word in self.words)

    def __contains__(self, word: str) -> bool:
        return key(word) in self.words if self.words is not None else any(map(str.isalnum, word))


class DocumentFilter:
    """Keeps documents that may hold a wanted word, and counts all that it sees."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.read = 0

    def __call__(self, text: str) -> bool:
        self.read += 1
        return self.wanted.may_hold(text)


def key(word: str) -> str:
    """What counts as the same word."""
    return word.strip().casefold()


@dataclass(frozen=True, eq=False)
class Found:
    """Instances of a block of passages that have a vector."""

    rows: list[Row]
    vectors: Floats
    """[N, D], of length 1."""
    passages: int
    """How many passages were read for it, those without a wanted word too."""


def find_instances(
    encoder: Encoder,
    tokenizer: Tokenizer,
    pieces: Iterable[Piece],
    wanted: Wanted,
    options: EmbedOptions,
) -> Iterator[Found]:
    """Wanted words of passages, a block at a time."""
    for block in blocks(pieces, CHARACTERS):
        spans = [_spans(piece.text, wanted) for piece in block]
        held = [(piece, spans_of_piece) for piece, spans_of_piece in zip(block, spans, strict=True) if spans_of_piece]
        texts, wanted_spans = [piece.text for piece, _ in held], [spans_of_piece for _, spans_of_piece in held]
        embedded = list(embed_texts(encoder, tokenizer, texts, options, spans=wanted_spans))
        rows = [_row(piece, start, end) for piece, spans_of_piece in held for start, end in spans_of_piece]
        x = np.concatenate([vectors.vectors for vectors in embedded]) if embedded else np.empty((0, encoder.width))
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        sound = np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)
        unit: Floats = (x[sound] / lengths[sound]).astype(np.float32)
        yield Found([row for row, finite in zip(rows, sound.tolist(), strict=True) if finite], unit, len(block))


def instances_in_text(
    encoder: Encoder,
    tokenizer: Tokenizer,
    pieces: Iterable[Piece],
    wanted: Wanted,
    options: EmbedOptions,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Block]:
    """Blocks to search, straight from the text."""
    count = 0
    for instances in find_instances(encoder, tokenizer, pieces, wanted, options):
        count += len(instances.rows)
        progress(count)
        yield Block(instances.vectors, _picker(instances.rows))


def _picker(rows: Sequence[Row]) -> Callable[[Sequence[int]], list[Row]]:
    return lambda numbers: [rows[number] for number in numbers]


def _spans(text: str, wanted: Wanted) -> list[tuple[int, int]]:
    if not wanted.may_hold(text):
        return []
    return [(start, end) for start, end in segment_words(text).tolist() if text[start:end] in wanted]


def _row(piece: Piece, start: int, end: int) -> Row:
    text = piece.text
    return Row(
        word=text[start:end],
        left=one_line(text[max(0, start - CONTEXT) : start]),
        right=one_line(text[end : end + CONTEXT]),
        source=piece.source,
        line=piece.line_at(start),
        start=piece.start + start,
    )


def one_line(text: str) -> str:
    return " ".join(text.split())
