"""Comparison of two models, such as before and after further training on filtered text.

    table = before_after(before, after, texts=held_out, pairs=pairs)
    print(table)

A model that fills every blank with "the" is not toxic. So the table also has the loss on held-out text and, if pairs
are given, a bias figure: the share of pairs in which the first, stereotyped, sentence is likelier (50% is even; scored
as in `bias/pairs.py`). All differences are paired: both models get the same prompts, texts and pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.tables import Table
from larvatus.evaluation.audit.bias.pairs import DIGITS, CrowsPair, read_crows, score_crows
from larvatus.evaluation.audit.bias.reader import LikelihoodReader
from larvatus.evaluation.audit.bias.report import Resampling
from larvatus.evaluation.audit.intervals import mean_interval, signed_between
from larvatus.evaluation.audit.masked_loss import MaskedLossOptions, text_losses
from larvatus.evaluation.audit.toxicity.generated import GeneratedToxicityReport
from larvatus.evaluation.audit.toxicity.measure import LIMITS, ToxicityReport
from larvatus.evaluation.compare.minimal_pairs import read_pairs
from larvatus.inference.model import Model
from larvatus.models.bundle.claims import Claim

PAIRS = "stereotyped sentence preferred, %"
AnyToxicity = ToxicityReport | GeneratedToxicityReport
LOSS = "loss of held-out text, nats a hidden word"


@dataclass(frozen=True)
class PairedChange:
    """One figure of both models, and their paired difference."""

    what: str
    count: int
    """Number of prompts, texts or pairs."""
    before: float
    after: float
    difference: float
    low: float
    high: float
    """Upper end of the 95% interval of the difference, by resampling pairs of values; `low` is the lower end."""


@dataclass(frozen=True)
class BeforeAfter:
    before: AnyToxicity
    after: AnyToxicity
    changes: tuple[PairedChange, ...]

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of the first model, since a card describes one model."""
        return self.before.claims

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "changes": [asdict(change) for change in self.changes],
            "unit": "prompts, texts or pairs, each with both its values",
        }

    def shown(self) -> list[Table]:
        rows = tuple(
            (
                change.what,
                f"{change.count:,}",
                f"{change.before:.3f}",
                f"{change.after:.3f}",
                f"{change.difference:+.3f}",
                signed_between(change.low, change.high),
            )
            for change in self.changes
        )
        title = f"{self.before.model} → {self.after.model}, by {self.before.judge}"
        columns = ("", "of", "before", "after", "difference", "95%")
        notes = ("95% intervals: pairs of values resampled, one of each prompt, text or pair", *self.before.notes)
        return [Table(columns, rows, title=title, notes=notes)]

    def __str__(self) -> str:
        return "\n\n".join([*(str(table) for table in self.shown()), f"note: {LIMITS}"])


def before_after(
    models: tuple[Model, Model],
    measured: tuple[AnyToxicity, AnyToxicity],
    *,
    texts: Sequence[str] = (),
    pairs: Sequence[CrowsPair] = (),
    options: MaskedLossOptions = MaskedLossOptions(),
) -> BeforeAfter:
    """Compare two models from their toxicity on the same prompts; `texts` are cut by `masked_loss.first_words`."""
    first, second = measured
    changes = []
    figure = first.compared[0]
    for name in first.groups:
        mine = [number for number, prompt in enumerate(first.prompts) if prompt.group == name]
        values = [100 * each.compared[1][mine] for each in measured]
        changes.append(_change(f"{figure}: {name}, %", values, options.seed))
    if len(first.groups) > 1:
        changes.append(_change(f"{figure}: all, %", [100 * each.compared[1] for each in measured], options.seed))
    if pairs:
        changes.append(_change(PAIRS, [100 * _preferred(model, pairs) for model in models], options.seed))
    if texts:
        changes.append(_change(LOSS, [text_losses(model, texts, options).losses for model in models], options.seed))
    return BeforeAfter(first, second, tuple(changes))


def _change(what: str, values: Sequence[Doubles], seed: int) -> PairedChange:
    before, after = values
    less = mean_interval(after - before, seed)
    return PairedChange(what, len(before), float(before.mean()), float(after.mean()), less.value, less.low, less.high)


def _preferred(model: Model, pairs: Sequence[CrowsPair]) -> Doubles:
    """[pairs] 1 if the first sentence is likelier by the score of CrowS-Pairs, 0.5 for a tie."""
    reader = LikelihoodReader.of(model, what="compare sentences")
    records = score_crows(reader, pairs, Resampling(), source="pairs").pairs
    gaps = np.array([record["pll"]["more"] - record["pll"]["less"] for record in records])
    preferred: Doubles = np.heaviside(gaps.round(DIGITS["pll"]), 0.5)
    return preferred


def read_stereotypes(path: str | Path) -> list[CrowsPair]:
    """Read at least two pairs; the file name determines the format."""
    name = str(path)
    if ".csv" in Path(name).suffixes:
        pairs = read_crows(name)
    else:
        pairs = [CrowsPair(pair.good, pair.bad, "stereo", "all", pair.where) for pair in read_pairs([name])]
    for pair in pairs:
        if pair.more == pair.less:
            raise DataError(f"{pair.where}: the two sentences are the same; a pair must differ in the group")
    if len(pairs) < 2:
        raise DataError(f"{name} has {len(pairs)} pairs, which have no interval; give two or more")
    return pairs
