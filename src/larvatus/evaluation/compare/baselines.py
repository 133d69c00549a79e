"""Baselines on a labelled set: the majority label, the most frequent tag of each word form, phrase lookup.

    baseline_scores(data, "accuracy")            # {"commonest label": 0.512}

Each baseline learns from the training examples and is scored on the same examples as the model. None uses more than
single words or phrases.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from larvatus.data.text.tag_schemes import read_entities
from larvatus.evaluation.compare.labelled_sets import LabelledSet
from larvatus.metrics.entities import entity_f1

Phrase = tuple[str, ...]
Spans = Collection[tuple[int, int, str]]
"""Word spans [start, end) with labels."""


def baseline_scores(data: LabelledSet, metric: str) -> dict[str, float]:
    """Scores of the baseline for a kind of labels and a metric, by name; empty if there is none."""
    score = _BASELINES.get((data.train.examples[0].labels_are, metric))
    return {} if score is None else score(data)


def majority_accuracy(data: LabelledSet) -> dict[str, float]:
    """Accuracy of always predicting the most frequent training label."""
    common = _commonest(data)
    return {"commonest label": statistics.fmean(example.label == common for example in data.scored)}


def majority_f1(data: LabelledSet) -> dict[str, float]:
    """F1 of the second of two classes, if the most frequent label is always predicted."""
    classes = sorted({example.label for example in data.train})
    wanted = sum(example.label == classes[-1] for example in data.scored)
    if _commonest(data) != classes[-1]:
        return {"commonest label": 0.0}
    return {"commonest label": 2 * wanted / (wanted + len(data.scored))}


def _commonest(data: LabelledSet) -> Any:
    return Counter(example.label for example in data.train).most_common(1)[0][0]


def word_form_accuracy(data: LabelledSet) -> dict[str, float]:
    """Accuracy of the most frequent tag of each word form; unknown words get the most frequent tag."""
    tags_of: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in data.train:
        for word, tag in zip(example.words, example.tags, strict=True):
            tags_of[word][tag] += 1
    common = sum(tags_of.values(), Counter()).most_common(1)[0][0]
    best = {word: counts.most_common(1)[0][0] for word, counts in tags_of.items()}
    pairs = [pair for example in data.scored for pair in zip(example.words, example.tags, strict=True)]
    return {"word forms": statistics.fmean(best.get(word, common) == tag for word, tag in pairs)}


def entity_lookup_f1(data: LabelledSet) -> dict[str, float]:
    """Entity F1 of phrase lookup."""
    train, scored = (
        [(example.words, set(read_entities(example.tags or (), "BIO"))) for example in part]
        for part in (data.train, data.scored)
    )
    return {"phrases looked up": lookup_f1(train, scored)}


def span_lookup_f1(data: LabelledSet) -> dict[str, float]:
    """Span F1 of phrase lookup, without nested spans."""
    train, scored = (
        [(example.words, set(example.spans or ())) for example in part] for part in (data.train, data.scored)
    )
    return {"phrases looked up": lookup_f1(train, scored)}


def lookup_f1(train: Sequence[tuple[Phrase, Spans]], scored: Sequence[tuple[Phrase, Spans]]) -> float:
    """F1 of labelling each phrase as in training, most frequent label, longest match first, no nesting."""
    types: defaultdict[Phrase, Counter[str]] = defaultdict(Counter)
    for words, spans in train:
        for start, end, label in spans:
            types[tuple(map(str.lower, words[start:end]))][label] += 1
    best = {phrase: counts.most_common(1)[0][0] for phrase, counts in types.items()}
    longest = max(map(len, best), default=0)
    guesses = [sorted(_phrases(tuple(map(str.lower, words)), best, longest)) for words, _ in scored]
    return entity_f1([sorted(spans) for _, spans in scored], guesses).micro.f1


def _phrases(words: Phrase, types: dict[Phrase, str], longest: int) -> Iterator[tuple[int, int, str]]:
    place = 0
    while place < len(words):
        for end in range(min(len(words), place + longest), place, -1):
            if (label := types.get(words[place:end])) is not None:
                yield place, end, label
                place = end - 1
                break
        place += 1


_BASELINES: dict[tuple[str, str], Callable[[LabelledSet], dict[str, float]]] = {
    ("classes", "accuracy"): majority_accuracy,
    ("classes", "f1"): majority_f1,
    ("classes", "matthews"): lambda data: {"commonest label": 0.0},
    ("tags", "accuracy"): word_form_accuracy,
    ("tags", "entity-f1"): entity_lookup_f1,
    ("spans", "span-f1"): span_lookup_f1,
}
