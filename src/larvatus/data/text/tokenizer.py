"""Tokenizers of every kind behind one class: text → ids with characters and words, and back.

    tokenizer = Tokenizer.load(Path("runs/mine"))           # any directory or file with a tokenizer.json
    found = tokenizer.encode("Mt. Sanitas")                  # an `Alignment`: ids, characters and word of each token
    flat = tokenizer.encode_flat(sentences)                  # ids and word starts of many texts, at full speed

The `tokenizers` library does the work. `encode` adds no special tokens (`template` has them), and reads a literal
``[MASK]`` in a text as text by default. The files are read and written in `tokenizer_files.py`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from larvatus.core.arrays import Ints
from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.files import locked
from larvatus.core.text_inputs import checked_text, string_list
from larvatus.data.text import tokenizer_files as files
from larvatus.data.text.align import Alignment, align, align_spans
from larvatus.data.text.boundaries import Style, WordStarts, byte_alphabet, rewritten_characters, word_starts
from larvatus.data.text.template import Template, tokenizer_template
from larvatus.data.text.tokenizer_files import SpecialTokens, arrays_of, cutting_copy, refuse_panic, run_library
from larvatus.data.text.words import segment_words

_BYTES = byte_alphabet()


@dataclass(frozen=True, eq=False)
class FlatEncoding:
    """Many texts laid end to end: what corpus building needs."""

    ids: npt.NDArray[np.int32]
    """[N] tokens of all texts."""
    lengths: npt.NDArray[np.int64]
    """[texts] tokens of each."""
    starts: npt.NDArray[np.bool_]
    """[N] whether a token opens a word, as the aligner would say; the first token of a text always does."""


@dataclass(eq=False, repr=False)
class Tokenizer:
    """A vocabulary and the rules that cut text into its pieces. Treat it as frozen.

    `larvatus.train_tokenizer` learns one, `Tokenizer.load` reads one.

    Example:
        >>> tokenizer = Tokenizer.load("runs/mine")
        >>> encoding = tokenizer.encode("The rivers.")
        >>> [tokenizer.token(id) for id in encoding.ids]
        ['the', 'river', '##s', '.']
        >>> tokenizer.decode(encoding.ids)
        'the rivers.'
    """

    library: tokenizers.Tokenizer
    special: SpecialTokens
    kind: str
    """"wordpiece", "byte-bpe", "bpe", "unigram", "characters" or "word-level"."""
    lowercase: bool
    style: Style | None
    """How pieces mark words; None: only the aligner knows."""
    counts: npt.NDArray[np.int64] | None = None
    """[V] how often each id occurs in the text the vocabulary was trained on."""
    config: dict[str, Any] = field(default_factory=dict)
    """Content of `tokenizer_config.json`, for `save`."""

    def __post_init__(self) -> None:
        self.library.no_padding()
        self.library.no_truncation()
        self.library.encode_special_tokens = True
        self.tokens: list[str] = files.token_list(self.library)
        self.special_ids: frozenset[int] = frozenset(
            [index for index, token in self.library.get_added_tokens_decoder().items() if token.special]
            + [index for name in vars(self.special).values() if (index := self.id(name)) is not None]
        )
        if self.counts is not None and len(self.counts) != self.size:
            raise ArtefactError(f"{len(self.counts):,} counts for {self.size:,} pieces; train the vocabulary again")

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.size:,} pieces, {'lower-cased' if self.lowercase else 'cased'})"

    # ── where it comes from, where it goes

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        """Read a directory with a `tokenizer.json`, or that file itself. Nothing in it can run code or run away.

        Args:
            path: The directory, or the file.
        """
        read = files.read(Path(path))
        return cls.from_library(read.library, config=read.config, counts=read.counts, name=str(path))

    @classmethod
    def from_library(
        cls,
        library: tokenizers.Tokenizer,
        *,
        config: dict[str, Any] | None = None,
        counts: npt.NDArray[np.int64] | None = None,
        name: str = "tokenizer",
    ) -> Tokenizer:
        """Wrap a tokenizer of the `tokenizers` library; kind, case and special tokens are found out.

        Args:
            library: It is copied.
            config: Content of a `tokenizer_config.json`, such as which token is the mask.
            counts: How often each id occurs in the text that it was trained on, [V].
            name: What messages call it.
        """
        library = tokenizers.Tokenizer.from_str(library.to_str())  # a copy: its settings are changed
        traits = files.read_traits(library, config or {}, name)
        return cls(
            library=library,
            special=traits.special,
            kind=traits.kind,
            lowercase=traits.lowercase,
            style=traits.style,
            counts=counts,
            config=dict(config or {}),
        )

    def save(self, directory: Path | str) -> None:
        """Write what `transformers.AutoTokenizer.from_pretrained` reads, and the unigram counts.

        Args:
            directory: Where its files go.
        """
        with locked(Path(directory), nested=True):
            stored = files.StoredTokenizer(self.library, self.config, self.counts)
            files.write(Path(directory), stored, special=self.special)

    # ── the vocabulary

    @cached_property
    def fingerprint(self) -> str:
        """Two tokenizers with the same fingerprint give the same ids for every text."""
        return hashlib.sha256(self.library.to_str().encode()).hexdigest()

    @property
    def size(self) -> int:
        """How many pieces, special tokens included."""
        return len(self.tokens)

    def id(self, token: str) -> int | None:
        """The id of a piece; None where the vocabulary lacks it.

        Args:
            token: The piece as the vocabulary writes it, such as `##ing`.
        """
        index: int | None = self.library.token_to_id(token) if token else None
        return index

    def token(self, index: int) -> str:
        """The piece of an id, as the vocabulary writes it.

        Args:
            index: Its id.
        """
        if not 0 <= index < self.size:
            raise DataError(f"there is no token {index}; ids go from 0 to {self.size - 1}")
        return self.tokens[index]

    def readable(self, token: str) -> str:
        """A token for people, bytes decoded: byte-level vocabularies write `ĠdaÃŁ` for ` daß`, a letter for each byte.

        The mark of a space stays. Part of a character is shown by its bytes: `\\xc3`.

        Args:
            token: The token as the vocabulary writes it.
        """
        if self.kind != "byte-bpe" or not all(char in _BYTES for char in token) or self.id(token) in self.special_ids:
            return token
        mark, rest = ("Ġ", token[1:]) if token.startswith("Ġ") else ("", token)
        return mark + bytes(_BYTES[char] for char in rest).decode("utf-8", errors="backslashreplace")

    def _special_id(self, role: str) -> int:
        index = self.id(getattr(self.special, role))
        if index is None:
            raise ArtefactError(
                f"this vocabulary has no {role} token; name it as {role}_token in tokenizer_config.json"
            )
        return index

    @property
    def cls_id(self) -> int:
        return self._special_id("cls")

    @property
    def sep_id(self) -> int:
        return self._special_id("sep")

    @property
    def mask_id(self) -> int:
        return self._special_id("mask")

    @property
    def padding_id(self) -> int | None:
        """Id of the padding token; some vocabularies, such as GPT's, have none."""
        return self.id(self.special.pad)

    @property
    def unk_id(self) -> int:
        return self._special_id("unk")

    @cached_property
    def template(self) -> Template:
        """Special tokens around texts and pairs, as `transformers` adds them for this tokenizer."""
        cls_id, sep_id = self.id(self.special.cls), self.id(self.special.sep)
        return tokenizer_template(self.library, self.config, cls_id=cls_id, sep_id=sep_id, size=self.size)

    def without_template(self) -> Tokenizer:
        """The same vocabulary without special tokens around texts, for models of single tokens."""
        bare = copy.copy(self)
        bare.template = Template.bert(None, None)
        return bare

    # ── text → ids

    def encode(self, text: str, *, special_tokens_in_text: bool = False) -> Alignment:
        """The tokens of a text with their characters and words.

        Args:
            text: The text; no special tokens are put around it (`template` does that).
            special_tokens_in_text: Read `[MASK]` and its like in the text as the token, not as characters.

        Returns:
            The alignment of characters, words and tokens: `.ids`, `.spans`, `.word_spans`, `.word_tokens`.
        """
        return align(checked_text(text), self, special_tokens_in_text=special_tokens_in_text)

    def encode_many(self, texts: Sequence[str], words: Sequence[Ints | None] | None = None) -> list[Alignment]:
        """As `encode`, for many texts on all cores: an alignment for each.

        Args:
            texts: The texts.
            words: Of texts that come already cut, the characters (start, end) of their words, [W, 2]; None of others.
        """
        texts = string_list(texts)
        encoded = [arrays_of(encoding) for encoding in run_library(self.library.encode_batch, texts)]
        for index, (ids, _) in enumerate(encoded):
            if self._misread(texts[index], ids):
                encoded[index] = self._as_text(texts[index])
        return [
            align_spans(text, *arrays, segment_words(text) if spans is None else spans)
            for text, arrays, spans in zip(texts, encoded, words or [None] * len(texts), strict=True)
        ]

    def encode_spans(self, text: str, *, special_tokens_in_text: bool = False) -> tuple[Ints, Ints]:
        """Ids [T] and character spans [T, 2] of a text: what the aligner builds on.

        Args:
            text: The text.
            special_tokens_in_text: As in `encode`.
        """
        text = checked_text(text)
        library = self._reading_specials if special_tokens_in_text else self.library
        ids, spans = arrays_of(run_library(library.encode_batch, [text])[0])
        if not special_tokens_in_text and self._misread(text, ids):
            return self._as_text(text)
        return ids, spans

    def encode_fast(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """Ids of many texts, an array for each, without characters or words.

        Args:
            texts: The texts.
        """
        ids, lengths = self.encode_lengths(string_list(texts))
        return np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []

    def encode_flat(self, texts: Sequence[str]) -> FlatEncoding:
        """Ids and word starts of many texts, laid end to end, at the speed of `encode_batch_fast`.

        Args:
            texts: The texts.
        """
        texts = string_list(texts)
        ids, lengths = self.encode_lengths(texts)
        ends = np.cumsum(lengths)
        if self.style is None:
            starts, unsure = np.ones(len(ids), dtype=np.bool_), np.flatnonzero(lengths)
        else:
            tables = self.word_start_tables
            starts = tables.starts(ids, (ends - lengths)[lengths > 0])
            doubtful = np.concatenate([[0], np.cumsum(tables.unsure[ids])])
            other = self._rewritten
            rewritten = np.asarray([bool(other and not text.isascii() and other.search(text)) for text in texts], bool)
            unsure = np.flatnonzero((doubtful[ends] > doubtful[ends - lengths]) | (rewritten & (lengths > 0)))
        exact = self.encode_many([texts[index] for index in unsure.tolist()])
        for index, alignment in zip(unsure.tolist(), exact, strict=True):
            starts[ends[index] - lengths[index] : ends[index]] = alignment.word_starts
        return FlatEncoding(ids, lengths, starts)

    def encode_lengths(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Ids of all texts end to end, and how many each has.

        Args:
            texts: Texts without special tokens.
        """
        lists = [encoding.ids for encoding in run_library(self.library.encode_batch_fast, texts)]
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(lengths.sum()))
        if not self._suspect[ids].any():
            return ids, lengths
        lists = [
            self._as_text(text)[0].tolist() if self._misread(text, ids_of_text) else ids_of_text
            for text, ids_of_text in zip(texts, lists, strict=True)
        ]
        lengths = np.asarray([len(ids_of_text) for ids_of_text in lists], dtype=np.int64)
        return np.asarray(list(chain.from_iterable(lists)), dtype=np.int32), lengths

    def _as_text(self, text: str) -> tuple[Ints, Ints]:
        """Encode a text in which the model itself found a special token: to Unigram ``<s>`` is a piece like any.

        Cut before the last character of each special name, so that none can be put together.
        """
        ids, spans = arrays_of(run_library(self._cutting_specials.encode_batch, [text])[0])
        if self._misread("", ids):
            raise DataError(
                "a special token written out in the text cannot be read as text by this vocabulary; remove it"
            )
        return ids, spans

    def _misread(self, text: str, ids: Any) -> bool:
        """Whether the ids of a plain text hold a special token (an unknown one only if the text spells it out)."""
        suspect = self._suspect[ids]
        if not suspect.any():
            return False
        unknown = self.id(self.special.unk)
        written_out = bool(self.special.unk) and self.special.unk in text
        return written_out or bool((np.asarray(ids)[suspect] != unknown).any())

    @cached_property
    def _suspect(self) -> npt.NDArray[np.bool_]:
        """[V] ids that may come of a special token written in plain text."""
        table = np.zeros(self.size, dtype=np.bool_)
        table[sorted(self.special_ids)] = True
        unknown = self.id(self.special.unk)
        if unknown is not None and self.kind != "unigram" and self.style is not None:
            table[unknown] = False  # these cut words at punctuation, so an unknown is never a name
        return table

    @cached_property
    def _reading_specials(self) -> tokenizers.Tokenizer:
        """A copy that reads a literal special token as such: a switch would be shared between threads."""
        return tokenizers.Tokenizer.from_str(self.library.to_str())

    @cached_property
    def _cutting_specials(self) -> tokenizers.Tokenizer:
        """A copy that cuts out the last characters of special names."""
        return cutting_copy(self.library, {self.tokens[index][-1] for index in self.special_ids})

    def word_starts(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """[N] which tokens of one text open a word, from their ids only. Refused where ids cannot tell.

        Args:
            ids: Tokens of one text, [N].
        """
        if self.style is None or self.word_start_tables.unsure[ids].any():
            raise DataError("these tokens do not show where words begin; use encode, which has the text")
        return self.word_start_tables.starts(ids, np.arange(min(1, len(ids))))

    @cached_property
    def word_start_tables(self) -> WordStarts:
        assert self.style is not None
        return word_starts(self.tokens, self.style, unknown=self.id(self.special.unk))

    @cached_property
    def _rewritten(self) -> Any:
        """A pattern of the characters whose normal form would be other words."""
        return None if self.library.normalizer is None else rewritten_characters(self.library.normalizer.normalize_str)

    # ── ids → text

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Text again, as far as the pieces know it: spaces and capitals may be lost.

        Args:
            ids: Token ids.
            skip_special_tokens: Leave out `[CLS]` and its like.
        """
        try:
            text: str = self.library.decode([int(index) for index in ids], skip_special_tokens=skip_special_tokens)
        except BaseException as fault:
            refuse_panic(fault)
            raise
        return text
