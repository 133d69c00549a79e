"""Entities as one tag for each word, written and read (Ramshaw & Marcus 1995; Tjong Kim Sang & Veenstra 1999).

    words    Mt.    Sanitas  is  in  Sunshine  Canyon  .
    BIO      B-LOC  I-LOC    O   O   B-LOC     I-LOC   O        B begins every entity (also called IOB2)
    IOB1     I-LOC  I-LOC    O   O   I-LOC     I-LOC   O        B only between neighbours of one type
    BIOES    B-LOC  E-LOC    O   O   B-LOC     E-LOC   O        the last word is E, the only one S (also called IOBES)
    BILOU    B-LOC  L-LOC    O   O   B-LOC     L-LOC   O        BIOES written with L and U

Tags that are no scheme's (parts of speech) are of the scheme "none": any may follow any.

    >>> read_entities(["B-LOC", "I-LOC", "O"], "BIO")
    [EntitySpan(start=0, end=2, label='LOC')]
    >>> convert(["B-LOC", "I-LOC", "O"], "BIO", "BIOES")
    ['B-LOC', 'E-LOC', 'O']
    >>> find_illegal(["O", "I-PER"], "BIO")[0].message
    'I-PER after O; the first tag of an entity is B-PER'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from larvatus.core.errors import DataError

Scheme = Literal["BIO", "IOB1", "BIOES", "BILOU", "none"]
LETTERS: dict[Scheme, str] = {"BIO": "OBI", "IOB1": "OBI", "BIOES": "OBIES", "BILOU": "OBILU", "none": ""}
_SPELLING = str.maketrans("LU", "ES")
_BILOU = str.maketrans("ES", "LU")
NO_TYPE = "_"
"""Type of entities whose tags name none (B, I, O), as `seqeval` has it."""


class EntitySpan(NamedTuple):
    """Words start … end − 1."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class IllegalTag:
    index: int
    """Index of the word in its sequence."""
    message: str
    legal: tuple[str, ...]
    """Tags of the same types that are legal there."""


@dataclass(frozen=True, eq=False)
class LegalTransitions:
    """Which tags may come first [K], after one another [K, K] (from, to), last [K]."""

    starts: npt.NDArray[np.bool_]
    transitions: npt.NDArray[np.bool_]
    ends: npt.NDArray[np.bool_]


@lru_cache(maxsize=100_000)
def split_tag(tag: str, scheme: Scheme) -> tuple[str, str]:
    """Letter (L and U as E and S) and type: ("B", "LOC"); outside ("O", "")."""
    if tag == "O":
        return "O", ""
    letter, hyphen, label = tag[:1], tag[1:2], tag[2:]
    if letter in ("", "O") or letter not in LETTERS[scheme] or hyphen not in ("", "-") or (hyphen and not label):
        letters = ", ".join(f"{letter}-TYPE" for letter in LETTERS[scheme][1:])
        raise DataError(f"{tag!r} is no tag of the scheme {scheme}, which has O, {letters}")
    return letter.translate(_SPELLING), label or NO_TYPE


def _join(letter: str, label: str, scheme: Scheme) -> str:
    if letter == "O":
        return "O"
    letter = letter.translate(_BILOU) if scheme == "BILOU" else letter
    return letter if label == NO_TYPE else f"{letter}-{label}"


def _may_follow(before: tuple[str, str], after: tuple[str, str], scheme: Scheme) -> bool:
    """Beginning and end of a sequence count as O."""
    same = before[0] != "O" and before[1] == after[1]
    if scheme == "BIO":
        return after[0] != "I" or same
    if scheme == "IOB1":
        return after[0] != "B" or same
    if before[0] in "BI":  # an entity is not finished
        return same and after[0] in "IE"
    return after[0] in "OBS"


def read_entities(tags: Sequence[str], scheme: Scheme) -> list[EntitySpan]:
    """The entities that are written whole and rightly; tags that are out of place belong to none.

    The strict reading: it equals `seqeval`'s for IOB2, IOBES and BILOU.
    """
    if scheme == "none":
        return []
    entities: list[EntitySpan] = []
    begun, before = -1, ("O", "")
    for index, now in enumerate([*(split_tag(tag, scheme) for tag in tags), ("O", "")]):
        letter, label = now
        goes_on = begun >= 0 and letter in "IE" and label == before[1]
        if begun >= 0 and not goes_on and scheme in ("BIO", "IOB1"):
            entities.append(EntitySpan(begun, index, before[1]))
        if letter == "S" or (letter == "E" and goes_on):
            entities.append(EntitySpan(index if letter == "S" else begun, index + 1, label))
        if letter in "OES":
            begun = -1
        elif not goes_on:
            begins = letter == "B" if scheme != "IOB1" else _may_follow(before, now, scheme)
            begun = index if begins else -1
        before = now
    return entities


def read_leniently(tags: Sequence[str], scheme: Scheme) -> list[EntitySpan]:
    """What the official scorer of CoNLL (`conlleval`) sees, and `seqeval` by default: a change of type, or I after O,
    begins an entity too, and an entity ends where another begins or O comes."""
    if scheme == "none":
        return []
    entities: list[EntitySpan] = []
    begun, before = -1, ("O", "")
    for index, now in enumerate([*(split_tag(tag, scheme) for tag in tags), ("O", "")]):
        goes_on = now[0] in "IE" and before[0] in "BI" and now[1] == before[1]
        if before[0] != "O" and not goes_on:
            entities.append(EntitySpan(begun, index, before[1]))
        begun = begun if goes_on else index
        before = now
    return entities


