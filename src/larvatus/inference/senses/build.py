"""Vectors of senses: means over tagged text (chapter eq. 11.8), and back-off for senses that no text has.

    inventory = build_senses(encoder, tokenizer, read_semcor("semcor/", wordnet, reading), options, …)
    backoff = SenseBackoff(inventory, wordnet, steps=("synset", "hypernym"), standardise=True)
    backoff.candidates((("bank", "n"),)).vectors         # [C, D] unit vectors

v_s is the mean of the vectors of the words tagged s. Sentences stream through the encoder, some hundred at a time. A
running sum and a count are kept for each sense, and the mean and variance of all words by Welford's update: memory
grows with the senses, not with the text.

Tagged text covers a sixth of WordNet's senses. Any other sense takes the vector of the first level that has one (LMMS,
Loureiro & Jorge 2019, §3.2):

    sense        words tagged with it
    synset       mean over the senses of its synset
    hypernym     mean over the synsets right below its synset's hypernyms
    lexname      mean over the synsets of its lexicographer class

C candidates, D dimensions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.senses.inventory import InventoryOrigin, SenseInventory, standardised
from larvatus.inference.senses.tagged import Lemmas, ReadingCounts, SenseSentence
from larvatus.inference.senses.wordnet import POS, Sense, WordNet
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.nn.encoder import Encoder

AT_ONCE = 512
"""Sentences of a batch; vectors do not depend on it."""


def embed_instances(
    encoder: Encoder, tokenizer: Tokenizer, sentences: Sequence[SenseSentence], options: EmbedOptions
) -> list[Floats]:
    """The vectors of the instances of each sentence, [I, D]; NaN if the vocabulary deletes a word."""
    texts = [sentence.text for sentence in sentences]
    spans = [[(instance.start, instance.end) for instance in sentence.instances] for sentence in sentences]
    return [embedded.vectors for embedded in embed_texts(encoder, tokenizer, texts, options, spans=spans)]


class _Sums:
    """Running sums: a row for each sense, and the moments of all words (Chan et al.'s update of a batch)."""

    def __init__(self, size: int) -> None:
        self.rows: dict[str, int] = {}
        self.sums: npt.NDArray[np.float64] = np.zeros((1_024, size))
        self.counts = np.zeros(1_024, dtype=np.int64)
        self.seen = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)

    def add(self, keys: Sequence[tuple[str, ...]], vectors: Floats) -> None:
        """Add vectors [I, D] of words; a word with several keys counts for each of its senses."""
        wide = vectors.astype(np.float64)
        pairs = [
            (self.rows.setdefault(key, len(self.rows)), at)
            for at, keys_of_word in enumerate(keys)
            for key in keys_of_word
        ]
        while len(self.rows) > len(self.sums):
            self.sums = np.concatenate([self.sums, np.zeros_like(self.sums)])
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
        rows, places = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        np.add.at(self.sums, rows, wide[places])
        np.add.at(self.counts, rows, 1)
        self._moments(wide)

    def _moments(self, wide: npt.NDArray[np.float64]) -> None:
        mean = wide.mean(0)
        away, total = mean - self.mean, self.seen + len(wide)
        self.squares += ((wide - mean) ** 2).sum(0) + away**2 * (self.seen * len(wide) / total)
        self.mean += away * (len(wide) / total)
        self.seen = total

    def inventory(self, origin: InventoryOrigin) -> SenseInventory:
        keys = sorted(self.rows)
        order = np.array([self.rows[key] for key in keys], dtype=np.int64)
        counts = self.counts[order]
        return SenseInventory(
            origin=origin,
            keys=tuple(keys),
            vectors=(self.sums[order] / counts[:, None]).astype(np.float32),
            counts=counts,
            mean=self.mean.astype(np.float32),
            deviation=np.sqrt(self.squares / self.seen).astype(np.float32),
        )


def build_senses(
    encoder: Encoder,
    tokenizer: Tokenizer,
    sentences: Iterable[SenseSentence],
    options: EmbedOptions,
    *,
    wordnet: WordNet,
    reading: ReadingCounts,
    model: tuple[str, str],
    progress: Callable[[ReadingCounts], None] = lambda _: None,
) -> SenseInventory:
    """The inventory of tagged sentences. `model` is the model's fingerprint and its name; `reading` counts the text."""
    if LayerWeights.read(options.layers, layers=encoder.depth).stacked:
        raise UsageError("a sense has one vector, and layers = all gives several; name one layer or a mix")
    totals: _Sums | None = None
    for block in _blocks(iter(sentences)):
        embedded = embed_instances(encoder, tokenizer, block, options)
        vectors = np.concatenate(embedded)
        keys = [instance.keys for sentence in block for instance in sentence.instances]
        there = ~np.isnan(vectors[:, 0])
        totals = totals or _Sums(vectors.shape[1])
        if there.any():
            totals.add(
                [keys_of_word for keys_of_word, has_vector in zip(keys, there.tolist(), strict=True) if has_vector],
                vectors[there],
            )
        progress(reading)
    unknown = sum(reading.unknown.values())
    if totals is None or not totals.seen or unknown > reading.instances:
        some = ", ".join(key for key, _ in reading.unknown.most_common(3))
        why = f"{unknown:,} of its tags are not in {wordnet.folder} ({some})" if unknown else "no word of it is tagged"
        raise DataError(f"the text gives too few senses: {why}; use the WordNet that it was tagged with")
    origin = InventoryOrigin(
        model=model[0],
        name=model[1],
        wordnet=wordnet.fingerprint,
        layers=options.layers,
        pool=options.pool,
        instances=totals.seen,
        sentences=reading.sentences,
        unknown=unknown,
    )
    return totals.inventory(origin)


def _blocks(sentences: Iterator[SenseSentence]) -> Iterator[list[SenseSentence]]:
    while block := list(islice(sentences, AT_ONCE)):
        yield block


# Back-off.

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
