"""A suite and its parts: the files a part reads, the settings that change it, how it measures a model, its figures.

    class IsotropyPart(SuitePart): ...
        def measure(self, work: PartRun) -> PartResult: ...

    SuiteSettings(only=("blimp", "ewt"), quick=True, seeds=1)      # which parts, how much data, fine-tuning
    SuiteFigure(id="cola", name="CoLA", measure="Matthews", value=0.31, low=0.26, high=0.36, examples=1_043, by="…")
    DataFolder.open("data").path("glue/SST-2/train.tsv")   # data/glue/SST-2/train.tsv.xz, if that file exists

Each kind of part has a class in this folder, and a suite (`run.py`) is a list of parts. A part that a model cannot
do raises `NotMeasured`, and the table shows its message. The 95% interval of a figure is over examples, the deviation
over seeds of fine-tuning, if there are several. docs/suite.md lists the files of the data folder.
"""

from __future__ import annotations

import abc
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from larvatus.core import files
from larvatus.core.errors import DataError, LarvatusError, UsageError, did_you_mean
from larvatus.core.ranges import Count, LearningRate, whole
from larvatus.core.settings import Flag, Settings
from larvatus.data.text.archives import COMPRESSIONS
from larvatus.data.text.readers import list_whole_folder
from larvatus.evaluation.compare.fine_tuned import Better
from larvatus.metrics.figures import Figure
from larvatus.models.bundle.checksums import model_checksums
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import MICROBATCH, Runtime

SEEDS = whole(1, 10_000)
"""Number of seeds."""


def _parts(name: str) -> Callable[[Sequence[str]], Mapping[str, Any]]:
    """Parse a repeatable flag whose words list parts, separated by commas."""
    return lambda words: {name: tuple(part.strip() for word in words for part in word.split(",") if part.strip())}


class SuiteSettings(Settings):
    """Parts of the suite, and how much is spent on each."""

    only: Annotated[tuple[str, ...], Flag(metavar="PART,…", words=_parts("only"))] = ()
    """Only these parts: masked, blimp, sst2, cola, rte, stsb, mrpc, ewt, wikiann, wnut17, gum, xquad, senses, scws,
    wic, isotropy; of language: masked, pairs, tags; repeatable."""
    leave_out: Annotated[tuple[str, ...], Flag(metavar="PART,…", words=_parts("leave_out"))] = ()
    """All parts but these; repeatable."""
    quick: bool = False
    """The first 100 pairs of each set of BLiMP, 100 pairs of each kind of a treebank, and 131,072 tokens of held-out
    text."""
    examples: Annotated[Count, Flag(metavar="N")] | None = None
    """Fine-tune on at most this many examples, sampled at random, with a tenth as validation set."""
    epochs: Count | None = None
    """Epochs of fine-tuning; default: by task and number of examples, as in finetune."""
    rate: LearningRate | None = None
    """Peak learning rate of fine-tuning; default: by task."""
    seeds: Annotated[int, SEEDS] | None = None
    """Fine-tune from seeds 0, 1, …; default: 3 on sets of fewer than 8,000 examples, else 1."""
    layers: str | None = None
    """Layers of word vectors (senses, scws, wic): last, last4 (mean), or the number of a layer; default: each model's
    own, mostly the last."""
    precision: str = "auto"
    """Precision of fine-tuning: fp32, bf16 (mixed), or auto. Other measurements use fp32."""
    microbatch: Annotated[int, MICROBATCH] | None = None
    """Tokens of one pass of fine-tuning."""


