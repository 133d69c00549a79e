"""Byte-pair encoding (Sennrich et al. 2016): merge the most frequent pair of neighbours, again and again.

Byte-level BPE as in GPT-2 and RoBERTa (Radford et al. 2019), and BPE over characters with ``</w>`` as in GPT (Radford
et al. 2018); WordPiece as in BERT (Devlin et al. 2019) learns subwords in the same way and encodes by longest match.

The `tokenizers` library does the merging. Its result depends only on the counts of the words as long as every symbol is
one character of a fixed order. Its ``##`` and ``</w>`` variants number their symbols in the order of a hash table, so
they differ from run to run. Here each symbol (``a``, ``##a``, ``a</w>``) is replaced by a private-use character before
merging, and gets its name back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from larvatus.core.errors import DataError, RecipeError
from larvatus.core.ranges import Count, PositiveShare, Size
from larvatus.core.settings import Settings
from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.counting import covered_characters, word_lines
from larvatus.data.text.template import Template
from larvatus.data.text.vocabularies.kind import (
    BERT,
    ENDS,
    ROBERTA,
    SpecialLayout,
    VocabularyKind,
    Words,
    bert_normalizer,
    tokens_left,
)

PRIVATE = 0xF0000
"""First of the 131,068 private-use characters of planes 15 and 16 that encode symbols."""


class ByteBPEConfig(Settings, path="tokenizer.", error=RecipeError, tag="byte-bpe"):
    size: Size = 50_265
    """Number of tokens, special ones and the 256 bytes included."""
    min_count: Count = 2
    """Least number of times that a subword occurs in the text."""
    frame: Literal["gpt"] | msgspec.UnsetType = msgspec.UNSET
    """gpt: nothing before a text, </s> after it; default: `<s> text </s>`."""
    digits: Literal["apart"] | msgspec.UnsetType = msgspec.UNSET
    """apart: each digit is a token, with the space before it; default: digits merge as letters do."""


class BPEConfig(Settings, path="tokenizer.", error=RecipeError, tag="bpe"):
    size: Size = 40_478
    """Number of tokens, special ones included (GPT: 40,000 merges and 478 symbols)."""
    lowercase: bool = True
    """Lowercase and strip accents."""
    coverage: PositiveShare = 0.9999
    """Share of the text's characters that get a token; rarer ones become <unk>."""
    min_count: Count = 2
    """Least number of times that a subword occurs in the text."""
    frame: Literal["gpt"] | msgspec.UnsetType = msgspec.UNSET
    """gpt: nothing before a text, </s> after it; default: `<s> text </s>`."""


class ByteBPE(VocabularyKind[ByteBPEConfig]):
    def set_pipeline(self, library: tokenizers.Tokenizer, config: ByteBPEConfig) -> None:
        step: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
        if config.digits == "apart":
            digit = pre_tokenizers.Split(tokenizers.Regex(r" ?\d"), "isolated")
            step = pre_tokenizers.Sequence([digit, step])
        library.pre_tokenizer = step

    def learn(self, words: Words, config: ByteBPEConfig) -> tuple[Any, list[str]]:
        alphabet = sorted(byte_alphabet())
        size = tokens_left(config.size, ROBERTA.count, len(alphabet))
        merges = learn_merges(
            words, symbols=list, join=str.__add__, alphabet=alphabet, size=size, min_count=config.min_count
        )
        return _model(merges)

    def template(self, config: ByteBPEConfig, cls_id: int, sep_id: int) -> Template:
        return _template(config, cls_id, sep_id)

    def decoder(self) -> decoders.Decoder:
        return decoders.ByteLevel()

    def transformers_config(self, config: ByteBPEConfig) -> dict[str, Any]:
        if config.frame == "gpt" or config.digits == "apart":  # RoBERTa's class has a frame and a split of its own
            return super().transformers_config(config)
        return ENDS | {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "trim_offsets": False}


class BPE(VocabularyKind[BPEConfig]):
    def set_pipeline(self, library: tokenizers.Tokenizer, config: BPEConfig) -> None:
        library.normalizer = bert_normalizer(lowercase=config.lowercase)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def learn(self, words: Words, config: BPEConfig) -> tuple[Any, list[str]]:
        merges = learn_character_merges(words, config, symbols=_symbols, join=str.__add__, special=ROBERTA.count)
        return _model(merges, end_of_word_suffix="</w>", unk_token=ROBERTA.tokens.unk)

    def template(self, config: BPEConfig, cls_id: int, sep_id: int) -> Template:
        return _template(config, cls_id, sep_id)

    def decoder(self) -> decoders.Decoder:
        return decoders.BPEDecoder(suffix="</w>")


def _template(config: ByteBPEConfig | BPEConfig, cls_id: int, sep_id: int) -> Template:
    """GPT's vocabulary of running text puts nothing before a text, and one token after each."""
    if config.frame == "gpt":
        return Template.bert(None, sep_id).without_segments()
    return Template.roberta(cls_id, sep_id)


