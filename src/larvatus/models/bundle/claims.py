"""A claim: one figure of a model card, with everything needed to measure it again.

    claim = make_claim("accuracy", 0.91, command="evaluate", low=0.88, high=0.94, settings={"samples": 1000},
                       data=(Data(name="test.tsv", sha256="5f2c…", kind="examples"),))

Claims are stored in `larvatus.json` under `claims`. JSON results of commands contain their claims under the same
name at any depth: `collect_claims` finds them, and `larvatus card DIR --add RESULT.json` adds them to a card.

`command` is one of `COMMANDS`, a fixed list: nothing that a card names is imported or run. A claim does not state its
tolerance; the verifier does (`evaluation/cards/verify.py`).

Two kinds of claims are made here: the size of a model (`size_claims`), which can be checked from its directory, and
energy and CO₂ of training (`energy_claims`), estimated from hardware power, training time and the carbon intensity of
a kWh:

    kWh = watts × devices × seconds / 3,600,000 × overhead
    kg  = kWh × grams per kWh / 1,000

Devices are assumed to draw their TDP, memory and disks count only in `overhead` (the PUE of a data centre), and
manufacturing does not count. Unknown values default to `ANY_GPU` and `ANY_CORE` (Lannelongue et al. 2021, Green
Algorithms) and `WORLD`. Give better ones with: larvatus card DIR --watts 310 --intensity 28.
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
from larvatus.core.ranges import Range, Seed, check_ranges, whole
from larvatus.core.run_identity import VERSION
from larvatus.core.settings import Settings
from larvatus.metrics.figures import CONDITIONS, figure_label
from larvatus.models.bundle.manifest import LAST
from larvatus.models.network import Network

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
"""Commands that measure figures, with their sections of the card, in order."""
MAX_CLAIMS = 10_000
"""Most claims of one model."""
LONGEST = 500
"""Most characters of a name or a word in a claim."""
LARGEST_COUNT = 10**18
"""Largest whole number of a claim."""
RETIRED = ("tolerance",)
"""Fields of older claims that are dropped on reading."""
STATISTIC = "statistic"
"""Setting of a claim over several seeds; a card shows it next to the figure of the kept weights."""
PERPLEXITY = "masked-lm perplexity"
FIGURE = Range(-1e300, 1e300)

BoundedFloat = Annotated[float, FIGURE]
Kind = Literal["file", "files", "examples", "corpus"]


class Data(Settings, omit_defaults=True):
    """A data set that a figure was measured on."""

    name: str
    """Name as the user gave it."""
    sha256: str
    kind: Kind = "file"
    """What the checksum covers: one file, the names and checksums of several files, the contents of labelled examples,
    or token shards with their vocabulary."""
    files: tuple[str, ...] = ()
    """Names of the files, if `name` is not the name of a file."""

    def __str__(self) -> str:
        return f"{self.name} sha256 {self.sha256}"


class Claim(Settings, omit_defaults=True):
    """A figure and how it was measured."""

    metric: str
    value: int | float | str
    """A number, or a word, such as the name of a machine."""
    low: BoundedFloat | None = None
    """Lower end of the 95% interval, if there is one; `high` is the upper end."""
    high: BoundedFloat | None = None
    unit: str = ""
    """What an audit resampled for the interval: occupations, documents, sentence pairs."""
    percent: bool = False
    """Whether the value is in per cent or percentage points."""
    command: str
    """The command of `COMMANDS` that measured it."""
    settings: dict[str, Any] = {}
    """Everything the figure depends on, except the model, the data and the seed."""
    data: tuple[Data, ...] = ()
    seed: Seed | None = None
    estimate: str = ""
    """The formula, if the figure is an estimate and not measured."""
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
        """Identity of the figure: a newer claim with the same key replaces an older one."""
        at = {name: self.settings.get(name) for name in (*CONDITIONS, STATISTIC)}
        return (self.command, self.metric, msgspec.json.encode(at).decode(), *(data.sha256 for data in self.data))

    @property
    def label(self) -> str:
        """The metric after its conditions: ``length 128: sw: masked-lm loss``, ``sst2: accuracy (3 epochs)``."""
        return figure_label(self.metric, self.settings)


def make_claim(metric: str, value: int | float | str, *, command: str, **known: Any) -> Claim:
    """A claim made now, with the current versions, date and machine."""
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
    """Claims read from a file and checked; the error names the wrong claim."""
    if len(values) > MAX_CLAIMS:
        raise error(f"{where} has {len(values):,} claims; a card holds {MAX_CLAIMS:,} at most")
    claims = []
    for number, value in enumerate(values, 1):
        try:
            msgspec.json.encode(value)  # refuses what cannot be written, such as half a surrogate pair
            claims.append(msgspec.convert(_without_retired(value), Claim))
        except (msgspec.ValidationError, ArtefactError, UnicodeEncodeError, RecursionError) as fault:
            raise error(f"{where}: claim {number} is none: {printable(str(fault))}") from fault
    return tuple(claims)


def _without_retired(value: Any) -> Any:
    return {name: inner for name, inner in value.items() if name not in RETIRED} if isinstance(value, dict) else value


def refuse_repeats(claims: Sequence[Claim], where: object) -> None:
    """Refuse two claims of one figure: a reader would see both, but the verifier would check one."""
    first: dict[tuple[str, ...], int] = {}
    for number, claim in enumerate(claims, 1):
        if (before := first.setdefault(claim.key, number)) != number:
            said = printable(f"{claim.label} ({claim.command})")
            raise ArtefactError(f"{where}: claims {before} and {number} are both of {said}; remove the wrong one")


def collect_claims(value: Any, where: object) -> tuple[Claim, ...]:
    """All claims in a result, found under `claims` at any depth."""
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
    """Both sets of claims; newer claims replace older ones of the same figure, in place."""
    return tuple({claim.key: claim for claim in (*older, *newer)}.values())


def claim_dicts(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Claims as JSON objects."""
    return [msgspec.to_builtins(claim) for claim in claims]


