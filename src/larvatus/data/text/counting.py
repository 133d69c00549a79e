"""Counted words of a text in bounded memory: all that vocabulary training reads.

    words = count_words(texts, library)         # [("boat", 3), ("river", 12), …], ordered by the word

The words are those of the tokenizer to be (its normaliser and pre-tokeniser), found by the `tokenizers` library on all
cores. Text is fed in portions; the table of words is cut back to the commoner half when it grows too large (in the
spirit of lossy counting, Manku & Motwani 2002), so memory depends on neither the size of the text nor its richness.
V tokens of a vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec
import numpy as np
import tokenizers
from tokenizers import models, trainers

from larvatus.core.arrays import Ints
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.bulk.executor import Executor, LocalExecutor

PORTION = 16 * 2**20
"""Characters counted at a time."""

MOST_WORDS = 4_000_000
"""Different words kept; beyond, the rarer half is forgotten."""

LONGEST_WORD = 256
"""Characters of a word that are looked at; the rest of a longer one is dropped (base64, DNA, a scan gone wrong)."""


def count_words(
    texts: Iterable[str], library: tokenizers.Tokenizer, executor: Executor = LocalExecutor()
) -> list[tuple[str, int]]:
    """(word, count), ordered by the word: the same list for the same text, whatever the executor."""
    total: Counter[str] = Counter()
    with executor.pool(lambda: library, count_portion, what="a counting worker", fix="run the command again") as pool:
        for counts in pool.map(_portions(texts)):
            add_words(total, counts)
            while len(total) > MOST_WORDS:
                total = commoner_half(total)
    return sorted(total.items())


def add_words(total: Counter[str], counts: Mapping[str, int]) -> None:
    """Add the words of a portion to a table."""
    for word, count in counts.items():
        total[word[:LONGEST_WORD]] += count


def count_portion(library: tokenizers.Tokenizer, portion: list[str]) -> dict[str, int]:
    """Words of a portion. The library's word-level trainer counts them in Rust and shows the counts in its state."""
    counter = tokenizers.Tokenizer(models.WordLevel())
    if library.normalizer is not None:
        counter.normalizer = library.normalizer
    if library.pre_tokenizer is not None:
        counter.pre_tokenizer = library.pre_tokenizer
    trainer = trainers.WordLevelTrainer(vocab_size=1, min_frequency=0, show_progress=False)
    counter.train_from_iterator(portion, trainer)
    words: dict[str, int] = msgspec.json.decode(trainer.__getstate__())["WordLevelTrainer"]["words"]
    return words


def commoner_half(total: Counter[str]) -> Counter[str]:
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return Counter(dict(ordered[: len(ordered) // 2]))


def _portions(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts of about PORTION characters; a longer text is cut at white space where there is any."""
    portion: list[str] = []
    size = 0
    for index, text in enumerate(texts):
        refuse_surrogates(text, f"text {index + 1}")
        for part in parts(text):
            portion.append(part)
            size += len(part)
            if size >= PORTION:
                yield portion
                portion, size = [], 0
    if portion:
        yield portion


def parts(text: str) -> Iterator[str]:
    """A text in parts of at most PORTION characters."""
    start = 0
    while len(text) - start > PORTION:
        cut = max(text.rfind(" ", start, start + PORTION), text.rfind("\n", start, start + PORTION))
        cut = cut if cut > start else start + PORTION
        yield text[start:cut]
        start = cut
    yield text[start:]


def covered_characters(words: Iterable[tuple[str, int]], coverage: float) -> list[str]:
    """The commonest characters that make up `coverage` of the text, in code-point order (ties by code point)."""
    counts: Counter[str] = Counter()
    for word, count in words:
        for char in word:
            counts[char] += count
    spare = (1 - coverage) * counts.total()
    rarest_first = sorted(counts.items(), key=lambda item: (item[1], -ord(item[0])))
    dropped = set()
    for char, count in rarest_first:
        spare -= count
        if spare < 0:
            break
        dropped.add(char)
    return sorted(set(counts) - dropped)


def word_lines(words: Iterable[tuple[str, int]], at_once: int = 10_000) -> Iterator[str]:
    """Lines in which each word occurs as often as it was counted: how a table of words is fed to a library trainer."""
    whole = chain.from_iterable(
        ((word, min(at_once, count - done)) for done in range(0, count, at_once)) for word, count in words
    )
    while batch := list(islice(whole, 1_000)):
        yield from (" ".join([word] * count) for word, count in batch)


def count_ids(words: Sequence[tuple[str, int]], library: tokenizers.Tokenizer, size: int) -> Ints:
    """[V] how often each id occurs in counted words, by the model only: each different word is encoded once."""
    bare = tokenizers.Tokenizer(library.model)
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(words), 10_000):
        part = words[start : start + 10_000]
        for (_, times), encoding in zip(part, bare.encode_batch_fast([word for word, _ in part]), strict=True):
            np.add.at(counts, encoding.ids, times)
    return counts
