"""Results of probes: a table, a picture and figures.

report.best("linear").layer, report.expected_layer.value
report.layer(4, "linear")["accuracy"].value
print(report)
ProbeReport.from_json(text)                         # what `larvatus probe --json` printed
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from larvatus.core.drawing import Element, element, folded_table, in_notebook, scroll_box
from larvatus.core.errors import DataError
from larvatus.core.tables import Cell, Column, Row, Table, Tabular
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval

ProbeKind = Literal["linear", "mlp", "structural"]
Metrics = Mapping[str, Interval]
COLUMNS = {
    "accuracy": "accuracy",
    "uuas": "UUAS",
    "control": "control",
    "selectivity": "selectivity",
    "random": "random weights",
    "bits": "bits/label",
    "compression": "compression",
    "compression_random": "compr. random",
    "spearman": "distance ρ",
    "depth_spearman": "depth ρ",
    "root": "root",
}
"""Metrics of a layer in the order of the table, and the names of their columns."""
MOST_ROWS = 1_000
"""Most rows of a stored report."""
UNIT = "texts"
"""What intervals are over."""
WHOLE = ("bits", "compression", "compression_random", "spearman", "depth_spearman")
"""Metrics that are no shares in per cent."""


@dataclass(frozen=True, kw_only=True)
class LayerProbe:
    """Probes of one kind on one layer."""

    layer: int
    """0 is the embeddings: vectors of tokens without context."""
    kind: ProbeKind
    metrics: Metrics
    """The first is the score; each with its 95% interval."""

    def __getitem__(self, name: str) -> Interval:
        return self.metrics[name]

    @property
    def score(self) -> Interval:
        return next(iter(self.metrics.values()))


@dataclass(frozen=True, kw_only=True, repr=False)
class ProbeReport(Tabular):
    model: str
    data: str
    task: str
    metric: str
    """Score of a layer: accuracy or uuas."""
    layers: tuple[LayerProbe, ...]
    baselines: Metrics
    """Scores without a model: the most frequent label, that of the word type, joined neighbours."""
    expected_layer: Interval | None
    """Tenney et al. 2019, eq. 4: mean layer at which cumulative mixes improve. None unless all layers are probed."""
    centre_of_gravity: float | None
    """The same paper, eq. 2: mean layer under the weights of the mix of all layers."""
    counts: Mapping[str, int]
    notes: tuple[str, ...]
    seed: int

    def best(self, kind: ProbeKind | None = None) -> LayerProbe:
        """The layer with the highest score; the lowest one of equals."""
        return max((each for each in self.layers if kind in (None, each.kind)), key=lambda each: each.score.value)

    def layer(self, number: int, kind: ProbeKind) -> LayerProbe:
        """One layer."""
        return next(each for each in self.layers if (each.layer, each.kind) == (number, kind))

    @property
    def kinds(self) -> tuple[ProbeKind, ...]:
        return tuple(dict.fromkeys(each.kind for each in self.layers))

    def figures(self) -> Iterator[Figure]:
        """Every number with its interval."""
        for each in self.layers:
            for name, value in each.metrics.items():
                category = f"layer {each.layer}"
                yield Figure.of(name, value, unit=UNIT, task=self.task, category=category, group=each.kind)
        for name, value in self.baselines.items():
            yield Figure.of(self.metric, value, unit=UNIT, task=self.task, group=name)
        if self.expected_layer is not None:
            yield Figure.of("expected layer", self.expected_layer, unit=UNIT, task=self.task)
        if self.centre_of_gravity is not None:
            yield Figure(metric="centre of gravity", value=self.centre_of_gravity, conditions={"task": self.task})

    def to_dicts(self) -> list[Row]:
        """A row for each layer and kind of probe."""
        rows = []
        for each in self.layers:
            row: Row = {"layer": each.layer, "probe": each.kind}
            for name, value in each.metrics.items():
                row |= {
                    name: _number(value.value),
                    f"{name}_low": _number(value.low),
                    f"{name}_high": _number(value.high),
                }
            rows.append(row)
        return rows

    def to_dict(self) -> dict[str, Any]:
        best = {kind: self.best(kind).layer for kind in self.kinds}
        return {
            **{name: getattr(self, name) for name in ("model", "data", "task", "metric", "seed")},
            "counts": dict(self.counts),
            "layers": self.to_dicts(),
            "baselines": {name: interval_dict(value) for name, value in self.baselines.items()},
            "best_layer": best,
            "expected_layer": None if self.expected_layer is None else interval_dict(self.expected_layer),
            "centre_of_gravity": self.centre_of_gravity,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> ProbeReport:
        """The report that `to_dict` wrote; any other text is refused."""
        try:
            stored = msgspec.json.decode(text, type=_StoredReport)
            rows = tuple(map(_stored_layer, stored.layers))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
            raise DataError(f"this is no output of larvatus probe --json: {fault}") from fault
        scores = {name for row in rows for name in (next(iter(row.metrics)),)}
        if scores != {stored.metric}:
            raise DataError(f"this is no output of larvatus probe --json: its layers have no {stored.metric!r}")
        intervals = {name: value.interval() for name, value in stored.baselines.items()}
        if not all(0 <= value.value <= 1 for value in intervals.values()):
            raise DataError("this is no output of larvatus probe --json: a baseline is no share")
        expected = None if stored.expected_layer is None else stored.expected_layer.interval()
        same = {name: getattr(stored, name) for name in ("model", "data", "task", "metric", "counts", "seed")}
        centre, notes = stored.centre_of_gravity, tuple(stored.notes)
        return cls(
            **same, layers=rows, baselines=intervals, expected_layer=expected, centre_of_gravity=centre, notes=notes
        )

    def table(self) -> Table:
        """Layers below each other; the best of each kind is bold."""
        names = [name for name in COLUMNS if any(name in each.metrics for each in self.layers)]
        best = {id(self.best(kind)) for kind in self.kinds}
        rows = [
            [
                Cell(f"{each.layer}", "bold" if id(each) in best else ""),
                each.kind,
                *(_cell(each, name, bold=id(each) in best and name == self.metric) for name in names),
            ]
            for each in self.layers
        ]
        columns: list[str | Column] = ["layer", Column("probe", right=False), *(COLUMNS[name] for name in names)]
        counted = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return Table(columns, rows, title=f"{self.task}: {self.model} on {self.data} ({counted})", notes=self._notes())

    def _notes(self) -> list[str]:
        lines = [f"{name}: {percent(value)}" for name, value in self.baselines.items()]
        lines += [f"best layer ({kind}): {self.best(kind).layer}" for kind in self.kinds]
        if self.expected_layer is not None and math.isnan(self.expected_layer.value):
            lines.append("no expected layer: those above 0 add nothing to the accuracy of the mix")
        elif self.expected_layer is not None:
            low, high = self.expected_layer.low, self.expected_layer.high
            lines.append(f"expected layer {self.expected_layer.value:.2f} [{low:.2f}, {high:.2f}]")
        if self.centre_of_gravity is not None:
            lines.append(f"centre of gravity of the mix of all layers: {self.centre_of_gravity:.2f}")
        return [*lines, f"brackets: 95% interval over {UNIT}; seed {self.seed}", *self.notes]

    def picture(self) -> Element:
        """Scores by layer, with the controls of the linear or structural probe."""
        first = self.kinds[0]
        lines = {
            f"{kind} probe": [(each.layer, each.score) for each in self.layers if each.kind == kind]
            for kind in self.kinds
        }
        for name, label in (("control", "control task"), ("random", "random weights")):
            chosen = [(each.layer, each[name]) for each in self.layers if each.kind == first and name in each.metrics]
            if chosen:
                lines[f"{label} ({first})"] = chosen
        return layer_picture(f"{self.task}: {COLUMNS[self.metric]} by layer", lines, self.baselines, self.table())

    def _repr_html_(self) -> str:
        return in_notebook(self.picture())

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        best = self.best()
        return f"<ProbeReport {self.task}: best layer {best.layer}, {self.metric} {best.score.value:.4f} ({best.kind})>"


class _StoredInterval(msgspec.Struct):
    """An interval of `to_dict`; its samples are not stored."""

    value: float | None
    low: float | None
    high: float | None

    def interval(self) -> Interval:
        value, low, high = (math.nan if each is None else each for each in (self.value, self.low, self.high))
        return Interval(value, low, high, math.nan, 0)


class _StoredReport(msgspec.Struct):
    model: str
    data: str
    task: str
    metric: Literal["accuracy", "uuas"]
    seed: int
    counts: dict[str, int]
    layers: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]
    baselines: dict[str, _StoredInterval]
    expected_layer: _StoredInterval | None
    centre_of_gravity: float | None
    notes: list[str]


def _stored_layer(row: dict[str, Any]) -> LayerProbe:
    """A row of `to_dict`. Values that are drawn are shares."""
    layer = msgspec.convert(row.get("layer"), Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)])
    kind: ProbeKind = msgspec.convert(row.get("probe"), ProbeKind)
    metrics = {}
    for name in (name for name in COLUMNS if name in row):
        three = {"value": row[name], "low": row.get(f"{name}_low"), "high": row.get(f"{name}_high")}
        metrics[name] = msgspec.convert(three, _StoredInterval).interval()
    for name in ("accuracy", "uuas", "control", "random"):
        value = metrics.get(name)
        if value is not None and not 0 <= value.low <= value.value <= value.high <= 1:
            raise msgspec.ValidationError(f"{name} of layer {layer} is no share with its interval")
    if not metrics:
        raise msgspec.ValidationError(f"layer {layer} has no score")
    return LayerProbe(layer=layer, kind=kind, metrics=metrics)


def _cell(each: LayerProbe, name: str, *, bold: bool) -> Cell:
    value = each.metrics.get(name)
    if value is None or math.isnan(value.value):
        return Cell("–")
    text = f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]" if name in WHOLE else percent(value)
    return Cell(text, "bold" if bold else "")


def percent(value: Interval) -> str:
    """
    >>> percent(Interval(0.9312, 0.9, 0.95, 0.01, 1000))
    '93.1 [90.0, 95.0]'
    """
    return f"{100 * value.value:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def interval_dict(value: Interval) -> dict[str, float | None]:
    """An estimate with its interval, for JSON."""
    return {"value": _number(value.value), "low": _number(value.low), "high": _number(value.high)}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


WIDTH, HEIGHT, MARGIN = 640.0, 300.0, 46.0
HUES = (205, 25, 120, 285)
DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""Lines differ in colour and in dashes."""
NAME = 150.0
"""Pixels of a name in the legend."""


