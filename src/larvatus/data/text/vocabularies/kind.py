"""What every kind of vocabulary provides, and the counted words that it learns from.

Counting the words of a text in bounded memory: all that vocabulary training ever looks at.

The words are those of the tokenizer to be (its normaliser and pre-tokeniser), found by the `tokenizers` library on all
cores. Text is fed in portions; the table of words is cut back to the commoner half when it grows too large (in the
spirit of lossy counting, Manku & Motwani 2002), so memory depends on neither the size of the text nor its richness.

What every kind of vocabulary provides, and its special tokens. the package lists all kinds.

class WordPiece(VocabularyKind[WordPieceConfig]): ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, trainers

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.text.template import Template
from larvatus.data.text.tokenizer_files import SpecialTokens

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


Words = Sequence[tuple[str, int]]
"""Words of the training text with their counts."""
_LINE_BREAKS = "\u010a\u010d"  # \n and \r in the byte alphabet


@dataclass(frozen=True)
class SpecialLayout:
    """Special tokens of a family of models, and where they are in the vocabulary."""

    tokens: SpecialTokens
    first: tuple[str, ...]
    """Tokens with the first ids."""
    last: tuple[str, ...] = ()
    """Tokens with the last ids."""
    spaced_mask: bool = False
    """Whether the mask token takes the space before it."""

    @property
    def count(self) -> int:
        return len(self.first) + len(self.last)


BERT = SpecialLayout(SpecialTokens(), ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
ROBERTA = SpecialLayout(
    SpecialTokens(cls="<s>", sep="</s>", mask="<mask>", pad="<pad>", unk="<unk>"),
    first=("<s>", "<pad>", "</s>", "<unk>"),
    last=("<mask>",),
    spaced_mask=True,
)
ENDS = {"bos_token": ROBERTA.tokens.cls, "eos_token": ROBERTA.tokens.sep}
PLAIN_CLASS = "PreTrainedTokenizerFast"
"""The tokenizer class of `transformers` that keeps our normaliser and template; others rebuild them."""


class SizedConfig(Protocol):
    @property
    def size(self) -> int: ...


Config = TypeVar("Config", bound=SizedConfig)


class VocabularyKind(ABC, Generic[Config]):
    """One kind of vocabulary: the parts that differ between WordPiece, BPE, Unigram and characters."""

    may_be_smaller = False
    """Whether a text that supports fewer tokens than `size` is fine."""

    def special(self, config: Config) -> SpecialLayout:
        return ROBERTA

    @abstractmethod
    def set_pipeline(self, library: tokenizers.Tokenizer, config: Config) -> None:
        """Set normaliser and pre-tokeniser."""

    @abstractmethod
    def learn(self, words: Words, config: Config) -> tuple[Any, list[str]]:
        """The model of the `tokenizers` library, and all tokens in the order of their ids."""

    @abstractmethod
    def template(self, config: Config, cls_id: int, sep_id: int) -> Template:
        """Special tokens around texts and pairs."""

    @abstractmethod
    def decoder(self) -> decoders.Decoder: ...

    def transformers_config(self, config: Config) -> dict[str, Any]:
        """Contents of `tokenizer_config.json`."""
        return {**ENDS, "tokenizer_class": PLAIN_CLASS}

    def counts(self, words: Words, library: tokenizers.Tokenizer, tokens: Sequence[str]) -> Ints:
        """[V] how often each id occurs in the counted words: each different word is encoded once.

        Line breaks, for which byte-level vocabularies have tokens, do not count: sentences of a corpus have none.
        """
        return count_ids([(word, times) for word, times in words if word.strip(_LINE_BREAKS)], library, len(tokens))


def bert_normalizer(*, lowercase: bool) -> normalizers.Normalizer:
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase
    )


def tokens_left(size: int, special: int, alphabet: int = 0) -> int:
    """Tokens left for the text. Too few for the alphabet is refused, with the smallest size that works."""
    left = size - special
    if left < max(1, alphabet):
        raise DataError(
            f"a vocabulary of {size:,} tokens cannot hold the {alphabet:,} symbols of the text and "
            f"{special} special tokens; {size_hint(alphabet + special)} or more"
        )
    return left


def size_hint(size: int) -> str:
    return f"use --set tokenizer.size={size} (tokenizer train: --size {size})"