def _model(merges: Merges, **options: str) -> tuple[models.BPE, list[str]]:
    tokens = [*ROBERTA.first, *merges.tokens, *ROBERTA.last]
    return models.BPE({token: index for index, token in enumerate(tokens)}, merges.pairs, **options), tokens


def _symbols(word: str) -> list[str]:
    return [*word[:-1], word[-1] + "</w>"]


@dataclass(frozen=True)
class Merges:
    tokens: list[str]
    """The alphabet in order, then merged subwords in the order of learning."""
    pairs: list[tuple[str, str]]
    """Pairs to merge, in order; two pairs may make the same subword."""


def learn_merges(
    words: Sequence[tuple[str, int]],
    *,
    symbols: Callable[[str], list[str]],
    join: Callable[[str, str], str],
    alphabet: Sequence[str],
    size: int,
    min_count: int,
) -> Merges:
    """Learn merges until there are `size` tokens, or no pair is left that occurs `min_count` times.

    `symbols` splits a word, `join` names a merged pair. A word with a symbol outside the alphabet is skipped.
    """
    codes = {
        symbol: chr(PRIVATE + 0x10000 * (index // 0xFFFE) + index % 0xFFFE) for index, symbol in enumerate(alphabet)
    }
    if len(codes) > 2 * 0xFFFE:
        raise DataError(f"the text has {len(codes):,} different symbols; lower the character coverage")
    coded = []
    for word, count in words:
        cut = symbols(word)
        if all(symbol in codes for symbol in cut):
            coded.append(("".join(codes[symbol] for symbol in cut), count))
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        initial_alphabet=list(codes.values()),
        show_progress=False,
    )
    library.train_from_iterator(word_lines(coded), trainer)
    names = {char: symbol for symbol, char in codes.items()}
    pairs = []
    for left, right in msgspec.json.decode(library.to_str())["model"]["merges"]:
        names[left + right] = join(names[left], names[right])
        pairs.append((names[left], names[right]))
    return Merges(list(dict.fromkeys([*alphabet, *(join(left, right) for left, right in pairs)])), pairs)


def learn_character_merges(
    words: Words,
    config: BPEConfig | WordPieceConfig,
    *,
    symbols: Callable[[str], list[str]],
    join: Callable[[str, str], str],
    special: int,
) -> Merges:
    """Merges over characters, which differ at the beginning and inside (or at the end) of words."""
    kept = set(covered_characters(words, config.coverage))
    clean = [(word, count) for word, count in words if kept.issuperset(word)]
    alphabet = sorted(
        {symbol for word, _ in clean for symbol in symbols(word)}, key=lambda symbol: (len(symbol) > 1, symbol)
    )
    size = tokens_left(config.size, special, len(alphabet))
    return learn_merges(clean, symbols=symbols, join=join, alphabet=alphabet, size=size, min_count=config.min_count)


class WordPieceConfig(Settings, path="tokenizer.", error=RecipeError, tag="wordpiece"):
    """WordPiece (Schuster & Nakajima 2012; Devlin et al. 2019): the longest subword first; ## continues a word."""

    size: Size = 30_522
    """Number of tokens, special ones included."""
    lowercase: bool = True
    """Lowercase and strip accents, as BERT uncased does."""
    coverage: PositiveShare = 0.9999
    """Share of the text's characters that get a token; words with rarer ones become [UNK]."""
    min_count: Count = 2
    """Least number of times that a subword occurs in the text."""


class WordPiece(VocabularyKind[WordPieceConfig]):
    def special(self, config: WordPieceConfig) -> SpecialLayout:
        return BERT

    def set_pipeline(self, library: tokenizers.Tokenizer, config: WordPieceConfig) -> None:
        library.normalizer = bert_normalizer(lowercase=config.lowercase)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def learn(self, words: Words, config: WordPieceConfig) -> tuple[Any, list[str]]:
        merges = learn_character_merges(
            words, config, symbols=_word_piece_symbols, join=lambda left, right: left + right[2:], special=BERT.count
        )
        tokens = [*BERT.first, *merges.tokens]
        ids = {token: index for index, token in enumerate(tokens)}
        return models.WordPiece(ids, unk_token=BERT.tokens.unk, max_input_chars_per_word=100), tokens

    def template(self, config: WordPieceConfig, cls_id: int, sep_id: int) -> Template:
        return Template.bert(cls_id, sep_id)

    def decoder(self) -> decoders.Decoder:
        return decoders.WordPiece(prefix="##")

    def transformers_config(self, config: WordPieceConfig) -> dict[str, Any]:
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": config.lowercase,
            "tokenize_chinese_chars": True,
            "strip_accents": None,
        }


def _word_piece_symbols(word: str) -> list[str]:
    return [word[0], *("##" + char for char in word[1:])]
