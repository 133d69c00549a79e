"""A vector for every sense of WordNet, by the back-off of LMMS (Loureiro & Jorge 2019, §3.2).

Tagged text covers a sixth of WordNet's senses. Any other sense takes the vector of the first level that has one:

    sense        words tagged with it
    synset       mean over the senses of its synset
    hypernym     mean over the synsets right below its synset's hypernyms
    lexname      mean over the synsets of its lexicographer class

    backoff = SenseBackoff(inventory, wordnet, steps=("synset", "hypernym"), standardise=True)
    backoff.candidates((("bank", "n"),)).vectors         # [C, D] unit vectors

    for entry in describe_senses("bank", wordnet, inventory, nearest=3):
        print(entry.key, entry.count, entry.definition, entry.nearest)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError
from larvatus.inference.senses.inventory import SenseInventory, standardised
from larvatus.inference.senses.tagged import Lemmas
from larvatus.inference.senses.wordnet import POS, Sense, WordNet

Step = Literal["synset", "hypernym", "lexname", "first-sense"]
Rung = Literal["sense", "synset", "hypernym", "lexname"]


@dataclass(frozen=True, eq=False)
class SenseCandidates:
    """The senses of a lemma, WordNet's first sense first."""

    senses: tuple[Sense, ...]
    rungs: tuple[Rung | None, ...]
    """Level that gave each sense its vector; None if it has none."""
    vectors: Floats
    """[C, D] unit vectors; 0 without a vector."""
    prior: Floats
    """[C] log share of each sense among its lemma's tagged words, with add-one smoothing."""


class SenseBackoff:
    def __init__(
        self, inventory: SenseInventory, wordnet: WordNet, *, steps: Sequence[Step], standardise: bool = False
    ) -> None:
        self.inventory, self.wordnet, self.steps, self.standardise = inventory, wordnet, tuple(steps), standardise
        self._vectors = self.apply(inventory.vectors)
        self._known: dict[Lemmas, SenseCandidates] = {}

    def apply(self, vectors: Floats) -> Floats:
        """Make vectors of words comparable with those of senses: standardise them if that option is set."""
        return standardised(vectors, self.inventory.mean, self.inventory.deviation) if self.standardise else vectors

    def vector(self, sense: Sense) -> tuple[Floats, Rung] | None:
        """The vector of a sense, and the level it comes from."""
        row = self.inventory.row(sense.key)
        if row is not None:
            return self._vectors[row], "sense"
        if "synset" in self.steps and sense.synset in self.synsets:
            return self.synsets[sense.synset], "synset"
        if "hypernym" in self.steps:
            above = [self.hypernyms[up] for up in self.wordnet.synset(sense.synset).hypernyms if up in self.hypernyms]
            if above:
                return np.mean(above, axis=0), "hypernym"
        if "lexname" in self.steps and sense.lexname in self.lexnames:
            return self.lexnames[sense.lexname], "lexname"
        return None

    def candidates(self, lemmas: Lemmas) -> SenseCandidates:
        """All senses of some lemmas with their vectors, cached.

        Senses of one lemma are in WordNet's order; those of several are sorted by WordNet's tag counts.
        """
        if lemmas not in self._known:
            senses = [sense for lemma, pos in lemmas for sense in self.wordnet.senses(lemma, pos)]
            if len(lemmas) > 1:
                senses.sort(key=lambda sense: -sense.count)
            self._known[lemmas] = self._candidates(senses)
        return self._known[lemmas]

    def _candidates(self, senses: Sequence[Sense]) -> SenseCandidates:
        reached = [self.vector(sense) for sense in senses]
        vectors = np.zeros((len(senses), self._vectors.shape[1]), dtype=np.float32)
        for place, step in enumerate(reached):
            if step is not None:
                vectors[place] = step[0] / max(float(np.linalg.norm(step[0])), 1e-12)
        counts = np.array([self.inventory.count(sense.key) + 1 for sense in senses], dtype=np.float32)
        prior = np.log(counts / counts.sum())
        return SenseCandidates(tuple(senses), tuple(step and step[1] for step in reached), vectors, prior)

    @cached_property
    def synsets(self) -> Mapping[str, Floats]:
        """Mean of the tagged senses of each synset."""
        groups: dict[str, list[Floats]] = defaultdict(list)
        for key, vector in zip(self.inventory.keys, self._vectors, strict=True):
            sense = self.wordnet.sense(key)
            if sense is not None:
                groups[sense.synset].append(vector)
        return _means(groups.items())

    @cached_property
    def hypernyms(self) -> Mapping[str, Floats]:
        """Mean of the synsets directly below each."""
        groups: dict[str, list[Floats]] = defaultdict(list)
        for name, vector in self.synsets.items():
            for up in self.wordnet.synset(name).hypernyms:
                groups[up].append(vector)
        return _means(groups.items())

    @cached_property
    def lexnames(self) -> Mapping[str, Floats]:
        """Mean of the synsets of each lexicographer class."""
        groups: dict[str, list[Floats]] = defaultdict(list)
        for name, vector in self.synsets.items():
            groups[self.wordnet.synset(name).lexname].append(vector)
        return _means(groups.items())


