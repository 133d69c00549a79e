"""Settings and scores of few-shot prompting: a row for each method and pattern, with an interval over samples.

    table = prompt("runs/mine", words=…, patterns=…, data="test.tsv", train="train.tsv", k=16)
    table.rows[0].mean, table.rows[0].low, table.rows[0].high
    print(table)
    FewShotSettings(k=16, draws=5, methods=("zero", "tune", "pet"), baseline="finetune")

Over n draws the interval is Student's, mean ± t s / √n: how far the mean would move with other draws of the examples,
on the same test set. A method without examples has one value; its interval is a bootstrap over the test examples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType

from larvatus.core import notebook
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import (
    Count,
    CountOrNone,
    LearningRate,
    Length,
    Seed,
    Share,
    Size,
    Temperature,
    whole,
)
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Tabular
from larvatus.metrics.intervals import Interval, mean_interval
from larvatus.tasks.prompt.prompted import NEUTRAL_TEXTS


@dataclass(frozen=True)
class PromptRow:
    """One method."""

    method: str
    """zero, calibrated, context, tune, pet, finetune."""
    pattern: str
    """Empty of plain fine-tuning; of PET, how many there are."""
    values: tuple[float, ...]
    """Score of each sample of examples; a single one where no examples are sampled."""
    mean: float
    deviation: float
    """Standard deviation over samples; 0 with one."""
    low: float
    high: float
    over: Literal["draws", "test examples"]
    """Unit of the interval."""

    @classmethod
    def of_draws(cls, method: str, pattern: str, values: Sequence[float]) -> PromptRow:
        """
        >>> row = PromptRow.of_draws("tune", "null", [0.8, 0.9, 0.85])
        >>> round(row.mean, 3), round(row.deviation, 3), round(row.low, 3), round(row.high, 3)
        (0.85, 0.05, 0.726, 0.974)
        """
        mean = statistics.fmean(values)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        low, high = mean_interval(values)
        if not math.isnan(low):
            low, high = max(0.0, low), min(1.0, high)  # of a share
        return cls(method, pattern, tuple(values), mean, deviation, low, high, "draws")

    @classmethod
    def of_test(cls, method: str, pattern: str, interval: Interval) -> PromptRow:
        value = interval.value
        return cls(method, pattern, (value,), value, 0.0, interval.low, interval.high, "test examples")

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in record.items()
        }

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Method, score, interval and pattern, for people."""
        spread = f" ± {100 * self.deviation:.1f}" if len(self.values) > 1 else ""
        known = not math.isnan(self.low)
        interval = f"{100 * self.low:.1f} to {100 * self.high:.1f} ({self.over})" if known else "one draw"
        return self.method, f"{100 * self.mean:.1f}{spread}", interval, self.pattern


@dataclass(frozen=True, kw_only=True)
class PromptTable(Tabular):
    """All methods on one test set."""

    model: str
    data: str
    metric: str
    examples: int
    """Examples of the test set."""
    k: int
    total: bool
    """Whether k is of all classes together, not of each."""
    draws: int
    seed: int
    rows: tuple[PromptRow, ...]
    notes: tuple[str, ...] = ()
    """Texts that were cut, demonstrations that did not fit."""

    @property
    def title(self) -> str:
        few = (
            f"{self.k} examples {'in all' if self.total else 'a class'}, {self.draws} draws"
            if self.k
            else "no examples"
        )
        return f"{self.metric} (%) on {self.examples:,} texts of {self.data} · {few}"

    def row(self, method: str, pattern: str | None = None) -> PromptRow:
        """The first row of a method.

        Args:
            method: `zero`, `calibrated`, `context`, `tune`, `pet` or `finetune`.
            pattern: One of the patterns; None: the first.
        """
        return next(row for row in self.rows if row.method == method and pattern in (None, row.pattern))

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {**asdict(self), "rows": [row.to_dict() for row in self.rows]}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each method and pattern."""
        return [row.to_dict() for row in self.rows]

    def _repr_html_(self) -> str:
        bars = [(f"{row.method} {row.pattern}".strip(), row.mean) for row in self.rows]
        return notebook.bars(bars, title=self.title, note="; ".join(self.notes))

    def __str__(self) -> str:
        cells = [row.cells for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        return "\n".join([self.title, *lines, *(f"note: {note}" for note in self.notes)])


# Settings.

METHODS = ("zero", "calibrated", "context", "tune", "pet")
DRAWS = whole(1, 10_000)


class FewShotSettings(Settings):
    """Number of examples and of samples, and the methods."""

    k: CountOrNone = 16
    """Examples to sample of each class (LM-BFF); 0: none, the model as it is."""
    total: bool = False
    """--k examples in all, not of each class (PET)."""
    draws: Annotated[int, DRAWS] = 5
    """Number of samples: the table shows mean, deviation and interval over them."""
    seed: Seed = 0
    """Seed of all randomness."""
    methods: Annotated[tuple[str, ...], Flag("--method", metavar="NAME")] = ()
    """zero, calibrated (by neutral texts), context (examples shown), tune (the prompt is fine-tuned), pet; repeatable;
    default: zero and calibrated, with --k tune too."""
    baseline: Literal["finetune"] | None = None
    """finetune: plain fine-tuning on the same samples, as a baseline."""
    neutral: Annotated[tuple[str, ...], Flag(metavar="TEXT")] = NEUTRAL_TEXTS
    """Neutral text, to calibrate by; repeatable; default: N/A and the empty text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for method in self.methods:
            if method not in METHODS:
                raise UsageError(f"there is no method {method!r} of prompting{did_you_mean(method, METHODS)}")
        if not self.k and set(self.chosen) & {"context", "tune", "pet"}:
            raise UsageError("context, tune and pet need examples: give --k 1 or more, or leave these methods out")
        if not self.k and self.baseline:
            raise UsageError("--baseline finetune needs examples: give --k 1 or more")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The methods, in the order of the table."""
        usual = ("zero", "calibrated", *(("tune",) if self.k else ()))
        return tuple(method for method in METHODS if method in (self.methods or usual))


class FewShotTraining(Settings):
    """Training of prompts and of the plain classifier on few examples."""

    steps: Count = 250
    """Updates on the sampled examples (PET: 250), of prompts and of plain fine-tuning."""
    batch: Size = 16
    """Texts of a step."""
    rate: LearningRate | None = None
    """Peak learning rate; default: by what is trained."""
    trained: str = "all"
    """Trainable part: all, head, last2, bias (BitFit), lora, lora16."""
    length: Length | None = None
    """Tokens of a sequence, special ones included: the pattern stays whole, the text is cut; default: the model's."""
    unlabelled_most: Annotated[int, whole(1, 10**9)] = 10_000
    """PET: unlabelled texts that the patterns label, at most."""
    distil_steps: Count = 1_000
    """PET: updates of the classifier on what they labelled (published: 5,000)."""
    temperature: Temperature = 2.0
    """PET: scores are divided by it to give soft labels."""
    mlm_weight: Share | UnsetType = UNSET
    """PET: share of the masked-lm loss of the unlabelled texts while a pattern learns (published: 0.0001); default: 0,
    none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mlm_share and self.trained == "head":
            raise UsageError("--mlm-weight needs an encoder that is trained, and only the head is; leave it out")

    @property
    def mlm_share(self) -> float:
        """α; 0 by default."""
        return 0.0 if self.mlm_weight is UNSET else self.mlm_weight
