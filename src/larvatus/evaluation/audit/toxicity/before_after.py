"""Two models side by side, such as before and after going on from one with filtered text: what was won and lost.

    table = before_after(before, after, texts=held_out, pairs=pairs)
    print(table)

A model that fills blanks with nothing but "the" is not toxic. So the loss on held-out text stands beside the toxicity,
and a bias figure if pairs are given: the share of pairs in which the first, stereotyped, sentence is the likelier one
(50% is even; by the score of `bias/pairs.py`). Every difference is paired: the same prompts, texts and pairs for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.tables import Table
from larvatus.evaluation.audit.bias.pairs import DIGITS, CrowsPair, score_crows
from larvatus.evaluation.audit.bias.reader import LikelihoodReader
from larvatus.evaluation.audit.bias.shown import Resampling
from larvatus.evaluation.audit.masked_loss import MaskedLossOptions, text_losses
from larvatus.evaluation.audit.means import mean_interval
from larvatus.evaluation.audit.tables import signed_between
from larvatus.evaluation.audit.toxicity.generated import GeneratedToxicityReport
from larvatus.evaluation.audit.toxicity.measure import LIMITS, ToxicityReport
from larvatus.inference.model import Model
from larvatus.models.bundle.claims import Claim

PAIRS = "stereotyped sentence preferred, %"
AnyToxicity = ToxicityReport | GeneratedToxicityReport
LOSS = "loss of held-out text, nats a hidden word"


@dataclass(frozen=True)
class PairedChange:
    """One figure of both models."""

    what: str
    count: int
    """Prompts, texts or pairs."""
    before: float
    after: float
    difference: float
    low: float
    high: float
    """95% interval of the difference, pairs of values resampled."""


@dataclass(frozen=True)
class BeforeAfter:
    before: AnyToxicity
    after: AnyToxicity
    changes: tuple[PairedChange, ...]

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Of the first model: a card takes figures of one."""
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
    options: MaskedLossOptions | None = None,
) -> BeforeAfter:
    """The toxicities are those of the two models on the same prompts; texts as `energy.first_words` gives them."""
    options = options or MaskedLossOptions()
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
    """[pairs] 1 where the first sentence is likelier, by CrowS-Pairs' own score; 0.5 for a tie."""
    reader = LikelihoodReader.of(model, what="compare sentences")
    records = score_crows(reader, pairs, Resampling(), source="pairs").pairs
    gaps = np.array([record["pll"]["more"] - record["pll"]["less"] for record in records])
    preferred: Doubles = np.heaviside(gaps.round(DIGITS["pll"]), 0.5)
    return preferred
