"""The reporter: a bar on a terminal, lines now and then elsewhere, text as it stands, metrics that may fail."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from larvatus.core.tables import Cell, Column, Table
from larvatus.training.engine import reporter
from larvatus.training.engine.reporter import MetricsLog, Reporter, rich_table


def console(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=60, force_terminal=terminal, record=True)


def test_a_line_stands_as_it_is_however_long_and_whatever_is_in_it() -> None:
    here = console()
    line = "[bold]not markup[/] :smile: 12 " + "long " * 30
    Reporter(here).say(line)
    assert here.export_text() == line + "\n"
    Reporter().say("to nobody")


def test_elsewhere_than_on_a_terminal_a_line_comes_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(reporter.time, "monotonic", lambda: now)
    here = console()
    with Reporter(here).bar(total=5, every_s=10) as bar:
        for step in range(1, 6):
            now += 4.0
            bar.show(step, f"step {step}", left="soon", last=step == 5)
    assert here.export_text() == "  step 3  soon\n  step 5  soon\n"


def test_on_a_terminal_there_is_a_bar() -> None:
    here = console(terminal=True)
    with Reporter(here).bar(every_s=10) as bar:
        bar.show(3, "step 3", left="soon", total=6)
    said = here.export_text()
    assert "step 3" in said
    assert "━" in said


def test_metrics_are_lines_of_json_and_those_that_fail_are_said_once(tmp_path: Path) -> None:
    warned: list[str] = []
    with MetricsLog(tmp_path, warned.append) as metrics:
        metrics.write("train", 1, {"loss": 0.5})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert {**json.loads(line), "time": 0} == {"kind": "train", "step": 1, "time": 0, "loss": 0.5}
    gone = MetricsLog(tmp_path / "nowhere" / "at all", warned.append)
    for step in (1, 2):
        gone.write("train", step, {})
    assert len(warned) == 1


def test_a_table_is_printed_by_any_console() -> None:
    table = Table(
        title="by [x]",
        columns=[Column("", right=False), Column("loss\nbefore")],
        rows=[[Cell("group", style="dim")], [Cell("  new"), Cell("1.5")]],
        notes=[Cell("note: few", style="yellow")],
    )
    here = console()
    here.print(rich_table(table))
    words = [line.split() for line in here.export_text().splitlines()]
    assert words == [["by", "[x]"], ["loss"], ["before"], ["group"], ["new", "1.5"], ["note:", "few"]]
