"""Word sense disambiguation held against test sets: F1 beside WordNet's first sense and the most frequent sense.

result = evaluate_set("senseval2.data.xml", tagger)
result.score.f1, result.first_sense.f1, result.most_frequent.f1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larvatus.embed.senses.inventory import SenseInventory
from larvatus.embed.senses.tagged import Instance, Sentence
from larvatus.embed.senses.tagger import SenseTagger
from larvatus.embed.senses.unified import gold_of, read_keys, read_unified
from larvatus.embed.senses.wordnet import WordNet
from larvatus.errors import DataError
from larvatus.metrics.sense_f1 import SenseScore, sense_f1

Answers = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class SetResult:
    name: str
    score: SenseScore
    by_pos: Mapping[str, SenseScore]
    first_sense: SenseScore
    """Of WordNet's first sense for every word."""
    most_frequent: SenseScore
    """Of the sense that the inventory counts most; WordNet's order where it counts none, or several alike."""
    rungs: Mapping[str, tuple[int, int]]
    """What answers rest on: how many, and how many of these are right."""
    unknown: int
    """Gold keys that this WordNet has not: nobody can find them."""
    answers: Answers

    def to_dict(self) -> dict[str, Any]:
        return {
            "set": self.name,
            **_numbers(self.score),
            "by_pos": {pos: _numbers(score) for pos, score in self.by_pos.items()},
            "first_sense": _numbers(self.first_sense),
            "most_frequent": _numbers(self.most_frequent),
            "rungs": {how: {"answers": count, "right": right} for how, (count, right) in self.rungs.items()},
            "unknown_gold_keys": self.unknown,
        }


def evaluate_set(path: str | Path, tagger: SenseTagger, gold: str | Path | None = None) -> SetResult:
    """Tag a `.data.xml` file and score it against its gold keys, by default those that lie beside it."""
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
    return SetResult(
        name=Path(path).name.partition(".")[0],
        score=sense_f1(wanted, answers),
        by_pos=by_pos,
        first_sense=sense_f1(wanted, first_senses(sentences, tagger.wordnet)),
        most_frequent=sense_f1(wanted, most_frequent(sentences, tagger.wordnet, tagger.inventory)),
        rungs={how: (count, right[how]) for how, count in rungs.most_common()},
        unknown=sum(key not in tagger.wordnet for keys in wanted.values() for key in keys),
        answers=answers,
    )


def read_gold(path: str | Path, sentences: Sequence[Sentence], wordnet: WordNet, gold: str | Path | None) -> Answers:
    """The gold keys of a test set; refused where they are of other words, or of another WordNet."""
    file = gold or gold_of(path)
    wanted = read_keys(file)
    ids = {instance.id for sentence in sentences for instance in sentence.instances}
    if not ids & wanted.keys():
        raise DataError(f"{file} answers no word of {path}: none of its ids is there; name the right one with --gold")
    lacking = [key for keys in wanted.values() for key in keys if key not in wordnet]
    if 2 * len(lacking) > sum(map(len, wanted.values())):
        raise DataError(
            f"{file}: {len(lacking):,} of its sense keys are not in {wordnet.folder} ({', '.join(lacking[:3])}); "
            "take the WordNet that the set was tagged with"
        )
    return wanted


def first_senses(sentences: Sequence[Sentence], wordnet: WordNet) -> Answers:
    """The baseline of WordNet's first sense."""
    return {instance.id: (keys[0],) for instance, keys in _candidates(sentences, wordnet)}


def most_frequent(sentences: Sequence[Sentence], wordnet: WordNet, inventory: SenseInventory) -> Answers:
    """The baseline of the sense that was tagged most; of senses counted alike, WordNet's first."""
    return {instance.id: (max(keys, key=inventory.count),) for instance, keys in _candidates(sentences, wordnet)}


def _candidates(sentences: Sequence[Sentence], wordnet: WordNet) -> list[tuple[Instance, list[str]]]:
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
