"""Cells of a suite's table: a value, its deviation over several seeds, and the 95% interval over examples in brackets.
Shares and correlations are in percent.

    row_cells(row, {"model": "mine"})      # ["CoLA", "Matthews", "31.2 ± 0.8 [26.0, 36.4]", …]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from larvatus.evaluation.suite.figures import PublishedFigure, SuiteFigure

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """One row of the table: a figure of each model."""

    part: str
    title: str
    figures: dict[str, SuiteFigure]
    """Figures by role."""
    reasons: dict[str, str]
    """Reasons by role why a part was not measured."""
    references: tuple[PublishedFigure, ...] = ()

    @property
    def first(self) -> SuiteFigure | None:
        return next(iter(self.figures.values()), None)

    @property
    def best(self) -> str | None:
        """Role of the better model, if two models compare and their intervals do not overlap."""
        measured = [(role, figure) for role, figure in self.figures.items() if figure.value is not None]
        if len(measured) != 2 or self.first is None or self.first.better is None:
            return None
        (low_role, lower), (high_role, higher) = sorted(measured, key=lambda pair: pair[1].value or 0.0)
        top, bottom = lower.high, higher.low
        if top is None or bottom is None or top >= bottom:
            return None
        return low_role if self.first.better == "lower" else high_role


def suite_columns(labels: Mapping[str, str]) -> list[str]:
    """Names of the columns; `labels` are the names of the models by role."""
    return ["", "measure", *labels.values(), "baseline", "published", "measured by"]


def row_cells(row: SuiteRow, labels: Mapping[str, str]) -> list[str]:
    figure = row.first
    cells = [_name(row, figure), figure.measure if figure else "", *(_cell(row, role) for role in labels)]
    return [*cells, _baselines(figure), _published(row), _by(figure)]


def _name(row: SuiteRow, figure: SuiteFigure | None) -> str:
    if figure is None:
        return row.title
    if figure.detail:
        return f"  {figure.name}"
    return f"{figure.name} ({figure.conditions})" if figure.conditions else figure.name


def number(value: float, figure: SuiteFigure) -> str:
    """
    >>> figure = SuiteFigure(id="a", name="a", measure="accuracy", by="", value=0.1, examples=1)
    >>> number(0.6318, figure)
    '63.2'
    """
    return f"{100 * value:.1f}" if figure.percent else f"{value:.3f}"


def _cell(row: SuiteRow, role: str) -> str:
    figure = row.figures.get(role)
    if figure is None:
        return row.reasons.get(role, NOTHING)
    if figure.value is None:
        return "not defined"
    words = number(figure.value, figure)
    if figure.deviation is not None:
        words += f" ± {number(figure.deviation, figure)}"
    if figure.low is not None and figure.high is not None:
        words += f" [{number(figure.low, figure)}, {number(figure.high, figure)}]"
    return words


def _baselines(figure: SuiteFigure | None) -> str:
    if figure is None or not figure.baselines:
        return ""
    return ", ".join(f"{name} {number(value, figure)}" for name, value in figure.baselines.items())


def _published(row: SuiteRow) -> str:
    return ", ".join(f"{reference.system} {reference.value:.1f}" for reference in row.references)


def _by(figure: SuiteFigure | None) -> str:
    if figure is None or figure.detail:
        return ""
    return f"{figure.by}; {figure.examples:,} scored"
