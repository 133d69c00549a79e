"""Look at questions before a model learns to answer them: ids, passages in train and dev both, answers that are long.

    findings = Findings(5)
    check_questions(findings, {"train": read_questions("train.json"), "dev": read_questions("dev.json")})

Faults of reading come before these: an answer that is not at its character, a passage that is empty.
"""

from __future__ import annotations

from larvatus.core.ranges import digits
from larvatus.data.labelled.records import Dataset, QuestionExample, QuestionPlace, in_short
from larvatus.data.labelled.repeats import Examples
from larvatus.data.labelled.report import Findings, many
from larvatus.data.text.words import segment_words

LONGEST_ANSWER = 30
"""Tokens that an answer may have where nothing else is said: `AnswerOptions.longest`."""


def check_questions(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note what questions have that others do not."""
    questions: dict[str, list[QuestionExample]] = {name: list(part) for name, part in parts.items()}
    for name, part in parts.items():
        again = _numbered(part)
        said = f"{many(len(again), 'question', 'questions')} of {name} with the id of an earlier one"
        places = [f"{question.place}: read as {question.id}" for question in again[: findings.most]]
        findings.add("repeated ids", "warning", f"{said}; prediction files number them", places, len(again))
    seen = {question.passage: question for question in questions["train"]}
    both = [question for question in questions.get("dev", []) if question.passage in seen]
    said = f"{many(len(both), 'question', 'questions')} of dev about passages of train: scores will flatter"
    places = [
        f"{question.place}: {in_short(question.passage)} (first at {seen[question.passage].place})"
        for question in both[: findings.most]
    ]
    findings.add("train passages in dev", "warning", said, places, len(both))
    for name, asked in questions.items():
        long = [
            f"{question.place}: {len(words):,} words: {in_short(text)}"
            for question in asked
            for text, _ in question.answers[:1]
            if len(words := segment_words(text)) > LONGEST_ANSWER
        ]
        said = f"{many(len(long), 'answer', 'answers')} of {name} of more than {LONGEST_ANSWER} words"
        findings.add("long answers", "warning", f"{said} are never given; --set longest=N allows more", long)


def _numbered(part: Dataset[QuestionExample]) -> list[QuestionExample]:
    """Questions whose id was numbered when they were read, since an earlier one has it."""
    ids = {question.id for question in part}
    numbered = []
    for question in part:
        base, _, number = question.id.rpartition("#")
        written = isinstance(question.place, QuestionPlace) and question.place.id == question.id
        if base in ids and digits(number) is not None and not written:
            numbered.append(question)
    return numbered
