"""Membership inference: was a text in the training data? By its loss, absolute or relative to a reference model.

    loss      training texts have a lower loss (Yeom et al. 2018)
    ratio     … lower than by a model that was not trained on them (Mireshghallah et al. 2022; Carlini et al. 2022)

    membership(model, members, held_out, reference=other).attacks["ratio"].area.value

Losses come from `masked_loss.py`, over the same words for both models. Members and held-out texts must be random
samples of one source (`larvatus audit split`). Otherwise the figures measure how the sources differ.

Blind baselines reveal that: can members be distinguished from other texts without the model? If so, the AUC of a model
is no evidence of memorisation. Sets that were collected at different times or from different sources differ in words
and lengths, and a rule without the model then beats all attacks (Das et al. 2024, *Blind baselines beat membership
inference attacks*; Duan et al. 2024). There are two rules: the number of characters of a text, and a naive Bayes
classifier of its words with five-fold cross-validation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.core.tables import Table
from larvatus.data.text.words import segment_words
from larvatus.evaluation.audit.intervals import DOCUMENTS, between, percent, resampled, signed_between, spread_note
from larvatus.evaluation.audit.masked_loss import MaskedLosses, MaskedLossOptions, text_losses
from larvatus.inference.model import Model
from larvatus.metrics.figures import Figure, spread_figures
from larvatus.metrics.intervals import Interval, percentiles
from larvatus.metrics.ranking import RocCurve, TruePositivesAtRate, area, curve

SAMPLES = 1_000
FEWEST = 10
"""Fewest texts of each kind; fewer give no useful interval."""


@dataclass(frozen=True, eq=False)
class Membership:
    attacks: Mapping[str, RocCurve]
    """ROC curves of `loss`, and of `ratio` if there is a reference model."""
    blind: Mapping[str, RocCurve]
    """ROC curves of blind baselines."""
    members: int
    held_out: int
    loss_of_members: float
    loss_of_held_out: float
    """Nats per masked word."""
    advantage: Interval
    """Loss of held-out texts minus loss of members, with its 95% interval."""
    cut: int
    """Number of texts that are longer than a model's context."""
    by_draw: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """AUC of each attack on each sample of members, if there are several."""
    unit: str = DOCUMENTS
    """Unit of resampling for AUCs; intervals of true positives are exact binomial, also over documents."""

    @property
    def comparable(self) -> bool:
        """Whether no blind baseline distinguishes the two sets."""
        return not any(each.tells for each in self.blind.values())

    @property
    def notes(self) -> tuple[str, ...]:
        notes = [f"{resampled(self.unit)}; of true positives exact binomial"]
        if not self.comparable:
            rules = ", ".join(f"{name} {each.area.value:.3f}" for name, each in self.blind.items() if each.tells)
            notes.append(
                f"members and held-out texts can be told apart without the model (AUC by {rules}): the model's AUC "
                "may not be memorisation; sample both at random from one source (larvatus audit split)"
            )
        if any(each.threshold is None for each in self.attacks["loss"].caught):
            notes.append("0.1% false positives need 1,000 held-out texts, 1% need 100: – where there are fewer")
        if self.cut:
            notes.append(f"{self.cut:,} texts were longer than the model's window; what fits was read")
        notes += [spread_note(f"AUC by {name}", values) for name, values in self.by_draw.items()]
        gap = self.advantage
        notes.append(
            f"training texts are expected better by {gap.value:+.3f} nats a word "
            f"(95% {signed_between(gap.low, gap.high)})"
        )
        notes.append("unit of resampling: documents, training and held-out ones apart")
        return tuple(notes)

    def figures(self) -> Iterator[Figure]:
        yield Figure.between("documents of training text", self.members)
        yield Figure.between("documents of held-out text", self.held_out)
        yield Figure.between("loss of training text, nats a word", self.loss_of_members)
        yield Figure.between("loss of held-out text, nats a word", self.loss_of_held_out)
        yield Figure.of("loss of held-out text less that of training text", self.advantage, unit=self.unit)
        curves = {f"by {name}": each for name, each in self.attacks.items()}
        curves |= {f"blind, by {rule}": each for rule, each in self.blind.items()}
        for name, each in curves.items():
            yield Figure.of("membership AUC", each.area, unit=self.unit, category=name)
            for at in each.caught:
                if at.share is not None:
                    metric = f"members found at {at.rate:.1%} false positives"
                    yield Figure.between(metric, at.share, (at.low, at.high), unit=self.unit, category=name)
        for name, values in self.by_draw.items():
            yield from spread_figures("membership AUC", values, {"category": f"by {name}"})

    def to_dict(self) -> dict[str, Any]:
        return {
            "members": self.members,
            "held_out": self.held_out,
            "loss_of_members": self.loss_of_members,
            "loss_of_held_out": self.loss_of_held_out,
            "advantage": asdict(self.advantage),
            "attacks": {name: each.to_dict() for name, each in self.attacks.items()},
            "blind": {name: each.to_dict() for name, each in self.blind.items()},
            "comparable": self.comparable,
            "cut": self.cut,
            "unit": self.unit,
            **({"by_draw": {name: list(values) for name, values in self.by_draw.items()}} if self.by_draw else {}),
        }

    def shown(self) -> Table:
        rows = [_row(f"by {name}", each) for name, each in self.attacks.items()]
        rows += [_row(f"blind: {name}", each) for name, each in self.blind.items()]
        title = (
            f"membership: {self.members:,} training texts (loss {self.loss_of_members:.3f}) against "
            f"{self.held_out:,} held-out (loss {self.loss_of_held_out:.3f})"
        )
        columns = ("", "AUC", "95%", "TPR at 1% FPR", "95%", "TPR at 0.1% FPR", "95%")
        return Table(columns, rows, title=title, notes=self.notes)


