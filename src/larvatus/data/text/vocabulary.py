"""Training a vocabulary: WordPiece, byte-level BPE, plain BPE or Unigram, the same for the same text every time.

    tokenizer = train_vocabulary(texts, WordPieceConfig(size=30_522))
    larvatus tokenizer train my_texts/ --type wordpiece --size 30522 --out vocabulary/

WordPiece as in BERT (pieces learnt by merging, as public trainers do; encoded by longest match, Devlin et al. 2019),
byte-level BPE as in GPT-2 and RoBERTa (Radford et al. 2019), BPE with ``</w>`` as in GPT (Radford et al. 2018), Unigram
as in XLM-R and ALBERT (Kudo 2018). Only a table of counted words is kept in memory, and neither threads nor hash seeds
change a piece, an id or a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from larvatus.core.errors import DataError, RecipeError
from larvatus.core.ranges import Count, PositiveShare, Size
from larvatus.core.settings import Settings
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.bpe import Merges, learn_merges
from larvatus.data.text.characters import (
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
from larvatus.data.text.unigram import learn_unigram

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


TokenizerConfig = WordPieceConfig | ByteBPEConfig | BPEConfig | UnigramConfig | CharactersConfig
VocabularyConfig = TokenizerConfig


def train_vocabulary(
    texts: Iterable[str], config: TokenizerConfig, *, allow_smaller: bool = False, executor: Executor = LocalExecutor()
) -> Tokenizer:
    """Learn a vocabulary from texts. A size that the text cannot fill is refused, unless a smaller one will do."""
    bare = pipeline(config)
    return learn_vocabulary(count_words(texts, bare, executor), bare, config, allow_smaller=allow_smaller)


def learn_vocabulary(
    words: Words, bare: tokenizers.Tokenizer, config: TokenizerConfig, *, allow_smaller: bool = False
) -> Tokenizer:
    """The same from words that were counted with the pipeline `bare`."""
    if not words:
        raise DataError("there are no words in the text, so no vocabulary can be learnt; check the corpus paths")
    model, pieces = _learn(words, config)
    if len(pieces) < config.size and not allow_smaller and not isinstance(config, CharactersConfig):
        raise DataError(
            f"a vocabulary of {config.size:,} pieces is larger than the text supports ({len(pieces):,} pieces); "
            f"{_size_fix(len(pieces))}, or give more text"
        )
    library = _finished(bare, model, config)
    if isinstance(config, CharactersConfig):
        counts = word_counts(words, pieces)
    else:
        counts = _unigram_counts(words, library, len(pieces))
    return Tokenizer.from_library(library, config=_transformers_config(config), counts=counts)


def pipeline(config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Normaliser and pre-tokeniser of a family, without a model yet."""
    if config.size < 1:
        raise DataError(f"a vocabulary of {config.size} pieces makes no sense; set tokenizer.size (--size)")
    library = tokenizers.Tokenizer(models.BPE())
    if isinstance(config, CharactersConfig):
        character_pipeline(library, lowercase=config.lowercase)
    elif isinstance(config, ByteBPEConfig):
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    elif isinstance(config, UnigramConfig):
        folding = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()] if config.lowercase else []
        spaces = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
        library.normalizer = normalizers.Sequence([normalizers.Nmt(), *folding, normalizers.NFKC(), spaces])
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
        )
    else:
        library.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=config.lowercase
        )
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def frame_of(config: TokenizerConfig, cls_id: int = 0, sep_id: int = 1) -> Frame:
    """How a vocabulary of this kind dresses texts: in a pair, one separator and two segments, or two separators.

    A vocabulary of running text, as T5's, puts nothing before a text, and one token after each.
    """
    running = isinstance(config, ByteBPEConfig | BPEConfig) and config.frame == "gpt"
    if running or special_of(config) is T5:
        return Frame.bert(None, sep_id).without_segments()
    if special_of(config) is XLNET:
        return Frame.xlnet(cls_id, sep_id)
    one_separator = config.separators == 1 if isinstance(config, UnigramConfig) else isinstance(config, WordPieceConfig)
    return (Frame.bert if one_separator else Frame.roberta)(cls_id, sep_id)