@dataclass(frozen=True)
class CardText:
    """A README.md with the claims of its figures, as written to `larvatus.json`."""

    text: str
    claims: Sequence[Mapping[str, Any]] = ()


SIZES = ("layers", "hidden", "heads", "max_positions")
"""Settings of an encoder that a card states, if it has them."""


WORD_LAYERS = "layers of word vectors"


def size_claims(network: Network, *, vocabulary: int, word_layers: str = LAST) -> list[Claim]:
    """Sizes of a model, and which layers its word vectors are of unless that is the last one."""
    config = network.encoder.config
    sizes = {name: getattr(config, name) for name in SIZES if isinstance(getattr(config, name, None), int)}
    sizes |= {"parameters": sum(p.numel() for p in network.parameters()), "vocabulary": vocabulary}
    stated: dict[str, int | str] = {**sizes, **({} if word_layers == LAST else {WORD_LAYERS: word_layers})}
    return [make_claim(name, value, command="model") for name, value in stated.items()]


WORLD = 475.0
"""Grams of CO₂ equivalent per kWh, world mean (IEA, Global Energy & CO₂ Status Report 2019)."""
ANY_GPU, ANY_CORE = 200.0, 12.0
"""Watts of an unknown GPU and of a CPU core."""
TDP: Mapping[str, float] = {
    "B200": 1000,
    "H200": 700,
    "H100 PCIe": 350,
    "H100": 700,
    "A100-PCIE": 250,
    "A100 80GB PCIe": 300,
    "A100": 400,
    "V100-PCIE": 250,
    "V100": 300,
    "L40S": 350,
    "L40": 300,
    "L4": 72,
    "T4": 70,
    "A10G": 300,
    "A10": 150,
    "A6000": 300,
    "RTX 5090": 575,
    "RTX 4090": 450,
    "RTX 3090": 350,
}
"""TDP of GPUs in watts, by part of the name; the first match counts."""
FORMULA = "watts × devices × seconds / 3,600,000 × overhead"
CO2 = f"{FORMULA} × grams per kWh / 1,000"

WATTS = Range(0, 1e6, above=True)
INTENSITY = Range(0, 1e5)


class PowerDraw(Settings):
    """Power and time of training."""

    watts: Annotated[float, WATTS]
    """Power of one device."""
    devices: Annotated[int, whole(1, 10**6)] = 1
    seconds: Annotated[float, Range(0, 1e12)]
    overhead: Annotated[float, Range(1, 100)] = 1.0
    intensity: Annotated[float, INTENSITY] = WORLD
    """Grams of CO₂ equivalent per kWh."""
    source: str = ""
    """Source of the watts."""

    @property
    def kwh(self) -> float:
        return self.watts * self.devices * self.seconds / 3_600_000 * self.overhead

    @property
    def kg(self) -> float:
        """Kilograms of CO₂ equivalent."""
        return self.kwh * self.intensity / 1_000


def device_power(device: str, *, threads: int) -> tuple[float, str]:
    """Watts of a device and their source: a GPU by name, or CPU cores for an empty name."""
    if not device:
        return ANY_CORE * threads, f"CPU cores in use ({threads}), {ANY_CORE:g} W each"
    for name, watts in TDP.items():
        if name.lower() in device.lower():
            return watts, f"TDP of {name}"
    return ANY_GPU, "a GPU that is not in the table"


def energy_claims(draw: PowerDraw, **known: str) -> tuple[Claim, Claim]:
    """Claims of both estimates; their settings contain all inputs."""
    settings = {name: getattr(draw, name) for name in draw.__struct_fields__}
    return (
        make_claim("energy, kWh", draw.kwh, command="energy", settings=settings, estimate=FORMULA, **known),
        make_claim("CO₂ equivalent, kg", draw.kg, command="energy", settings=settings, estimate=CO2, **known),
    )
