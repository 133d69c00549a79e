"""What every kind of vocabulary provides, and its special tokens.

    class WordPiece(VocabularyKind[WordPieceConfig]): ...

The package lists all kinds. V tokens of a vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import tokenizers
from tokenizers import decoders, normalizers

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.data.text.counting import count_ids
from larvatus.data.text.template import Template
from larvatus.data.text.tokenizer_files import SpecialTokens

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
