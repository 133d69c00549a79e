"""Encode each stretch of letters only once: a WordPiece corpus is then built several times faster than it encodes.

BERT's normaliser looks at one character at a time and its pre-tokeniser cuts at every space and around every mark of
punctuation, so the tokens of a text are the tokens of its stretches end to end, and most stretches come again and again
(Zipf's law). Each goes to the tokenizer once and is looked up from then on; NumPy does the rest. A tokenizer that
does not work that way (bytes, Unigram, added words) gets the texts whole. The result is the same, token by token: a
property test holds it to that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, ranges
from larvatus.data.text.tokenizer import FlatEncoding, Tokenizer

MOST = 1 << 17
"""Stretches kept, some 20 MB; then the rarer half is forgotten."""
LONGEST = 24
"""Characters: where stretches are longer on average, there are no spaces (Chinese), and nothing to gain."""
_BATCH = 4096

_STRETCH = re.compile(r"[!-/:-@\[-`{-~]|[^ \n!-/:-@\[-`{-~]+")  # a mark of ASCII punctuation, or what lies between
_ONE_BY_ONE = {"BertNormalizer", "Lowercase", "StripAccents", "NFD"}


@dataclass(frozen=True)
class _Rules:
    """What WordPiece needs to cut a plain word."""

    first: dict[str, int]  # pieces that open a word …
    inner: dict[str, int]  # … and those that go on with one, without their ##
    largest: int  # characters of a piece
    longest: int  # characters of a word
    unknown: int
    lowercase: bool


def encodes_words_separately(tokenizer: Tokenizer) -> bool:
    """Whether the tokens of a text are those of its stretches."""
    return _rules(tokenizer) is not None


def _rules(tokenizer: Tokenizer) -> _Rules | None:
    rules = json.loads(tokenizer.library.to_str())
    normalizer, cuts, model = rules["normalizer"], rules["pre_tokenizer"], rules["model"]
    steps = normalizer["normalizers"] if normalizer and normalizer["type"] == "Sequence" else [normalizer]
    apart = bool(
        model["type"] == "WordPiece"
        and model["continuing_subword_prefix"] == "##"
        and model["unk_token"] in model["vocab"]
        and cuts
        and cuts["type"] == "BertPreTokenizer"
        and all(step is None or step["type"] in _ONE_BY_ONE for step in steps)
        and all(token["special"] for token in rules["added_tokens"])
    )
    if not apart:
        return None
    return _Rules(
        first=model["vocab"],
        inner={piece[2:]: index for piece, index in model["vocab"].items() if piece.startswith("##")},
        largest=max(map(len, model["vocab"])),
        longest=model["max_input_chars_per_word"],
        unknown=model["vocab"][model["unk_token"]],
        lowercase=any(step and (step["type"] == "Lowercase" or step.get("lowercase")) for step in steps),
    )


class CachedEncoder:
    """`encode` gives what `tokenizer.encode_flat` gives. What it has seen grows while it works, within bounds."""

    def __init__(self, tokenizer: Tokenizer, most: int = MOST) -> None:
        self._tokenizer, self._most = tokenizer, most
        rules = _rules(tokenizer)
        self._apart = rules is not None
        if tokenizer.style is not None:
            tokenizer.word_start_tables  # noqa: B018  made here once, so that they travel to the workers
        self._rules = rules or _Rules({}, {}, 0, 0, 0, False)
        self._places: dict[str, int] = {}
        self._uses: Ints = np.empty(0, np.int64)  # how often each was looked up
        self._sizes: Ints = np.empty(0, np.int64)  # its tokens …
        self._begins: Ints = np.empty(0, np.int64)  # … and where they lie in the two tables below
        self._ids: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._starts: npt.NDArray[np.bool_] = np.empty(0, np.bool_)

    def encode(self, texts: Sequence[str]) -> FlatEncoding:
        split = list(map(_STRETCH.findall, texts)) if self._apart else []
        flat = [stretch for stretches in split for stretch in stretches]
        if not flat or sum(map(len, texts)) > LONGEST * len(flat):
            return _joined([self._tokenizer.encode_flat(texts[i : i + 1024]) for i in range(0, len(texts) or 1, 1024)])
        places = self._look_up(flat)  # [stretches]
        sizes = self._sizes[places]
        source = ranges(sizes) + np.repeat(self._begins[places], sizes)  # [N]
        before = edges(sizes)  # tokens before each stretch
        texts_end = edges(np.fromiter(map(len, split), np.int64, len(split)))
        return FlatEncoding(self._ids[source], np.diff(before[texts_end]), self._starts[source])

    def _look_up(self, flat: list[str]) -> Ints:
        """The place of each stretch in the tables; what is new is encoded and put there."""
        wanted = set(flat)
        new = wanted.difference(self._places)
        if new and len(self._places) + len(new) > self._most:
            self._forget_rare()
            new = wanted.difference(self._places)
        if new:
            self._learn(new)
        places = np.fromiter(map(self._places.__getitem__, flat), np.int64, len(flat))
        self._uses += np.bincount(places, minlength=len(self._uses))
        return places

    def _learn(self, unseen: set[str]) -> None:
        plain = [s for s in unseen if s.isascii() and s.isalnum()]
        others = [s for s in unseen if not (s.isascii() and s.isalnum())]
        new = plain + others
        batches = [others[i : i + _BATCH] for i in range(0, len(others), _BATCH)]
        encoded = _joined([self._plain(plain), *map(self._tokenizer.encode_flat, batches)])
        first = len(self._places)
        self._places.update(zip(new, range(first, first + len(new)), strict=True))
        self._begins = np.concatenate([self._begins, edges(encoded.lengths)[:-1] + len(self._ids)])
        self._sizes = np.concatenate([self._sizes, encoded.lengths])
        self._ids = np.concatenate([self._ids, encoded.ids])
        self._starts = np.concatenate([self._starts, encoded.starts])
        self._uses = np.concatenate([self._uses, np.zeros(len(new), np.int64)])

    def _plain(self, words: list[str]) -> FlatEncoding:
        """Words of ASCII letters and digits, which no rule but the case touches, by WordPiece's own definition."""
        pieces = [self._word_piece(word) for word in words]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        ids = np.fromiter(chain.from_iterable(pieces), np.int32, int(lengths.sum()))
        return FlatEncoding(ids, lengths, self._tokenizer.word_start_tables.starts(ids, edges(lengths)[:-1]))

    def _word_piece(self, word: str) -> list[int]:
        """The longest piece that fits, again and again (BERT's `WordpieceTokenizer`); unknown if one is missing."""
        rules = self._rules
        word = word.lower() if rules.lowercase else word
        if len(word) > rules.longest:
            return [rules.unknown]
        if (whole := rules.first.get(word)) is not None:
            return [whole]
        ids: list[int] = []
        start, pieces = 0, rules.first
        while start < len(word):
            end = min(len(word), start + rules.largest)
            while (piece := pieces.get(word[start:end])) is None:
                end -= 1
                if end == start:
                    return [rules.unknown]
            ids.append(piece)
            start, pieces = end, rules.inner
        return ids

    def _forget_rare(self) -> None:
        """Keep the half that was used most; what was used long ago counts less each time."""
        kept = np.sort(np.argsort(-self._uses, kind="stable")[: self._most // 2])
        names = list(self._places)  # in the order of their places
        self._places = {names[place]: i for i, place in enumerate(kept.tolist())}
        sizes = self._sizes[kept]
        source = ranges(sizes) + np.repeat(self._begins[kept], sizes)
        self._ids, self._starts = self._ids[source], self._starts[source]
        self._sizes, self._begins, self._uses = sizes, edges(sizes)[:-1], self._uses[kept] // 2


def _joined(parts: list[FlatEncoding]) -> FlatEncoding:
    def end_to_end(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    return FlatEncoding(end_to_end("ids"), end_to_end("lengths"), end_to_end("starts"))
