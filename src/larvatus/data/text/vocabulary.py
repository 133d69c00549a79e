"""Training a vocabulary of any kind. The same text and config give the same vocabulary every time.

    tokenizer = train_vocabulary(texts, WordPieceConfig(size=30_522))
    larvatus tokenizer train my_texts/ --type wordpiece --size 30522 --out vocabulary/

`KINDS` maps the config of a kind to what differs between kinds (`vocabularies/`, one file each). Only a table of
counted words is kept in memory, and neither threads nor hash seeds change a token, an id or a score.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import AddedToken, models

<<<<<<< HEAD
from larvatus.core.errors import DataError
from larvatus.data.bulk.executor import Executor, Here
from larvatus.data.text.counting import count_words
from larvatus.data.text.template import Template
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies.bpe import BPE, BPEConfig, ByteBPE, ByteBPEConfig
from larvatus.data.text.vocabularies.characters import Characters, CharactersConfig
from larvatus.data.text.vocabularies.kind import VocabularyKind, Words, size_hint
from larvatus.data.text.vocabularies.unigram import Unigram, UnigramConfig
from larvatus.data.text.vocabularies.wordpiece import WordPiece, WordPieceConfig
=======
from larvatus.core.errors import DataError, RecipeError
from larvatus.core.ranges import Count, PositiveShare, Size
from larvatus.core.settings import Settings
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.vocabularies.bpe import Merges, learn_merges
from larvatus.data.text.vocabularies.characters import (
    CharactersConfig,
    character_decoder,
    character_pipeline,
    learn_words,
    word_counts,
)
from larvatus.data.text.counting import count_words, covered_characters
from larvatus.data.text.special_tokens import sentinel_name
from larvatus.data.text.template import Frame
from larvatus.data.text.tokenizer import SpecialTokens, Tokenizer
from larvatus.data.text.vocabularies.unigram import learn_unigram

BERT = SpecialTokens()
ROBERTA = SpecialTokens(cls="<s>", sep="</s>", mask="<mask>", pad="<pad>", unk="<unk>")
XLNET = SpecialTokens(cls="<cls>", sep="<sep>", mask="<mask>", pad="<pad>", unk="<unk>")
T5 = SpecialTokens(cls="", sep="</s>", mask="", pad="<pad>", unk="<unk>")
SENTINELS = 100
ELMO = SpecialTokens(cls="<s>", sep="</s>", mask="", pad="<pad>", unk="<unk>")

Words = Sequence[tuple[str, int]]

_LINE_BREAKS = "\u010a\u010d"  # as byte-level pieces write \n and \r


class WordPieceConfig(Settings, path="tokenizer.", error=RecipeError, tag="wordpiece"):
    size: Size = 30_522
    """Pieces in all, special tokens included."""
    lowercase: bool = True
    """Fold case and drop accents, as BERT uncased does."""
    coverage: PositiveShare = 0.9999
    """Share of the text's characters that get a piece; words with rarer ones become [UNK]."""
    min_count: Count = 2
    """A piece must occur this often."""


class ByteBPEConfig(Settings, path="tokenizer.", error=RecipeError, tag="byte-bpe"):
    size: Size = 50_265
    """Pieces in all, special tokens and the 256 bytes included."""
    min_count: Count = 2
    """A piece must occur this often."""
    frame: Literal["gpt"] | msgspec.UnsetType = msgspec.UNSET
    """gpt: nothing before a text, </s> after it; where nothing is said: `<s> text </s>`."""


class BPEConfig(Settings, path="tokenizer.", error=RecipeError, tag="bpe"):
    size: Size = 40_478
    """Pieces in all, special tokens included (GPT: 40,000 merges and 478 symbols)."""
    lowercase: bool = True
    """Fold case and drop accents."""
    coverage: PositiveShare = 0.9999
    """Share of the text's characters that get a piece; rarer ones become <unk>."""
    min_count: Count = 2
    """A piece must occur this often."""
    frame: Literal["gpt"] | msgspec.UnsetType = msgspec.UNSET
    """gpt: nothing before a text, </s> after it; where nothing is said: `<s> text </s>`."""


