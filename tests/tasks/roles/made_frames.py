"""A made language of frames that a tiny model can learn: who pushes, sees or gives what to whom."""

from __future__ import annotations

from itertools import product

from larvatus.data.labelled.records import Dataset, Place
from larvatus.tasks.roles.examples import VERB, Frame, FramedSentence, RoleSpan

WORDS = "ann bob cat dog pushed saw gave , to and . big red"
NAMES = ("ann", "bob", "big cat", "red dog")
ROLESETS = {"pushed": "push.01", "saw": "see.01"}


def sentence(*parts: tuple[str, str], line: int = 1) -> FramedSentence:
    """Words with their roles: ``("ARG0", "big cat"), ("V", "saw")``; no role for other words. V has one predicate."""
    words: list[str] = []
    arguments = []
    verb = 0
    for role, text in parts:
        if role:
            arguments.append(RoleSpan(role, len(words), len(words) + len(text.split()) - 1))
        if role == VERB:
            verb = len(words)
        words += text.split()
    frame = Frame(verb, ROLESETS.get(words[verb], "give.01"), tuple(arguments))
    return FramedSentence(tuple(words), (frame,), Place("made.jsonl", line))


def two_frames(first: str, verb: str, second: str, other: str, third: str, line: int) -> FramedSentence:
    """``ann saw bob and bob pushed ann``: two predicates, each with arguments of its own."""
    one = sentence(("ARG0", first), ("V", verb), ("ARG1", second))
    two = sentence(("ARG0", second), ("V", other), ("ARG1", third))
    shift = len(one.words) + 1
    moved = tuple(RoleSpan(role, a + shift, b + shift) for role, a, b in two.frames[0].arguments)
    frame = Frame(two.frames[0].predicate + shift, two.frames[0].roleset, moved)
    return FramedSentence((*one.words, "and", *two.words), (*one.frames, frame), Place("made.jsonl", line))


def made_frames() -> Dataset[FramedSentence]:
    rows = []
    for a, b in product(NAMES, NAMES):
        line = len(rows) + 1
        rows.append(sentence(("ARG0", a), ("V", "pushed"), ("ARG1", b), ("", "."), line=line))
        rows.append(sentence(("ARG0", a), ("V", "gave"), ("ARG1", b), ("ARG2", "to ann"), ("", "."), line=line + 1))
        rows.append(two_frames(a, "saw", b, "pushed", "ann", line + 2))
    return Dataset(tuple(rows), "made.jsonl")
