"""Encode a unit of text into record batches: what a worker of `larvatus corpus build` does.

Sentences are split, encoded (`stretches`) and laid out by NumPy; the answer is Arrow IPC bytes, ready to be written.
Time goes into tokenisation, not into moving objects between processes.

A byte-level vocabulary has other tokens for a word with a space before it. Its sentences keep that space, so that they
stand end to end as they would in the text: "… deep. ĠThe …".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, ranges, runs
from larvatus.data.corpus.cached_encoder import CachedEncoder
from larvatus.data.corpus.format import ChunkInfo, CorpusCounts, schema
from larvatus.data.corpus.units import TextPiece
from larvatus.data.text.sentences import sentence_spans, split_sentences
from larvatus.data.text.tokenizer import Tokenizer

CHUNK_TOKENS = 1 << 18


@dataclass(frozen=True)
class UnitEncoder:
    """What a worker must have. The parent prepares it once, while the workers start, and sends it to each."""

    stretches: CachedEncoder
    vocabulary: int
    sentences: Literal["library", "newline"]
    spaces: bool
    """Whether tokens tell if a space stands before them."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, sentences: Literal["library", "newline"]) -> UnitEncoder:
        return cls(CachedEncoder(tokenizer), tokenizer.size, sentences, spaces=tokenizer.style == "Ġ")

    def split(self, piece: TextPiece) -> list[str]:
        """The sentences of a piece as they are to be encoded; of white space before one, a space is left."""
        text = piece.text
        if not self.spaces:
            return split_sentences(text, piece.language, self.sentences)
        spans = sentence_spans(text, language=piece.language, mode=self.sentences)
        return [" " * text[start - 1 : start].isspace() + text[start:end] for start, end in spans]


@dataclass(frozen=True)
class EncodedUnit:
    """A unit's record batches with their counts, by language."""

    batches: list[bytes]
    chunks: list[ChunkInfo]
    languages: dict[str, CorpusCounts]
    first: tuple[int, str] | None  # number and language of the first document that has tokens
    last: int | None


def encode_unit(encoder: UnitEncoder, pieces: Sequence[TextPiece]) -> EncodedUnit:
    sentences: list[str] = []
    per_piece = np.empty(len(pieces), np.int64)
    for i, piece in enumerate(pieces):
        before = len(sentences)
        sentences += encoder.split(piece)
        per_piece[i] = len(sentences) - before
    encoded = encoder.stretches.encode(sentences)

    piece_of_sentence = np.repeat(np.arange(len(pieces)), per_piece)[encoded.lengths > 0]
    lengths = encoded.lengths[encoded.lengths > 0]
    tokens = np.bincount(piece_of_sentence, weights=lengths, minlength=len(pieces)).astype(np.int64)
    kept = [i for i, n in enumerate(tokens.tolist()) if n]
    in_order = _Rows(
        pieces=[pieces[i] for i in kept],
        ids=encoded.ids,
        starts=encoded.starts,
        tokens=tokens[kept],
        sentences=np.bincount(piece_of_sentence, minlength=len(pieces))[kept].astype(np.int64),
        sentence_lengths=lengths,
    )
    rows = in_order.by_language()
    columns = schema(encoder.vocabulary)
    cuts = rows.cuts()
    edge = edges(rows.tokens)
    return EncodedUnit(
        batches=[_record_batch(rows, a, b, columns) for a, b in cuts],
        chunks=[
            ChunkInfo(
                rows=b - a,
                tokens=int(edge[b] - edge[a]),
                documents=(rows.pieces[a].document, rows.pieces[b - 1].document),
                language=rows.pieces[a].language,
            )
            for a, b in cuts
        ],
        languages=_counts(rows),
        first=(in_order.pieces[0].document, in_order.pieces[0].language) if kept else None,
        last=in_order.pieces[-1].document if kept else None,
    )


