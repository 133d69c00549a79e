"""Look at questions before a model learns to answer them: ids, passages in train and dev both, answers that are long.

    findings = Findings(5)
    check_questions(findings, {"train": read_questions("train.json"), "dev": read_questions("dev.json")})

Faults of reading come before these: an answer that is not at its character, a passage that is empty.
"""

from __future__ import annotations

from larvatus.labelled.records import Dataset, QuestionExample, QuestionPlace, in_short
from larvatus.labelled.repeats import Examples
from larvatus.labelled.report import Findings, many
from larvatus.ranges import digits
from larvatus.text.words import segment_words

LONGEST_ANSWER = 30
"""Tokens that an answer may have where nothing else is said: `AnswerOptions.longest`."""


def check_questions(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note what questions have that others do not."""
    questions: dict[str, list[QuestionExample]] = {name: list(part) for name, part in parts.items()}
    for name, part in parts.items():
        again = _numbered(part)
        said = f"{many(len(again), 'question', 'questions')} of {name} with the id of an earlier one"
        places = [f"{one.place}: read as {one.id}" for one in again[: findings.most]]
        findings.add("repeated ids", "warning", f"{said}; prediction files number them", places, len(again))
    seen = {one.passage: one for one in questions["train"]}
    both = [one for one in questions.get("dev", []) if one.passage in seen]
    said = f"{many(len(both), 'question', 'questions')} of dev about passages of train: scores will flatter"
    places = [
        f"{one.place}: {in_short(one.passage)} (first at {seen[one.passage].place})" for one in both[: findings.most]
    ]
    findings.add("train passages in dev", "warning", said, places, len(both))
    for name, own in questions.items():
        long = [
            f"{one.place}: {len(words):,} words: {in_short(text)}"
            for one in own
            for text, _ in one.answers[:1]
            if len(words := segment_words(text)) > LONGEST_ANSWER
        ]
        said = f"{many(len(long), 'answer', 'answers')} of {name} of more than {LONGEST_ANSWER} words"
        findings.add("long answers", "warning", f"{said} are never given; --set longest=N allows more", long)


def _numbered(part: Dataset[QuestionExample]) -> list[QuestionExample]:
    """Questions whose id was numbered when they were read, since an earlier one has it."""
    ids = {one.id for one in part}
    numbered = []
    for one in part:
        base, _, number = one.id.rpartition("#")
        written = isinstance(one.place, QuestionPlace) and one.place.id == one.id
        if base in ids and digits(number) is not None and not written:
            numbered.append(one)
    return numbered