def write_tags(entities: Iterable[tuple[int, int, str]], length: int, scheme: Scheme) -> list[str]:
    """The tags of entities that do not overlap, in any order."""
    if scheme == "none":
        raise DataError("entities are not written in the scheme none; choose BIO, IOB1, BIOES or BILOU")
    tags, last = ["O"] * length, EntitySpan(0, 0, "")
    for start, end, label in sorted(entities):
        if not max(last.end, 0) <= start < end <= length:
            raise DataError(
                f"{label} at words {start} to {end} overlaps another entity or is not within {length} words"
            )
        touches = last.end == start and last.label == label
        first = "I" if scheme == "IOB1" and not touches else "B"
        letters = first + "I" * (end - start - 1)
        if scheme in ("BIOES", "BILOU"):
            letters = "S" if end - start == 1 else f"{letters[:-1]}E"
        tags[start:end] = [_join(letter, label, scheme) for letter in letters]
        last = EntitySpan(start, end, label)
    return tags


def convert(tags: Sequence[str], source: Scheme, target: Scheme) -> list[str]:
    """The same entities in another scheme. Illegal tags are refused; `repair` first where they are expected."""
    if source == target == "none":
        return list(tags)
    if illegal := find_illegal(tags, source):
        raise DataError(f"word {illegal[0].index + 1}: {illegal[0].message}")
    return write_tags(read_entities(tags, source), len(tags), target)


def repair(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Legal tags of the entities that `conlleval` would see."""
    return list(tags) if scheme == "none" else write_tags(read_leniently(tags, scheme), len(tags), scheme)


def find_illegal(tags: Sequence[str], scheme: Scheme) -> list[IllegalTag]:
    """Each tag that may not follow the one before it, and a last one that may not be last."""
    if scheme == "none":
        return []
    parsed = [("O", ""), *(split_tag(tag, scheme) for tag in tags), ("O", "")]
    illegal = []
    for index, (before, now) in enumerate(pairwise(parsed)):
        if _may_follow(before, now, scheme):
            continue
        ending = index == len(tags)
        place = index - 1 if ending else index
        last = parsed[place], parsed[place + 2] if place == len(tags) - 1 else None
        legal = _legal_between(*last, labels=(now[1], before[1]), scheme=scheme)
        illegal.append(IllegalTag(place, _message(tags, index, before, now, scheme=scheme), legal))
    return illegal


def _legal_between(
    before: tuple[str, str], after: tuple[str, str] | None, *, labels: Iterable[str], scheme: Scheme
) -> tuple[str, ...]:
    candidates = [("O", "")]
    candidates += [(a.translate(_SPELLING), label) for label in labels if label for a in LETTERS[scheme][1:]]
    fits = [
        _join(*candidate, scheme)
        for candidate in dict.fromkeys(candidates)
        if _may_follow(before, candidate, scheme) and (after is None or _may_follow(candidate, after, scheme))
    ]
    return tuple(fits)


def _message(tags: Sequence[str], index: int, before: tuple[str, str], now: tuple[str, str], *, scheme: Scheme) -> str:
    here = f"{tags[index]} at the start" if index == 0 else ""
    if index:
        here = f"{tags[index]} after {tags[index - 1]}" if index < len(tags) else f"{tags[-1]} at the end"
    if scheme == "IOB1":
        return f"{here}; the first tag of an entity is {_join('I', now[1], scheme)}, but after one of its own type"
    if scheme != "BIO" and before[0] in "BI":
        end, alone = (_join(letter, before[1], scheme) for letter in "ES")
        return f"{here}; the last tag of an entity is {end}, its only one {alone}"
    alone = f" or, as its only word, {_join('S', now[1], scheme)}" if scheme != "BIO" else ""
    return f"{here}; the first tag of an entity is {_join('B', now[1], scheme)}{alone}"


def legal_transitions(labels: Sequence[str], scheme: Scheme) -> LegalTransitions:
    """The table for decoding, over the tags in their order."""
    if scheme == "none":
        every = np.ones(len(labels), np.bool_)
        return LegalTransitions(every, np.ones((len(labels), len(labels)), np.bool_), every)
    parsed, edge = [split_tag(tag, scheme) for tag in labels], ("O", "")
    between = [[_may_follow(a, b, scheme) for b in parsed] for a in parsed]
    return LegalTransitions(
        starts=np.array([_may_follow(edge, tag, scheme) for tag in parsed], np.bool_),
        transitions=np.array(between, np.bool_).reshape(len(labels), len(labels)),
        ends=np.array([_may_follow(tag, edge, scheme) for tag in parsed], np.bool_),
    )


def detect_scheme(sequences: Iterable[Sequence[str]]) -> Scheme:
    """By the letters that occur; BIO or IOB1 by which of the two finds fewer tags out of place (BIO if equal).

    Bare letters are a scheme only together with B or I: a tagset of parts of speech may well have S or E.
    """
    sequences = list(sequences)
    tags = set(chain.from_iterable(sequences))
    bare = any(tag in ("B", "I") for tag in tags)
    inside = tags - {"O"}
    if not all(
        tag[:1] in tuple("BIESLU") and ((len(tag) > 2 and tag[1] == "-") or (bare and len(tag) == 1)) for tag in inside
    ):
        return "none"
    letters = {tag[0] for tag in inside}
    if letters & set("LU"):
        return "BILOU"
    if letters & set("ES"):
        return "BIOES"
    bio, iob1 = (sum(len(find_illegal(sequence, scheme)) for sequence in sequences) for scheme in ("BIO", "IOB1"))
    return "IOB1" if iob1 < bio else "BIO"
