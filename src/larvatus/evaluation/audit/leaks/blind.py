"""Can members be told from other texts without the model? If so, no AUC of the model says anything of memory.

    blind(members, others)["words"].area.value                # 0.5 where both were drawn from the same text at random

Sets that were gathered at different times or from different sources differ in words and lengths, and a rule that never
saw the model then beats all that did (Das et al. 2024, *Blind baselines beat membership inference attacks*; Duan et al.
2024). Two such rules: how many characters a text has, and a naive Bayes classifier of its words, each text judged by
one that was trained on the other four fifths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.rng import stream
from larvatus.data.text.words import segment_words
from larvatus.metrics.roc import RocCurve, curve

FOLDS = 5


def blind_baselines(members: Sequence[str], others: Sequence[str], *, seed: int = 0) -> dict[str, RocCurve]:
    """What each rule makes of the texts; long texts and short ones count alike as signs of membership."""
    lengths = [np.array([len(text) for text in texts], np.float64) for texts in (members, others)]
    by_length = curve(*lengths, seed=seed)
    if by_length.area.value < 0.5:  # the rule may be that members are shorter
        by_length = curve(-lengths[0], -lengths[1], seed=seed)
    scores = word_scores([*members, *others], [True] * len(members) + [False] * len(others), seed=seed)
    by_words = curve(scores[: len(members)], scores[len(members) :], seed=seed)
    return {"length": by_length, "words": by_words}


def word_scores(texts: Sequence[str], labels: Sequence[bool], *, seed: int = 0) -> Doubles:
    """[texts] mean log-odds of membership of the words of each, by counts of the texts outside its fold."""
    bags = [Counter(text[start:end].lower() for start, end in segment_words(text).tolist()) for text in texts]
    folds = np.empty(len(texts), np.int64)
    folds[stream(seed, "audit folds").permutation(len(texts))] = np.arange(len(texts)) % FOLDS
    counts = [[Counter[str](), Counter[str]()] for _ in range(FOLDS)]
    for bag, label, fold in zip(bags, labels, folds.tolist(), strict=True):
        counts[fold][label].update(bag)
    everywhere = [sum((fold[label] for fold in counts), Counter[str]()) for label in (False, True)]
    vocabulary = len(everywhere[0] | everywhere[1])
    scores = np.zeros(len(texts))
    totals = [[each.total() for each in fold] for fold in counts]
    sums = [each.total() for each in everywhere]
    for number, (bag, fold) in enumerate(zip(bags, folds.tolist(), strict=True)):
        sizes = [sums[label] - totals[fold][label] + vocabulary for label in (0, 1)]
        odds = 0.0
        for word, times in bag.items():
            inside, outside = (everywhere[label][word] - counts[fold][label][word] + 1 for label in (1, 0))
            odds += times * (math.log(inside / sizes[1]) - math.log(outside / sizes[0]))
        scores[number] = odds / max(1, bag.total())
    return scores
