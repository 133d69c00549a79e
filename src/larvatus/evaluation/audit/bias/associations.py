"""Association tests on contextual vectors (WEAT, Caliskan et al. 2017; SEAT, May et al. 2019; CEAT, Guo et al. 2021).

    sentences = ["This is [WORD].", "[WORD] is here."]        # may be left out: SEAT's plain ones are taken
    [[tests]]
    name = "names and family"
    targets.men = ["John", "Paul", "Mike"]
    targets.women = ["Amy", "Joan", "Lisa"]
    attributes.career = ["salary", "office", "business"]
    attributes.family = ["home", "parents", "children"]

A word's vector is the mean of its contextual vectors over the sentences. Words are permuted, because several sentences
with the same word are not independent evidence. Effect sizes of single sentences are reported too, as in CEAT: if they
disagree, the sentence matters more than the words. With a standardiser (`larvatus isotropy fit`) all figures are given
for plain and for standardised vectors.

    s(w) = mean_a cos(w, a) − mean_b cos(w, b)                      how much nearer a target is to A than to B
    d = (mean_x s(x) − mean_y s(y)) / deviation of s over X ∪ Y     the effect size, between −2 and 2

    >>> rows = associations(np.eye(2), np.eye(2)[:1], np.eye(2)[1:])
    >>> rows.tolist()
    [1.0, -1.0]
    >>> round(effect_size([1.0, 0.9], [-1.0, -0.9]), 2), permutation_p([1.0, 0.9], [-1.0, -0.9]).one_sided
    (1.73, 0.16666666666666666)

The p-value is that of the permutation test over equal-sized partitions of the targets: how often another partition has
as large a difference. All partitions are tried if there are not too many, otherwise a random sample of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.core.tables import ReportPart, Table
from larvatus.evaluation.audit.bias.report import (
    ASSOCIATIONS,
    BiasPart,
    Resampling,
    read_texts,
    read_toml,
    read_word_lists,
)
from larvatus.evaluation.audit.intervals import TARGETS, resampled
from larvatus.inference.vectors.layers import Layers
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import ROUNDING, Interval, cluster_bootstrap
from larvatus.models.loaded import LoadedModel

EXACT = 20_000
"""Partitions that are all tried."""


@dataclass(frozen=True)
class PermutationP:
    one_sided: float
    """As published: another partition has as large a difference, in the same direction."""
    two_sided: float
    """In either direction."""
    partitions: int
    exact: bool
    """Whether all partitions were tried."""


def associations(targets: npt.ArrayLike, first: npt.ArrayLike, second: npt.ArrayLike) -> Doubles:
    """[T] how much nearer each target [T, D] is to the first attributes [A, D] than to the second [B, D]."""
    w, a, b = (_unit(np.asarray(vectors, np.float64)) for vectors in (targets, first, second))
    scores: Doubles = (w @ a.T).mean(1) - (w @ b.T).mean(1)
    return scores


def effect_size(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Effect size of the associations of two sets of targets; NaN if all are equal."""
    first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
    deviation = np.concatenate([first, second]).std(ddof=1)
    return float((first.mean() - second.mean()) / deviation) if deviation > ROUNDING else math.nan


def permutation_p(x: npt.ArrayLike, y: npt.ArrayLike, *, samples: int = 10_000, seed: int = 0) -> PermutationP:
    """How often a partition of the targets into sets of these sizes has as large a difference of means."""
    first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
    together = np.concatenate([first, second])
    size, count = len(first), len(together)
    partitions = math.comb(count, size)
    if partitions <= EXACT:
        chosen = np.array(list(combinations(range(count), size)))
    else:
        draws = stream(seed, "permutation test")
        chosen = np.stack([draws.permutation(count)[:size] for _ in range(samples)])
    sums = together[chosen].sum(1)
    differences = sums / size - (together.sum() - sums) / (count - size)
    observed = first.mean() - second.mean()
    above = int((differences >= observed - ROUNDING).sum())
    beyond = int((np.abs(differences) >= abs(observed) - ROUNDING).sum())
    if partitions <= EXACT:  # the partition observed is among them
        return PermutationP(above / partitions, beyond / partitions, partitions, True)
    return PermutationP((above + 1) / (samples + 1), (beyond + 1) / (samples + 1), samples, False)


