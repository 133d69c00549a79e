"""Sense vectors from tagged text: v_s is the mean of the vectors of the words tagged s (chapter eq. 11.8).

    inventory = build_senses(encoder, tokenizer, read_semcor("semcor/", wordnet, reading), options, …)

Sentences stream through the encoder, some hundred at a time. A running sum and a count are kept for each sense, and the
mean and variance of all words by Welford's update: memory grows with the senses, not with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.senses.inventory import InventoryOrigin, SenseInventory
from larvatus.inference.senses.tagged import ReadingCounts, SenseSentence
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.nn.encoder import Encoder

AT_ONCE = 512
"""Sentences of a batch; vectors do not depend on it."""


def embed_instances(
    encoder: Encoder, tokenizer: Tokenizer, sentences: Sequence[SenseSentence], options: EmbedOptions
) -> list[Floats]:
    """The vectors of the instances of each sentence, [I, D]; NaN if the vocabulary deletes a word."""
    texts = [sentence.text for sentence in sentences]
    spans = [[(instance.start, instance.end) for instance in sentence.instances] for sentence in sentences]
    return [embedded.vectors for embedded in embed_texts(encoder, tokenizer, texts, options, spans=spans)]


class _Sums:
    """Running sums: a row for each sense, and the moments of all words (Chan et al.'s update of a batch)."""

    def __init__(self, size: int) -> None:
        self.rows: dict[str, int] = {}
        self.sums: npt.NDArray[np.float64] = np.zeros((1_024, size))
        self.counts = np.zeros(1_024, dtype=np.int64)
        self.seen = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)

    def add(self, keys: Sequence[tuple[str, ...]], vectors: Floats) -> None:
        """Add vectors [I, D] of words; a word with several keys counts for each of its senses."""
        wide = vectors.astype(np.float64)
        pairs = [
            (self.rows.setdefault(key, len(self.rows)), at)
            for at, keys_of_word in enumerate(keys)
            for key in keys_of_word
        ]
        while len(self.rows) > len(self.sums):
            self.sums = np.concatenate([self.sums, np.zeros_like(self.sums)])
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
        rows, places = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        np.add.at(self.sums, rows, wide[places])
        np.add.at(self.counts, rows, 1)
        self._moments(wide)

    def _moments(self, wide: npt.NDArray[np.float64]) -> None:
        mean = wide.mean(0)
        away, total = mean - self.mean, self.seen + len(wide)
        self.squares += ((wide - mean) ** 2).sum(0) + away**2 * (self.seen * len(wide) / total)
        self.mean += away * (len(wide) / total)
        self.seen = total

    def inventory(self, origin: InventoryOrigin) -> SenseInventory:
        keys = sorted(self.rows)
        order = np.array([self.rows[key] for key in keys], dtype=np.int64)
        counts = self.counts[order]
        return SenseInventory(
            origin=origin,
            keys=tuple(keys),
            vectors=(self.sums[order] / counts[:, None]).astype(np.float32),
            counts=counts,
            mean=self.mean.astype(np.float32),
            deviation=np.sqrt(self.squares / self.seen).astype(np.float32),
        )


def build_senses(
    encoder: Encoder,
    tokenizer: Tokenizer,
    sentences: Iterable[SenseSentence],
    options: EmbedOptions,
    *,
    wordnet: WordNet,
    reading: ReadingCounts,
    model: tuple[str, str],
    progress: Callable[[ReadingCounts], None] = lambda _: None,
) -> SenseInventory:
    """The inventory of tagged sentences. `model` is the model's fingerprint and its name; `reading` counts the text."""
    if LayerWeights.read(options.layers, layers=encoder.depth).stacked:
        raise UsageError("a sense has one vector, and layers = all gives several; name one layer or a mix")
    totals: _Sums | None = None
    for block in _blocks(iter(sentences)):
        embedded = embed_instances(encoder, tokenizer, block, options)
        vectors = np.concatenate(embedded)
        keys = [instance.keys for sentence in block for instance in sentence.instances]
        there = ~np.isnan(vectors[:, 0])
        totals = totals or _Sums(vectors.shape[1])
        if there.any():
            totals.add(
                [keys_of_word for keys_of_word, has_vector in zip(keys, there.tolist(), strict=True) if has_vector],
                vectors[there],
            )
        progress(reading)
    unknown = sum(reading.unknown.values())
    if totals is None or not totals.seen or unknown > reading.instances:
        some = ", ".join(key for key, _ in reading.unknown.most_common(3))
        why = f"{unknown:,} of its tags are not in {wordnet.folder} ({some})" if unknown else "no word of it is tagged"
        raise DataError(f"the text gives too few senses: {why}; use the WordNet that it was tagged with")
    origin = InventoryOrigin(
        model=model[0],
        name=model[1],
        wordnet=wordnet.fingerprint,
        layers=options.layers,
        pool=options.pool,
        instances=totals.seen,
        sentences=reading.sentences,
        unknown=unknown,
    )
    return totals.inventory(origin)


def _blocks(sentences: Iterator[SenseSentence]) -> Iterator[list[SenseSentence]]:
    while block := list(islice(sentences, AT_ONCE)):
        yield block
