"""Texts that occur again: within a part, in train and dev both, with other labels, or but for case and spaces.

Texts are compared by digests of 16 bytes, in one pass: a million texts of any length take a million entries.
"""

from __future__ import annotations

import hashlib
from typing import Any

from larvatus.data.labelled.records import AnyExample, Dataset, in_short
from larvatus.data.labelled.report import Findings

Examples = Dataset[Any]
_First = tuple[AnyExample, str]
_SAID = {
    "leak": ("train texts in dev", "{} of dev {} in train too: scores will flatter"),
    "near leak": ("train texts in dev, nearly", "{} of dev {} in train but for case and spaces"),
    "other": ("conflicting labels", "{} {} labelled in two ways"),
    "again": ("duplicates", "{} {} a repetition of an earlier one"),
    "near": ("near duplicates", "{} {} a repetition but for case and spaces"),
}


def find_repeats(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note every text that has come before."""
    first: dict[bytes, _First] = {}
    folded: dict[bytes, _First] = {}
    tallies = {name: findings.tally() for name in _SAID}
    for name, part in parts.items():
        for example in part:
            text = example.reads()
            before = first.setdefault(_digest(text), (example, name))
            near = folded.setdefault(_digest(" ".join(text.casefold().split())), (example, name))
            if before[0] is not example:
                tally = tallies["again" if before[1] == name else "leak"]
                if tally.add():
                    tally.examples.append(f"{example.place}: {in_short(text)} (first at {before[0].place})")
                if before[0].answer() != example.answer() and tallies["other"].add():
                    labels = f"{before[0].answer_shown()}, then {example.answer_shown()}"
                    said = f"{example.place}: {in_short(text)} (first at {before[0].place}): {labels}"
                    tallies["other"].examples.append(said)
            elif near[0] is not example:
                tally = tallies["near" if near[1] == name else "near leak"]
                if tally.add():
                    tally.examples.append(f"{example.place}: {in_short(text)} (like {near[0].place})")
    for kind, (title, message) in _SAID.items():
        count = tallies[kind].count
        texts = message.format(f"{count:,} text{'s' * (count != 1)}", "is" if count == 1 else "are")
        findings.add(title, "warning", texts, tallies[kind].examples, count)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