def _unit(vectors: Doubles) -> Doubles:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Doubles = vectors / np.maximum(norms, 1e-12)
    return unit


WORD = "[WORD]"
PLAIN_SENTENCES = ("This is [WORD].", "That is [WORD].", "There is [WORD].", "Here is [WORD].", "[WORD] is here.")
"""Semantically bleached, after May et al. 2019."""
FIELDS = ("sentences", "tests")
TEST_FIELDS = ("name", "targets", "attributes")
STANDARDISED = "standardised"


@dataclass(frozen=True)
class AssociationTest:
    name: str
    targets: dict[str, tuple[str, ...]]
    """Two sets, X and Y."""
    attributes: dict[str, tuple[str, ...]]
    """Two sets, A and B."""


@dataclass(frozen=True)
class AssociationTests:
    sentences: tuple[str, ...]
    tests: tuple[AssociationTest, ...]
    source: str


@dataclass(frozen=True)
class Association:
    name: str
    vectors: str
    """`plain` or `standardised`."""
    targets: tuple[str, str]
    attributes: tuple[str, str]
    effect: Interval
    """d: positive if the first targets are nearer to the first attributes than the second targets are."""
    p: PermutationP
    words: tuple[int, int]
    by_sentence: dict[str, float]
    """d of each single sentence."""
    by_word: dict[str, float]
    """s(w) of each target word: positive if nearer to the first attributes."""


@dataclass(frozen=True)
class AssociationResult(BiasPart):
    source: str
    layers: str
    tests: tuple[Association, ...]
    unit: str = TARGETS
    """Unit of resampling; attribute words and sentences are fixed."""
    limits: tuple[str, ...] = ASSOCIATIONS

    def figures(self) -> Iterator[Figure]:
        for each in self.tests:
            groups = f"{' / '.join(each.targets)}, {' / '.join(each.attributes)}"
            at: dict[str, Any] = {"category": each.name, "group": groups}
            if each.vectors == STANDARDISED:
                at["vectors"] = STANDARDISED
            yield Figure.of(f"effect size d ({each.vectors})", each.effect, unit=self.unit, **at)
            yield Figure(metric=f"p of d, two-sided ({each.vectors})", value=each.p.two_sided, conditions=at)

    def tables(self) -> Iterator[ReportPart]:
        yield f"Association tests: {self.source}, vectors of layers {self.layers}"
        columns = ("test", "targets", "attributes", "vectors", "words", "d", "95%", "p", "d by sentence")
        rows = [
            (
                each.name,
                " / ".join(each.targets),
                " / ".join(each.attributes),
                each.vectors,
                " + ".join(map(str, each.words)),
                f"{each.effect.value:+.2f}",
                f"{each.effect.low:+.2f} to {each.effect.high:+.2f}",
                f"{each.p.two_sided:.4f}",
                f"{min(each.by_sentence.values()):+.2f} to {max(each.by_sentence.values()):+.2f}",
            )
            for each in self.tests
        ]
        yield Table(columns, tuple(rows))
        yield "d: effect size, −2 to 2; p: two-sided, by permutation of the target words"
        yield f"{resampled(self.unit)}; attribute words and sentences are fixed"


def read_associations(given: str | Path | Mapping[str, Any]) -> AssociationTests:
    """Read tests from a TOML file or a mapping."""
    record, where = read_toml(given, FIELDS)
    sentences = read_texts(record.get("sentences", PLAIN_SENTENCES), where, what="sentences")
    for sentence in sentences:
        if sentence.count(WORD) != 1:
            raise DataError(f"{where}: {sentence!r} must hold {WORD} once")
    if not isinstance(record.get("tests"), list | tuple) or not record["tests"]:
        raise DataError(f"{where}: no [[tests]], each with name, targets and attributes")
    tests = tuple(_test(test, f"{where}: test {number}") for number, test in enumerate(record["tests"], start=1))
    return AssociationTests(sentences, tests, where)


