"""`larvatus demo`: the packaged model at work, then a vocabulary and an encoder from text that every Python ships."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.core.errors import UsageError
from larvatus.core.files import saying_what_is_full
from larvatus.core.ranges import SEED
from larvatus.core.regular_files import is_there, refuse_link
from larvatus.inference.model import load
from larvatus.interfaces.cli.numbers import MINUTES, ranged
from larvatus.interfaces.cli.quiet import Quiet, is_quiet
from larvatus.interfaces.cli.train.demo_english import held_out, punctuate, tour
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus, TextOptions, prepare
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.text_record import EMBEDDED

MARK = "demo.txt"
"""Stands in what a demo made: nothing else is replaced by the next."""
TAGGER_S = 100.0
"""Seconds for the tagger of the packaged model."""
PATIENCE = 1.25
BLANKS = (
    "If the argument is [MASK], the function returns None.",
    "The [MASK] is raised when the file does not exist.",
    "Return a new [MASK] object.",
)


def demo(
    out: Annotated[Path, typer.Option(help="Where the run goes; a demo of before is replaced.")] = Path("runs/demo"),
    size: Annotated[str, typer.Option(help="tiny, mini, …")] = "tiny",
    minutes: Annotated[float, ranged(MINUTES, help="How long to pretrain; less is done on a busy machine.")] = 3.0,
    seed: Annotated[int, ranged(SEED, help="All randomness follows from it.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Use the packaged English model, if there is one; then learn a small BERT from Python's own documentation.

    A tour of a few minutes: blanks, senses and a tagger with the packaged model, then a vocabulary and a model from
    scratch, and how far both are above chance. No download.
    """
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    reporter = Reporter(Console(markup=False, emoji=False, highlight=False, quiet=is_quiet()))
    _make_room(out)
    packaged = packaged_model()
    if packaged is None:
        console.print("the packaged English model is not installed: this demo shows the part that needs none")
    else:
        english = load(packaged)
        tour(english, console.print)
        punctuate(str(packaged), console.print, seconds=TAGGER_S * min(1.0, minutes / 3), seed=seed)
        console.print("\nand now from nothing: a vocabulary and a small BERT from Python's own documentation")
    results = _pretrain(out, size, minutes, seed=seed, reporter=reporter)
    model = load(out)
    console.print("\nfilled blanks:")
    for text in BLANKS:
        words = ", ".join(f"{fill.token} {fill.probability:.0%}" for fill in model.fill(text, top=5).marginals[0])
        console.print(f"  {text}\n    {words}")
    console.print("masked tokens right, beside the likeliest guess without looking:")
    for length, result in results.items():
        if result.guess_accuracy:
            line = _beside(result.scores["masked-lm"].accuracy, result.guess_accuracy)
            console.print(f"  this BERT, length {length}: {line}")
    if packaged is not None:
        console.print(f"  the packaged model, same text, its own tokens: {_beside(*held_out(english))}")
    reporter.say(
        f'\nnext: larvatus fill "The [MASK] of the list is returned." --model {out}\n'
        "      larvatus pretrain bert --size tiny --corpus YOUR_TEXTS/ --out runs/mine"
    )


def _make_room(out: Path) -> None:
    if out.exists():
        refuse_link(out)
        if not is_there(out / MARK) and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} holds something else than a demo; choose another --out")
        shutil.rmtree(out)
    with saying_what_is_full(out):
        out.mkdir(parents=True)
        (out / MARK).write_text("A run of larvatus demo: the next one with the same --out replaces all of it.\n")


def _pretrain(out: Path, size: str, minutes: float, *, seed: int, reporter: Reporter) -> dict[int, HeldOutScores]:
    """The minutes are those of the clock from here on, vocabulary and shards included, and a quarter more."""
    recipe = read_recipe("bert", size=size)
    deadline = time.monotonic() + 60 * minutes * PATIENCE
    budget, runtime = Budget(minutes=minutes), Runtime.here()
    job = PretrainingJob(recipe=recipe, out=out, runtime=runtime, budget=budget, seed=seed, deadline=deadline)

    def texts() -> PreparedCorpus:
        return prepare(recipe, [EMBEDDED], out=out, valid=None, options=TextOptions(), reporter=reporter)

    return train(job, texts, reporter)


def _beside(accuracy: float, guess: float) -> str:
    return f"{accuracy:.1%}, {accuracy / max(guess, 1e-9):.1f} × the unigram guess ({guess:.1%})"
