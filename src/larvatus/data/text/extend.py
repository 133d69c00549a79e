"""More pieces for an existing vocabulary: words of a new domain come out whole, and no old id changes.

    extension = extend(tokenizer, ["immunoglobulin"])     # units: words as the model meets them, see `extend.py`
    extension.tokenizer.encode("immunoglobulin").ids      # one id, from tokenizer.size on
    extension.parts[0]                                    # the old ids of its pieces: where its vector starts from

Real pieces, not added tokens, so that offsets, word borders and `transformers` work as before. A word is encoded as
before unless a new piece is used in it. How a unit becomes a piece depends on the model:

    WordPiece   it is added; greedy longest match finds it. A continuing character that occurs only inside longer
                pieces gets a piece of its own, lest what follows a new piece become unknown
    BPE         merges are added after all others, from left to right over its old pieces, until one piece is left; the
                pieces on the way are new too. Older merges go first, so nothing that they make changes
    Unigram     it is added with a score just above its best old segmentation, but none below the lowest there was,
                on which the price of unknown characters hangs

That vectors start as the mean of those of the old pieces is the custom since Hewitt (2021) and AVocaDo (Hong et al.
2021); exBERT (Tai et al. 2020) extends a vocabulary in the same way, with an embedding layer of its own.

Which words of a new domain should become tokens.

    frequent_units(count_words(texts, tokenizer.library), tokenizer, most=500)
    listed_units(Path("terms.txt"), tokenizer)                       # one word a line

A vocabulary spends several pieces on words that it has not seen. The words that would save most tokens come first:

    gain(w) = count(w) × (pieces(w) − 1)

A unit is a word as the model meets it, behind normaliser and pre-tokeniser: ``word`` to WordPiece, ``Ġword`` to
byte-level BPE (after a space; ``word`` at the beginning of a text is another), ``▁word`` to Unigram.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import regex
import tokenizers

from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.regular_files import read_named
from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import ALONE, segment_words

Units = Mapping[str, tuple[int, ...]]
"""Units to add, with the ids of their old pieces."""
Parts = tuple[int, ...]

EDGE = 1e-6
"""By how much (in log probability) a new Unigram piece beats its old pieces."""
UNKNOWN_PRICE = 10.0
"""What the library takes off the lowest score for an unknown character."""


@dataclass(frozen=True, eq=False)
class Extension:
    """A longer vocabulary, and what its new pieces were before."""

    tokenizer: Tokenizer
    first: int
    """The first new id: the size that the vocabulary had."""
    parts: tuple[Parts, ...]
    """For each new id, the old ids whose vectors it starts as the mean of."""


def subword_ids(tokenizer: Tokenizer, units: Sequence[str]) -> list[Parts]:
    """Ids of units (words after normaliser and pre-tokeniser) by the model only."""
    model = tokenizers.Tokenizer(tokenizer.library.model)
    return [tuple(encoding.ids) for encoding in model.encode_batch_fast(list(units), add_special_tokens=False)]


def is_single_token(ids: Parts, tokenizer: Tokenizer) -> bool:
    """Whether a unit is one piece already."""
    return len(ids) == 1 and ids[0] != tokenizer.id(tokenizer.special.unk)


def extend(tokenizer: Tokenizer, units: Sequence[str]) -> Extension:
    """Add units as pieces. Counts, where the tokenizer has them, are 0 for the new ones: see `counting.count_ids`."""
    settings = json.loads(tokenizer.library.to_str())
    model = settings["model"]
    add = {"WordPiece": _wordpiece, "BPE": _bpe, "Unigram": _unigram}.get(model["type"])
    if add is None or tokenizer.kind == "characters":
        raise ArtefactError(f"a {tokenizer.kind} vocabulary cannot be extended; leave out --add-words")
    _hold_added_tokens(settings, tokenizer)
    old = dict(zip(units, subword_ids(tokenizer, units), strict=True))
    wanted = {unit: ids for unit, ids in old.items() if not is_single_token(ids, tokenizer)}
    new = add(model, wanted, tokenizer)
    library = tokenizers.Tokenizer.from_str(json.dumps(settings, ensure_ascii=False))
    counts = tokenizer.counts
    if counts is not None:
        counts = np.concatenate([counts, np.zeros(len(new), dtype=np.int64)])
    extended = Tokenizer.from_library(library, config=tokenizer.config, counts=counts)
    _check(tokenizer, extended, list(old))
    return Extension(extended, tokenizer.size, tuple(new.values()))


def _hold_added_tokens(settings: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Give added tokens beyond the model's vocabulary a place in it: else the library numbers them again."""
    vocabulary = settings["model"]["vocab"]
    known = vocabulary if isinstance(vocabulary, dict) else {piece for piece, _ in vocabulary}
    beyond = sorted((t["id"], t["content"]) for t in settings["added_tokens"] if t["content"] not in known)
    if isinstance(vocabulary, dict):
        vocabulary.update({content: index for index, content in beyond})
        return
    lowest = min(score for _, score in vocabulary)
    vocabulary.extend([content, lowest] for _, content in beyond)
    if [piece for piece, _ in vocabulary] != tokenizer.tokens:
        raise ArtefactError("this vocabulary has ids without a token, so it cannot be extended; leave out --add-words")


