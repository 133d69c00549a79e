"""Isotropy of a model's layers, before and after standardisation.

    report = measure_isotropy(encoder, tokenizer, ["held_out.txt"], IsotropyOptions(), standardise=fitted)
    report.layers[6].plain.expected, report.layers[6].standardised.expected

For each layer: the expected cosine of two word instances (Ethayarajh 2019), which dimensions make it (Timkey & van
Schijndel 2021), IsoScore* beside it (Rudman & Eickhoff 2024), since mean cosine only looks at where vectors point on
average, and how self-similarity of words falls or rises with their frequency (Zhou et al. 2022). Words are counted in
all of the text; passages drawn at random go through the model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.ranges import Instances, Seed, Share, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Skipped
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from larvatus.inference.interpret.cosines import RunningCosines, RunningCovariance, unit_vectors
from larvatus.inference.interpret.frequency import FrequencyEffect, RunningWords, choose_words, word_key
from larvatus.inference.vectors.bulk.parts import Piece
from larvatus.inference.vectors.layers import LayerMix
from larvatus.inference.vectors.options import Pool
from larvatus.inference.vectors.passages import PassageOptions, passages, sample
from larvatus.inference.vectors.standardise.fit import counted, every_layer
from larvatus.inference.vectors.standardise.standardise import Standardiser
from larvatus.metrics.isotropy import isoscore_star
from larvatus.models.nn.encoder import Encoder


class IsotropyOptions(Settings):
    pool: Pool = "mean"
    punctuation: bool = False
    """Whether marks that stand alone count as words."""
    passages: PassageOptions = PassageOptions()
    most: Instances = 20_000
    """Word instances that go through the model (or a few more: whole passages)."""
    rogue: SizeOrNone = 3
    """Dimensions to name."""
    shrinkage: Share = 0.0
    """ζ of IsoScore*: how far the covariance is moved to one that is the same in all directions."""
    seed: Seed = 0


class Rogue(msgspec.Struct, frozen=True, kw_only=True):
    dimension: int
    contribution: float
    """To the expected cosine."""
    share: float
    """Of the expected cosine; without meaning where that is about 0."""


class Isotropy(msgspec.Struct, frozen=True, kw_only=True):
    """Of one layer's vectors."""

    expected: float
    """Cosine of two word instances: the anisotropy."""
    standard_error: float
    isoscore: float
    rogue: tuple[Rogue, ...]
    """The dimensions that contribute most, first."""
    frequency: FrequencyEffect | None
    """None where fewer than two words occur twice."""


class LayerIsotropy(msgspec.Struct, frozen=True, kw_only=True):
    layer: int
    """0 is the embeddings."""
    plain: Isotropy
    standardised: Isotropy | None


class IsotropyReport(msgspec.Struct, frozen=True, kw_only=True):
    instances: int
    passages: int
    counted: int
    """Words in which frequencies were counted."""
    size: int
    """Dimensions."""
    standardise: str | None
    layers: tuple[LayerIsotropy, ...]


def measure_isotropy(
    encoder: Encoder,
    tokenizer: Tokenizer,
    paths: Sequence[str],
    options: IsotropyOptions,
    *,
    standardise: Standardiser | None = None,
    progress: Callable[[int], None] = lambda _: None,
    skipped: Skipped | None = None,
) -> IsotropyReport:
    """The figures of every layer over the word instances of a corpus."""
    if standardise is not None:
        standardise.check("word", options.pool)
    frequency: Counter[str] = Counter()
    read = passages(paths, options.passages, Skipped() if skipped is None else skipped)
    drawn = sample(_counted(read, frequency), options.most, seed=options.seed)
    if len(drawn) < 2:
        raise DataError(
            f"{', '.join(paths[:3])}: words of different passages are compared, and there are {len(drawn)} passages; "
            "name more text"
        )
    portion = Counter(key for piece in drawn for key in _keys(piece))
    chosen = choose_words(portion, frequency, seed=options.seed)
    layers, size = encoder.depth + 1, encoder.width
    kinds = [_Kind(chosen, layers, size) for _ in range(1 if standardise is None else 2)]
    covariance = RunningCovariance(layers, size)
    mean, scale = _moments(standardise, layers)
    for block in every_layer(encoder, tokenizer, drawn, "word", options.pool):
        for vectors in block:
            kept, words = counted(vectors, punctuation=options.punctuation)
            x = kept.astype(np.float64)
            covariance.add(x)
            for kind, each in zip(kinds, (x, (x - mean) / scale), strict=False):
                kind.add(words, each)
        progress(covariance.count)
    if any(kind.cosines.passages < 2 for kind in kinds):
        raise DataError(f"{', '.join(paths[:3])}: fewer than 2 passages have words with vectors; name more text")
    plain = covariance.value
    covariances = [plain, plain / (scale.transpose(0, 2, 1) * scale)]
    made = [kind.isotropy(value, frequency, options) for kind, value in zip(kinds, covariances, strict=False)]
    return IsotropyReport(
        instances=covariance.count,
        passages=kinds[0].cosines.passages,
        counted=frequency.total(),
        size=size,
        standardise=standardise.name if standardise else None,
        layers=tuple(
            LayerIsotropy(layer=layer, plain=made[0][layer], standardised=made[1][layer] if standardise else None)
            for layer in range(layers)
        ),
    )


def _counted(pieces: Iterable[Piece], frequency: Counter[str]) -> Iterator[Piece]:
    """The same passages, their words counted as they pass."""
    for piece in pieces:
        frequency.update(_keys(piece))
        yield piece


def _keys(piece: Piece) -> list[str]:
    words = (piece.text[start:end] for start, end in segment_words(piece.text).tolist())
    return [key for word in words if (key := word_key(word)) is not None]


def _moments(standardise: Standardiser | None, layers: int) -> tuple[Doubles, Doubles]:
    if standardise is None:
        return np.zeros((layers, 1, 1)), np.ones((layers, 1, 1))
    mean, scale = standardise.moments(LayerMix.read("all", layers=layers - 1))
    return mean, scale


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


class _Kind:
    """What is summed of plain vectors, and of standardised ones."""

    def __init__(self, chosen: Sequence[str], layers: int, size: int) -> None:
        self.cosines = RunningCosines(layers, size)
        self.words = RunningWords(chosen, layers, size)

    def add(self, words: Sequence[str], x_LND: Doubles) -> None:
        u, sound = unit_vectors(x_LND)
        self.cosines.add(u)
        self.words.add([word for word, finite in zip(words, sound.tolist(), strict=True) if finite], u)

    def isotropy(self, covariance: Doubles, frequency: Counter[str], options: IsotropyOptions) -> list[Isotropy]:
        made = []
        for layer, covariance_DD in enumerate(covariance):
            expected = self.cosines.expected(layer)
            contributions = self.cosines.contributions(layer)
            top = np.argsort(-contributions, kind="stable")[: options.rogue].tolist()
            rogue = tuple(
                Rogue(
                    dimension=d, contribution=float(contributions[d]), share=_share(float(contributions[d]), expected)
                )
                for d in top
            )
            even = np.eye(len(covariance_DD)) * (np.trace(covariance_DD) / len(covariance_DD))
            made.append(
                Isotropy(
                    expected=expected,
                    standard_error=self.cosines.standard_error(layer),
                    isoscore=isoscore_star(covariance_DD, even, options.shrinkage),
                    rogue=rogue,
                    frequency=self.words.effect(layer, frequency),
                )
            )
        return made
