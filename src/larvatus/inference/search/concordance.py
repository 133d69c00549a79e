"""A concordance by meaning: word instances of a corpus, and the nearest of them to a query.

    options = EmbedOptions(unit="span", layers="last4")
    blocks = instances_in_text(encoder, tokenizer, ["texts/"], WordFilter.of(["bank"]), options)
    for hit in nearest(query, blocks, top=10).hits:
        hit.cosine, hit.row.left, hit.row.word, hit.row.right

A block is a matrix of unit vectors (often mapped from a file) with a way to read its rows, so that a corpus need not
fit into memory. Each block is searched exactly, by the `usearch` library (the extra `index`) or more slowly by numpy;
the best of all blocks are kept. From text, only passages that contain a requested word go through the model; case is
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core import notebook
from larvatus.core.arrays import Floats
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.tables import Tabular
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from larvatus.inference.vectors.passages import LocatedText, blocks
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.nn.encoder import Encoder

SLICE = 16_384
"""Vectors that numpy compares at once."""
CONTEXT = 40
"""Characters of context on either side of a word."""


@dataclass(frozen=True)
class ConcordanceRow:
    """A word instance of a corpus."""

    word: str
    left: str
    right: str
    source: str
    line: int
    start: int
    """First character in its document."""


@dataclass(frozen=True)
class Hit:
    cosine: float
    row: ConcordanceRow

    def to_dict(self) -> dict[str, Any]:
        row = self.row
        return {
            "cosine": round(self.cosine, 6),
            "word": row.word,
            "left": row.left,
            "right": row.right,
            "source": row.source,
            "line": row.line,
            "start": row.start,
        }

    def __str__(self) -> str:
        row = self.row
        return f"{self.cosine:6.3f}  {row.left:>{CONTEXT}} {row.word} {row.right:<{CONTEXT}}  {row.source}:{row.line}"


@dataclass(frozen=True, eq=False)
class VectorBlock:
    """N unit vectors, and their rows."""

    vectors: npt.NDArray[Any]
    """[N, D] float32 or float16."""
    rows: Callable[[Sequence[int]], Sequence[ConcordanceRow]]


@dataclass(frozen=True, eq=False, repr=False)
class Concordance(Tabular):
    """The instances nearest to a query, best first."""

    hits: tuple[Hit, ...]
    searched: int
    """Instances that were compared."""
    layers: str = "last"
    """Layers that their vectors are of."""

    def to_dict(self) -> dict[str, Any]:
        return {"searched": self.searched, "layers": self.layers, "hits": [hit.to_dict() for hit in self.hits]}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each instance, nearest first."""
        return [{"rank": rank, **hit.to_dict()} for rank, hit in enumerate(self.hits, start=1)]

    def __str__(self) -> str:
        return "\n".join(map(str, self.hits))

    def _repr_html_(self) -> str:
        rows = [
            (
                f"… {hit.row.left} ",
                hit.row.word,
                f"{hit.row.right} …",
                f"{hit.cosine:.3f}",
                hit.row.source,
                hit.row.line,
            )
            for hit in self.hits
        ]
        return notebook.table(("", "", "", "cosine", "file", "line"), rows, note=f"of {self.searched:,} instances")

    def __repr__(self) -> str:
        return f"<Concordance: {len(self.hits)} of {self.searched:,} instances>"


def nearest_rows(vectors_ND: npt.NDArray[Any], query_D: npt.NDArray[Any], top: int) -> list[int]:
    """Rows of the `top` vectors with the largest cosine, in the order of the block."""
    count = min(top, len(vectors_ND))
    if find_spec("usearch") is None:
        return _places_by_numpy(vectors_ND, query_D, count)
    from usearch.index import MetricKind, search

    matches = search(vectors_ND, query_D, count, MetricKind.Cos, exact=True, threads=0)
    return sorted(np.asarray(matches.keys).astype(np.int64).tolist())


def _places_by_numpy(vectors_ND: npt.NDArray[Any], query_D: npt.NDArray[Any], count: int) -> list[int]:
    query = query_D.astype(np.float32)
    cosines_N = np.empty(len(vectors_ND), dtype=np.float32)
    for first in range(0, len(vectors_ND), SLICE):  # in float32, in slices: a block may be mapped from disk
        part = np.asarray(vectors_ND[first : first + SLICE], dtype=np.float32)
        cosines_N[first : first + SLICE] = part @ query / np.linalg.norm(part, axis=1)
    return sorted(np.argpartition(-cosines_N, count - 1)[:count].tolist())


