"""A part of a suite: the files it reads, the settings that change it, and how it measures a model.

    class IsotropyPart(SuitePart): ...
        def measure(self, work: PartRun) -> PartResult: ...

Each kind of part is a file of this folder, and a suite (`english.py`) is a list of parts. A part that a model cannot do
raises `NotMeasured`, and the table shows its message.
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
"""Directory names that do not distinguish models."""


class NotMeasured(LarvatusError):
    """A part cannot be measured, because of the model or of its files. The table shows `short` in a cell."""

    def __init__(self, why: str, *, short: str = "not measured") -> None:
        super().__init__(why)
        self.short = short


@dataclass(frozen=True, eq=False)
class SuiteModel:
    """A model under evaluation, loaded once."""

    role: str
    """``model`` or ``beside`` (the second model): the name of its folder in `--out`."""
    name: str
    """Name as the user gave it."""
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
    """Inputs of measuring one model on one part."""

    subject: SuiteModel
    data: DataFolder
    settings: SuiteSettings
    runtime: Runtime
    folder: Path
    """Folder for resuming an interrupted measurement; removed when the part is done."""
    reporter: Reporter

    @property
    def bundle(self) -> Bundle:
        return self.subject.bundle

    def need_masked_head(self) -> None:
        """Raise `NotMeasured` if the model has no masked-LM head."""
        filler = self.bundle.network.filler
        if filler is None or "masked-lm" not in filler.objectives:
            raise NotMeasured(f"{self.subject.label} has no masked-lm head", short="no masked head")


@dataclass(frozen=True, kw_only=True)
class PartResult:
    figures: list[SuiteFigure]
    details: dict[str, Any] = field(default_factory=dict)
    """Details for the JSON that the table omits."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SuitePart(abc.ABC):
    name: str
    """Name on the command line."""
    title: str
    minds: ClassVar[tuple[str, ...]] = ()
    """Settings of the suite that change its figures."""
    again: ClassVar[bool] = False
    """Whether verifying a card measures its figures again; fine-tuned scores are only recorded."""

    @property
    @abc.abstractmethod
    def files(self) -> tuple[str, ...]:
        """Required files in the data folder, without compression suffixes."""

    @property
    def may_read(self) -> tuple[str, ...]:
        """Optional files."""
        return ()

    @abc.abstractmethod
    def measure(self, work: PartRun) -> PartResult: ...

    def between(self, first: Mapping[str, Any], second: Mapping[str, Any], system: str) -> list[str]:
        """Paired differences between the first model and the second, `system`, from the details of their records."""
        return []

    def identity(self, settings: SuiteSettings, runtime: Runtime) -> dict[str, Any]:
        """Settings that must be equal for a stored result to be reused."""
        chosen: dict[str, Any] = {name: getattr(settings, name) for name in self.minds}
        return chosen | ({"precision": runtime.precision} if "precision" in chosen else {})
