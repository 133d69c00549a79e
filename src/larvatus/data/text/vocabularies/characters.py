"""Vocabularies whose tokens are the bytes of words (ELMo, Peters et al. 2018), with the whole words that are predicted.

    <s> t ##h ##e r ##i ##v ##e ##r . </s>          tokens: bytes in UTF-8, ## where a word continues
    the  river  .                                   words of the output, pieces of the same vocabulary

Any text can be read: there is no unknown byte. A byte that opens a word is another token than the same byte inside one,
so that tokens tell where words begin. A softmax over words needs a list of them: the commonest words of the text
follow the bytes, and no text has them as tokens. A word of one byte is that byte's own token.

    0 … 3       <s> <pad> </s> <unk>
    4 … 259     bytes that open a word
    260 … 515   bytes inside a word
    516 …       words, commonest first

The word after each word, and the one before: what ELMo predicts. Words are those of a batch of characters.

Begin and end of a sentence are words too: from <s> the first word is predicted, from the last word </s>; the other way
round, from </s> the last word, from the first word <s>. No prediction crosses the border of a sequence. A word is
predicted from its neighbour's last character (or first), where the neighbour's vector is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from larvatus.core.arrays import Bools, Ints
from larvatus.core.batch import TokenBatch, edges
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import TokenTargets
from larvatus.core.ranges import Count, Size
from larvatus.core.settings import Settings
from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.template import Template
from larvatus.data.text.tokenizer_files import SpecialTokens
from larvatus.data.text.vocabularies.kind import SpecialLayout, VocabularyKind, Words, bert_normalizer

BEGIN, PAD, END, UNKNOWN = range(4)
BYTES = 4
"""The first of the bytes that open a word."""
INSIDE = BYTES + 256
"""The first of those inside one."""
WORDS = INSIDE + 256
"""The first whole word."""
LONGEST = 255
"""Bytes of a word that may be predicted; longer ones were cut when they were counted."""


class CharactersConfig(Settings, path="tokenizer.", error=RecipeError, tag="characters"):
    size: Size = 793_471
    """Pieces at most: 516 symbols, and the words that are predicted; any other is predicted as <unk>."""
    lowercase: bool = False
    """Fold case and drop accents."""
    min_count: Count = 3
    """A word must occur this often to be predicted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size <= WORDS:
            raise RecipeError(
                f"tokenizer.size = {self.size} leaves no word to predict: {WORDS} symbols come first; set 2000 or more"
            )


ELMO = SpecialLayout(
    SpecialTokens(cls="<s>", sep="</s>", mask="", pad="<pad>", unk="<unk>"), first=("<s>", "<pad>", "</s>", "<unk>")
)


class Characters(VocabularyKind[CharactersConfig]):
    """Words as BERT cuts them (Devlin et al. 2019), then their bytes."""

    may_be_smaller = True

    def special(self, config: CharactersConfig) -> SpecialLayout:
        return ELMO

    def set_pipeline(self, library: tokenizers.Tokenizer, config: CharactersConfig) -> None:
        library.normalizer = bert_normalizer(lowercase=config.lowercase)
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.BertPreTokenizer(),
                pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
            ]
        )

    def learn(self, words: Words, config: CharactersConfig) -> tuple[Any, list[str]]:
        """The words are those that the pipeline counted, in the alphabet of bytes."""
        alphabet = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
        ordered = sorted(words, key=lambda item: (-item[1], item[0]))
        common = [word for word, count in ordered if count >= config.min_count and 1 < len(word) <= LONGEST]
        tokens = [*ELMO.first, *alphabet, *(f"##{byte}" for byte in alphabet), *common][: config.size]
        ids = {token: index for index, token in enumerate(tokens)}
        return models.BPE(ids, [], continuing_subword_prefix="##", unk_token=ELMO.tokens.unk), tokens

    def template(self, config: CharactersConfig, cls_id: int, sep_id: int) -> Template:
        return Template.roberta(cls_id, sep_id)

    def decoder(self) -> decoders.Decoder:
        """Bytes to text, with a space before each word."""
        return decoders.Sequence(
            [decoders.WordPiece(prefix="##", cleanup=False), decoders.Replace(" ", "\u0120"), decoders.ByteLevel()]
        )

    def counts(self, words: Words, library: tokenizers.Tokenizer, tokens: Sequence[str]) -> Ints:
        """[V] how often each word occurs; </s> as often as full stops, question and exclamation marks.

        Only bytes that are words by themselves are counted.
        """
        ids = {token: index for index, token in enumerate(tokens) if not INSIDE <= index < WORDS}
        counts = np.zeros(len(tokens), np.int64)
        for word, times in words:
            counts[ids.get(word, UNKNOWN)] += times
        counts[END] = max(1, sum(int(counts[ids[mark]]) for mark in ".!?"))
        return counts