class SuiteFigure(Settings, omit_defaults=True):
    """One number of one model, as stored in the suite's records."""

    id: str
    """The part's name and a detail: ``blimp``, ``blimp/anaphor_agreement``."""
    name: str
    """Name in the table."""
    measure: str
    by: str
    """Short description of the measurement."""
    value: float | None
    """None if it is not defined."""
    examples: int
    low: float | None = None
    """Lower end of the 95% interval over examples; `high` is the upper end."""
    high: float | None = None
    deviation: float | None = None
    """Standard deviation over `seeds` of fine-tuning."""
    seeds: tuple[int, ...] = ()
    better: Better = "higher"
    """None if the values of two models do not compare."""
    percent: bool = True
    """Whether tables show it in percent."""
    baselines: dict[str, float] = {}
    """Scores of baselines on the same examples, by name."""
    detail: bool = False
    """Whether it is a detail of the row above it."""
    conditions: str = ""
    """Conditions to quote with the value: a subset, epochs, seeds."""

    def figure(self, **conditions: Any) -> Figure | None:
        """The reported number with its interval and conditions; None if its value is not defined."""
        if self.value is None:
            return None
        numbers: dict[str, Any] = {"low": self.low, "high": self.high, "deviation": self.deviation}
        return Figure(metric=self.measure, value=self.value, conditions=conditions, **numbers)


class PublishedFigure(Settings):
    """A published figure of another system."""

    system: str
    value: float
    """Value as the row shows it, in percent or not."""
    source: str


def finite_or_none(number: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON cannot express."""
    return number if math.isfinite(number) else None


def normal_interval(value: float, error: float, *, z: float = 1.959963984540054) -> tuple[float, float]:
    """The value plus and minus z standard errors."""
    return value - z * error, value + z * error


@dataclass(frozen=True)
class DataFolder:
    root: Path

    @classmethod
    def open(cls, root: str | Path) -> DataFolder:
        path = Path(root)
        if not path.is_dir():
            raise DataError(f"--data {path} is not a folder; give the one with the suite's files (docs/suite.md)")
        return cls(path)

    def find(self, name: str) -> Path | None:
        """A file, compressed or not, or a folder; an archive may be an unpacked folder without ``.tar``."""
        plain = self.root / name
        names = [plain, *(plain.with_name(plain.name + ending) for ending in COMPRESSIONS)]
        if plain.suffix == ".tar":
            names.insert(0, plain.with_suffix(""))
        return next((path for path in names if path.exists()), None)

    def path(self, name: str) -> Path:
        path = self.find(name)
        if path is None:
            raise DataError(f"{self.root / name} is missing")
        return path

    def missing(self, names: Sequence[str]) -> str | None:
        """Path of the first missing file; None if all exist."""
        return next((str(self.root / name) for name in names if self.find(name) is None), None)

    def checksums(self, names: Sequence[str]) -> dict[str, str]:
        """SHA-256 of each existing file by its place in the folder; for a folder, over all its files."""
        paths = {name: path for name in names if (path := self.find(name)) is not None}
        return {path.relative_to(self.root).as_posix(): _checksum(path) for path in paths.values()}


def _checksum(path: Path) -> str:
    if not path.is_dir():
        return files.sha256(path.resolve())  # data may be linked to
    digest = hashlib.sha256()
    for file in list_whole_folder(path):
        digest.update(f"{Path(file).relative_to(path).as_posix()} {files.sha256(Path(file).resolve())}\n".encode())
    return digest.hexdigest()


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
    again: ClassVar[bool] = True
    """Whether verifying a card measures its figures again; fine-tuned scores are only recorded."""

    file_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that name its files."""

    @property
    def files(self) -> tuple[str, ...]:
        """Required files in the data folder, without compression suffixes."""
        return tuple(getattr(self, name) for name in self.file_fields)

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


@dataclass(frozen=True, kw_only=True)
class Suite:
    name: str
    parts: tuple[SuitePart, ...]
    references: Mapping[str, Sequence[PublishedFigure]] = field(default_factory=dict)
    """Published figures by figure id."""
    named: tuple[str, ...] = ()
    """Words of the command line that name its files; empty: a folder, --data DIR."""

    def chosen(self, only: Sequence[str] = (), leave_out: Sequence[str] = ()) -> list[SuitePart]:
        """The requested parts, in the order of the table."""
        names = [part.name for part in self.parts]
        for name in (*only, *leave_out):
            if name not in names:
                wrong = f"the suite {self.name} has no part {name!r}{did_you_mean(name, names)}"
                raise UsageError(f"{wrong}; its parts: {', '.join(names)}")
        parts = [part for part in self.parts if (not only or part.name in only) and part.name not in leave_out]
        if not parts:
            raise UsageError("--only and --leave-out exclude every part")
        return parts
