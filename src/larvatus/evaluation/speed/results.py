"""Results of a benchmark, as JSON and as tables.

result.to_dict()["ceiling"]["flops"]
for table in tables(result): reporter.show(table)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core.tables import Cell, Column, Table
from larvatus.evaluation.speed.timing import Ceiling


class Machine(Struct, frozen=True, kw_only=True):
    """The machine of a benchmark."""

    name: str
    device: str
    precision: str
    compiled: bool
    cores: int
    threads: int
    torch: str
    larvatus: str


class MeasuredThroughput(Struct, frozen=True, kw_only=True):
    """Tokens of text per second, without padding."""

    tokens_per_second: float
    low: float
    """Rate in the slowest round; `high` is the rate in the fastest."""
    high: float
    mfu: float | None = None
    """Share of the measured matrix ceiling."""
    mfu_of_datasheet: float | None = None
    peak_bytes: int | None = None
    """Memory of a step: weights, moments, gradients and activations."""


class SpeedResult(Struct, frozen=True, kw_only=True):
    """Speed of one kind of work by Larvatus and by a peer."""

    what: str
    tokens: int
    """Tokens of a step, or of all texts."""
    longest: int
    mean_length: float
    larvatus: MeasuredThroughput
    peer: str | None = None
    theirs: MeasuredThroughput | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.larvatus.tokens_per_second / self.theirs.tokens_per_second


class LoaderSpeed(Struct, frozen=True, kw_only=True):
    """Tokens per second that the loader packs and corrupts."""

    workers: int
    """Worker processes; 0 for the main process."""
    tokens_per_second: float


class RuntimeSpeed(Struct, frozen=True, kw_only=True):
    """Speed of embedding sentences in one runtime, and how near its vectors are to those of torch in float32."""

    runtime: str
    quantise: str
    """int8, or empty for float32."""
    tokens_per_second: float
    low: float
    high: float
    cosine: float
    """Smallest cosine of a sentence's two vectors."""
    agreement: float
    """Spearman's ρ between the similarities of all pairs of sentences."""


class Benchmark(Struct, frozen=True, kw_only=True):
    """All results of a benchmark."""

    machine: Machine
    model: str
    parameters: int
    vocabulary: int
    text: str
    ceiling: Ceiling
    measured: tuple[SpeedResult, ...]
    loading: tuple[LoaderSpeed, ...]
    runtimes: tuple[RuntimeSpeed, ...] = ()
    """Runtimes of the encoder on a CPU."""
    notes: tuple[str, ...] = ()
    """Measurements that were skipped, and why."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, including ratios."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for row, measured in zip(plain["measured"], self.measured, strict=True):
            row["ratio"] = measured.ratio
        return plain


def lines(result: Benchmark) -> list[str]:
    """Lines about the machine, the matrix ceiling and the model."""
    machine, ceiling = result.machine, result.ceiling
    how = ", ".join([machine.device, machine.precision, *(["compiled"] if machine.compiled else [])])
    sheet = f"; data sheet: {_flops(ceiling.datasheet)}" if ceiling.datasheet else ""
    return [
        f"{machine.name}: {how}, {machine.threads} threads, torch {machine.torch}",
        f"matrix products reach {_flops(ceiling.flops)}, at {ceiling.size:,} × {ceiling.size:,}{sheet}",
        f"{result.model}: {result.parameters / 1e6:.1f}M parameters, {result.vocabulary:,} pieces; text: {result.text}",
    ]


def tables(result: Benchmark) -> list[Table]:
    """Tables of Larvatus, of peers and of the loader."""
    sheet = ["of sheet"] if result.ceiling.datasheet else []
    columns = ["", "tokens", "length", "tokens/s", "from", "to", "MFU", *sheet, "memory"]
    ours = Table(
        title="larvatus",
        columns=[Column(name, right=bool(name)) for name in columns],
        rows=[_ours(measured, bool(sheet)) for measured in result.measured],
        notes=[Cell(note, "dim") for note in result.notes],
    )
    peers = Table(
        title="next to peers, in turn, on the same text",
        columns=[Column("", right=False), Column("peer", right=False), *map(Column, ("tokens/s", "memory", "ratio"))],
        rows=[_theirs(measured) for measured in result.measured if measured.theirs],
    )
    loading = Table(
        title="packing and corrupting",
        columns=[Column("workers"), Column("tokens/s")],
        rows=[[Cell(f"{each.workers}"), Cell(f"{each.tokens_per_second:,.0f}")] for each in result.loading],
    )
    return [table for table in (ours, peers, _runtimes(result.runtimes), loading) if table.rows]


def _runtimes(speeds: Sequence[RuntimeSpeed]) -> Table:
    """Runtimes next to the first, torch in float32, and the fastest of each number type."""
    best = {kind: max(group, key=lambda each: each.tokens_per_second).runtime for kind, group in _by_numbers(speeds)}
    notes = [f"fastest in {kind}: {runtime}, now the choice of --runtime auto" for kind, runtime in best.items()]
    notes.append("cosine: the least of a sentence's vector with torch's in float32; ρ: of all similarities")
    return Table(
        title="embedding sentences, by runtime",
        columns=[
            Column("runtime", right=False),
            Column("numbers", right=False),
            *map(Column, ("tokens/s", "from", "to", "ratio", "cosine", "ρ")),
        ],
        rows=[
            [
                Cell(each.runtime),
                Cell(each.quantise or "float32"),
                Cell(f"{each.tokens_per_second:,.0f}"),
                Cell(f"{each.low:,.0f}"),
                Cell(f"{each.high:,.0f}"),
                Cell(f"{each.tokens_per_second / speeds[0].tokens_per_second:.2f} ×"),
                Cell(f"{each.cosine:.4f}"),
                Cell(f"{each.agreement:.4f}"),
            ]
            for each in speeds
        ],
        notes=[Cell(note, "dim") for note in notes] if speeds else [],
    )


def _by_numbers(speeds: Sequence[RuntimeSpeed]) -> list[tuple[str, list[RuntimeSpeed]]]:
    kinds = dict.fromkeys(each.quantise for each in speeds)
    return [(kind or "float32", [each for each in speeds if each.quantise == kind]) for kind in kinds]


def _ours(measured: SpeedResult, sheet: bool) -> Sequence[Cell]:
    rate = measured.larvatus
    cells = [
        measured.what,
        f"{measured.tokens:,}",
        f"{measured.mean_length:.0f}",
        f"{rate.tokens_per_second:,.0f}",
        f"{rate.low:,.0f}",
        f"{rate.high:,.0f}",
        _share(rate.mfu),
        *([_share(rate.mfu_of_datasheet)] if sheet else []),
        memory(rate.peak_bytes),
    ]
    return [Cell(text) for text in cells]


def _theirs(measured: SpeedResult) -> Sequence[Cell]:
    assert measured.theirs is not None
    rate, ratio = f"{measured.theirs.tokens_per_second:,.0f}", f"{measured.ratio:.2f} ×"
    return [
        Cell(text) for text in (measured.what, measured.peer or "", rate, memory(measured.theirs.peak_bytes), ratio)
    ]


def memory(count: int | None) -> str:
    if count is None:
        return "–"
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _flops(rate: float) -> str:
    return f"{rate / 1e12:,.0f} TFLOP/s" if rate >= 1e13 else f"{rate / 1e9:,.0f} GFLOP/s"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"
