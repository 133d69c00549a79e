"""`TextBlock`: a stretch of the corpus as flat arrays, the input of every packing. Nothing in it knows of files.

ids        [N]     token ids of all documents, end to end
words      [N]     does a word start at this token?
sentences  [S+1]   where each sentence starts, and where the last one ends
documents  [D+1]   the same for documents
numbers    [D]     which document of the corpus each is; parts of a long one share their number
languages  [D]     number of the language of each, where there are several
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError


@dataclass(frozen=True, eq=False)
class TextBlock:
    ids: npt.NDArray[Any]
    words: npt.NDArray[np.bool_]
    sentences: Ints
    documents: Ints
    numbers: Ints
    languages: Ints | None = None

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sequence[int]]], words: Sequence[bool] | None = None) -> TextBlock:
        """From documents of sentences of ids; without `words` every token is a word.

        >>> TextBlock.of([[[7, 8], [9]], [[5]]]).sentences.tolist()
        [0, 2, 3, 4]
        """
        sentences = [sentence for document in documents for sentence in document]
        ids = np.array([i for sentence in sentences for i in sentence], np.int64)
        return cls(
            ids=ids,
            words=np.ones(len(ids), np.bool_) if words is None else np.array(words, np.bool_),
            sentences=_cumulative([len(sentence) for sentence in sentences]),
            documents=_cumulative([sum(map(len, document)) for document in documents]),
            numbers=np.arange(len(documents), dtype=np.int64),
        )

    @classmethod
    def join(
        cls,
        batches: Sequence[pa.RecordBatch],
        vocabulary: int,
        name: str = "a chunk",
        stretches: Sequence[tuple[int, int] | None] | None = None,
    ) -> TextBlock:
        """From the record batches of a shard; a part that follows its predecessor is joined to it again.

        Of a batch with a stretch (first, last), only the sentences that begin at tokens first … last − 1 are taken.
        """
        ids, words, sentences, rows, numbers, parts, languages = [], [], [], [], [], [], []
        before = 0
        names: dict[str, int] = {}
        for batch, stretch in zip(batches, stretches or [None] * len(batches), strict=True):
            chunk = _arrays(batch, vocabulary, name)
            number, part = batch.column("document").to_numpy(), batch.column("part").to_numpy()
            language = _languages(batch, names)
            if stretch is not None:
                chunk, taken = chunk.cut(*stretch)
                number, part, language = number[taken], part[taken], language[taken]
            ids.append(chunk.ids)
            words.append(chunk.words)
            sentences.append(chunk.sentences + before)
            rows.append(chunk.rows[:-1] + before)
            numbers.append(number)
            parts.append(part)
            languages.append(language)
            before += len(chunk.ids)
        number, part = np.concatenate(numbers), np.concatenate(parts)
        goes_on = np.zeros(len(number), np.bool_)
        goes_on[1:] = (number[1:] == number[:-1]) & (part[1:] == part[:-1] + 1)
        end = np.array([before], np.int64)
        return cls(
            ids=ids[0] if len(ids) == 1 else np.concatenate(ids),
            words=words[0] if len(words) == 1 else np.concatenate(words),
            sentences=np.concatenate([*sentences, end]),
            documents=np.concatenate([np.concatenate(rows)[~goes_on], end]),
            numbers=number[~goes_on],
            languages=np.concatenate(languages)[~goes_on] if len(names) > 1 else None,
        )


@dataclass(frozen=True)
class _Arrays:
    ids: npt.NDArray[Any]  # [N] as on the disk
    words: npt.NDArray[np.bool_]  # [N]
    sentences: Ints  # [S]
    rows: Ints  # [R + 1]

    def cut(self, first: int, last: int) -> tuple[_Arrays, slice]:
        """The sentences that begin at tokens first … last − 1, and which rows they are of."""
        a, b = np.searchsorted(self.sentences, (first, last)).tolist()
        if a == b:
            return _Arrays(self.ids[:0], self.words[:0], self.sentences[:0], np.zeros(1, np.int64)), slice(0, 0)
        begin = int(self.sentences[a])
        end = int(self.sentences[b]) if b < len(self.sentences) else len(self.ids)
        row, stop = int(np.searchsorted(self.rows, begin, side="right")) - 1, int(np.searchsorted(self.rows, end))
        rows = np.clip(self.rows[row : stop + 1], begin, end) - begin
        return _Arrays(self.ids[begin:end], self.words[begin:end], self.sentences[a:b] - begin, rows), slice(row, stop)


def _arrays(batch: pa.RecordBatch, vocabulary: int, name: str) -> _Arrays:
    """NumPy's view of a record batch. A shard whose inside does not fit together is refused, not read past its end."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as fault:
        raise DataError(f"{name} is damaged: {fault}") from fault
    ids, sentences, words = batch.column("ids"), batch.column("sentences"), batch.column("words")
    rows = ids.offsets.to_numpy().astype(np.int64)
    flat = ids.values.to_numpy()
    n = len(flat)
    counts = np.diff(sentences.offsets.to_numpy())
    starts = sentences.values.to_numpy().astype(np.int64) + np.repeat(rows[:-1], counts)
    whole = (
        ids.offset == sentences.offset == words.offset == 0
        and words.offsets.equals(ids.offsets)
        and len(words.values) == n
        and n > 0
        and rows[0] == 0
        and rows[-1] == n
        and bool((counts > 0).all())
        and int(sentences.offsets[0].as_py()) == 0
        and len(starts) == counts.sum()
        and starts[0] == 0
        and bool((np.diff(starts) > 0).all())
        and starts[-1] < n
        and bool(np.isin(rows[:-1], starts).all())
        and int(flat.max()) < vocabulary
    )
    if not whole:
        raise DataError(f"{name} is damaged: its ids, words and sentences do not fit together")
    bits = np.frombuffer(words.values.buffers()[1], np.uint8)
    return _Arrays(flat, np.unpackbits(bits, count=n, bitorder="little").view(np.bool_), starts, rows)


def _languages(batch: pa.RecordBatch, names: dict[str, int]) -> Ints:
    """[R] the number of each row's language; `names` grows with those that are new."""
    column = batch.column("language").dictionary_encode()
    known = [names.setdefault(name, len(names)) for name in column.dictionary.to_pylist()]
    indices: Ints = column.indices.to_numpy()
    return np.array(known, np.int64)[indices]


def _cumulative(lengths: Sequence[int]) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])
