"""Texts that occur again: within a part, in train and dev both, with other labels, or but for case and spaces.

Texts are compared by digests of 16 bytes, in one pass: a million texts of any length take a million entries.
"""

from __future__ import annotations

import hashlib

from larvatus.labelled.records import Dataset, QuestionExample, SpannedWords, TaggedExample, TextExample
from larvatus.labelled.report import Findings

Labelled = TextExample | TaggedExample | SpannedWords | QuestionExample
Examples = Dataset[TextExample] | Dataset[TaggedExample] | Dataset[SpannedWords] | Dataset[QuestionExample]
_First = tuple[Labelled, str]
_SAID = {
    "leak": ("train texts in dev", "{} of dev {} in train too: scores will flatter"),
    "near leak": ("train texts in dev, nearly", "{} of dev {} in train but for case and spaces"),
    "other": ("conflicting labels", "{} {} labelled in two ways"),
    "again": ("duplicates", "{} {} a repetition of an earlier one"),
    "near": ("near duplicates", "{} {} a repetition but for case and spaces"),
}


def text_of(example: Labelled) -> str:
    """What a model will read: the text, with its pair after a tab; the words; a question with its passage."""
    if isinstance(example, QuestionExample):
        return f"{example.question}\t{example.passage}"
    if isinstance(example, TextExample):
        return example.text if example.pair is None else f"{example.text}\t{example.pair}"
    return example.text if example.text is not None else " ".join(example.words)


def answer_of(example: Labelled) -> object:
    """What the example is labelled with."""
    if isinstance(example, QuestionExample):
        return example.golds
    if isinstance(example, SpannedWords):
        return example.spans
    return example.label if isinstance(example, TextExample) else example.tags


def find_repeats(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note every text that has come before."""
    first: dict[bytes, _First] = {}
    folded: dict[bytes, _First] = {}
    tallies = {name: findings.tally() for name in _SAID}
    for name, part in parts.items():
        for one in part:
            text = text_of(one)
            before = first.setdefault(_digest(text), (one, name))
            near = folded.setdefault(_digest(" ".join(text.casefold().split())), (one, name))
            if before[0] is not one:
                tally = tallies["again" if before[1] == name else "leak"]
                if tally.add():
                    tally.examples.append(f"{one.place}: {short(text)} (first at {before[0].place})")
                if answer_of(before[0]) != answer_of(one) and tallies["other"].add():
                    labels = f"{_label(before[0])}, then {_label(one)}"
                    said = f"{one.place}: {short(text)} (first at {before[0].place}): {labels}"
                    tallies["other"].examples.append(said)
            elif near[0] is not one:
                tally = tallies["near" if near[1] == name else "near leak"]
                if tally.add():
                    tally.examples.append(f"{one.place}: {short(text)} (like {near[0].place})")
    for kind, (title, message) in _SAID.items():
        count = tallies[kind].count
        texts = message.format(f"{count:,} text{'s' * (count != 1)}", "is" if count == 1 else "are")
        findings.add(title, "warning", texts, tallies[kind].examples, count)


def short(text: str) -> str:
    """A text on one line of at most 60 characters, quoted."""
    line = " ".join(text[:200].split())
    return repr(line if len(line) <= 60 else line[:59] + "…")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _label(example: Labelled) -> str:
    if isinstance(example, TextExample):
        return str(example.label)
    if isinstance(example, QuestionExample):
        return short(" / ".join(example.golds)) if example.golds else "no answer"
    if isinstance(example, SpannedWords):
        tags: tuple[str, ...] = tuple(f"{start}–{end} {label}" for start, end, label in example.spans or ())
    else:
        tags = example.tags or ()
    return " ".join(tags[:8]) + (" …" if len(tags) > 8 else "")