def _test(record: Any, where: str) -> AssociationTest:
    if not isinstance(record, Mapping) or not set(record) <= set(TEST_FIELDS):
        raise DataError(f"{where}: a test has {', '.join(TEST_FIELDS)}")
    sets = {}
    for what in ("targets", "attributes"):
        lists = read_word_lists(record.get(what), where, what=what, least=2)
        if len(lists) > 2:
            raise DataError(f"{where}: {len(lists)} sets of {what}; a test compares two")
        for name, words in lists.items():
            if len(words) < 2:
                raise DataError(f"{where}: {what}.{name} has one member, {words[0]!r}; a group of one cannot be tested")
        sets[what] = lists
    shared = set.intersection(*(set(words) for words in sets["targets"].values()))
    if shared:
        raise DataError(f"{where}: {min(shared)!r} is in both sets of targets: they must differ")
    name = record.get("name", where)
    if not isinstance(name, str):
        raise DataError(f"{where}: name must be a text")
    return AssociationTest(name, sets["targets"], sets["attributes"])


def score_associations(
    model: LoadedModel,
    tests: AssociationTests,
    resampling: Resampling,
    *,
    layers: Layers = "last",
    standardiser: Standardiser | None = None,
    permutations: int = 10_000,
) -> AssociationResult:
    """Effect size, interval and p of each test, for plain vectors and, with a standardiser, for standardised ones."""
    words = sorted({word for test in tests.tests for sets in (test.targets, test.attributes) for word in _all(sets)})
    results = []
    for name, standardise in (("plain", None), (STANDARDISED, standardiser)):
        if name == "plain" or standardise is not None:
            options = EmbedOptions(unit="span", layers=layers, standardise=standardise)
            vectors = _vectors(model, words, tests.sentences, options)
            for test in tests.tests:
                results.append(_association(test, name, tests.sentences, vectors, resampling, permutations))
    return AssociationResult(tests.source, str(layers), tuple(results))


def _all(sets: Mapping[str, Sequence[str]]) -> list[str]:
    return [word for words in sets.values() for word in words]


def _vectors(
    model: LoadedModel, words: Sequence[str], sentences: Sequence[str], options: EmbedOptions
) -> dict[str, Doubles]:
    """[sentences, D] vectors of each word in the sentences."""
    texts, spans = [], []
    for word in words:
        for sentence in sentences:
            start = sentence.index(WORD)
            written = word[:1].upper() + word[1:] if start == 0 else word
            texts.append(sentence.replace(WORD, written))
            spans.append([(start, start + len(written))])
    rows = [
        np.asarray(vectors.array, np.float64)[0]
        for vectors in embed_texts(model.encoder, model.tokenizer, texts, options, spans=spans)
    ]
    table = np.stack(rows).reshape(len(words), len(sentences), -1)
    for word, of_word in zip(words, table, strict=True):
        if np.isnan(of_word).any():
            raise DataError(f"the vocabulary deletes {word!r}: it has no vector; leave it out")
    return dict(zip(words, table, strict=True))


def _association(
    test: AssociationTest,
    name: str,
    sentences: Sequence[str],
    vectors: Mapping[str, Doubles],
    resampling: Resampling,
    permutations: int,
) -> Association:
    def scores(pick: slice) -> tuple[Doubles, Doubles]:
        """s(w) of the targets, from the vectors of some sentences."""

        def stack(words: Sequence[str]) -> Doubles:
            return np.stack([vectors[word][pick].mean(0) for word in words])

        first, second = (stack(words) for words in test.attributes.values())
        x, y = (associations(stack(words), first, second) for words in test.targets.values())
        return x, y

    x, y = scores(slice(None))
    rows = np.stack([np.concatenate([x, y]), np.repeat([0.0, 1.0], [len(x), len(y)])], axis=1)
    by_sentence = {text: effect_size(*scores(slice(at, at + 1))) for at, text in enumerate(sentences)}
    words = _all(test.targets)
    effect = cluster_bootstrap(
        rows, _effect, words, strata=rows[:, 1], of="rows", samples=resampling.samples, seed=resampling.seed
    )
    return Association(
        name=test.name,
        vectors=name,
        targets=_both(test.targets),
        attributes=_both(test.attributes),
        effect=effect,
        p=permutation_p(x, y, samples=permutations, seed=resampling.seed),
        words=(len(x), len(y)),
        by_sentence=by_sentence,
        by_word=dict(zip(words, rows[:, 0].tolist(), strict=True)),
    )


def _both(sets: Mapping[str, Any]) -> tuple[str, str]:
    first, second = sets
    return first, second


def _effect(rows: Doubles) -> float:
    x, y = rows[rows[:, 1] == 0, 0], rows[rows[:, 1] == 1, 0]
    return effect_size(x, y)
