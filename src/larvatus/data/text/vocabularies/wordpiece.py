"""WordPiece as in BERT (Devlin et al. 2019): subwords are learnt by merging and encoded by longest match."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Count, PositiveShare, Size
from larvatus.core.settings import Settings
from larvatus.data.text.template import Template
from larvatus.data.text.vocabularies.bpe import learn_character_merges
from larvatus.data.text.vocabularies.kind import BERT, SpecialLayout, VocabularyKind, Words, bert_normalizer


class WordPieceConfig(Settings, path="tokenizer.", error=RecipeError, tag="wordpiece"):
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
            words, config, symbols=_symbols, join=lambda left, right: left + right[2:], special=BERT.count
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


def _symbols(word: str) -> list[str]:
    return [word[0], *("##" + char for char in word[1:])]