def nearest(query_D: Floats, blocks: Iterable[VectorBlock], top: int) -> Concordance:
    """The `top` vectors with the largest cosine; equally near ones in the order of the corpus."""
    if top < 1:
        raise UsageError(f"--top {top} shows nothing; use 1 or more")
    best: list[Hit] = []
    searched = 0
    for block in blocks:
        count = len(block.vectors)
        if not count:
            continue
        if block.vectors.ndim != 2 or block.vectors.shape[1] != len(query_D):
            size = block.vectors.shape[-1]
            raise ArtefactError(f"the searched vectors have {size} dimensions, and the model's {len(query_D)}")
        searched += count
        query = query_D.astype(block.vectors.dtype)
        numbers = nearest_rows(block.vectors, query, top)
        near = np.asarray(block.vectors[numbers], dtype=np.float64)
        cosines = near @ query_D.astype(np.float64) / np.linalg.norm(near, axis=1)
        floor = best[-1].cosine if len(best) >= top else -np.inf
        chosen = [place for place in range(len(numbers)) if cosines[place] > floor]
        rows = block.rows([numbers[place] for place in chosen])
        best += [Hit(float(cosines[place]), row) for place, row in zip(chosen, rows, strict=True)]
        best = sorted(best, key=lambda hit: -hit.cosine)[:top]  # stable: earlier first
    return Concordance(tuple(best), searched)


CHARACTERS = 1 << 16
"""Characters of a block of passages."""


@dataclass(frozen=True)
class WordFilter:
    """Selects words: those of a list, or all with a letter or a digit."""

    words: frozenset[str] | None

    @classmethod
    def of(cls, words: Iterable[str] | None) -> WordFilter:
        if words is None:
            return cls(None)
        keys = frozenset(fold_word(word) for word in words if word.strip())
        if not keys:
            raise UsageError("no word was named; use --word bank, --words FILE, or all")
        for word in keys:
            if len(segment_words(word)) != 1:
                raise UsageError(f"{word!r} is not one word: a search is for single words; name one of its words")
        return cls(keys)

    def may_hold(self, text: str) -> bool:
        """Whether a text can contain a selected word: a quick check that excludes most texts."""
        if self.words is None:
            return True
        folded = text.casefold()
        return any(word in folded for word in self.words)

    def __contains__(self, word: str) -> bool:
        return fold_word(word) in self.words if self.words is not None else any(map(str.isalnum, word))


class DocumentFilter:
    """Keeps documents that may contain a selected word, and counts all documents."""

    def __init__(self, wanted: WordFilter) -> None:
        self.wanted = wanted
        self.read = 0

    def __call__(self, text: str) -> bool:
        self.read += 1
        return self.wanted.may_hold(text)


def fold_word(word: str) -> str:
    """Key under which words are the same."""
    return word.strip().casefold()


@dataclass(frozen=True, eq=False)
class InstanceBlock:
    """Word instances of a block of passages, with their vectors."""

    rows: list[ConcordanceRow]
    vectors: Floats
    """[N, D] unit vectors."""
    passages: int
    """Passages read for it, including those without a selected word."""


def find_instances(
    encoder: Encoder,
    tokenizer: Tokenizer,
    pieces: Iterable[LocatedText],
    wanted: WordFilter,
    options: EmbedOptions,
) -> Iterator[InstanceBlock]:
    """Selected words of passages, one block at a time."""
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
        yield InstanceBlock([row for row, finite in zip(rows, sound.tolist(), strict=True) if finite], unit, len(block))


def instances_in_text(
    encoder: Encoder,
    tokenizer: Tokenizer,
    pieces: Iterable[LocatedText],
    wanted: WordFilter,
    options: EmbedOptions,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[VectorBlock]:
    """Blocks to search, computed from text."""
    count = 0
    for instances in find_instances(encoder, tokenizer, pieces, wanted, options):
        count += len(instances.rows)
        progress(count)
        yield VectorBlock(instances.vectors, _picker(instances.rows))


def _picker(rows: Sequence[ConcordanceRow]) -> Callable[[Sequence[int]], list[ConcordanceRow]]:
    return lambda numbers: [rows[number] for number in numbers]


def _spans(text: str, wanted: WordFilter) -> list[tuple[int, int]]:
    if not wanted.may_hold(text):
        return []
    return [(start, end) for start, end in segment_words(text).tolist() if text[start:end] in wanted]


def _row(piece: LocatedText, start: int, end: int) -> ConcordanceRow:
    text = piece.text
    return ConcordanceRow(
        word=text[start:end],
        left=one_line(text[max(0, start - CONTEXT) : start]),
        right=one_line(text[end : end + CONTEXT]),
        source=piece.source,
        line=piece.line_at(start),
        start=piece.start + start,
    )


def one_line(text: str) -> str:
    return " ".join(text.split())
