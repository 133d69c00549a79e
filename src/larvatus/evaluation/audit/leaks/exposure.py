"""Exposure of planted secrets (Carlini et al. 2019, *The Secret Sharer*, §4).

    exposure(s) = log2 |space| − log2 rank(s)

The rank of the planted secret among all possible ones, by the model's probability of the secret in its sentence (token
after token: `masked_loss.py`). A model that has not learned it gives a random rank, 1.44 bits on average (1 / ln 2). A
model that has memorised it ranks it first: log2 |space| bits.

    exposures(model, read_canaries(Path("corpus")), ExposureOptions(exact=10_000)).by_repeats()

A large space is sampled: the rank is estimated from the share of sampled secrets that are likelier than the planted
one, with its exact binomial interval. If none is, the share is extrapolated by a skew-normal distribution fitted to the
sampled scores, as in §4.3 of the paper. Each canary records how its rank was found.

Scores of random secrets are sums of a few log-probabilities, which are nearly normal but skewed; the paper found that
this family fits them. The fit uses the first three moments (Azzalini 1985):

    δ² = π/2 · |γ|^(2/3) / (|γ|^(2/3) + ((4 − π)/2)^(2/3)),   ω² = σ² / (1 − 2δ²/π),   ξ = μ − ωδ √(2/π)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.ranges import whole
from larvatus.core.rng import stream
from larvatus.core.settings import SeededSettings
from larvatus.core.tables import Table
from larvatus.data.corpus.canaries import Canaries, Canary
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.audit.intervals import CANARIES, between, mean_interval, resampled
from larvatus.evaluation.audit.leaks.extraction import count_verbatim_tokens
from larvatus.evaluation.audit.masked_loss import HiddenSpan, read_spans
from larvatus.inference.cloze.likelihood import find_reader, score_texts
from larvatus.inference.model import Model
from larvatus.metrics.accuracy import clopper_pearson
from larvatus.metrics.figures import Figure
from larvatus.metrics.ranking import pearson, ranks, spearman
from larvatus.models.generation.generator import InfillPrompts, can_infill, continuation_scores
from larvatus.models.masked_prediction import require_predictor

UNKNOWN = 1 / math.log(2)
"""Mean exposure in bits of a secret that was not learned."""
How = Literal["exact", "sampled", "extrapolated"]


class ExposureOptions(SeededSettings):
    """Options of exposure ranks."""

    exact: Annotated[int, whole(1, 10**7)] = 10_000
    """Largest space of secrets that is scored completely."""
    samples: Annotated[int, whole(100, 10**7)] = 1_000
    """Secrets sampled from a larger space."""


@dataclass(frozen=True)
class Exposure:
    """Exposure of one canary."""

    text: str
    repeats: int
    bits: float
    low: float
    high: float
    """Upper end of the 95% interval. An extrapolated rank may be anything above `low`; an exact one has no width."""
    how: How
    loss: float
    """−log p of the secret, in nats."""
    extracted: bool | None = None
    """Whether greedy decoding writes the secret in its place; None for models that do not generate."""


@dataclass(frozen=True)
class Exposures:
    space: int
    canaries: tuple[Exposure, ...]
    correlation: float | None
    """Spearman correlation of repeats and bits; None if all are repeated equally often."""
    p: float | None
    """One-sided p-value by permutation of the repeats."""

    @property
    def most(self) -> float:
        return math.log2(self.space)

    def by_repeats(self) -> dict[int, dict[str, float]]:
        """Mean bits by number of repeats, with a bootstrap interval over canaries."""
        rows = {}
        for repeats in sorted({canary.repeats for canary in self.canaries}):
            bits = np.array([canary.bits for canary in self.canaries if canary.repeats == repeats])
            mean = mean_interval(bits, seed=0)
            rows[repeats] = {
                "canaries": len(bits),
                "mean": mean.value,
                "low": mean.low,
                "high": mean.high,
                "median": float(np.median(bits)),
                "most": float(bits.max()),
            }
            written = [canary.extracted for canary in self.canaries if canary.repeats == repeats]
            if None not in written:
                rows[repeats]["extracted"] = sum(map(bool, written))
        return rows

    def figures(self) -> Iterator[Figure]:
        for repeats, row in self.by_repeats().items():
            group = f"planted {repeats:,} times" if repeats > 1 else "planted once"
            ends = row["low"], row["high"]
            yield Figure.between("exposure, mean bits", row["mean"], ends, unit=CANARIES, group=group)
            yield Figure.between("exposure, most bits", row["most"], group=group)
            if "extracted" in row:
                yield Figure.between("canaries extracted", row["extracted"] / row["canaries"], group=group)

    def to_dict(self) -> dict[str, Any]:
        return {
            "space": self.space,
            "most_bits": self.most,
            "unknown_bits": UNKNOWN,
            "correlation": self.correlation,
            "p": self.p,
            "unit": CANARIES,
            "by_repeats": {str(repeats): row for repeats, row in self.by_repeats().items()},
            "canaries": [asdict(canary) for canary in self.canaries],
        }

    def shown(self) -> Table:
        rows = tuple(
            (
                f"{repeats:,}",
                f"{row['canaries']:,.0f}",
                f"{row['mean']:.2f}",
                between(row["low"], row["high"], digits=2),
                f"{row['median']:.2f}",
                f"{row['most']:.2f}",
                *([f"{row['extracted']:,.0f}"] if "extracted" in row else []),
            )
            for repeats, row in self.by_repeats().items()
        )
        ways = {how: sum(canary.how == how for canary in self.canaries) for how in ("exact", "sampled", "extrapolated")}
        counted = ", ".join(f"{count} {how}" for how, count in ways.items() if count)
        notes = [f"of {self.most:.1f} bits; {UNKNOWN:.2f} if nothing was learned; ranks: {counted}"]
        if self.correlation is not None:
            notes.append(f"repeats and bits: Spearman {self.correlation:+.2f} (p = {self.p:.3f}, one-sided)")
        notes.append(resampled(CANARIES))
        title = f"exposure of {len(self.canaries)} canaries, in bits"
        columns: tuple[str, ...] = ("repeats", "canaries", "mean", "95%", "median", "most")
        if any(canary.extracted is not None for canary in self.canaries):
            columns += ("extracted",)
            notes.append("extracted: canaries whose secret the model writes itself, by greedy decoding")
        return Table(columns, rows, title=title, left=0, notes=tuple(notes))


def exposures(
    model: Model,
    canaries: Canaries,
    options: ExposureOptions = ExposureOptions(),
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Exposures:
    """Exposure of all canaries. `progress` is called with the number of finished canaries."""
    measured = []
    for number, canary in enumerate(canaries.canaries):
        measured.append(_exposure(model, canaries, canary, options, number))
        progress(number + 1)
    if can_infill(model.network, model.tokenizer):
        measured = _with_extraction(model, canaries, measured)
    rank, p = _rises([each.repeats for each in measured], [each.bits for each in measured], options.seed)
    return Exposures(canaries.space, tuple(measured), rank, p)


def _exposure(model: Model, canaries: Canaries, canary: Canary, options: ExposureOptions, number: int) -> Exposure:
    space, planted = canaries.space, int(canary.secret)
    whole_space = space <= options.exact
    others = np.arange(space) if whole_space else _drawn(space, options, number)
    others = others[others != planted]
    scores = _scores(model, canaries, canary, [planted, *others.tolist()])
    score, rest = float(scores[0]), scores[1:]
    likelier = float((rest > score).sum() + (rest == score).sum() / 2)  # of those as likely, half count
    most = math.log2(space)
    how: How = "exact"
    if whole_space:
        bits = low = high = most - math.log2(1 + likelier)
    elif likelier:
        how = "sampled"
        bits = min(most, -math.log2(likelier / len(rest)))
        share_low, share_high = clopper_pearson(round(likelier), len(rest))
        low, high = -math.log2(share_high), min(most, -math.log2(max(share_low, 1 / space)))
    else:
        how = "extrapolated"
        bits = min(most, max(math.log2(len(rest)), -log2_tail(rest, score)))
        low, high = -math.log2(clopper_pearson(0, len(rest))[1]), most
    return Exposure(canary.text, canary.repeats, bits, low, high, how, -score)


def _with_extraction(model: Model, canaries: Canaries, measured: Sequence[Exposure]) -> list[Exposure]:
    """The exposures, each with whether the model writes the secret given the rest of the sentence."""
    name, places = str(model.bundle.path), []
    for canary in canaries.canaries:
        (span,) = _hidden(model.tokenizer, [canary.text], canaries, canary, name)
        places.append((span.ids[: span.start], span.ids[span.end :], span.ids[span.start : span.end]))
    right = count_verbatim_tokens(model, places).tolist()
    lengths = [len(secret) for _, _, secret in places]
    return [
        replace(each, extracted=tokens == length) for each, tokens, length in zip(measured, right, lengths, strict=True)
    ]


def _drawn(space: int, options: ExposureOptions, number: int) -> Any:
    return stream(options.seed, "audit exposure", 0, number).integers(0, space, options.samples)


def _scores(model: Model, canaries: Canaries, canary: Canary, secrets: Sequence[int]) -> Doubles:
    """log p of each secret in the canary's sentence; of the whole sentence for a left-to-right model."""
    texts = [canaries.text_of(canary.name, secret) for secret in secrets]
    tokenizer, name = model.tokenizer, str(model.bundle.path)
    spans = _hidden(tokenizer, texts, canaries, canary, name)
    if find_reader(model.network) is not None:
        return np.array([score.total for score in score_texts(model.network, tokenizer, texts, name=name)])
    if can_infill(model.network, tokenizer):
        return _written_scores(model, spans)
    predictor = require_predictor(model.network, tokenizer, what="rank canaries", name=name)
    room = predictor.longest_text(tokenizer)
    if max(len(span.ids) for span in spans) > room:
        raise DataError(f"{name} reads {room} tokens at once, too few for {canary.text!r}")
    return read_spans(predictor, tokenizer, spans).log_probabilities