def word_starts(ids: Ints, lengths: Ints) -> Bools:
    """[N] which tokens open a word: bytes that say so, special tokens, and what comes first or after one of these.

    >>> word_starts(np.array([0, 300, 4, 261, 2]), np.array([5])).tolist()
    [True, True, True, False, True]
    """
    starts: Bools = ids < INSIDE
    starts[1:] |= ids[:-1] < BYTES
    starts[edges(lengths)[:-1][lengths > 0]] = True
    return starts


@dataclass(frozen=True, eq=False)
class BatchWords:
    """The W words of a batch."""

    first: Ints  # [W] its first token in the flat batch
    last: Ints  # [W] its last
    sequences: Ints  # [W]
    ids: Ints  # [W] its piece among the words of the output


class Lexicon:
    """Which word of the output a run of bytes spells."""

    def __init__(self, pieces: Sequence[str]) -> None:
        alphabet = byte_alphabet()
        self._ids = {
            bytes(map(alphabet.__getitem__, pieces[index])): index
            for index in (*range(BYTES, INSIDE), *range(WORDS, len(pieces)))
        }

    def read(self, tokens: TokenBatch[Ints]) -> BatchWords:
        """The words of a batch, each with its piece."""
        ids = tokens.ids
        starts = word_starts(ids, tokens.lengths)
        first = np.flatnonzero(starts)
        last = np.append(first[1:], len(ids)) - 1
        word_bytes = ((ids - BYTES) % 256).astype(np.uint8).tobytes()
        special = ids[first] < BYTES
        known, get = ids[first].copy(), self._ids.get
        words = np.flatnonzero(~special)
        bounds = zip(first[words].tolist(), (last[words] + 1).tolist(), strict=True)
        known[words] = np.fromiter((get(word_bytes[a:b], UNKNOWN) for a, b in bounds), np.int64, len(words))
        sequences = np.repeat(np.arange(tokens.count), tokens.lengths)[first]
        return BatchWords(first, last, sequences, known)


A = TypeVar("A")


class NextWords(TokenTargets[A]):
    """For each word but the last of its sequence: the one that follows."""

    what: ClassVar[str] = "the words that follow"
    of_words: ClassVar[bool] = True

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints], lexicon: Lexicon) -> NextWords[Ints]:
        words = lexicon.read(tokens)
        inside = np.flatnonzero(words.sequences[1:] == words.sequences[:-1])
        return NextWords(places=words.last[inside], ids=words.ids[inside + 1])


class PreviousWords(TokenTargets[A]):
    """For each word but the first of its sequence: the one before it."""

    what: ClassVar[str] = "the words before"
    of_words: ClassVar[bool] = True

    @classmethod
    def of_text(cls, tokens: TokenBatch[Ints], lexicon: Lexicon) -> PreviousWords[Ints]:
        words = lexicon.read(tokens)
        inside = np.flatnonzero(words.sequences[1:] == words.sequences[:-1]) + 1
        return PreviousWords(places=words.first[inside], ids=words.ids[inside - 1])
