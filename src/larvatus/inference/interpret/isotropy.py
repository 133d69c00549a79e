"""Isotropy of a model's layers, before and after standardisation.

    report = measure_isotropy(encoder, tokenizer, ["held_out.txt"], IsotropyOptions(), standardise=fitted)
    report.layers[6].plain.expected, report.layers[6].standardised.expected

For each layer: the expected cosine of two word instances (Ethayarajh 2019), the dimensions that contribute most to it
(Timkey & van Schijndel 2021), IsoScore* (Rudman & Eickhoff 2024), because the mean cosine only measures the average
direction of vectors, and how the self-similarity of words varies with their frequency (Zhou et al. 2022). Words are
counted in the whole text; a random sample of passages goes through the model.

Two random words of a large corpus hardly ever share a passage, but in a sample of passages they often do, and then
share its topic. So the cosine is over all pairs from *different* passages. With the sum s_b of the n_b unit vectors of
passage b, S = Σ s_b and n = Σ n_b, no pair needs to be formed:

    A   = (‖S‖² − Σ ‖s_b‖²) / (n² − Σ n_b²)        expected cosine
    A_d = (S_d² − Σ s_bd²) / (n² − Σ n_b²)         contribution of dimension d; A = Σ_d A_d

The standard error is that of a U-statistic over passages: the influence of b on A is about 2 (s_b · S/n − n_b A) / n,
and the squares of all influences follow from Σ s_b s_bᵀ, Σ n_b s_b and Σ n_b².

    draw_isotropy(report, Path("isotropy.png"), title="runs/mine")      # with matplotlib, the extra `plots`
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.outputs import new_output
from larvatus.core.ranges import Instances, Seed, Share, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Skipped
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from larvatus.inference.interpret.frequency import FrequencyEffect, RunningWords, choose_words, word_key
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.inference.vectors.passages import LocatedText, PassageOptions, passages, sample
from larvatus.inference.vectors.pooling import Pool
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.inference.vectors.standardise_fit import counted, every_layer
from larvatus.metrics.isotropy import isoscore_star
from larvatus.models.nn.encoder import Encoder


class IsotropyOptions(Settings):
    pool: Pool = "mean"
    punctuation: bool = False
    """Whether punctuation counts as words."""
    passages: PassageOptions = PassageOptions()
    most: Instances = 20_000
    """Word instances in the sample (or a few more: passages are complete)."""
    rogue: SizeOrNone = 3
    """Number of rogue dimensions to report."""
    shrinkage: Share = 0.0
    """ζ of IsoScore*: shrinkage of the covariance towards an isotropic one."""
    seed: Seed = 0


class RogueDimension(msgspec.Struct, frozen=True, kw_only=True):
    dimension: int
    contribution: float
    """Contribution to the expected cosine."""
    share: float
    """Share of the expected cosine; meaningless if that is about 0."""


class Isotropy(msgspec.Struct, frozen=True, kw_only=True):
    """Isotropy of one layer's vectors."""

    expected: float
    """Cosine of two word instances: the anisotropy."""
    standard_error: float
    isoscore: float
    rogue: tuple[RogueDimension, ...]
    """Dimensions with the largest contributions, in order."""
    frequency: FrequencyEffect | None
    """None if fewer than two words occur twice."""


class LayerIsotropy(msgspec.Struct, frozen=True, kw_only=True):
    layer: int
    """0 is the embeddings."""
    plain: Isotropy
    standardised: Isotropy | None


class IsotropyReport(msgspec.Struct, frozen=True, kw_only=True):
    instances: int
    passages: int
    counted: int
    """Words of the text in which frequencies were counted."""
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
    """Isotropy of every layer, over word instances of a corpus."""
    if standardise is not None:
        standardise.check("word", options.pool)
    frequency: Counter[str] = Counter()
    read = passages(paths, options.passages, Skipped() if skipped is None else skipped)
    sampled = sample(_counted(read, frequency), options.most, seed=options.seed)
    if len(sampled) < 2:
        raise DataError(
            f"{', '.join(paths[:3])}: words of different passages are compared, and there are {len(sampled)} passages; "
            "name more text"
        )
    portion = Counter(key for piece in sampled for key in _keys(piece))
    chosen = choose_words(portion, frequency, seed=options.seed)
    layers, size = encoder.depth + 1, encoder.width
    kinds = [_Sums(chosen, layers, size) for _ in range(1 if standardise is None else 2)]
    covariance = RunningCovariance(layers, size)
    mean, scale = _moments(standardise, layers)
    for block in every_layer(encoder, tokenizer, sampled, "word", options.pool):
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


def _counted(pieces: Iterable[LocatedText], frequency: Counter[str]) -> Iterator[LocatedText]:
    """The same passages; their words are counted on the way."""
    for piece in pieces:
        frequency.update(_keys(piece))
        yield piece


def _keys(piece: LocatedText) -> list[str]:
    words = (piece.text[start:end] for start, end in segment_words(piece.text).tolist())
    return [key for word in words if (key := word_key(word)) is not None]


def _moments(standardise: Standardiser | None, layers: int) -> tuple[Doubles, Doubles]:
    if standardise is None:
        return np.zeros((layers, 1, 1)), np.ones((layers, 1, 1))
    mean, scale = standardise.moments(LayerWeights.read("all", layers=layers - 1))
    return mean, scale


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


