"""A claim: one figure of a model card, with all that is needed to work it out again.

    claim = claimed("accuracy", 0.91, command="evaluate", low=0.88, high=0.94, settings={"samples": 1000},
                    data=(Data(name="test.tsv", sha256="5f2c…", kind="examples"),))

Claims stand in `larvatus.json` under `claims`. A result that a command writes as JSON carries its claims under the same
name at any depth: `collect_claims` finds them, and `larvatus card DIR --add RESULT.json` adds them to a card.

`command` is one of `COMMANDS`, a fixed list: nothing that a card names is imported or run. A claim does not say how far
it may be wrong: tolerances are the verifier's (`tolerances.py`).
"""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import torch

from larvatus.core.errors import ArtefactError, DataError, LarvatusError, did_you_mean, printable
from larvatus.core.ranges import Range, Seed, check_ranges
from larvatus.core.settings import Settings
from larvatus.core.version import VERSION

COMMANDS: Mapping[str, str] = {
    "model": "Model",
    "pretrain": "Training",
    "finetune": "Training",
    "energy": "Energy and CO₂ of training, estimated",
    "held-out text": "Held-out results",
    "before and after": "Held-out results",
    "evaluate": "Held-out results",
    "evaluate text": "Held-out results",
    "evaluate suite": "Results on a suite of tasks",
    "audit bias": "Audit: bias",
    "audit leaks": "Audit: leaks",
    "audit toxicity": "Audit: toxicity",
    "corpus": "Size of the corpus",
}
"""What may have measured a figure, and the section of the card that it stands in, in this order."""
MOST = 10_000
"""Claims of one model."""
LONGEST = 500
"""Characters of a name or a word in a claim."""
LARGEST_COUNT = 10**18
"""Largest whole number of a claim."""
RETIRED = ("tolerance",)
"""Fields of older claims that are dropped when they are read."""
CONDITIONS = ("task", "length", "language", "category", "group")
"""Settings that stand before the metric in a card: figures that differ in these are different figures."""
STATISTIC = "statistic"
"""Setting of a claim that speaks of several seeds: in a card it stands beside the figure of the kept weights."""
FIGURE = Range(-1e300, 1e300)

BoundedFloat = Annotated[float, FIGURE]
Kind = Literal["file", "files", "examples", "corpus"]


class Data(Settings, omit_defaults=True):
    """What was measured on."""

    name: str
    """As the user gave it."""
    sha256: str
    kind: Kind = "file"
    """What the checksum is of: a file, the names and checksums of several, what labelled examples say, or shards of
    tokens with their vocabulary."""
    files: tuple[str, ...] = ()
    """Names of the files, where `name` is not that of one."""

    def __str__(self) -> str:
        return f"{self.name} sha256 {self.sha256}"


class Claim(Settings, omit_defaults=True):
    """A figure, and how it came about."""

    metric: str
    value: int | float | str
    """A word where there is no number: the name of a machine."""
    low: BoundedFloat | None = None
    """Of the 95% interval, where there is one."""
    high: BoundedFloat | None = None
    unit: str = ""
    """Resampled for the interval, where an audit says so: occupations, documents, sentence pairs."""
    percent: bool = False
    """Whether the value is in per cent or points."""
    command: str
    """Which of `COMMANDS` measured it."""
    settings: dict[str, Any] = {}
    """All that the figure depends on besides the model, the data and the seed."""
    data: tuple[Data, ...] = ()
    seed: Seed | None = None
    estimate: str = ""
    """The formula, where the figure is not measured but estimated."""
    model: str = ""
    """Checksum of the model's files (`manifest.digest`)."""
    versions: dict[str, str] = {}
    date: str = ""
    machine: str = ""

    def __post_init__(self) -> None:
        check_ranges(self, f"claim {self.metric[:LONGEST]}: ", ArtefactError)
        if self.command not in COMMANDS:
            known = did_you_mean(self.command, COMMANDS)
            raise ArtefactError(f"claim {self.metric}: {self.command!r} is no command that measures{known}")
        if isinstance(self.value, bool) or (isinstance(self.value, float) and not math.isfinite(self.value)):
            raise ArtefactError(f"claim {self.metric}: {self.value} is no figure")
        if isinstance(self.value, int) and abs(self.value) > LARGEST_COUNT:
            raise ArtefactError(f"claim {self.metric[:LONGEST]}: a whole number of more than 18 digits is no figure")
        for name in (*CONDITIONS, STATISTIC):
            if not isinstance(self.settings.get(name), str | int | None):
                raise ArtefactError(f"claim {self.metric[:LONGEST]}: settings: {name} is no word or whole number")
        if max(len(self.metric), len(self.unit), len(self.value) if isinstance(self.value, str) else 0) > LONGEST:
            raise ArtefactError(f"claim {self.metric[:LONGEST]}: its words have more than {LONGEST} characters")
        if (self.low is None) != (self.high is None):
            raise ArtefactError(f"claim {self.metric}: an interval has two ends, low and high")

    @property
    def key(self) -> tuple[str, ...]:
        """What is claimed: a newer claim of the same takes the place of an older one."""
        at = {name: self.settings.get(name) for name in (*CONDITIONS, STATISTIC)}
        return (self.command, self.metric, msgspec.json.encode(at).decode(), *(data.sha256 for data in self.data))

    @property
    def label(self) -> str:
        """The metric, and under which conditions: ``length 128: sw: masked-lm loss``, ``sst2: accuracy (3 epochs)``."""
        said = [f"length {self.settings[name]}" if name == "length" else str(self.settings[name]) for name in self._at]
        conditions = self.settings.get("conditions")
        return ": ".join([*said, f"{self.metric} ({conditions})" if conditions else self.metric])

    @property
    def _at(self) -> list[str]:
        return [name for name in CONDITIONS if self.settings.get(name) is not None]