class UnigramConfig(Settings, path="tokenizer.", error=RecipeError, tag="unigram"):
    size: Size = 250_002
    """Pieces in all, special tokens included."""
    lowercase: bool = False
    """Fold case and drop accents (ALBERT does, XLM-R does not)."""
    coverage: PositiveShare = 0.9999
    """Share of the text's characters that get a piece; rarer ones become <unk>."""
    min_count: Count = 2
    """A piece must occur this often in the text to be a candidate."""
    separators: Literal[1, 2] = 2
    """Between the texts of a pair: 1 with segments (ALBERT), 2 without (XLM-R)."""
    frame: Literal["xlnet", "t5"] | msgspec.UnsetType = msgspec.UNSET
    """xlnet: `text <sep> <cls>`, with XLNet's special tokens. t5: `text </s>`, and 100 sentinels <extra_id_0> … for
    hidden spans. Where nothing is said: `<s> text </s>`."""
>>>>>>> main

__all__ = [
    "BPEConfig",
    "ByteBPEConfig",
    "CharactersConfig",
    "TokenizerConfig",
    "UnigramConfig",
    "VocabularyConfig",
    "WordPieceConfig",
    "Words",
    "learn_vocabulary",
    "pipeline",
    "template_of",
    "train_vocabulary",
]

TokenizerConfig = WordPieceConfig | ByteBPEConfig | BPEConfig | UnigramConfig | CharactersConfig
VocabularyConfig = TokenizerConfig
KINDS: dict[type, VocabularyKind[Any]] = {
    WordPieceConfig: WordPiece(),
    ByteBPEConfig: ByteBPE(),
    BPEConfig: BPE(),
    UnigramConfig: Unigram(),
    CharactersConfig: Characters(),
}


def train_vocabulary(
    texts: Iterable[str], config: TokenizerConfig, *, allow_smaller: bool = False, executor: Executor = LocalExecutor()
) -> Tokenizer:
    """Learn a vocabulary from texts. A size that the text cannot fill is refused, unless `allow_smaller`."""
    bare = pipeline(config)
    return learn_vocabulary(count_words(texts, bare, executor), bare, config, allow_smaller=allow_smaller)


def learn_vocabulary(
    words: Words, bare: tokenizers.Tokenizer, config: TokenizerConfig, *, allow_smaller: bool = False
) -> Tokenizer:
    """Learn a vocabulary from words that were counted with the pipeline `bare`."""
    if not words:
        raise DataError("there are no words in the text, so no vocabulary can be learnt; check the corpus paths")
    kind = KINDS[type(config)]
    model, tokens = kind.learn(words, config)
    if len(tokens) < config.size and not allow_smaller and not kind.may_be_smaller:
        raise DataError(
            f"a vocabulary of {config.size:,} pieces is larger than the text supports ({len(tokens):,} pieces); "
            f"{size_hint(len(tokens))}, or give more text"
        )
    _finish(bare, model, config)
    counts = kind.counts(words, bare, tokens)
    return Tokenizer.from_library(bare, config=kind.transformers_config(config), counts=counts)


def pipeline(config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Normaliser and pre-tokeniser of a kind, without a model yet."""
    library = tokenizers.Tokenizer(models.BPE())
    KINDS[type(config)].set_pipeline(library, config)
    return library


def template_of(config: TokenizerConfig, cls_id: int = 0, sep_id: int = 1) -> Template:
    """Special tokens that a vocabulary of this kind puts around texts and pairs."""
    return KINDS[type(config)].template(config, cls_id, sep_id)


def _finish(library: tokenizers.Tokenizer, model: Any, config: TokenizerConfig) -> None:
    """Set model, special tokens, decoder, and the template that `transformers` uses for one text or two."""
    kind = KINDS[type(config)]
    special = kind.special(config)
    names = special.tokens
    library.model = model
    others = [AddedToken(name, normalized=False, special=True) for name in special.first if name != names.mask]
    last = special.last or ([names.mask] if names.mask else [])
    rest = [AddedToken(name, lstrip=special.spaced_mask, normalized=False, special=True) for name in last]
    library.add_special_tokens([*others, *rest])
    by_id = {model.token_to_id(name): name for name in (names.cls, names.sep) if name}
    ids = [model.token_to_id(name) if name else 0 for name in (names.cls, names.sep)]
    library.post_processor = template_of(config, *ids).post_processor(by_id)
    library.decoder = kind.decoder()