def _means(groups: Iterable[tuple[str, list[Floats]]]) -> dict[str, Floats]:
    return {name: np.asarray(np.mean(vectors, axis=0, dtype=np.float64), dtype=np.float32) for name, vectors in groups}


@dataclass(frozen=True)
class SenseEntry:
    key: str
    synset: str
    pos: POS
    rank: int
    lexname: str
    words: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]
    count: int | None
    """Number of tagged words in its vector; None without an inventory."""
    rung: Rung | None
    """Level of the back-off that its vector comes from."""
    nearest: tuple[tuple[str, float], ...]
    """Keys of the nearest tagged senses, with their cosines."""

    def to_dict(self) -> dict[str, Any]:
        nearest = [{"key": key, "similarity": cosine} for key, cosine in self.nearest]
        return {**self.__dict__, "nearest": nearest}


def describe_senses(
    word: str,
    wordnet: WordNet,
    inventory: SenseInventory | None = None,
    *,
    nearest: int = 3,
    standardise: bool = False,
) -> list[SenseEntry]:
    """The senses of a word, of all lemmas that it may be a form of."""
    lemmas = tuple(wordnet.lemmas(word))
    if not lemmas:
        raise DataError(f"WordNet has no {word!r}; check the spelling (lemmas or inflected forms, in English)")
    if inventory is None:
        senses = [sense for lemma in lemmas for sense in wordnet.senses(*lemma)]
        return [_entry(sense, wordnet, None, None, ()) for sense in senses]
    inventory.check(wordnet)
    backoff = SenseBackoff(inventory, wordnet, steps=("synset", "hypernym", "lexname"), standardise=standardise)
    by_lemma = [(lemma, backoff.candidates((lemma,))) for lemma in lemmas]
    every = backoff.apply(inventory.vectors)
    every = every / np.maximum(np.linalg.norm(every, axis=1, keepdims=True), 1e-12)
    entries = []
    for _, candidates in by_lemma:
        cosines_CS = candidates.vectors @ every.T
        for sense, rung, cosines in zip(candidates.senses, candidates.rungs, cosines_CS, strict=True):
            near = [int(row) for row in np.argsort(-cosines, kind="stable")[: nearest + 1]]
            others = [(inventory.keys[row], float(cosines[row])) for row in near if inventory.keys[row] != sense.key]
            nearest_words = tuple(others[:nearest]) if rung else ()
            entries.append(_entry(sense, wordnet, inventory.count(sense.key), rung, nearest_words))
    return entries


def _entry(
    sense: Sense, wordnet: WordNet, count: int | None, rung: Rung | None, nearest: tuple[tuple[str, float], ...]
) -> SenseEntry:
    synset = wordnet.synset(sense.synset)
    of_sense = {name: getattr(sense, name) for name in ("key", "synset", "pos", "rank", "lexname")}
    of_synset = {name: getattr(synset, name) for name in ("words", "definition", "examples")}
    return SenseEntry(**of_sense, **of_synset, count=count, rung=rung, nearest=nearest)
