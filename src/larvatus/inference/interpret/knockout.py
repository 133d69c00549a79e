"""Knockouts: attention heads or neurons switched off, one by one and in greedy sets (Michel et al. 2019; Wang et al.
2023, whose word it is).

    report = knock_out(network, PairOutcome(tokenizer, pairs), KnockoutOptions(of="heads", ablation="mean"))
    report.rows[0].name, report.rows[0].change, report.rows[0].adjusted        # '8:3', -0.21, 0.0072

A head is switched off by replacing its output, before it is projected, by zero or by its mean over all tokens of the
outcome. Zero is what pruning does, but the rest of the network never saw it; the mean takes away what varies.

    one by one    change of the outcome, 95% interval by the paired bootstrap over the sampled units, p by approximate
                  randomisation, adjusted for all comparisons of the table (Holm, or Benjamini & Hochberg)
    greedy sets   in each step the head without which the outcome is lowest is added. The set is chosen on one half of
                  the units and measured on the other, since the worst of many is also worst by chance
    random sets   of the same sizes, measured on the same half: what switching off any heads does
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from torch import Tensor

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.errors import DataError
from larvatus.core.ranges import Count, CountOrNone, Layers, whole
from larvatus.core.rng import stream
from larvatus.core.settings import SeededSettings, Settings
from larvatus.core.tables import Cell, ReportPart, Table, Tabular, render_text
from larvatus.inference.interpret.interventions import Edit, Site, block_encoder, edited, head_columns, tapped
from larvatus.inference.interpret.outcomes import KnockoutOutcome
from larvatus.metrics.intervals import bootstrap
from larvatus.metrics.many import Correction, adjusted, differences
from larvatus.models.network import Network
from larvatus.models.nn.encoder_base import AttentionEncoder

ALL = "all"
CANDIDATES = 12
"""Components, those with the largest single effects, that a greedy set is chosen from."""
FEWEST = 4
"""Fewest units that greedy sets are chosen and measured on."""
LEVEL = 0.05
SHOWN = 20
"""Rows of a table for people."""


class KnockoutOptions(SeededSettings):
    """What is switched off, and how the changes are tested."""

    of: Literal["heads", "neurons"] = "heads"
    """heads, or neurons of the feedforward layers."""
    layers: tuple[Layers, ...] = ()
    """Only these layers, such as 7,8."""
    limit: Count | None = None
    """Most heads or neurons, sampled at random; default: all."""
    ablation: Literal["zero", "mean"] = "mean"
    """Replace outputs by zero, or by their mean over the tokens of the outcome."""
    correction: Correction = "holm"
    """For many comparisons: holm, or bh (Benjamini-Hochberg)."""
    greedy: CountOrNone = 4
    """Size of the largest greedy set; 0: none."""
    random_sets: CountOrNone = 8
    """Random sets of each size to compare greedy sets with."""
    samples: Annotated[int, whole(100, 1_000_000)] = 1000
    """Bootstrap samples."""


class KnockoutRow(Settings):
    """One head or neuron switched off."""

    name: str
    """layer:number, both from 1."""
    group: str
    """Group of units, such as a phenomenon; `all` for all of them."""
    change: float
    """Change of the outcome."""
    low: float
    high: float
    """95% interval of the change."""
    p: float
    adjusted: float
    """p, adjusted for all rows."""


class KnockoutSet(Settings):
    """A greedy set of heads or neurons switched off together, measured on units that did not choose it."""

    names: tuple[str, ...]
    change: float
    low: float
    high: float
    """95% interval."""
    random: tuple[float, ...]
    """Changes of random sets of this size on the same units."""


class OutcomeScore(Settings):
    """The outcome with everything switched on."""

    group: str
    units: int
    value: float
    low: float
    high: float
    """95% interval."""


class KnockoutReport(Settings, Tabular):
    metric: str
    units: str
    options: KnockoutOptions
    baseline: tuple[OutcomeScore, ...]
    rows: tuple[KnockoutRow, ...]
    """Lowest change first."""
    sets: tuple[KnockoutSet, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = msgspec.to_builtins(self)
        return record

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each head or neuron and group."""
        return [msgspec.to_builtins(row) for row in self.rows]

    @property
    def significant(self) -> list[KnockoutRow]:
        """Rows whose adjusted p is at most 0.05."""
        return [row for row in self.rows if row.adjusted <= LEVEL]

    def __str__(self) -> str:
        return render_text(self.parts())

    def parts(self) -> Iterator[ReportPart]:
        """Everything that `larvatus knockout` prints."""
        part = self.options.of.removesuffix("s")
        rows = [
            (each.group, f"{each.units:,}", f"{each.value:.4f}", f"{each.low:.4f} to {each.high:.4f}")
            for each in self.baseline
        ]
        yield Table(("group", self.units, self.metric, "95% interval"), rows)
        sure, correction = self.significant, {"holm": "Holm", "bh": "Benjamini-Hochberg"}[self.options.correction]
        yield (
            f"\n{part}s switched off one by one ({self.options.ablation} ablation): {len(sure)} of {len(self.rows):,} "
            f"changes are significant at {LEVEL} ({correction})"
        )
        order = sorted(self.rows, key=lambda row: (row.adjusted > LEVEL, row.change))
        cells = [
            (
                Cell(row.name, "bold" if row.adjusted <= LEVEL else ""),
                row.group,
                f"{row.change:+.4f}",
                f"{row.low:+.4f} to {row.high:+.4f}",
                f"{row.p:.2g}",
                f"{row.adjusted:.2g}",
            )
            for row in order[:SHOWN]
        ]
        more = [f"{len(order) - SHOWN:,} more rows are in --json"] if len(order) > SHOWN else []
        yield Table((part, "group", "change", "95% interval", "p", "adjusted"), cells, left=2, notes=more)
        if self.sets:
            yield f"\ngreedy sets, chosen on one half of the {self.units} and measured on the other"
            yield Table(
                (f"{part}s", "change", "95% interval", "random sets: mean", "lowest"), [_cells(s) for s in self.sets]
            )
        yield from (f"note: {note}" for note in self.notes)


