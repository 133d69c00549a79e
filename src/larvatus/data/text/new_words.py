"""Which words of a new domain deserve a piece of their own.

    frequent_units(count_words(texts, tokenizer.library), tokenizer, most=500)
    listed_units(Path("terms.txt"), tokenizer)                       # one word a line

A vocabulary spends several pieces on words that it has not seen. The words that would save most tokens come first:

    gain(w) = count(w) × (pieces(w) − 1)

A unit is a word as the model meets it, behind normaliser and pre-tokeniser: ``word`` to WordPiece, ``Ġword`` to
byte-level BPE (after a space; ``word`` at the beginning of a text is another), ``▁word`` to Unigram.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex

from larvatus.core.errors import DataError, UsageError
from larvatus.core.regular_files import read_named
from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.extend import Parts, is_whole, spelt
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import ALONE, segment_words

LEAST_COUNT = 2
_ALONE = regex.compile(ALONE)
_BYTES = byte_alphabet()


@dataclass(frozen=True)
class Chosen:
    """Units to add, and words that were asked for in vain."""

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


def frequent_units(words: Sequence[tuple[str, int]], tokenizer: Tokenizer, most: int) -> Chosen:
    """The units of counted words (`counting.count_words`) with the largest gain, at most `most`."""
    if most < 1:
        raise UsageError(f"--add-words wants a number above 0 or a file of words, not {most}")
    counts: Counter[str] = Counter()
    for unit, count in words:
        if first := _first_word(unit, tokenizer):
            counts[first] += count
    gains = []
    frequent = [unit for unit, count in counts.items() if count >= LEAST_COUNT]
    for unit, ids in zip(frequent, spelt(tokenizer, frequent), strict=True):
        if len(ids) > 1 and _can_be_added(unit, ids, tokenizer):
            gains.append((-counts[unit] * (len(ids) - 1), unit))
    return Chosen(tuple(unit for _, unit in sorted(gains)[:most]))


def listed_units(path: Path, tokenizer: Tokenizer) -> Chosen:
    """The units of a file's words, one a line. What is known already is skipped, and said."""
    units: dict[str, None] = {}
    known, refused = [], []
    for word in dict.fromkeys(_lines(path)):
        word_units = units_of(word, tokenizer)
        spellings = dict(zip(word_units, spelt(tokenizer, word_units), strict=True))
        new = [unit for unit, ids in spellings.items() if not is_whole(ids, tokenizer)]
        if not word_units or not all(_can_be_added(unit, spellings[unit], tokenizer) for unit in new):
            refused.append(word)
        elif new:
            units |= dict.fromkeys(new)
        else:
            known.append(word)
    return Chosen(tuple(units), tuple(known), tuple(refused))


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
