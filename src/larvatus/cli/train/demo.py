"""`larvatus demo`: a vocabulary, an encoder and filled blanks in a few minutes, from text that every Python ships."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.cli.numbers import MINUTES, ranged
from larvatus.cli.quiet import Quiet, is_quiet
from larvatus.engine.settings import Budget, Runtime
from larvatus.engine.watch import Watcher
from larvatus.errors import UsageError
from larvatus.files import saying_what_is_full
from larvatus.model import load
from larvatus.pretraining.job import Job
from larvatus.pretraining.prepare import Prepared, TextOptions, prepare
from larvatus.pretraining.run import train
from larvatus.pretraining.text_note import EMBEDDED
from larvatus.ranges import SEED
from larvatus.recipes import read_recipe
from larvatus.regular_files import is_there, refuse_link

MARK = "demo.txt"
"""Stands in what a demo made: nothing else is replaced by the next."""
BLANKS = (
    "If the argument is [MASK], the function returns None.",
    "The [MASK] is raised when the file does not exist.",
    "Return a new [MASK] object.",
)


def demo(
    out: Annotated[Path, typer.Option(help="Where the run goes; a demo of before is replaced.")] = Path("runs/demo"),
    size: Annotated[str, typer.Option(help="tiny, mini, …")] = "tiny",
    minutes: Annotated[float, ranged(MINUTES, help="How long to train.")] = 4.0,
    seed: Annotated[int, ranged(SEED, help="All randomness follows from it.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Learn a vocabulary and a small BERT from Python's own documentation, and fill blanks. No download."""
    console = Console(markup=False, emoji=False, highlight=False)
    watcher = Watcher(Console(markup=False, emoji=False, highlight=False, quiet=is_quiet()))
    if out.exists():
        refuse_link(out)
        if not is_there(out / MARK) and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} holds something else than a demo; choose another --out")
        shutil.rmtree(out)
    with saying_what_is_full(out):
        out.mkdir(parents=True)
        (out / MARK).write_text("A run of larvatus demo: the next one with the same --out replaces all of it.\n")
    recipe = read_recipe("bert", size=size)
    job = Job(recipe=recipe, out=out, runtime=Runtime.here(), budget=Budget(minutes=minutes), seed=seed)

    def texts() -> Prepared:
        return prepare(recipe, [EMBEDDED], out=out, valid=None, options=TextOptions(), watcher=watcher)

    results = train(job, texts, watcher)
    model = load(out)
    console.print("\nfilled blanks:")
    for text in BLANKS:
        words = ", ".join(f"{fill.token} {fill.probability:.0%}" for fill in model.fill(text, top=5).marginals[0])
        console.print(f"  {text}\n    {words}")
    for length, result in results.items():
        if result.guess_accuracy:
            gain = result.scores["masked-lm"].accuracy / result.guess_accuracy
            console.print(f"masked tokens right, length {length}: {gain:.1f} × the unigram guess")
    watcher.say(
        f'\nnext: larvatus fill "The [MASK] of the list is returned." --model {out}\n'
        "      larvatus pretrain bert --size tiny --corpus YOUR_TEXTS/ --out runs/mine"
    )