@dataclass(frozen=True)
class _Rows:
    """The unit's rows laid end to end: R rows, N tokens, S sentences."""

    pieces: list[TextPiece]
    ids: npt.NDArray[np.int32]  # [N]
    starts: npt.NDArray[np.bool_]  # [N] word starts
    tokens: Ints  # [R]
    sentences: Ints  # [R]
    sentence_lengths: Ints  # [S]

    def by_language(self) -> _Rows:
        """The rows of each language together, languages in the order in which they first come."""
        numbers: dict[str, int] = {}
        language = np.array([numbers.setdefault(piece.language, len(numbers)) for piece in self.pieces], np.int64)
        if len(numbers) < 2:
            return self
        order = np.argsort(language, kind="stable")
        tokens, sentences = self.tokens[order], self.sentences[order]
        token = ranges(tokens) + np.repeat(edges(self.tokens)[order], tokens)  # [N] where each comes from
        sentence = ranges(sentences) + np.repeat(edges(self.sentences)[order], sentences)
        return _Rows(
            pieces=[self.pieces[i] for i in order.tolist()],
            ids=self.ids[token],
            starts=self.starts[token],
            tokens=tokens,
            sentences=sentences,
            sentence_lengths=self.sentence_lengths[sentence],
        )

    def cuts(self) -> list[tuple[int, int]]:
        """First and last row of each chunk: within the budget, and of one language."""
        chunks: list[tuple[int, int]] = []
        for _, group in groupby(range(len(self.pieces)), key=lambda row: self.pieces[row].language):
            rows = list(group)
            chunks += [(rows[0] + a, rows[0] + b) for a, b in runs(self.tokens[rows], CHUNK_TOKENS)]
        return chunks


def _record_batch(rows: _Rows, a: int, b: int, columns: pa.Schema) -> bytes:
    """Rows a … b − 1 as the bytes of one record batch."""
    token_edge, sentence_edge = edges(rows.tokens), edges(rows.sentences)
    first, last = int(token_edge[a]), int(token_edge[b])
    s_first, s_last = int(sentence_edge[a]), int(sentence_edge[b])
    per_row = rows.sentences[a:b]
    sentence_starts = edges(rows.sentence_lengths[s_first:s_last])[:-1]  # from the start of the batch
    sentence_starts -= np.repeat(token_edge[a:b] - first, per_row)  # from the start of the row
    token_offsets = (token_edge[a : b + 1] - first).astype(np.int32)
    sentence_offsets = (sentence_edge[a : b + 1] - s_first).astype(np.int32)
    bits = np.packbits(rows.starts[first:last], bitorder="little")
    words = pa.Array.from_buffers(pa.bool_(), last - first, [None, pa.py_buffer(bits)])
    pieces = rows.pieces[a:b]

    def lists(name: str, offsets: npt.NDArray[np.int32], values: pa.Array) -> pa.Array:
        kind = columns.field(name).type
        return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[values])

    id_type = columns.field("ids").type.value_type
    ids = rows.ids[first:last].astype(np.uint16 if id_type == pa.uint16() else np.uint32)
    batch = pa.record_batch(
        [
            lists("ids", token_offsets, _numbers(id_type, ids)),
            lists("sentences", sentence_offsets, _numbers(pa.int32(), sentence_starts.astype(np.int32))),
            lists("words", token_offsets, words),
            _numbers(pa.int64(), np.array([p.document for p in pieces], np.int64)),
            _numbers(pa.int32(), np.array([p.part for p in pieces], np.int32)),
            _strings([p.language for p in pieces]),
            _strings([p.source for p in pieces]),
            _numbers(pa.int64(), np.array([p.line for p in pieces], np.int64)),
        ],
        schema=columns,
    )
    return bytes(batch.serialize())


# Arrays are made of buffers because `pa.array` imports pandas, where it is installed: 0.3 s in each worker.


def _numbers(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _strings(values: list[str]) -> pa.Array:
    data = [value.encode() for value in values]
    offsets = edges(np.fromiter(map(len, data), np.int64, len(data))).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))])


def _counts(rows: _Rows) -> dict[str, CorpusCounts]:
    """Counts of the unit by language. A document cut over two units is counted in both; the builder takes one off."""
    documents: dict[str, set[int]] = {}
    sums: dict[str, Counter[str]] = {}
    words = np.add.reduceat(rows.starts, edges(rows.tokens)[:-1], dtype=np.int64) if rows.pieces else np.empty(0)
    for piece, n, s, w in zip(rows.pieces, rows.tokens.tolist(), rows.sentences.tolist(), words.tolist(), strict=True):
        documents.setdefault(piece.language, set()).add(piece.document)
        sums.setdefault(piece.language, Counter()).update(
            sentences=s, words=w, tokens=n, text_bytes=len(piece.text.encode())
        )
    return {name: CorpusCounts(documents=len(documents[name]), **total) for name, total in sums.items()}
