"""Precision, recall and F1 of word sense disambiguation, as the scorer of the unified evaluation framework has them.

    >>> score = sense_f1({"t1": ["art%1:09:00::"], "t2": ["a%1:03:00::", "a%1:03:01::"]}, {"t2": ["a%1:03:01::"]})
    >>> (score.precision, score.recall, round(score.f1, 3))
    (1.0, 0.5, 0.667)

An answer is right if it is one of the gold keys. A system that gives several for a word earns the share of them that is
right. Precision is over the words that were answered, recall over all; answers to words that gold does not know do not
count (Raganato et al. 2017; SemEval-2015 task 13).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SenseScore:
    right: float
    """Words answered rightly; a fraction where several answers were given."""
    answered: int
    total: int

    @property
    def precision(self) -> float:
        return self.right / self.answered if self.answered else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.total if self.total else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def sense_f1(gold: Mapping[str, Collection[str]], answers: Mapping[str, Collection[str]]) -> SenseScore:
    """The score of a system's keys for each word, by its id, against those that people gave."""
    right, answered = 0.0, 0
    for name, given in answers.items():
        if name not in gold or not given:
            continue
        keys = set(given)
        answered += 1
        right += len(keys & set(gold[name])) / len(keys)
    return SenseScore(right, answered, len(gold))