def _written_scores(model: Model, spans: Sequence[HiddenSpan]) -> Doubles:
    """log p of the secret between its sentinels, as the output of an encoder–decoder."""
    name = str(model.bundle.path)
    asking = InfillPrompts.of(model.network, model.tokenizer, name=name)
    prompts = [asking.ids(span.ids[: span.start], span.ids[span.end :]) for span in spans]
    secrets = [np.concatenate([asking.opening, span.ids[span.start : span.end]]) for span in spans]
    return np.array(continuation_scores(model.network, prompts, secrets, name=name))


def _hidden(
    tokenizer: Tokenizer, texts: Sequence[str], canaries: Canaries, canary: Canary, name: str
) -> list[HiddenSpan]:
    """The tokens of each secret; refused if the vocabulary cannot represent digits."""
    unknown = tokenizer.id(tokenizer.special.unk)
    start = len(canaries.format.partition("{digits}")[0].replace("{name}", canary.name))
    spans = []
    for alignment in tokenizer.encode_many(texts):
        tokens = alignment.marked_tokens_of_chars(start, start + canaries.digits)
        hidden = alignment.ids[tokens.start : tokens.stop]
        if not len(hidden) or (hidden == unknown).any():
            raise DataError(f"the vocabulary of {name} cannot spell secrets such as {canary.secret}: it has no digits")
        spans.append(HiddenSpan(alignment.ids, tokens.start, tokens.stop))
    return spans