def make_claim(metric: str, value: int | float | str, *, command: str, **known: Any) -> Claim:
    """A claim made here and now: versions, date and machine are filled in."""
    return Claim(
        metric=metric,
        value=value if isinstance(value, int | str) else float(value),  # not NumPy's
        command=command,
        **{
            "versions": {"larvatus": VERSION, "torch": str(torch.__version__), "python": platform.python_version()},
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": f"{platform.machine()} CPU",
            **known,
        },
    )


def read_claims(values: Sequence[Any], where: object, error: type[LarvatusError] = ArtefactError) -> tuple[Claim, ...]:
    """Claims as they stand in a file, checked; one line says what is wrong with which."""
    if len(values) > MOST:
        raise error(f"{where} has {len(values):,} claims; a card holds {MOST:,} at most")
    claims = []
    for number, value in enumerate(values, 1):
        try:
            msgspec.json.encode(value)  # what cannot be written cannot be compared: half a surrogate pair
            claims.append(msgspec.convert(_without_retired(value), Claim))
        except (msgspec.ValidationError, ArtefactError, UnicodeEncodeError, RecursionError) as fault:
            raise error(f"{where}: claim {number} is none: {printable(str(fault))}") from fault
    return tuple(claims)


def _without_retired(value: Any) -> Any:
    return {name: inner for name, inner in value.items() if name not in RETIRED} if isinstance(value, dict) else value


def refuse_repeats(claims: Sequence[Claim], where: object) -> None:
    """One figure has one claim: of two, a reader would see both and a verifier check one."""
    first: dict[tuple[str, ...], int] = {}
    for number, claim in enumerate(claims, 1):
        if (before := first.setdefault(claim.key, number)) != number:
            said = printable(f"{claim.label} ({claim.command})")
            raise ArtefactError(f"{where}: claims {before} and {number} are both of {said}; remove the wrong one")


def collect_claims(value: Any, where: object) -> tuple[Claim, ...]:
    """All claims that a result carries: those under `claims`, at any depth."""
    claims = read_claims([*_listed(value, where)], where, DataError)
    if not claims:
        raise DataError(
            f"{where} holds no claims; give what a command of this Larvatus wrote with --json (evaluate, audit …)"
        )
    return claims


def _listed(value: Any, where: object) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name != "claims":
                yield from _listed(inner, where)
            elif isinstance(inner, list | tuple):
                yield from (msgspec.to_builtins(each) for each in inner)
            else:
                raise DataError(f"{where}: claims is a list, not {type(inner).__name__}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _listed(inner, where)


def merge_claims(older: Iterable[Claim], newer: Iterable[Claim]) -> tuple[Claim, ...]:
    """Both; where they claim the same, the newer one, in the place of the older."""
    return tuple({claim.key: claim for claim in (*older, *newer)}.values())


def claim_dicts(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """As they stand in JSON."""
    return [msgspec.to_builtins(claim) for claim in claims]


@dataclass(frozen=True)
class CardText:
    """A README.md, and the claims that its figures are, as they go into `larvatus.json`."""

    text: str
    claims: Sequence[Mapping[str, Any]] = ()
