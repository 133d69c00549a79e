"""What texts look like: how long they are, and whether their characters are sound."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from larvatus.data.labelled.records import in_short
from larvatus.data.labelled.repeats import Examples
from larvatus.data.labelled.report import Findings, many
from larvatus.data.text.words import segment_words

Measure = Callable[[Sequence[str]], Sequence[int]]
"""Tokens of each text: what a tokenizer counts."""
AT_ONCE = 1_000
_ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd\ufeff]")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9 ]")


def measure_lengths(
    findings: Findings, parts: dict[str, Examples], measure: Measure | None, longest: int
) -> dict[str, float]:
    """Median, 95th percentile and maximum of train; texts over the limit are noted, longest first."""
    stats: dict[str, float] = {}
    unit = "words" if measure is None else "tokens"
    for name, part in parts.items():
        sizes = np.fromiter(_sizes(part, measure), dtype=np.int64, count=len(part))
        if name == "train":
            middle, high = np.percentile(sizes, [50, 95])
            stats = {"median": float(middle), "p95": float(high), "longest": int(sizes.max())}
        over = np.flatnonzero(sizes > longest)
        worst = over[np.argsort(-sizes[over], kind="stable")][: findings.most]
        said = [f"{part.examples[index].place}: {sizes[index]:,} {unit}" for index in worst.tolist()]
        message = f"{many(len(over), 'text', 'texts')} of {name} longer than {longest:,} {unit}; read in windows"
        findings.add("long texts", "warning", message, said, len(over))
    return stats


def _sizes(part: Examples, measure: Measure | None) -> Iterator[int]:
    for start in range(0, len(part), AT_ONCE):
        for_now = part.examples[start : start + AT_ONCE]
        if measure is not None:
            yield from measure([example.reads() for example in for_now])
            continue
        for example in for_now:
            words = example.word_count()
            yield count_words(example.reads()) if words is None else words


def count_words(text: str) -> int:
    """How many words `segment_words` finds; plain ASCII, most of what is checked, is counted the short way."""
    plain = text.replace("\t", " ")
    return len(_ASCII_WORD.findall(plain)) if plain.isascii() and plain.isprintable() else len(segment_words(text))


def find_odd_characters(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note controls, replacement characters and byte-order marks; and texts that are not in NFC."""
    odd, loose = findings.tally(), findings.tally()
    for part in parts.values():
        for example in part:
            text = example.reads()
            if text.isascii() and text.isprintable():
                continue
            match = _ODD.search(text)
            if match and odd.add():
                odd.examples.append(f"{example.place}: U+{ord(match.group()):04X} at character {match.start()}")
            if not unicodedata.is_normalized("NFC", text) and loose.add():
                loose.examples.append(f"{example.place}: {in_short(text)}")
    said = f"{many(odd.count, 'text holds', 'texts hold')} control or replacement characters: a broken decoding?"
    findings.add("odd characters", "warning", said, odd.examples, odd.count)
    said = f"{many(loose.count, 'text is', 'texts are')} not in Unicode's composed form (NFC); equal words may differ"
    findings.add("not NFC", "warning", said, loose.examples, loose.count)
