"""Vocabularies: one file for each kind (its config, training, normaliser, template and decoder), and their training.

    tokenizer = train_vocabulary(texts, WordPieceConfig(size=30_522))

`larvatus tokenizer train` does the same. `KINDS` maps the config of a kind to what differs between kinds. The same text
and config give the same vocabulary every time: neither threads nor hash seeds change a token, an id or a score. Only a
table of counted words is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import AddedToken, models

from larvatus.core.errors import DataError
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.text.counting import count_words
from larvatus.data.text.template import Template
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies.bpe import BPE, BPEConfig, ByteBPE, ByteBPEConfig, WordPiece, WordPieceConfig
from larvatus.data.text.vocabularies.characters import Characters, CharactersConfig
from larvatus.data.text.vocabularies.kind import VocabularyKind, Words, size_hint
from larvatus.data.text.vocabularies.unigram import Unigram, UnigramConfig

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
        raise DataError("there are no words in the text, so no vocabulary can be trained; check the corpus paths")
    kind = KINDS[type(config)]
    model, tokens = kind.learn(words, config)
    if len(tokens) < config.size and not allow_smaller and not kind.may_be_smaller:
        raise DataError(
            f"a vocabulary of {config.size:,} tokens is larger than the text supports ({len(tokens):,} tokens); "
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
