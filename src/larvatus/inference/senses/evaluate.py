"""Evaluation of word sense disambiguation on test sets: F1, with WordNet's first sense and the most frequent sense.

    result = evaluate_set("senseval2.data.xml", tagger)
    result.score.f1, result.first_sense.f1, result.most_frequent.f1
    result.above_most_frequent.difference, result.above_most_frequent.low, result.above_most_frequent.p

Differences from the baselines are paired: both answer the same words, and whole sentences are resampled, because the
words of a sentence share their context. A set has too few documents to resample those (3 to 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagged import SenseInstance, SenseSentence, gold_of, read_keys, read_unified
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.senses.wordnet import WordNet
from larvatus.metrics.classification import SenseScore, sense_f1
from larvatus.metrics.intervals import PairedDifference, paired_bootstrap

Answers = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class SetResult:
    name: str
    score: SenseScore
    by_pos: Mapping[str, SenseScore]
    first_sense: SenseScore
    """Baseline: WordNet's first sense of every word."""
    most_frequent: SenseScore
    """Baseline: the sense with the highest count in the inventory; ties are in WordNet's order."""
    rungs: Mapping[str, tuple[int, int]]
    """Answers by their source: how many, and how many of these are right."""
    unknown: int
    """Gold keys that this WordNet does not have: no system can predict them."""
    answers: Answers
    by_sentence: Mapping[str, tuple[float, int, int]]
    """Right, answered and all words of each sentence, which paired comparisons of two models resample."""
    above_most_frequent: PairedDifference
    above_first_sense: PairedDifference

    def to_dict(self) -> dict[str, Any]:
        return {
            "set": self.name,
            **_numbers(self.score),
            "by_pos": {pos: _numbers(score) for pos, score in self.by_pos.items()},
            "first_sense": _numbers(self.first_sense),
            "most_frequent": _numbers(self.most_frequent),
            "rungs": {how: {"answers": count, "right": right} for how, (count, right) in self.rungs.items()},
            "unknown_gold_keys": self.unknown,
            "above_most_frequent": asdict(self.above_most_frequent),
            "above_first_sense": asdict(self.above_first_sense),
        }


def evaluate_set(path: str | Path, tagger: SenseTagger, gold: str | Path | None = None) -> SetResult:
    """Tag a `.data.xml` file and score it against its gold keys, by default those next to it."""
    sentences = list(read_unified(path))
    wanted = read_gold(path, sentences, tagger.wordnet, gold)
    tagged = tagger.tag_sentences(sentences)
    answers: Answers = {word.id: (word.key,) for word in tagged if word.key}
    rungs: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for word in tagged:
        rungs[word.how or "none"] += 1
        right[word.how or "none"] += word.key in wanted.get(word.id, ())
    kinds = {instance.id: instance.lemmas[0][1] for sentence in sentences for instance in sentence.instances}
    by_pos: dict[str, SenseScore] = {
        pos: sense_f1({name: keys for name, keys in wanted.items() if kinds.get(name) == pos}, answers)
        for pos in sorted(set(kinds.values()))
    }
    first, frequent = (
        first_senses(sentences, tagger.wordnet),
        most_frequent(sentences, tagger.wordnet, tagger.inventory),
    )
    ours = sentence_scores(sentences, wanted, answers)
    return SetResult(
        name=Path(path).name.partition(".")[0],
        score=sense_f1(wanted, answers),
        by_pos=by_pos,
        first_sense=sense_f1(wanted, first),
        most_frequent=sense_f1(wanted, frequent),
        rungs={how: (count, right[how]) for how, count in rungs.most_common()},
        unknown=sum(key not in tagger.wordnet for keys in wanted.values() for key in keys),
        answers=answers,
        by_sentence=ours,
        above_most_frequent=paired_f1(sentence_scores(sentences, wanted, frequent), ours),
        above_first_sense=paired_f1(sentence_scores(sentences, wanted, first), ours),
    )


SentenceScores = Mapping[str, tuple[float, int, int]]


def sentence_scores(sentences: Sequence[SenseSentence], gold: Answers, answers: Answers) -> SentenceScores:
    """Right, answered and all words of each sentence that has a gold word, by the id of its first word."""
    scores = {}
    for sentence in sentences:
        wanted = {instance.id: gold[instance.id] for instance in sentence.instances if instance.id in gold}
        if wanted:
            score = sense_f1(wanted, {name: answers[name] for name in wanted if name in answers})
            scores[next(iter(wanted))] = (score.right, score.answered, score.total)
    return scores


def paired_f1(first: SentenceScores, second: SentenceScores) -> PairedDifference:
    """Difference of two systems' F1 on the same sentences, which are resampled together."""
    if first.keys() != second.keys():
        raise DataError("two systems must answer the same sentences to be compared; these answered different ones")
    return paired_bootstrap(list(first.values()), [second[name] for name in first], _f1_of_sums)


def _f1_of_sums(sums: Doubles) -> Doubles:
    """F1 = 2 right / (answered + all), from sums […, 3]."""
    right, answered, total = np.moveaxis(sums, -1, 0)
    return np.asarray(2 * right / np.maximum(answered + total, 1))


def difference_from(difference: PairedDifference, system: str) -> str:
    """
    >>> ours = PairedDifference(first=0.65, second=0.71, difference=0.06, p=0.001, samples=1000, low=0.04, high=0.08)
    >>> difference_from(ours, "the first sense")
    '+6.0 points [+4.0, +8.0] from the first sense (paired, sentences resampled, p = 0.001)'
    """
    low, high = difference.low or 0.0, difference.high or 0.0
    points = f"{100 * difference.difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{points} from {system} (paired, sentences resampled, p = {difference.p:.2g})"


def read_gold(
    path: str | Path, sentences: Sequence[SenseSentence], wordnet: WordNet, gold: str | Path | None
) -> Answers:
    """The gold keys of a test set; refused if they belong to other words or another WordNet."""
    file = gold or gold_of(path)
    wanted = read_keys(file)
    ids = {instance.id for sentence in sentences for instance in sentence.instances}
    if not ids & wanted.keys():
        raise DataError(f"{file} answers no word of {path}: none of its ids is there; name the right one with --gold")
    lacking = [key for keys in wanted.values() for key in keys if key not in wordnet]
    if 2 * len(lacking) > sum(map(len, wanted.values())):
        raise DataError(
            f"{file}: {len(lacking):,} of its sense keys are not in {wordnet.folder} ({', '.join(lacking[:3])}); "
            "use the WordNet that the set was tagged with"
        )
    return wanted


def first_senses(sentences: Sequence[SenseSentence], wordnet: WordNet) -> Answers:
    """The baseline of WordNet's first sense."""
    return {instance.id: (keys[0],) for instance, keys in _candidates(sentences, wordnet)}


def most_frequent(sentences: Sequence[SenseSentence], wordnet: WordNet, inventory: SenseInventory) -> Answers:
    """The baseline of the most frequently tagged sense; ties are in WordNet's order."""
    return {instance.id: (max(keys, key=inventory.count),) for instance, keys in _candidates(sentences, wordnet)}


def _candidates(sentences: Sequence[SenseSentence], wordnet: WordNet) -> list[tuple[SenseInstance, list[str]]]:
    every = [instance for sentence in sentences for instance in sentence.instances]
    candidates = [
        (instance, [sense.key for pair in instance.lemmas for sense in wordnet.senses(*pair)]) for instance in every
    ]
    return [(instance, keys) for instance, keys in candidates if keys]


def _numbers(score: SenseScore) -> dict[str, float]:
    return {
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
        "right": score.right,
        "answered": score.answered,
        "total": score.total,
    }
