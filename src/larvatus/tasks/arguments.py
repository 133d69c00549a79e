"""The arguments of fine-tuning that a task reads when it prepares its data. Nothing here trains.

    def prepare(self, bundle, train, dev, args: TaskArguments):
        args.say(label_balance(train.labels(), "classes", of=len(train)))
        head = tagging_head(train, self.options(args), …)

`tasks/trainer/config.py` has all arguments, with optimizer, device and checkpoints. A model that is only loaded, to
predict or to be evaluated, does not import them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.encoding.unknown import UnknownLabels
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

Trainable = Literal["all", "head", "last", "lora", "bias"]
"""Part of a model that is trained: everything, the head, the last layers, LoRA or biases."""
SHOWN = 12
"""Labels of a line."""


class Defaults(NamedTuple):
    """Default rates and number of updates of a task."""

    rate: float
    head_rate: float
    steps: int
    """Number of updates, from which the number of epochs follows."""
    epochs: int | None = None
    """Most epochs by default; None: as many as of other tasks."""


class TaskArguments(Protocol):
    """The arguments of fine-tuning that a task reads: they decide its head, data and scores."""

    @property
    def options(self) -> Struct | None:
        """Options of the task (its `Options`); None uses the defaults."""

    @property
    def trainable(self) -> Trainable:
        """Part of the model that is trained."""

    @property
    def seeds(self) -> tuple[int, ...]: ...

    @property
    def metric(self) -> str | None:
        """Metric that selects the best checkpoint; None uses the task's default."""

    @property
    def strict(self) -> bool:
        """Refuse validation labels that training lacks, instead of counting them as wrong."""

    @property
    def scoring(self) -> ScoringOptions:
        """Device and precision with which validation examples are scored."""

    def windows(self, bundle: Bundle) -> WindowOptions:
        """How the model reads long texts."""

    def say(self, line: str) -> None:
        """Log a line."""


def report_unknown(
    args: TaskArguments, source: str, unknown: UnknownLabels, what: tuple[str, str], fate: str = "count as wrong"
) -> None:
    """Log which validation labels the model will not know, or refuse them."""
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


def head_settings(options: Struct, family: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a new head before its scores: as the options have them, else as the model's family has them."""
    given = {name: getattr(options, name, None) for name in ("pool", "dense", "dropout")}
    settings = {**family, **{name: value for name, value in given.items() if value is not None}}
    return settings | {"dense_norm": False} if settings.get("dense") == "none" else settings


class MixesLayers(Protocol):
    """Options of a task that may mix layers."""

    @property
    def mix(self) -> bool | None: ...


O = TypeVar("O", bound=MixesLayers)  # noqa: E741


def with_layer_mix(options: O, bundle: Bundle, *, instead: bool = False) -> O:
    """Set `mix` where it is not given: whether a new head reads a learned mix of all layers.

    ELMo's tasks mix its layers (Peters et al. 2018); other models read the last. `instead` says that the options read
    layers in another way, which excludes a mix.
    """
    if options.mix is not None:
        return options
    natural = bool(getattr(bundle.model, "mixed", False)) and not instead
    return msgspec.structs.replace(options, mix=natural)  # type: ignore[type-var]