def _learn(words: Words, config: TokenizerConfig) -> tuple[Any, list[str]]:
    """The library model and all its pieces in the order of their ids."""
    if isinstance(config, CharactersConfig):
        return learn_words(words, config, _head(ELMO))
    if isinstance(config, WordPieceConfig):
        merges = _character_merges(words, config, _wordpiece_symbols, lambda left, right: left + right[2:], 5)
        pieces = _head(BERT) + merges.pieces
        ids = {piece: index for index, piece in enumerate(pieces)}
        return models.WordPiece(ids, unk_token=BERT.unk, max_input_chars_per_word=100), pieces
    if isinstance(config, UnigramConfig):
        head, tail = _head(special := special_of(config)), _tail(special)
        room = _room(config, len(head) + len(tail))
        scored = learn_unigram(words, size=room, coverage=config.coverage, min_count=config.min_count)
        entries = [(name, 0.0) for name in head] + scored + [(name, 0.0) for name in tail]
        unknown = head.index(special.unk)
        return models.Unigram(entries, unk_id=unknown, byte_fallback=False), [piece for piece, _ in entries]
    if isinstance(config, ByteBPEConfig):
        alphabet = sorted(byte_alphabet())
        merges = learn_merges(
            words, symbols=list, join=str.__add__, alphabet=alphabet,
            pieces=_room(config, 5, len(alphabet)), min_count=config.min_count,
        )  # fmt: skip
        suffix = {}
    else:
        merges = _character_merges(words, config, _gpt_symbols, str.__add__, 5)
        suffix = {"end_of_word_suffix": "</w>", "unk_token": ROBERTA.unk}
    pieces = _head(ROBERTA) + merges.pieces + [ROBERTA.mask]
    ids = {piece: index for index, piece in enumerate(pieces)}
    return models.BPE(ids, merges.pairs, **suffix), pieces


def special_of(config: TokenizerConfig) -> SpecialTokens:
    """The special tokens of a kind of vocabulary."""
    if isinstance(config, CharactersConfig):
        return ELMO
    if isinstance(config, UnigramConfig) and config.frame == "t5":
        return T5
    if isinstance(config, UnigramConfig) and config.frame == "xlnet":
        return XLNET
    return BERT if isinstance(config, WordPieceConfig) else ROBERTA


def _tail(special: SpecialTokens) -> list[str]:
    """Special tokens after all others: RoBERTa's mask; T5's sentinels, the first of them last."""
    if special is T5:
        return [sentinel_name(number) for number in reversed(range(SENTINELS))]
    return [special.mask] if special is ROBERTA else []


def _head(special: SpecialTokens) -> list[str]:
    """The special tokens at the customary places: BERT's first five; RoBERTa's first four, its mask comes last."""
    if special is T5:
        return [special.pad, special.sep, special.unk]
    if special is XLNET:
        return [special.unk, "<s>", "</s>", special.cls, special.sep, special.pad, special.mask, "<eod>", "<eop>"]
    if special is BERT:
        return [special.pad, special.unk, special.cls, special.sep, special.mask]
    return [special.cls, special.pad, special.sep, special.unk]


def _room(config: TokenizerConfig, special: int, alphabet: int = 0) -> int:
    """Pieces left for the text. Too few for the alphabet is refused, with the least size that works."""
    room = config.size - special
    if room < max(1, alphabet):
        least = alphabet + special
        raise DataError(
            f"a vocabulary of {config.size:,} pieces cannot hold the {alphabet:,} symbols of the text and "
            f"{special} special tokens; {_size_fix(least)} or more"
        )
    return room


def _size_fix(size: int) -> str:
    return f"use --set tokenizer.size={size} (tokenizer train: --size {size})"