class _Sums:
    """Running sums of plain or of standardised vectors."""

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
                RogueDimension(
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


COLOURS = {"plain": "#D55E00", "standardised": "#0072B2"}  # of Okabe and Ito's palette
MARKERS = {"plain": "o", "standardised": "s"}


def draw_isotropy(report: IsotropyReport, path: Path, *, title: str) -> None:
    """Write the plot as PNG."""
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(12, 4.2), dpi=150, layout="constrained")
    cosine, score, frequency = figure.subplots(1, 3)
    layers = [layer.layer for layer in report.layers]
    for name, by_layer in _kinds(report).items():
        style = {"color": COLOURS[name], "marker": MARKERS[name], "linewidth": 1.6, "markersize": 5, "label": name}
        errors = [isotropy.standard_error for isotropy in by_layer]
        cosine.errorbar(layers, [isotropy.expected for isotropy in by_layer], yerr=errors, capsize=2, **style)
        score.plot(layers, [isotropy.isoscore for isotropy in by_layer], **style)
        effect = by_layer[-1].frequency
        if effect is not None:
            middles = [math.sqrt(frequency_bin.low * frequency_bin.high) for frequency_bin in effect.bins]
            frequency.plot(middles, [frequency_bin.similarity for frequency_bin in effect.bins], **style)
    cosine.axhline(0, color="#888888", linewidth=1, linestyle=":", zorder=1)
    cosine.set_title("expected cosine of two word instances", fontsize=10, loc="left")
    score.set_title("IsoScore*", fontsize=10, loc="left")
    score.set_ylim(bottom=0)
    frequency.set_title(f"cosine of instances of one word, layer {layers[-1]}", fontsize=10, loc="left")
    frequency.set_xscale("log")
    frequency.set_xlabel(f"occurrences in {report.counted:,} words")
    for axes in (cosine, score):
        axes.set_xlabel("layer (0: embeddings)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (cosine, score, frequency):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
    if report.standardise:
        cosine.legend(frameon=False)
    figure.suptitle(f"{title} · {report.instances:,} word instances", x=0.01, ha="left", fontsize=11)
    with new_output(path) as aside:
        figure.savefig(aside, format="png")


def _kinds(report: IsotropyReport) -> dict[str, list[Isotropy]]:
    kinds = {"plain": [layer.plain for layer in report.layers]}
    after = [layer.standardised for layer in report.layers if layer.standardised is not None]
    return {**kinds, "standardised": after} if after else kinds


def unit_vectors(x_LND: npt.NDArray[Any]) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Unit vectors of the units with a direction in every layer, and which units these are, [N]."""
    x = x_LND.astype(np.float64)
    lengths = np.linalg.norm(x, axis=-1)
    sound = (np.isfinite(lengths) & (lengths > 0)).all(axis=0)
    return x[:, sound] / lengths[:, sound, None], sound


class RunningCosines:
    """Running sums over L layers of D dimensions."""

    def __init__(self, layers: int, size: int) -> None:
        self.count = self.passages = 0
        self.total = np.zeros((layers, size))
        self._outer = np.zeros((layers, size, size))
        self._weighted = np.zeros((layers, size))
        self._sizes = 0

    def add(self, u_LND: Doubles) -> None:
        """Add the unit vectors of one passage."""
        count = u_LND.shape[1]
        if not count:
            return
        sum_LD = u_LND.sum(axis=1)
        self.count += count
        self.passages += 1
        self.total += sum_LD
        self._outer += sum_LD[:, :, None] * sum_LD[:, None, :]
        self._weighted += count * sum_LD
        self._sizes += count**2

    def expected(self, layer: int) -> float:
        return float(self.contributions(layer).sum())

    def contributions(self, layer: int) -> Doubles:
        """[D]; their sum is the expected cosine."""
        within = np.diagonal(self._outer[layer])
        shares: Doubles = (self.total[layer] ** 2 - within) / (self.count**2 - self._sizes)
        return shares

    def standard_error(self, layer: int) -> float:
        mean, expected = self.total[layer] / self.count, self.expected(layer)
        squares = (
            mean @ self._outer[layer] @ mean - 2 * expected * (mean @ self._weighted[layer]) + expected**2 * self._sizes
        )
        excess = (mean @ self.total[layer] - expected * self.count) ** 2 / self.passages  # influences sum to 0
        return 2 * math.sqrt(max(0.0, float(squares - excess))) / self.count


class RunningCovariance:
    """Covariance of all dimensions with each other, for L layers, by joining centred blocks."""

    def __init__(self, layers: int, size: int) -> None:
        self.count = 0
        self._mean = np.zeros((layers, size))
        self._products = np.zeros((layers, size, size))

    def add(self, x_LND: Doubles) -> None:
        count = x_LND.shape[1]
        if not count:
            return
        mean = x_LND.mean(axis=1)
        centred = x_LND - mean[:, None]
        apart, total = mean - self._mean, self.count + count
        self._products += centred.transpose(0, 2, 1) @ centred
        self._products += apart[:, :, None] * apart[:, None, :] * (self.count * count / total)
        self._mean += apart * (count / total)
        self.count = total

    @property
    def value(self) -> Doubles:
        """[L, D, D]"""
        return self._products / self.count
