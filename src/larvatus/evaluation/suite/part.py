"""A part of a suite: what it reads, what of the settings it minds, and how a model is measured on it.

    class Isotropy(Part): ...
        def measure(self, work: Work) -> Measured: ...

A kind of part is a file of this folder; a suite (`english.py`) is a list of them. What a model cannot do is said by
raising `NotMeasured`, whose words stand in the table.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from larvatus.core.errors import LarvatusError
from larvatus.evaluation.suite.figures import SuiteFigure
from larvatus.evaluation.suite.layout import DataFolder
from larvatus.evaluation.suite.settings import SuiteSettings
from larvatus.models.bundle.checksums import model_checksums
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime

GENERIC = frozenset({"model", "final", "best", "latest"})
"""Names of directories that do not tell models apart."""


class NotMeasured(LarvatusError):
    """A model cannot do a part, or the part's files do not let it; `short` stands in a cell."""

    def __init__(self, why: str, *, short: str = "not measured") -> None:
        super().__init__(why)
        self.short = short


@dataclass(frozen=True, eq=False)
class SuiteModel:
    """A model that is measured, loaded once."""

    role: str
    """``model``, or ``beside`` it: the name of its folder in `--out`."""
    name: str
    """As the user gave it."""
    device: str

    @cached_property
    def bundle(self) -> Bundle:
        bundle = load_bundle(self.name)
        bundle.network.to(self.device).eval()
        return bundle

    @property
    def path(self) -> Path:
        return Path(self.bundle.path)

    @cached_property
    def contents(self) -> dict[str, str]:
        """Checksums of its files."""
        return model_checksums(self.path)

    @property
    def label(self) -> str:
        path = Path(self.name)
        name = path.name or path.resolve().name
        return f"{path.resolve().parent.name}/{name}" if name in GENERIC else name

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.bundle.network.parameters())


@dataclass(frozen=True, kw_only=True, eq=False)
class PartRun:
    """One model and one part: all that measuring needs."""

    subject: SuiteModel
    data: DataFolder
    settings: SuiteSettings
    runtime: Runtime
    folder: Path
    """Of this part of this model: what a stopped run can go on from. It is removed when the part is done."""
    reporter: Reporter

    @property
    def bundle(self) -> Bundle:
        return self.subject.bundle

    def need_masked_head(self) -> None:
        """Refuse a model that cannot predict hidden tokens."""
        filler = self.bundle.network.filler
        if filler is None or "masked-lm" not in filler.objectives:
            raise NotMeasured(f"{self.subject.label} has no masked-lm head", short="no masked head")


@dataclass(frozen=True, kw_only=True)
class PartResult:
    figures: list[SuiteFigure]
    details: dict[str, Any] = field(default_factory=dict)
    """More than the table shows, for the JSON."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SuitePart(abc.ABC):
    name: str
    """On the command line."""
    title: str
    minds: ClassVar[tuple[str, ...]] = ()
    """Settings of the suite that change its figures."""
    again: ClassVar[bool] = False
    """Whether verifying a card works its figures out again; what is fine-tuned is recorded."""

    @property
    @abc.abstractmethod
    def files(self) -> tuple[str, ...]:
        """What it reads of the data folder, without endings of compression; all must be there."""

    @property
    def may_read(self) -> tuple[str, ...]:
        """Files that need not be there."""
        return ()

    @abc.abstractmethod
    def measure(self, work: PartRun) -> PartResult: ...

    def between(self, first: Mapping[str, Any], second: Mapping[str, Any], system: str) -> list[str]:
        """Paired differences of the first model from the second, `system`, by the details of their records."""
        return []

    def identity(self, settings: SuiteSettings, runtime: Runtime) -> dict[str, Any]:
        """What must be the same for a result to be taken over."""
        chosen: dict[str, Any] = {name: getattr(settings, name) for name in self.minds}
        return chosen | ({"precision": runtime.precision} if "precision" in chosen else {})