def _wordpiece_symbols(word: str) -> list[str]:
    return [word[0], *("##" + char for char in word[1:])]


def _gpt_symbols(word: str) -> list[str]:
    return [*word[:-1], word[-1] + "</w>"]


def _character_merges(
    words: Words, config: WordPieceConfig | BPEConfig, symbols: Any, join: Any, special: int
) -> Merges:
    """Merges over characters as they stand at the beginning and inside (or at the end) of words."""
    kept = set(covered_characters(words, config.coverage))
    clean = [(word, count) for word, count in words if kept.issuperset(word)]
    alphabet = sorted(
        {symbol for word, _ in clean for symbol in symbols(word)}, key=lambda symbol: (len(symbol) > 1, symbol)
    )
    room = _room(config, special, len(alphabet))
    return learn_merges(clean, symbols=symbols, join=join, alphabet=alphabet, pieces=room, min_count=config.min_count)


def _finished(library: tokenizers.Tokenizer, model: Any, config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Model, special tokens, decoder, and the template that `transformers` uses for one text or two."""
    library.model = model
    special = special_of(config)
    others = [AddedToken(name, normalized=False, special=True) for name in _head(special) if name != special.mask]
    last, spaced = _tail(special) or [special.mask], special is ROBERTA or special is XLNET
    rest = [AddedToken(name, lstrip=spaced, normalized=False, special=True) for name in last if name]
    library.add_special_tokens([*others, *rest])
    names = {model.token_to_id(name): name for name in (special.cls, special.sep) if name}
    ids = [model.token_to_id(name) if name else 0 for name in (special.cls, special.sep)]
    library.post_processor = frame_of(config, *ids).post_processor(names)
    if isinstance(config, CharactersConfig):
        library.decoder = character_decoder()
    elif isinstance(config, ByteBPEConfig):
        library.decoder = decoders.ByteLevel()
    elif isinstance(config, UnigramConfig):
        library.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    elif isinstance(config, BPEConfig):
        library.decoder = decoders.BPEDecoder(suffix="</w>")
    else:
        library.decoder = decoders.WordPiece(prefix="##")
    return library


def _transformers_config(config: TokenizerConfig) -> dict[str, Any]:
    """What `tokenizer_config.json` says: a class that keeps our normaliser (the XLM-R class would rebuild it)."""
    if isinstance(config, WordPieceConfig):
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": config.lowercase,
            "tokenize_chinese_chars": True,
            "strip_accents": None,
        }
    if special_of(config) is T5:
        return {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": T5.sep}
    ends = {"bos_token": ROBERTA.cls, "eos_token": ROBERTA.sep}
    if isinstance(config, ByteBPEConfig) and config.frame != "gpt":  # RoBERTa's class would open texts by <s>
        return ends | {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "trim_offsets": False}
    plain: dict[str, Any] = {**ends, "tokenizer_class": "PreTrainedTokenizerFast"}
    closed = special_of(config) is XLNET
    if closed:  # padded before, so that <cls> is the last token in a padded batch too
        plain |= {"cls_token": XLNET.cls, "sep_token": XLNET.sep, "padding_side": "left"}
    if closed or (isinstance(config, UnigramConfig) and config.separators == 1):
        # its class hands segments on only where told to
        plain["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return plain


def _unigram_counts(words: Words, library: tokenizers.Tokenizer, size: int) -> npt.NDArray[np.int64]:
    """[V] how often each id occurs in the counted words: each different word is encoded once.

    Line breaks, which byte-level vocabularies have pieces for, do not count: sentences of a corpus never hold them.
    """
    words = [(word, times) for word, times in words if word.strip(_LINE_BREAKS)]
    bare = tokenizers.Tokenizer(library.model)
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(words), 10_000):
        part = words[start : start + 10_000]
        for (_, times), encoding in zip(part, bare.encode_batch_fast([word for word, _ in part]), strict=True):
            np.add.at(counts, encoding.ids, times)
    return counts