def _wordpiece(model: dict[str, Any], units: Units, tokenizer: Tokenizer) -> dict[str, Parts]:
    vocabulary, prefix = model["vocab"], model["continuing_subword_prefix"]
    inside: dict[str, list[int]] = {}
    for piece, index in vocabulary.items():
        if piece.startswith(prefix) and index not in tokenizer.special_ids:
            for char in set(piece.removeprefix(prefix)):
                inside.setdefault(char, []).append(index)
    new = dict(units)
    if new:
        alone = {prefix + char: ids for char, ids in sorted(inside.items()) if prefix + char not in vocabulary}
        new |= {piece: tuple(sorted(ids)) for piece, ids in alone.items()}
    vocabulary.update({piece: tokenizer.size + number for number, piece in enumerate(new)})
    return new


def _bpe(model: dict[str, Any], units: Units, tokenizer: Tokenizer) -> dict[str, Parts]:
    vocabulary = model["vocab"]
    prefix = model.get("continuing_subword_prefix") or ""
    merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    new: dict[str, Parts] = {}

    def parts(piece: str) -> Parts:
        return new[piece] if piece in new else (vocabulary[piece],)

    for unit in units:
        row = apply_merges([tokenizer.tokens[index] for index in units[unit]], ranks, prefix)
        while len(row) > 1:
            left, right = row[:2]
            joined = left + right.removeprefix(prefix)
            ranks[left, right] = len(merges)
            merges.append((left, right))
            if joined not in vocabulary:
                new[joined] = (*parts(left), *parts(right))
                vocabulary[joined] = tokenizer.size + len(new) - 1
            row = apply_merges(row, ranks, prefix)
    model["merges"] = [list(pair) for pair in merges]
    return new


def apply_merges(row: Sequence[str], ranks: Mapping[tuple[str, ...], int], prefix: str = "") -> list[str]:
    """Byte-pair encoding by the book: the pair of lowest rank, leftmost first, until there is none.

    >>> apply_merges(["a", "b", "a", "b"], {("a", "b"): 0, ("ab", "ab"): 1})
    ['abab']
    """
    row = list(row)
    while True:
        pairs = [(ranks[pair], place) for place, pair in enumerate(pairwise(row)) if pair in ranks]
        if not pairs:
            return row
        place = min(pairs)[1]
        row[place : place + 2] = [row[place] + row[place + 1].removeprefix(prefix)]


def _unigram(model: dict[str, Any], units: Units, tokenizer: Tokenizer) -> dict[str, Parts]:
    scores = {piece: float(score) for piece, score in model["vocab"]}
    lowest = min(scores.values())
    new = {}
    for unit in sorted(units, key=lambda unit: (len(unit), unit)):  # a shorter one may be part of a longer one
        best = best_score(unit, scores, unknown=lowest - UNKNOWN_PRICE)
        scores[unit] = max(best + EDGE, lowest)
        model["vocab"].append([unit, scores[unit]])
        new[unit] = units[unit]
    return new


def best_score(unit: str, scores: Mapping[str, float], *, unknown: float) -> float:
    """Log probability of the best segmentation (Viterbi); a character without a piece costs `unknown`.

    >>> best_score("ab", {"a": -1.0, "b": -2.0, "ab": -4.0}, unknown=-14.0)
    -3.0
    """
    best = [0.0]
    for end in range(1, len(unit) + 1):
        ways = [best[start] + scores[unit[start:end]] for start in range(end) if unit[start:end] in scores]
        best.append(max([*ways, *([] if unit[end - 1] in scores else [best[end - 1] + unknown])]))
    return best[-1]


def _check(old: Tokenizer, new: Tokenizer, units: list[str]) -> None:
    """Old ids where they were, and every unit whole: what the three ways promise."""
    if new.tokens[: old.size] != old.tokens or new.special != old.special:
        raise ArtefactError("this vocabulary cannot be extended without changing old ids; leave out --add-words")
    broken = [unit for unit, ids in zip(units, subword_ids(new, units), strict=True) if not is_single_token(ids, new)]
    if broken:
        raise ArtefactError(f"{broken[0]!r} cannot be made one piece of this vocabulary; leave it out of --add-words")


LEAST_COUNT = 2
_ALONE = regex.compile(ALONE)
_BYTES = byte_alphabet()