def layer_picture(
    title: str, lines: Mapping[str, Sequence[tuple[int, Interval]]], baselines: Metrics, table: Table
) -> Element:
    """Lines over layers with 95% intervals as bars; baselines are thin level lines. Without scripts."""
    layers = sorted({layer for points in lines.values() for layer, _ in points})
    low = min((value.low for points in lines.values() for _, value in points), default=0.0)
    floor = max(0.0, math.floor(10 * min(low, *(value.value for value in baselines.values()), 0.9)) / 10)

    def x(layer: int) -> float:
        return MARGIN + (layers.index(layer) + 0.5) * (WIDTH - MARGIN) / len(layers)

    def y(value: float) -> float:
        return 12 + (HEIGHT - 36) * (1 - (value - floor) / (1 - floor))

    parts = []
    for step in range(round(10 * floor), 11, 1 if floor > 0.4 else 2):
        line = {"x1": MARGIN, "x2": WIDTH, "y1": y(step / 10), "y2": y(step / 10), "class": "lv-line"}
        parts += [element("line", line), _text(f"{10 * step}", MARGIN - 8, y(step / 10) + 4, "end")]
    parts += [_text(f"{layer}", x(layer), HEIGHT - 6, "middle") for layer in layers]
    for name, value in baselines.items():
        at = y(value.value)
        style = {"stroke": "currentColor", "stroke-opacity": ".6"}
        parts.append(element("line", {"x1": MARGIN, "x2": WIDTH, "y1": at, "y2": at, **style}))
        parts.append(_text(name, WIDTH - 4, at - 3, "end"))
    for number, (name, points) in enumerate(lines.items()):
        stroke = {"stroke": f"hsl({HUES[number % 4]},60%,45%)", "stroke-width": "2", "fill": "none"}
        path = " ".join(f"{x(layer):.1f},{y(value.value):.1f}" for layer, value in points)
        parts.append(element("polyline", {"points": path, "stroke-dasharray": DASHES[number % 4], **stroke}))
        for layer, value in points:
            bar = {"x1": x(layer), "x2": x(layer), "y1": y(value.low), "y2": y(value.high)}
            parts.append(element("line", {**bar, **stroke}))
        left = MARGIN + NAME * number
        key = {
            "x1": left,
            "x2": left + 24,
            "y1": HEIGHT + 14,
            "y2": HEIGHT + 14,
            "stroke-dasharray": DASHES[number % 4],
        }
        parts += [element("line", {**key, **stroke}), _text(name, left + 28, HEIGHT + 18, "start")]
    shape = {"width": WIDTH + 20, "height": HEIGHT + 28, "viewBox": f"0 0 {WIDTH + 20:.0f} {HEIGHT + 28:.0f}"}
    svg = element("svg", {**shape, "aria-hidden": "true"}, *parts)
    rows = [[cell.text for cell in row] for row in table.cells]
    notes = [element("p", {"class": "lv-note"}, note if isinstance(note, str) else note.text) for note in table.notes]
    heads = [head.name for head in table.heads]
    return element(
        "div",
        {"class": "lv"},
        element("p", {}, title),
        scroll_box(title, svg),
        folded_table("Table", heads, rows),
        *notes,
    )


def _text(text: str, x: float, y: float, anchor: str) -> Element:
    return element("text", {"class": "lv-label", "x": x, "y": y, "text-anchor": anchor}, text)