def _cells(each: KnockoutSet) -> tuple[str, ...]:
    random = (f"{np.mean(each.random):+.4f}", f"{min(each.random):+.4f}") if each.random else ("–", "–")
    return " ".join(each.names), f"{each.change:+.4f}", f"{each.low:+.4f} to {each.high:+.4f}", *random


class Component(NamedTuple):
    """A head or a neuron; layer and number are counted from 1."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"{self.layer}:{self.number}"


def knock_out(
    network: Network,
    outcome: KnockoutOutcome,
    options: KnockoutOptions = KnockoutOptions(),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> KnockoutReport:
    """Switch off heads or neurons of the network, which predicts masked words by itself, and measure the outcome."""
    bench = _Bench(network, outcome, options, progress)
    if len(bench.baseline) < 2:
        raise DataError(f"a knockout is tested over {outcome.units}, and there is one; give two or more")
    names, members = _groups(outcome, len(bench.baseline))
    expand = partial(_by_group, members=members)
    singles = np.stack([bench.rows([each]) for each in bench.components], axis=1)
    score = outcome.score
    compared = differences(
        expand(bench.baseline), np.stack([expand(singles[:, n]) for n in range(singles.shape[1])], axis=1), score,
        samples=options.samples, seed=options.seed,
    )  # fmt: skip
    corrected = adjusted(compared.p.ravel(), options.correction).reshape(compared.p.shape)
    rows = [
        KnockoutRow(
            name=str(bench.components[c]),
            group=names[g],
            **{name: float(getattr(compared, name)[c, g]) for name in ("change", "low", "high", "p")},
            adjusted=float(corrected[c, g]),
        )
        for c, g in np.ndindex(*compared.change.shape)
    ]
    whole = [
        bootstrap(bench.baseline[member], score, samples=options.samples, seed=options.seed) for member in members.T
    ]
    return KnockoutReport(
        metric=outcome.metric,
        units=outcome.units,
        options=options,
        baseline=tuple(
            OutcomeScore(group=name, units=int(member.sum()), value=each.value, low=each.low, high=each.high)
            for name, member, each in zip(names, members.T, whole, strict=True)
        ),
        rows=tuple(sorted(rows, key=lambda row: row.change)),
        sets=tuple(_greedy_sets(bench, singles)),
        notes=(f"no greedy sets: they need {FEWEST} {outcome.units} or more, half of them to choose the set",)
        if options.greedy and len(bench.baseline) < FEWEST
        else (),
    )


@dataclass(eq=False)
class _Bench:
    """A network whose parts are switched off again and again."""

    network: Network
    outcome: KnockoutOutcome
    options: KnockoutOptions
    progress: Callable[[int, int], None]
    components: list[Component] = field(init=False)
    baseline: Doubles = field(init=False)
    """Rows with everything switched on."""
    _means: dict[tuple[Site, int], Tensor] = field(default_factory=dict)
    _done: int = 0

    def __post_init__(self) -> None:
        encoder, options = block_encoder(self.network.encoder), self.options
        site: Site = options.of
        sums: dict[tuple[Site, int], Tensor] = {}
        counts: dict[tuple[Site, int], int] = {}

        def record(place: tuple[Site, int], x_ND: Tensor) -> Tensor:
            total = x_ND.double().sum(0)
            sums[place] = sums[place] + total if place in sums else total
            counts[place] = counts.get(place, 0) + len(x_ND)
            return x_ND

        layers = sorted({*options.layers}) or range(1, encoder.depth + 1)
        places: list[tuple[Site, int]] = [(site, layer) for layer in layers]
        view = tapped(encoder, {place: partial(record, place) for place in places}, whole=False)
        self.baseline = self.outcome.rows(self.network.view(encoder=view))
        if options.ablation == "mean":
            self._means = {place: (sums[place] / counts[place]).float() for place in places}
        width = {layer: encoder.heads if site == "heads" else len(sums[site, layer]) for layer in layers}
        every = [Component(layer, number) for layer in layers for number in range(1, width[layer] + 1)]
        if options.limit is not None and options.limit < len(every):
            chosen = stream(options.seed, "knockout-components").permutation(len(every))[: options.limit]
            every = [every[number] for number in sorted(chosen.tolist())]
        self.components = every
        size, sets = min(options.greedy, len(every)), options.random_sets
        self._total = len(every) + sum(min(CANDIDATES, len(every)) - k for k in range(1, size)) + sets * size

    def rows(self, components: Sequence[Component]) -> Doubles:
        """The outcome with these switched off."""
        encoder = block_encoder(self.network.encoder)
        view = edited(encoder, [self._edit(encoder, each) for each in components])
        measured = self.outcome.rows(self.network.view(encoder=view))
        self._done += 1
        self.progress(self._done, self._total)
        if measured.shape != self.baseline.shape:
            raise DataError(
                f"{self.outcome.metric} counts other labels without {' and '.join(map(str, components))}; use another "
                "--metric, such as entity-f1 or accuracy"
            )
        return measured

    def _edit(self, encoder: AttentionEncoder, each: Component) -> Edit:
        site = self.options.of
        heads = site == "heads"
        columns = head_columns(encoder, *each) if heads else slice(each.number - 1, each.number)
        means = self._means.get((site, each.layer))
        return Edit(site, each.layer, 0.0 if means is None else means[columns], columns=columns)


def _greedy_sets(bench: _Bench, singles: Doubles) -> Iterator[KnockoutSet]:
    """Sets of growing size. `singles` [n, C, …] are the rows without each component."""
    options, units, count = bench.options, len(bench.baseline), len(bench.components)
    size = min(options.greedy, count)
    if not size or units < FEWEST:
        return
    order = stream(options.seed, "knockout-halves").permutation(units)
    choose, report = np.sort(order[: units // 2]), np.sort(order[units // 2 :])

    def score(rows: Doubles, half: Ints) -> float:
        return float(np.asarray(bench.outcome.score(rows[half].sum(0))))

    by_effect = np.argsort([score(singles[:, n], choose) for n in range(count)], kind="stable")[:CANDIDATES].tolist()
    left, chosen, whole = by_effect[1:], [by_effect[0]], score(bench.baseline, report)
    rows = singles[:, by_effect[0]]
    shuffled = [stream(options.seed, "knockout-sets", item=n).permutation(count) for n in range(options.random_sets)]
    for step in range(1, size + 1):
        if step > 1:
            if not left:
                return
            tried = [bench.rows([bench.components[n] for n in (*chosen, each)]) for each in left]
            best = int(np.argmin([score(each, choose) for each in tried]))
            chosen.append(left.pop(best))
            rows = tried[best]
        compared = differences(
            bench.baseline[report], rows[report][:, None], bench.outcome.score,
            samples=options.samples, seed=options.seed,
        )  # fmt: skip
        random = [score(bench.rows([bench.components[n] for n in each[:step]]), report) - whole for each in shuffled]
        yield KnockoutSet(
            names=tuple(str(bench.components[n]) for n in chosen),
            change=float(compared.change[0]),
            low=float(compared.low[0]),
            high=float(compared.high[0]),
            random=tuple(random),
        )


def _groups(outcome: KnockoutOutcome, units: int) -> tuple[list[str], Any]:
    """Names of the groups, and which units are in each: [units, G]."""
    names = sorted({group for group in outcome.groups if group is not None})
    members = np.ones((units, 1 + len(names)), dtype=np.bool_)
    for number, name in enumerate(names, 1):
        members[:, number] = [group == name for group in outcome.groups]
    return [ALL, *names], members


def _by_group(rows: Doubles, *, members: Any) -> Doubles:
    """[n, …] → [n, G, …]: zero in groups that a unit is not in."""
    grouped: Doubles = rows[:, None] * members.reshape(*members.shape, *(1 for _ in rows.shape[1:]))
    return grouped