def _rises(repeats: Sequence[int], bits: Sequence[float], seed: int) -> tuple[float | None, float | None]:
    """Rank correlation and its one-sided p-value."""
    if len(set(repeats)) < 2 or len(set(bits)) < 2:
        return None, None
    measured = spearman(np.array(repeats, np.float64), np.array(bits))
    shuffles = 1_000
    random, times, values = stream(seed, "audit repeats"), ranks(repeats), ranks(bits)
    shuffled = (pearson(random.permutation(times), values) for _ in range(shuffles))
    higher = sum(each >= measured - 1e-12 for each in shuffled)
    return measured, (higher + 1) / (shuffles + 1)


_MOST_SKEWED = 0.99
"""Largest skewness that is fitted; the family has none of 0.9953 or more."""
_STEPS = 4_000


def log2_tail(scores: Doubles, score: float) -> float:
    """log2 P(X ≥ score) of the skew-normal distribution fitted to the scores.

    >>> scores = np.random.default_rng(0).normal(size=2000)
    >>> abs(log2_tail(scores, 3.0) - math.log2(0.00135)) < 1.0
    True
    """
    deviation = float(scores.std())
    if deviation == 0.0:
        return 0.0 if score <= scores[0] else -math.inf
    mean = float(scores.mean())
    skewness = float((((scores - mean) / deviation) ** 3).mean())
    power = min(abs(skewness), _MOST_SKEWED) ** (2 / 3)
    delta = math.copysign(math.sqrt(math.pi / 2 * power / (power + ((4 - math.pi) / 2) ** (2 / 3))), skewness)
    scale = deviation / math.sqrt(1 - 2 * delta**2 / math.pi)
    place = mean - scale * delta * math.sqrt(2 / math.pi)
    slant = delta / math.sqrt(1 - delta**2)
    z = (score - place) / scale
    grid = np.linspace(z, max(z, 0.0) + 12.0, _STEPS)
    logs = np.array([_log_density(x, slant) for x in grid.tolist()])
    top = float(logs.max())
    total = float(np.trapezoid(np.exp(logs - top), grid))
    return min(0.0, (top + math.log(total)) / math.log(2))


def _log_density(x: float, slant: float) -> float:
    """log 2 φ(x) Φ(slant · x)."""
    return math.log(2) - x * x / 2 - math.log(2 * math.pi) / 2 + _log_below(slant * x)


def _log_below(x: float) -> float:
    """log Φ(x), accurate far into the tail."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi))
