"""What commands show: tables and reports on standard output, progress on standard error.

    def embed(…, quiet: Quiet = False) -> None:
        with ProgressReporter("words") as progress:
            progress(1_000)                          # 1,000 words · 512/s; nothing with --quiet
        report_skipped(skipped)                      # skipped: 2 × bad UTF-8 · 1 × linked folder skipped (texts/more)
        hint("next: larvatus similar …")             # nothing with --quiet

`rich` prints the plain records of `core/tables.py`. `--quiet` leaves only results and errors, and `larvatus --quiet
embed …` is `larvatus embed … --quiet`. rich is imported by commands that show something.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import printable
from larvatus.core.tables import ReportPart, Table

if TYPE_CHECKING:
    from larvatus.data.text.documents import Skipped


WIDE = 200
"""Characters of a line where the output is not a terminal."""


def wide_console(width: int = WIDE, **settings: Any) -> Console:
    """A console of the terminal's width, or of `width` where the output is not a terminal."""
    terminal = Console(highlight=False, **settings)
    return terminal if terminal.is_terminal else Console(width=width, highlight=False, **settings)


def print_json(value: object) -> None:
    """Print a result for programs, indented."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def show_part(out: Console, part: ReportPart) -> None:
    """Print a line or a table of a report."""
    if isinstance(part, str):
        out.print(escape(part), soft_wrap=True, highlight=False)
        return
    if part.blank_before:
        out.print()
    from larvatus.training.engine.reporter import rich_table  # --help imports nothing large

    out.print(rich_table(part, wrap=True))


def show_report(out: Console, parts: Iterable[ReportPart]) -> None:
    for part in parts:
        show_part(out, part)


def show_tables(tables: Iterable[Table], notes: Iterable[str] = ()) -> None:
    """Print tables as plain text, uncut however wide, each with its notes below it; then the notes on all of them."""
    for table in tables:
        for line in str(table).split("\n"):
            print(printable(line))
        print()
    for note in notes:
        print(printable(f"note: {note}"))


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


# Progress.

EVERY = 30.0
"""Seconds between plain lines without a terminal."""


@contextmanager
def quietly() -> Iterator[None]:
    """Show results and errors only."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether this command shows results and errors only."""
    return _quiet.get()


def hint(line: str) -> None:
    """Print a line that is not a result, such as the next command; nothing with --quiet."""
    if not is_quiet():
        print(line)


def set_quiet(context: typer.Context, given: bool) -> bool:
    """Callback of --quiet; it holds for the whole command."""
    if given and not context.resilient_parsing:
        context.with_resource(quietly())
    return given


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", callback=set_quiet, rich_help_panel="Output", help="Show only results and errors, no progress."
    ),
]


def progress_console(**settings: Any) -> Any:
    """Console of standard error, which shows nothing with --quiet."""
    from rich.console import Console

    return Console(stderr=True, quiet=is_quiet(), **settings)


class ProgressReporter:
    """One line that changes on a terminal, and a plain line every 30 seconds elsewhere.

    `progress(3)` shows a count with its rate, `progress(3, 40)` a count of a total, `progress.show(line)` any line.
    """

    def __init__(self, unit: str, *, start: str = "reading") -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._unit, self._begun, self._shown = unit, time.monotonic(), time.monotonic()
        self._console = progress_console()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task(start)
        self.before: float | None = None
        """Amount that an interrupted run had done."""

    def __enter__(self) -> ProgressReporter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, count: int, total: int | None = None) -> None:
        of_total = "" if total is None else f" of {total:,}"
        self.show(f"{count:,}{of_total} {self._unit} · {self.rate(count):,.0f}/s")

    def rate(self, amount: float) -> float:
        """Amount per second, without what an interrupted run had done."""
        return (amount - (self.before or 0)) / max(1e-9, time.monotonic() - self._begun)

    def continue_from(self, amount: float) -> None:
        """Count from the first amount given: an interrupted run had done it."""
        if self.before is None:
            self.before, self._begun = amount, time.monotonic()

    def show(self, line: str) -> None:
        now = time.monotonic()
        self._bar.update(self._task, description=line)
        if not (self._console.is_terminal or self._console.quiet) and now - self._shown > EVERY:
            self._shown = now
            print(line, file=sys.stderr)


@contextmanager
def reading_text(unit: str) -> Iterator[tuple[ProgressReporter, Skipped]]:
    """Progress while text is read, and a count of what is skipped, which is printed afterwards."""
    from larvatus.data.text.documents import Skipped

    skipped = Skipped()
    with ProgressReporter(unit) as progress:
        yield progress, skipped
    report_skipped(skipped)


def report_skipped(skipped: Skipped) -> None:
    """Print on standard error what was skipped while text was read, if anything."""
    if skipped.total or skipped.left:
        print(f"skipped: {skipped}", file=sys.stderr)
    from larvatus.data.text.readers import NAMED_ONLY

    if tables := {suffix: count for suffix, count in skipped.ignored.items() if suffix in NAMED_ONLY}:
        counted, suffix = ", ".join(f"{count:,} × {suffix}" for suffix, count in tables.items()), next(iter(tables))
        print(f"tables in folders are read only where they are named (FOLDER/*{suffix}): {counted}", file=sys.stderr)


def report_skipped_counts(skipped: Mapping[str, int]) -> None:
    """Print what a corpus skipped when it was built: counts by reason."""
    if skipped:
        print("skipped: " + " · ".join(f"{count:,} × {reason}" for reason, count in skipped.items()), file=sys.stderr)
