"""What a task is told of a fine-tuning that is about to begin, and what it says back. Nothing here trains.

    def head(self, bundle, train, args: TaskJob):
        args.say(label_balance(train.labels(), "classes", of=len(train)))
        return tagging_head(train, self.options(args), …)

`tasks/trainer/finetune.py` has the whole args, with optimizer, device and checkpoints. A model that is only loaded, to
predict or to be evaluated, knows its task without it.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.encoding.unknown import UnknownLabels
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

Trainable = Literal["all", "head", "last", "lora", "bias"]
"""What of a model is trained: everything, the head, the last layers, LoRA or biases."""
SHOWN = 12
"""Labels of a line."""


class Defaults(NamedTuple):
    """What a task has where nothing else is said."""

    rate: float
    head_rate: float
    steps: int
    """As many epochs as make so many updates."""


class TaskArguments(Protocol):
    """The part of a args that decides a task's head, its data and its scores."""

    @property
    def options(self) -> Struct | None:
        """Of the task, one of its `Options`; None: all as by default."""

    @property
    def trainable(self) -> Trainable:
        """What of the model is trained."""

    @property
    def seeds(self) -> tuple[int, ...]: ...

    @property
    def metric(self) -> str | None:
        """That decides which weights are kept; None: by the task."""

    @property
    def strict(self) -> bool:
        """Held-out labels that training lacks are refused, not counted as wrong."""

    @property
    def scoring(self) -> ScoringOptions:
        """Where held-out examples are scored."""

    def windows(self, bundle: Bundle) -> WindowOptions:
        """How the model reads long texts."""

    def say(self, line: str) -> None:
        """Tell whoever watches."""


def report_unknown(
    args: TaskArguments, source: str, unknown: UnknownLabels, what: tuple[str, str], fate: str = "count as wrong"
) -> None:
    """Say which held-out labels the model will not know, or refuse them."""
    unknown.check(strict=args.strict)
    if unknown.names:
        args.say(f"{source}: {unknown.note(*what, fate=fate)}")


def label_balance(counts: Counter[str], name: str, *, of: int) -> str:
    """How often each class, entity or tag occurs, commonest first, and as a share of how many; empty of none."""
    if not counts:
        return ""
    shares = ", ".join(f"{label} {count:,} ({count / of:.0%})" for label, count in counts.most_common(SHOWN))
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    return f"{name}: {shares}{more}"