def _row(name: str, each: RocCurve) -> tuple[str, ...]:
    cells = [name, f"{each.area.value:.3f}", between(each.area.low, each.area.high)]
    for at in each.caught:
        cells += _cells(at)
    return tuple(cells)


def _cells(at: TruePositivesAtRate) -> list[str]:
    return [percent(at.share), between(at.low, at.high, digits=1, times=100)]


def membership(
    model: Model,
    members: Sequence[str],
    held_out: Sequence[str],
    options: MaskedLossOptions = MaskedLossOptions(),
    *,
    reference: Model | None = None,
    draws: Ints | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Membership:
    """Attack the membership of texts that `masked_loss.first_words` has cut. `draws` are the samples of members, if
    there are several. `progress` is called with the number of finished texts."""
    for name, texts in (("training", members), ("held-out", held_out)):
        if len(texts) < FEWEST:
            raise DataError(f"{len(texts)} {name} texts are too few to measure membership; give {FEWEST} or more")
    texts = [*members, *held_out]
    measured = text_losses(model, texts, options, progress=progress)
    beside = None if reference is None else text_losses(reference, texts, options, progress=progress)
    losses = {"loss": measured.losses}
    if beside is not None:
        losses["ratio"] = measured.losses - beside.losses
    attacks = {name: _curve(loss, len(members), options.seed) for name, loss in losses.items()}
    inside, outside = (_part(measured, *edge) for edge in ((0, len(members)), (len(members), len(texts))))
    return Membership(
        attacks=attacks,
        blind=blind_baselines(members, held_out, seed=options.seed),
        members=len(members),
        held_out=len(held_out),
        loss_of_members=inside.mean,
        loss_of_held_out=outside.mean,
        advantage=_advantage(inside, outside, options.seed),
        cut=measured.cut,
        by_draw={} if draws is None else {name: _by_draw(loss, draws) for name, loss in losses.items()},
    )


def _advantage(inside: MaskedLosses, outside: MaskedLosses, seed: int) -> Interval:
    """Held-out loss minus training loss per masked word; both kinds of documents are resampled separately."""
    random, means = stream(seed, "audit advantage"), np.empty((2, SAMPLES))
    for side, part in enumerate((inside, outside)):
        sums, count = part.losses * part.asked, len(part.losses)
        for sample in range(SAMPLES):
            drawn = random.integers(0, count, count)
            means[side, sample] = sums[drawn].sum() / max(1, int(part.asked[drawn].sum()))
    gaps = means[1] - means[0]
    return Interval(outside.mean - inside.mean, *percentiles(gaps, 0.95), float(gaps.std(ddof=1)), SAMPLES)


def _by_draw(losses: Doubles, draws: Ints) -> tuple[float, ...]:
    """AUC of each sample of members against all held-out texts."""
    inside, outside = -losses[: len(draws)], -losses[len(draws) :]
    return tuple(area(inside[draws == number], outside) for number in range(int(draws.max()) + 1))


def _curve(losses: Doubles, members: int, seed: int) -> RocCurve:
    """The ROC curve of losses; a low loss indicates membership."""
    return curve(-losses[:members], -losses[members:], seed=seed)


def _part(measured: MaskedLosses, first: int, last: int) -> MaskedLosses:
    return MaskedLosses(measured.losses[first:last], measured.asked[first:last], measured.cut)


FOLDS = 5


def blind_baselines(members: Sequence[str], others: Sequence[str], *, seed: int = 0) -> dict[str, RocCurve]:
    """The ROC curve of each rule. Either long or short texts may indicate membership."""
    lengths = [np.array([len(text) for text in texts], np.float64) for texts in (members, others)]
    by_length = curve(*lengths, seed=seed)
    if by_length.area.value < 0.5:  # the rule may be that members are shorter
        by_length = curve(-lengths[0], -lengths[1], seed=seed)
    scores = word_scores([*members, *others], [True] * len(members) + [False] * len(others), seed=seed)
    by_words = curve(scores[: len(members)], scores[len(members) :], seed=seed)
    return {"length": by_length, "words": by_words}


def word_scores(texts: Sequence[str], labels: Sequence[bool], *, seed: int = 0) -> Doubles:
    """[texts] mean log-odds of membership of the words of each text, from counts outside its fold."""
    bags = [Counter(text[start:end].lower() for start, end in segment_words(text).tolist()) for text in texts]
    folds = np.empty(len(texts), np.int64)
    folds[stream(seed, "audit folds").permutation(len(texts))] = np.arange(len(texts)) % FOLDS
    counts = [[Counter[str](), Counter[str]()] for _ in range(FOLDS)]
    for bag, label, fold in zip(bags, labels, folds.tolist(), strict=True):
        counts[fold][label].update(bag)
    everywhere = [sum((fold[label] for fold in counts), Counter[str]()) for label in (False, True)]
    vocabulary = len(everywhere[0] | everywhere[1])
    scores = np.zeros(len(texts))
    totals = [[each.total() for each in fold] for fold in counts]
    sums = [each.total() for each in everywhere]
    for number, (bag, fold) in enumerate(zip(bags, folds.tolist(), strict=True)):
        sizes = [sums[label] - totals[fold][label] + vocabulary for label in (0, 1)]
        odds = 0.0
        for word, times in bag.items():
            inside, outside = (everywhere[label][word] - counts[fold][label][word] + 1 for label in (1, 0))
            odds += times * (math.log(inside / sizes[1]) - math.log(outside / sizes[0]))
        scores[number] = odds / max(1, bag.total())
    return scores