@dataclass(frozen=True)
class NewUnits:
    """Units to add, and requested words that cannot be added."""

    units: tuple[str, ...]
    known: tuple[str, ...] = ()
    """Words that are one piece already."""
    refused: tuple[str, ...] = ()
    """Words that the vocabulary's own rules cut (at a hyphen) or drop, or that hold characters it cannot spell."""

    def __str__(self) -> str:
        lines = []
        cut = "cut or unspellable by this vocabulary's rules"
        for words, why in ((self.known, "known already"), (self.refused, cut)):
            if words:
                more = f" and {len(words) - 5:,} more" if len(words) > 5 else ""
                lines.append(f"{len(words):,} not added, {why}: {', '.join(words[:5])}{more}")
        return "; ".join(lines)


def frequent_units(words: Sequence[tuple[str, int]], tokenizer: Tokenizer, most: int) -> NewUnits:
    """The units of counted words (`counting.count_words`) with the largest gain, at most `most`."""
    if most < 1:
        raise UsageError(f"--add-words needs a number above 0 or a file of words, not {most}")
    counts: Counter[str] = Counter()
    for unit, count in words:
        if first := _first_word(unit, tokenizer):
            counts[first] += count
    gains = []
    frequent = [unit for unit, count in counts.items() if count >= LEAST_COUNT]
    for unit, ids in zip(frequent, subword_ids(tokenizer, frequent), strict=True):
        if len(ids) > 1 and _can_be_added(unit, ids, tokenizer):
            gains.append((-counts[unit] * (len(ids) - 1), unit))
    return NewUnits(tuple(unit for _, unit in sorted(gains)[:most]))


def listed_units(path: Path, tokenizer: Tokenizer) -> NewUnits:
    """The units of a file's words, one a line. Known words are skipped, and reported."""
    units: dict[str, None] = {}
    known, refused = [], []
    for word in dict.fromkeys(_lines(path)):
        word_units = units_of(word, tokenizer)
        spellings = dict(zip(word_units, subword_ids(tokenizer, word_units), strict=True))
        new = [unit for unit, ids in spellings.items() if not is_single_token(ids, tokenizer)]
        if not word_units or not all(_can_be_added(unit, spellings[unit], tokenizer) for unit in new):
            refused.append(word)
        elif new:
            units |= dict.fromkeys(new)
        else:
            known.append(word)
    return NewUnits(tuple(units), tuple(known), tuple(refused))


def units_of(word: str, tokenizer: Tokenizer) -> list[str]:
    """A word as the model meets it after a space and at the beginning of a text; nothing where it is cut in several."""
    units: list[str] = []
    for text in (f" {word}", word):
        library = tokenizer.library
        text = text if library.normalizer is None else library.normalizer.normalize_str(text)
        cut = library.pre_tokenizer
        cut_units = [text] if cut is None else [unit for unit, _ in cut.pre_tokenize_str(text)]
        if len(cut_units) != 1 or not cut_units[0]:
            return []
        units += [unit for unit in cut_units if unit not in units]
    return units


def _lines(path: Path) -> Iterator[str]:
    try:
        lines = read_named(path, DataError).splitlines()
    except DataError as fault:
        raise DataError(f"--add-words {fault}") from fault
    if not any(line.strip() for line in lines):
        raise DataError(f"--add-words {path} holds no words; write one a line, or give a number")
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:
            raise DataError(f"{path}:{number}: {line.strip()!r} holds white space; write one word a line")
        if line.strip():
            yield line.strip()


def _can_be_added(unit: str, ids: Parts, tokenizer: Tokenizer) -> bool:
    """BPE merges what it can spell; WordPiece looks at no more than 100 characters."""
    if not ids:
        return False
    if tokenizer.kind in ("bpe", "byte-bpe"):
        return tokenizer.id(tokenizer.special.unk) not in ids
    return len(unit) <= getattr(tokenizer.library.model, "max_input_chars_per_word", len(unit))


def _first_word(unit: str, tokenizer: Tokenizer) -> str | None:
    """The unit of a word with what is written right after it left off (``▁end.``); None for numbers and signs.

    Characters of scripts without spaces are words by themselves: no longer piece is put together of them.
    """
    mark, text = _cut_mark(unit, tokenizer)
    spans = segment_words(text)
    if not len(spans) or spans[0, 0] != 0:
        return None
    word = text[: spans[0, 1]]
    if _ALONE.match(word) or not any(char.isalpha() for char in word) or len(word) < 2:
        return None
    return unit if word == text else mark + word if tokenizer.style == "▁" else None


def _cut_mark(unit: str, tokenizer: Tokenizer) -> tuple[str, str]:
    """The mark of a space before, and the text."""
    if tokenizer.style == "▁":
        text = unit.lstrip("▁")
        return unit[: len(unit) - len(text)], text
    if tokenizer.kind == "byte-bpe":
        text = bytes(_BYTES.get(char, 0) for char in unit).decode(errors="replace")
        return ("Ġ", text[1:]) if text.startswith(" ") else ("", text)
    return "", unit
