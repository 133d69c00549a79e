"""What a fine-tuning came to, on a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import printable
from larvatus.interfaces.cli.quiet import is_quiet
from larvatus.interfaces.cli.tables import show_part
from larvatus.tasks.registry import task_of
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.summary import result_parts


def show_result(console: Console, tuned: FineTuneResult, out: Path) -> None:
    """What was reached, and what to do next."""
    for part in result_parts(tuned):
        show_part(console, part)
    taken = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    console.print(
        f"saved {escape(printable(str(out)))} ({taken / 1e6:,.0f} MB, a model directory; its card is README.md)",
        soft_wrap=True,
        highlight=False,
    )
    if is_quiet():
        return
    words = task_of(tuned.bundle).card.command
    console.print(f"next: larvatus predict {escape(printable(str(out)))} {words}", soft_wrap=True, highlight=False)
