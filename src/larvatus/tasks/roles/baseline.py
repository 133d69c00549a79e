"""What the surface gives away: the commonest role of a word by its form, its place near the predicate, and the voice.

    surface_argument_f1(train, scored)        # argument F1, with given predicates

A word has the role that words of its form had most often at this place in training; a form that was not seen there has
that of the place. Neighbours of one role are an argument. A model that read nothing but word order would get this.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from larvatus.tasks.roles.examples import VERB, Frame, FramedSentence, RoleSpan
from larvatus.tasks.roles.srl_eval import FrameCounts, compare_frames

NEAR = 8
"""Words from the predicate beyond which places are not distinguished."""
OUTSIDE = ""
BE = frozenset({"am", "are", "is", "was", "were", "be", "been", "being", "get", "got", "gets"})
PARTICIPLES = ("ed", "en", "wn", "ught", "ade", "old", "one")
Key = tuple[str, int, bool]


def _keys(sentence: FramedSentence, predicate: int) -> Iterator[tuple[Key, Key]]:
    """For each word its form with its place and the voice, and the place and the voice alone."""
    words = [word.lower() for word in sentence.words]
    passive = words[predicate].endswith(PARTICIPLES) and bool(BE & {*words[max(0, predicate - 3) : predicate]})
    for number, word in enumerate(words):
        place = max(-NEAR, min(NEAR, number - predicate))
        yield (word, place, passive), ("", place, passive)


def surface_argument_f1(train: Iterable[FramedSentence], scored: Iterable[FramedSentence]) -> float:
    """Argument F1 of the commonest roles, with given predicates."""
    counts: defaultdict[Key, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for frame in sentence.frames or ():
            roles = [OUTSIDE] * len(sentence.words)
            for role, first, last in frame.arguments:
                roles[first : last + 1] = [role] * (last + 1 - first)
            for keys, role in zip(_keys(sentence, frame.predicate), roles, strict=True):
                for key in keys:
                    counts[key][role] += 1
    best = {key: roles.most_common(1)[0][0] for key, roles in counts.items()}
    totals = FrameCounts()
    for sentence in scored:
        for frame in sentence.frames or ():
            totals.add(compare_frames(frame.arguments, _commonest(sentence, frame, best)))
    count = totals.total
    return 2 * count.right / max(2 * count.right + count.excess + count.missed, 1)


def _commonest(sentence: FramedSentence, frame: Frame, best: dict[Key, str]) -> list[RoleSpan]:
    roles = [best.get(word, best.get(place, OUTSIDE)) for word, place in _keys(sentence, frame.predicate)]
    roles[frame.predicate] = VERB
    spans = []
    for role, group in groupby(enumerate(roles), key=lambda item: item[1]):
        numbers = [number for number, _ in group]
        if role != OUTSIDE:
            spans.append(RoleSpan(role, numbers[0], numbers[-1]))
    return spans
