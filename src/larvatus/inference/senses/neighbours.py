"""What is known of a word's senses: gloss, how often each was tagged, and the senses that lie nearest to it.

for entry in describe("bank", wordnet, inventory, nearest=3):
    print(entry.key, entry.count, entry.definition, entry.nearest)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.errors import DataError
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.ladder import Ladder, Rung
from larvatus.inference.senses.pos import POS
from larvatus.inference.senses.wordnet import Sense, WordNet


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
    """Tagged words that its vector is the mean of; None without an inventory."""
    rung: Rung | None
    """Where its vector comes from."""
    nearest: tuple[tuple[str, float], ...]
    """Keys of the nearest tagged senses, with their cosines."""

    def to_dict(self) -> dict[str, Any]:
        nearest = [{"key": key, "similarity": cosine} for key, cosine in self.nearest]
        return {**self.__dict__, "nearest": nearest}


def describe(
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
    ladder = Ladder(inventory, wordnet, steps=("synset", "hypernym", "lexname"), standardise=standardise)
    by_lemma = [(lemma, ladder.candidates((lemma,))) for lemma in lemmas]
    every = ladder.apply(inventory.vectors)
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
    return SenseEntry(
        key=sense.key,
        synset=sense.synset,
        pos=sense.pos,
        rank=sense.rank,
        lexname=sense.lexname,
        words=synset.words,
        definition=synset.definition,
        examples=synset.examples,
        count=count,
        rung=rung,
        nearest=nearest,
    )
