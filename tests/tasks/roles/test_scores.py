"""Scores of arguments against srl-eval.pl's own figures, and against a naive reading of its rules."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from larvatus.data.labelled.records import Place
from larvatus.tasks.roles.evaluation import FrameScores
from larvatus.tasks.roles.examples import CONTINUED, VERB, Frame, FramedSentence, RoleSpan, in_order
from larvatus.tasks.roles.labelling import LabelledFrame
from larvatus.tasks.roles.props import read_props
from larvatus.tasks.roles.srl_eval import FrameCounts, compare_frames, compare_sentence

GOLD = """\
Ann - (A0*) (A0*)
, - * *
he - (A2*) *
thinks think (V*) *
, - * *
may - (C-A0* (AM-MOD*)
run run * (V*)
home - *) (AM-DIR*
now - (AM-TMP*) *)
"""
PREDICTED = """\
Ann - (A0*) (A0*)
, - * *
he - (R-A2*) *
thinks think (V*) *
, - * *
may - (C-A0* (AM-MOD*)
run run *) (V*)
home - (C-AM-DIR*) (AM-DIR*)
now - (AM-TMP*) (C-AM-DIR*)
"""
# printed by srl-eval.pl for these two files without their words: right, excess, missed
OFFICIAL = {
    "A0": (1, 1, 1),
    "A2": (0, 0, 1),
    "R-A2": (0, 1, 0),
    "AM-DIR": (0, 2, 1),
    "AM-MOD": (1, 0, 0),
    "AM-TMP": (1, 0, 0),
}
OFFICIAL_TOTAL, OFFICIAL_V, OFFICIAL_PERFECT = (3, 4, 3), (2, 0, 0), 0


def three(count) -> tuple[int, int, int]:
    return count.right, count.excess, count.missed


def test_counts_are_those_of_srl_eval(tmp_path):
    frames = []
    for name, text in (("gold", GOLD), ("predicted", PREDICTED)):
        (tmp_path / name).write_text(text)
        frames.append({frame.predicate: frame.arguments for frame in read_props(str(tmp_path / name))[0][0].frames})
    counts = compare_sentence(*frames)
    assert {role: three(count) for role, count in counts.by_role.items()} == OFFICIAL
    assert (three(counts.total), three(counts.verbs), counts.perfect) == (OFFICIAL_TOTAL, OFFICIAL_V, OFFICIAL_PERFECT)


def naive(gold: tuple[RoleSpan, ...], predicted: tuple[RoleSpan, ...]) -> dict[str, list[int]]:
    """Every argument as the set of its words, piece by piece, compared with every other one."""

    def pieces(spans):
        listed = []
        for role, first, last in sorted(spans, key=lambda span: span.first):
            before = [each for each in listed if CONTINUED + each[0] == role]
            if before:
                before[-1][1].append(range(first, last + 1))
            else:
                listed.append((role[2:] if role[:2] == CONTINUED else role, [range(first, last + 1)]))
        return listed

    table: dict[str, list[int]] = {}
    left = pieces(gold)
    for argument in pieces(predicted):
        hit = argument in left
        table.setdefault(argument[0], [0, 0, 0])[0 if hit else 1] += 1
        if hit:
            left.remove(argument)
    for role, _ in left:
        table.setdefault(role, [0, 0, 0])[2] += 1
    return table


def arguments(chance: random.Random, length: int = 9) -> tuple[RoleSpan, ...]:
    spans, word = [], 0
    while word < length:
        last = min(length - 1, word + chance.randrange(3))
        if chance.random() < 0.7:
            spans.append(
                RoleSpan(chance.choice(("A0", "A1", "C-A0", "C-A1", "R-A0", "C-R-A0", "V", "C-V")), word, last)
            )
        word = last + 1
    return tuple(spans)


@pytest.mark.parametrize("seed", range(60))
def test_counts_are_those_of_a_naive_reading_of_the_rules(seed):
    chance = random.Random(seed)
    gold = arguments(chance)
    predicted = arguments(chance) if seed % 3 else in_order({*gold[1:], *arguments(chance, 2)[:1]} - {*gold[:1]})
    if any(a.last >= b.first for a, b in pairwise(predicted)):
        predicted = gold[1:]
    counts = compare_frames(gold, predicted)
    table = naive(gold, predicted)
    verbs = table.pop(VERB, [0, 0, 0])
    assert {role: list(three(count)) for role, count in counts.by_role.items()} == table
    assert list(three(counts.verbs)) == verbs
    assert counts.perfect == (not any(excess or missed for _, excess, missed in table.values()))


def labelled(frame: Frame, probability: float = 1.0) -> LabelledFrame:
    return LabelledFrame(
        predicate=frame.predicate,
        probability=probability,
        roleset=frame.roleset,
        sense_probability=1.0,
        arguments=frame.arguments,
        scores=(1.0,) * len(frame.arguments),
    )


def test_given_predicates_score_what_found_ones_miss_and_what_they_invent():
    ran = Frame(1, "run.02", (RoleSpan("ARG0", 0, 0), RoleSpan("V", 1, 1)))
    fell = Frame(3, "fall.01", (RoleSpan("ARG1", 2, 2), RoleSpan("V", 3, 3)))
    gold = FramedSentence(("Ann", "ran", "Bob", "fell"), (ran, fell), Place("dev.jsonl", 1))
    wrong = Frame(3, "fall.02", (RoleSpan("ARG0", 2, 2), RoleSpan("V", 3, 3)))
    invented = Frame(2, "bob.01", (RoleSpan("ARG0", 0, 1),))
    answers = (labelled(ran), labelled(invented, 0.9), labelled(wrong, 0.2))  # of the last, it is given, not found
    scores = FrameScores.of([gold], [answers], frozenset({"run", "fall"}))
    assert scores.rows.tolist() == [[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]]
    assert scores.values() == {
        "argument-f1": 0.5,
        "precision": 0.5,
        "recall": 0.5,
        "found-argument-f1": 0.5,
        "predicate-f1": 0.5,
        "sense-accuracy": 0.5,
        "perfect-frames": 0.5,
    }
    assert scores.unseen == (0, 0)
    assert FrameScores.of([gold], [answers]).unseen == (2, 1)


def test_rows_of_sentences_add_up_to_the_counts_of_all():
    chance = random.Random(5)
    sentences, answers, total = [], [], FrameCounts()
    for number in range(30):
        frame, other = (Frame(0, "a.01", arguments(chance)) for _ in range(2))
        sentences.append(FramedSentence(tuple("abcdefghi"), (frame,), Place("dev.jsonl", number)))
        answers.append((labelled(other),))
        total.add(compare_frames(frame.arguments, other.arguments))
    scores = FrameScores.of(sentences, answers)
    assert np.array_equal(scores.rows.sum(0)[:3], three(total.total))
    assert three(scores.given.verbs) == three(total.verbs)
