"""The arguments of fine-tuning that a task reads when it prepares its data, and labels that the model does not know.

    def prepare(self, bundle, train, dev, args: TaskArguments):
        args.say(label_balance(train.labels(), "classes", of=len(train)))
        unknown = unknown_texts(dev.examples, config)      # classes that no training example had
        unknown.note("texts", "labelled with classes")     # 3 of 872 texts are labelled with classes that the model …

Nothing here trains. `tasks/trainer/config.py` has all arguments, with optimizer, device and checkpoints. A model that
is only loaded, to predict or to be evaluated, does not import them.

An annotated corpus has rare types in one part only (GUM, GermEval 2014). No model can give what it never saw, so an
unknown label is a wrong class, a wrong tag, or a span that is missed, as scorers that compare names count it
(`seqeval`, scikit-learn). It is left out where its probability would be needed: in losses, in calibration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

NAMED = 5
"""Labels that a note names; more are counted."""


@dataclass(frozen=True, eq=False)
class UnknownLabels:
    """The labels that the model lacks, and their places among `total` texts, words, spans or relations."""

    names: tuple[str, ...] = ()
    places: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # [U] number of the text or word
    labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # [U] which of the names
    total: int = 0
    first: str = ""
    """Place and name of the first one, for an error."""

    @classmethod
    def of(cls, unknown: Sequence[tuple[int, str]], *, total: int, first: str = "") -> UnknownLabels:
        """From places and names."""
        names = tuple(sorted({name for _, name in unknown}))
        number = {name: at for at, name in enumerate(names)}
        places = np.array([place for place, _ in unknown], np.int64)
        return cls(names, places, np.array([number[name] for _, name in unknown], np.int64), total, first)

    def __len__(self) -> int:
        return len(self.places)

    def added_to(self, labels: npt.NDArray[np.generic], *, known: int) -> npt.NDArray[np.generic]:
        """Gold labels with the unknown ones as numbers from `known` on; of tables of truth, as further columns."""
        if not self.names:
            return labels
        if labels.ndim == 2:
            more = np.zeros((len(labels), len(self.names)), labels.dtype)
            more[self.places, self.labels] = 1
            return np.concatenate([labels, more], axis=1)
        gold = labels.copy()
        gold[self.places] = known + self.labels
        return gold

    def note(self, items: str, what: str, *, fate: str = "count as wrong") -> str:
        """One line for people; empty where everything is known."""
        if not self.names:
            return ""
        counts = Counter(self.names[label] for label in self.labels.tolist()).most_common()
        named = ", ".join(f"{name} {count:,}" for name, count in counts[:NAMED])
        more = f", and {len(counts) - NAMED:,} more" if len(counts) > NAMED else ""
        return (
            f"{len(self):,} of {self.total:,} {items} are {what} that the model does not know ({named}{more}); "
            f"they {fate}, and --strict refuses them"
        )

    def check(self, *, strict: bool) -> None:
        """Refuse such labels where they are not to be passed over, and where there are no others: the data are of
        another task, or another column was read."""
        if self.names and strict:
            raise DataError(self.first)
        if self.names and len(self) == self.total:
            raise DataError(f"{self.first}, nor any other of these {self.total:,} labels; give data that have its own")


# Arguments.

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
