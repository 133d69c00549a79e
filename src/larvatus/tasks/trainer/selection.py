"""Selection of the best checkpoint, and early stopping.

    better(now.scores, best.scores)        # are these weights to be kept in place of those?
    resolve_patience(None, evaluations=40)      # 20 evaluations without a gain end training

The metric comes first. If metrics are equal, validation loss decides: with few examples F1 stays 0 for many evaluations
while the loss already falls. If the loss is equal too, the later weights, which trained longer, are kept.

Early stopping (Prechelt 1998) counts the evaluations in a row that brought neither a better metric than any before nor
a lower validation loss. A run that still improves in one of them continues. The learning rate follows the planned
steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from larvatus.tasks.validation import Scores

WAIT = 1 / 2
FEWEST_WAITED = 10
"""Where no patience is given: this share of the planned evaluations, but at least `FEWEST_WAITED`."""


class Epoch(Struct, frozen=True, kw_only=True):
    """An evaluation during training."""

    step: int
    epoch: float
    training_loss: float
    """Mean loss of the training steps since the last evaluation."""
    scores: Scores | None = None
    seconds: float = 0.0
    """Seconds of training so far."""

    def losses(self) -> dict[str, float]:
        """Training loss and, where there are validation examples, validation loss."""
        losses = {"training_loss": self.training_loss}
        return losses if self.scores is None else losses | {"validation_loss": self.scores.validation_loss}

    def figures(self) -> dict[str, float]:
        """Figures of its line in `metrics.jsonl`."""
        return {"epoch": self.epoch, **self.losses(), **(self.scores.values if self.scores is not None else {})}


def compare(first: Scores | None, second: Scores | None) -> int:
    """1 if the first is better, -1 if the second is, 0 if metric and loss are equal. What is not defined is worse."""
    if first is None or second is None:
        return (first is not None) - (second is not None)
    for a, b in ((first.main, second.main), (-first.validation_loss, -second.validation_loss)):
        if math.isnan(a) or math.isnan(b):
            if math.isnan(a) != math.isnan(b):
                return 1 if math.isnan(b) else -1
        elif a != b:
            return 1 if a > b else -1
    return 0


def is_better(now: Scores, best: Scores | None) -> bool:
    """Whether later weights are kept in place of the best so far: equal ones are."""
    return compare(now, best) >= 0


def improves(now: Scores, before: Sequence[Epoch]) -> bool:
    """Whether the metric is better, or the validation loss lower, than at any evaluation before."""
    past = [epoch.scores for epoch in before if epoch.scores is not None]
    metric = max((scores.main for scores in past if not math.isnan(scores.main)), default=-math.inf)
    loss = min((scores.validation_loss for scores in past if not math.isnan(scores.validation_loss)), default=math.inf)
    return now.main > metric or now.validation_loss < loss


def resolve_patience(asked: int | None, *, evaluations: int) -> int:
    """Evaluations without a gain after which a run of `evaluations` ends; 0: never."""
    return max(FEWEST_WAITED, math.ceil(WAIT * evaluations)) if asked is None else asked


def no_progress_warning(history: Sequence[Epoch]) -> str | None:
    """A line for people where the metric never moved from where it began; None where it did, or could not rise."""
    scores = [epoch.scores for epoch in history if epoch.scores is not None]
    values = {each.main for each in scores}
    if len(scores) < 2 or len(values) > 1 or not scores[0].main < 1:
        return None
    return (
        f"{scores[0].metric} stayed {scores[0].main:.4g} at all {len(scores)} evaluations, and the weights with the "
        "lowest validation loss are kept; it needs more examples, more --epochs, or a higher --rate"
    )
