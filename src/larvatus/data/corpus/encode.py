"""Encode a unit of text into record batches: what a worker of `larvatus corpus build` does.

Sentences are split, encoded (`CachedEncoder`) and laid out by NumPy; the result is Arrow IPC bytes, ready to write.
Time goes into tokenisation, not into moving objects between processes.

A byte-level vocabulary has other tokens for a word with a space before it. Its sentences keep that space, so that they
are end to end as in the text: "… deep. ĠThe …".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, ranges, runs
from larvatus.data.corpus.format import ChunkInfo, CorpusCounts, schema
from larvatus.data.corpus.sources import TextPiece
from larvatus.data.text.tokenizer import FlatEncoding, Tokenizer
from larvatus.data.text.words import sentence_spans, split_sentences

CHUNK_TOKENS = 1 << 18
MOST = 1 << 17
"""Stretches kept, some 20 MB; then the rarer half is forgotten."""
LONGEST = 24
"""Characters: where stretches are longer on average, there are no spaces (Chinese), and nothing to gain."""
_BATCH = 4096

_STRETCH = re.compile(r"[!-/:-@\[-`{-~]|[^ \n!-/:-@\[-`{-~]+")  # a mark of ASCII punctuation, or what is in between
_ONE_BY_ONE = {"BertNormalizer", "Lowercase", "StripAccents", "NFD"}


@dataclass(frozen=True)
class UnitEncoder:
    """What a worker must have. The parent prepares it once, while the workers start, and sends it to each."""

    stretches: CachedEncoder
    vocabulary: int
    sentences: Literal["library", "newline"]
    spaces: bool
    """Whether tokens tell if a space precedes them."""

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


@dataclass(frozen=True)
class _Rules:
    """What WordPiece needs to cut a plain word."""

    first: dict[str, int]  # pieces that open a word …
    inner: dict[str, int]  # … and those that continue one, without their ##
    largest: int  # characters of a piece
    longest: int  # characters of a word
    unknown: int
    lowercase: bool


def encodes_words_separately(tokenizer: Tokenizer) -> bool:
    """Whether the tokens of a text are those of its stretches."""
    return _rules(tokenizer) is not None


def _rules(tokenizer: Tokenizer) -> _Rules | None:
    rules = json.loads(tokenizer.library.to_str())
    normalizer, cuts, model = rules["normalizer"], rules["pre_tokenizer"], rules["model"]
    steps = normalizer["normalizers"] if normalizer and normalizer["type"] == "Sequence" else [normalizer]
    apart = bool(
        model["type"] == "WordPiece"
        and model["continuing_subword_prefix"] == "##"
        and model["unk_token"] in model["vocab"]
        and cuts
        and cuts["type"] == "BertPreTokenizer"
        and all(step is None or step["type"] in _ONE_BY_ONE for step in steps)
        and all(token["special"] for token in rules["added_tokens"])
    )
    if not apart:
        return None
    return _Rules(
        first=model["vocab"],
        inner={piece[2:]: index for piece, index in model["vocab"].items() if piece.startswith("##")},
        largest=max(map(len, model["vocab"])),
        longest=model["max_input_chars_per_word"],
        unknown=model["vocab"][model["unk_token"]],
        lowercase=any(step and (step["type"] == "Lowercase" or step.get("lowercase")) for step in steps),
    )


class CachedEncoder:
    """`encode` gives what `tokenizer.encode_flat` gives, several times faster. The cache grows within bounds.

    BERT's normaliser looks at one character at a time and its pre-tokeniser cuts at every space and around every mark
    of punctuation, so the tokens of a text are the tokens of its runs of letters end to end, and most of these come
    again and again (Zipf's law). Each is encoded once and looked up from then on; NumPy does the rest. A tokenizer that
    does not work that way (bytes, Unigram, added words) gets the texts whole.
    """

    def __init__(self, tokenizer: Tokenizer, most: int = MOST) -> None:
        self._tokenizer, self._most = tokenizer, most
        rules = _rules(tokenizer)
        self._apart = rules is not None
        if tokenizer.style is not None:
            tokenizer.word_start_tables  # noqa: B018  made here once, so that they travel to the workers
        self._rules = rules or _Rules({}, {}, 0, 0, 0, False)
        self._places: dict[str, int] = {}
        self._uses: Ints = np.empty(0, np.int64)  # how often each was looked up
        self._sizes: Ints = np.empty(0, np.int64)  # its tokens …
        self._begins: Ints = np.empty(0, np.int64)  # … and where they lie in the two tables below
        self._ids: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._starts: npt.NDArray[np.bool_] = np.empty(0, np.bool_)

    def encode(self, texts: Sequence[str]) -> FlatEncoding:
        split = list(map(_STRETCH.findall, texts)) if self._apart else []
        flat = [stretch for stretches in split for stretch in stretches]
        if not flat or sum(map(len, texts)) > LONGEST * len(flat):
            return _joined([self._tokenizer.encode_flat(texts[i : i + 1024]) for i in range(0, len(texts) or 1, 1024)])
        places = self._look_up(flat)  # [stretches]
        sizes = self._sizes[places]
        source = ranges(sizes) + np.repeat(self._begins[places], sizes)  # [N]
        before = edges(sizes)  # tokens before each stretch
        texts_end = edges(np.fromiter(map(len, split), np.int64, len(split)))
        return FlatEncoding(self._ids[source], np.diff(before[texts_end]), self._starts[source])

    def _look_up(self, flat: list[str]) -> Ints:
        """The place of each stretch in the tables; what is new is encoded and put there."""
        wanted = set(flat)
        new = wanted.difference(self._places)
        if new and len(self._places) + len(new) > self._most:
            self._forget_rare()
            new = wanted.difference(self._places)
        if new:
            self._learn(new)
        places = np.fromiter(map(self._places.__getitem__, flat), np.int64, len(flat))
        self._uses += np.bincount(places, minlength=len(self._uses))
        return places

    def _learn(self, unseen: set[str]) -> None:
        plain = [s for s in unseen if s.isascii() and s.isalnum()]
        others = [s for s in unseen if not (s.isascii() and s.isalnum())]
        new = plain + others
        batches = [others[i : i + _BATCH] for i in range(0, len(others), _BATCH)]
        encoded = _joined([self._plain(plain), *map(self._tokenizer.encode_flat, batches)])
        first = len(self._places)
        self._places.update(zip(new, range(first, first + len(new)), strict=True))
        self._begins = np.concatenate([self._begins, edges(encoded.lengths)[:-1] + len(self._ids)])
        self._sizes = np.concatenate([self._sizes, encoded.lengths])
        self._ids = np.concatenate([self._ids, encoded.ids])
        self._starts = np.concatenate([self._starts, encoded.starts])
        self._uses = np.concatenate([self._uses, np.zeros(len(new), np.int64)])

    def _plain(self, words: list[str]) -> FlatEncoding:
        """Words of ASCII letters and digits, which no rule but the case touches, by WordPiece's own definition."""
        pieces = [self._word_piece(word) for word in words]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        ids = np.fromiter(chain.from_iterable(pieces), np.int32, int(lengths.sum()))
        return FlatEncoding(ids, lengths, self._tokenizer.word_start_tables.starts(ids, edges(lengths)[:-1]))

    def _word_piece(self, word: str) -> list[int]:
        """The longest piece that fits, again and again (BERT's `WordpieceTokenizer`); unknown if one is missing."""
        rules = self._rules
        word = word.lower() if rules.lowercase else word
        if len(word) > rules.longest:
            return [rules.unknown]
        if (whole := rules.first.get(word)) is not None:
            return [whole]
        ids: list[int] = []
        start, pieces = 0, rules.first
        while start < len(word):
            end = min(len(word), start + rules.largest)
            while (piece := pieces.get(word[start:end])) is None:
                end -= 1
                if end == start:
                    return [rules.unknown]
            ids.append(piece)
            start, pieces = end, rules.inner
        return ids

    def _forget_rare(self) -> None:
        """Keep the half that was used most; what was used long ago counts less each time."""
        kept = np.sort(np.argsort(-self._uses, kind="stable")[: self._most // 2])
        names = list(self._places)  # in the order of their places
        self._places = {names[place]: i for i, place in enumerate(kept.tolist())}
        sizes = self._sizes[kept]
        source = ranges(sizes) + np.repeat(self._begins[kept], sizes)
        self._ids, self._starts = self._ids[source], self._starts[source]
        self._sizes, self._begins, self._uses = sizes, edges(sizes)[:-1], self._uses[kept] // 2


def _joined(parts: list[FlatEncoding]) -> FlatEncoding:
    def end_to_end(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    return FlatEncoding(end_to_end("ids"), end_to_end("lengths"), end_to_end("starts"))
