"""`larvatus demo`: three minutes with the packaged English model, and a page of what they showed.

    show_blanks(model, report)             # each part prints its lines and adds a section to the page
    show_senses(model, report)

Blanks, a search in Python's documentation, two senses of *bank*, a tagger from 60 sentences (those of the tutorial
*entities*), and the model adapted to Python's documentation, before and after. Nothing is downloaded.
"""

from __future__ import annotations

import csv
import importlib
import inspect
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, cast

import typer
from rich.console import Console

from larvatus.core import notebook
from larvatus.core.errors import ArtefactError, UsageError, printable
from larvatus.core.files import saying_what_is_full
from larvatus.core.ranges import SEED
from larvatus.core.regular_files import is_there, refuse_link
from larvatus.core.tables import Table
from larvatus.inference.model import Model, load
from larvatus.interfaces.api.evaluating import evaluate
from larvatus.interfaces.api.finetuning import finetune
from larvatus.interfaces.api.searching import index_documents
from larvatus.interfaces.cli.commands.tutorial import page_files, tutorial_pages
from larvatus.interfaces.cli.from_struct import MINUTES, ranged
from larvatus.interfaces.cli.output import Quiet, is_quiet
from larvatus.interfaces.cli.picture_page import picture_page
from larvatus.tasks.results import Tagged
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.adapt import AdaptedTexts, ParentVocabulary, adapted_recipe
from larvatus.training.pretraining.job import ParentModel, PretrainingJob
from larvatus.training.pretraining.prepare import TextOptions, prepare
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.text_record import EMBEDDED

MARK = "demo.txt"
"""Marks the folder of a demo: the next demo replaces nothing else."""
PATIENCE = 1.5
"""How much longer than planned adapting may take on a machine that becomes slow."""
BLANKS = (
    "Paris is the [MASK] of France.",
    "The keys to the cabinet [MASK] on the table.",
    "She opened the [MASK] and read the first chapter.",
)
BANKS = (
    "They walked along the *bank* of the river.",
    "Willows grew on the muddy *bank* below the mill.",
    "She kept her savings at the *bank* in town.",
    "The *bank* raised its interest rates.",
)
MODULES = (
    "bisect",
    "calendar",
    "copy",
    "getpass",
    "glob",
    "heapq",
    "math",
    "random",
    "shutil",
    "statistics",
    "tempfile",
)
"""Modules of Python whose functions are searched by what they are documented to do."""
QUESTIONS = (
    "delete a folder with everything in it",
    "what is the middle value of my numbers?",
    "ask for a password without showing it",
    "is it a leap year?",
)
SENTENCES = (
    "Marta Keller left Nordwind Airlines in Hamburg.",
    "The mayor of Trieste thanked Ines Prado.",
)
EPOCHS = 8
"""Passes over the 60 sentences."""


class DemoReport(NamedTuple):
    """Where the parts of a demo print, and the page that they write."""

    say: Callable[[str], None]
    add: Callable[[str, str], None]


def demo(
    out: Annotated[Path, typer.Option(help="Folder of what it makes; an earlier demo is replaced.")] = Path(
        "runs/demo"
    ),
    minutes: Annotated[float, ranged(MINUTES, help="Minutes for adapting the model to text.")] = 1.5,
    seed: Annotated[int, ranged(SEED, help="Seed of all randomness.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Try the packaged English model: blanks, search, senses, a tagger from 60 sentences, and adapting it to text.

    About three minutes on two cores, without a download. A page shows what was made; training a model from scratch is
    the next command that it names.
    """
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    _make_room(out)
    model = load()
    page = out / "index.html"
    with picture_page(page, "What larvatus demo showed") as add:
        report = DemoReport(console.print, add)
        report.say("The packaged English model, on this machine, without a network\n")
        show_blanks(model, report)
        show_search(model, report, out=out)
        show_senses(model, report)
        show_tagger(report, out=out, seed=seed)
        show_adapting(model, report, out=out, minutes=minutes, seed=seed)
    console.print(f"\nsaved {page}, a page of all this, to open in a browser")
    if not is_quiet():
        console.print(
            "next: larvatus studio                              the same by mouse\n"
            "      larvatus tutorial                            notebooks that start from your data\n"
            "      larvatus pretrain bert --size tiny --corpus embedded --minutes 4 --out runs/mine\n"
            "                                                   a vocabulary and a model from scratch"
        )


def _make_room(out: Path) -> None:
    if out.exists():
        refuse_link(out)
        if not is_there(out / MARK) and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} holds something else than a demo; choose another --out")
        shutil.rmtree(out)
    with saying_what_is_full(out):
        out.mkdir(parents=True)
        (out / MARK).write_text("Made by larvatus demo: the next one with the same --out replaces all of it.\n")


def show_blanks(model: Model, report: DemoReport) -> None:
    """The words that a model puts into blanks."""
    report.say("1. Words for a blank, with the probability that the model gives them")
    for fills in model.fill(list(BLANKS), top=3):
        words = ", ".join(f"{fill.token} {fill.probability:.0%}" for fill in fills.marginals[0])
        report.say(f"   {fills.text}\n      {words}")
        report.add("Words for a blank", fills._repr_html_())


def show_search(model: Model, report: DemoReport, *, out: Path) -> None:
    """Functions of Python found by a question that has none of their words."""
    table = out / "python.csv"
    rows = list(documented_functions())
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("name", "text"), *rows])
    report.say(f"\n2. Python's documentation searched by meaning: {len(rows)} functions of {len(MODULES)} modules")
    index = index_documents(table, out=out / "index", model=model, text="text", metadata=("name",))
    shown = []
    for question in QUESTIONS:
        hit = index.search(question, top=1)[0]
        text = hit.text if len(hit.text) <= 60 else f"{hit.text[:59]}…"
        report.say(f"   {question}\n      {hit.metadata['name']}: {text}")
        shown.append((question, hit.metadata["name"], hit.text, f"{hit.score:.2f}"))
    report.add("Python's documentation, by meaning", notebook.table(("question", "answer", "text", "cosine"), shown))


def documented_functions() -> Iterator[tuple[str, str]]:
    """Names of the functions of `MODULES`, and the first paragraph of what is documented of each."""
    for module in map(importlib.import_module, MODULES):
        for name, function in inspect.getmembers(module, inspect.isroutine):
            text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
            if name in getattr(module, "__all__", [name]) and not name.startswith("_") and len(text.split()) > 3:
                yield f"{module.__name__}.{name}", text


def show_senses(model: Model, report: DemoReport) -> None:
    """The cosines between four uses of a word with two senses."""
    cosines = model.similarities(list(BANKS))
    matrix = cosines.matrix
    report.say("\n3. Two senses of bank: cosines between its vectors in four sentences")
    for number, text in enumerate(BANKS):
        row = "  ".join(f"{value:.2f}" for value in matrix[number])
        report.say(f"   {text:<50} {row}")
    least, most = min(matrix[0, 1], matrix[2, 3]), matrix[:2, 2:].max()
    report.say(f"   at least {least:.2f} within a sense, at most {most:.2f} between the two")
    report.add("Two senses of bank", cosines._repr_html_())


def show_tagger(report: DemoReport, *, out: Path, seed: int) -> None:
    """A tagger of names from 60 sentences, scored on 40 others."""
    data, test = page_files(_entities())
    report.say("\n4. A tagger of persons, organisations and places, learned from 60 sentences …")
    began = time.monotonic()
    where = out / "tagger"
    tagger = finetune("tag", train=data, epochs=EPOCHS, hold_out=False, seed=seed, out=where, quiet=True)
    spent = time.monotonic() - began
    f1 = evaluate(tagger, data=test).metrics["entity-f1"]
    score = f"entity F1 {f1.value:.2f} on 40 other sentences (95% interval {f1.low:.2f} to {f1.high:.2f})"
    report.say(f"   in {spent:.0f} seconds: {score}")
    for tagged in cast(list[Tagged], tagger.predict(list(SENTENCES))):
        names = ", ".join(f"{entity.text} ({entity.label})" for entity in tagged.entities)
        report.say(f"   {tagged.text}\n      {names}")
        report.add("A tagger from 60 sentences", tagged._repr_html_())


def _entities() -> Path:
    page = tutorial_pages().get("entities")
    if page is None:
        raise ArtefactError(
            "this installation has no tutorials, whose sentences the demo needs; install larvatus again"
        )
    return page


def show_adapting(model: Model, report: DemoReport, *, out: Path, minutes: float, seed: int) -> None:
    """The model adapted to Python's documentation: loss, perplexity and accuracy, before and after."""
    report.say(f"\n5. The model adapted to Python's documentation, for {minutes:g} minutes …")
    run = out / "python"
    try:
        _adapt(model, run, minutes=minutes, seed=seed)
    except UsageError as refused:
        report.say(f"   this machine is too slow or too busy for that now: {printable(str(refused))}")
        return
    change = _change(run)
    report.say("   on pages that it has not read, before → after:")
    for name, before, after in change:
        report.say(f"      {name:<24} {before} → {after}")
    report.say(f"   the adapted model is {run}; with more minutes it gains more")
    report.add("Adapted to Python's documentation", notebook.table(("on pages not read", "before", "after"), change))


def _adapt(model: Model, run: Path, *, minutes: float, seed: int) -> None:
    """Continue pretraining within the minutes; a machine that becomes slow makes fewer steps."""
    origin = ParentModel.load(model.bundle.path, out=run)
    adapted = adapted_recipe(origin.bundle, None, size=None, settings=[])
    reporter = ProgressOnly(Console(markup=False, emoji=False, highlight=False, quiet=is_quiet()))
    job = PretrainingJob(
        recipe=adapted.recipe,
        out=run,
        runtime=Runtime.here(),
        budget=Budget(minutes=minutes),
        seed=seed,
        origin=origin,
        free=adapted.free,
        deadline=time.monotonic() + 60 * minutes * PATIENCE,
    )

    options = TextOptions()
    texts = partial(prepare, adapted.recipe, [EMBEDDED], out=run, valid=None, options=options, reporter=reporter)
    train(job, AdaptedTexts(ParentVocabulary(origin, []), texts, None), reporter)


class ProgressOnly(Reporter):
    """The bar of a run, without its lines and tables: the demo has its own."""

    def say(self, line: str) -> None:
        pass

    def show(self, table: Table) -> None:
        pass


def _change(run: Path) -> list[tuple[str, str, str]]:
    """Loss and accuracy on held-out text before and after, from the metrics of the run."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    (row,) = [line for line in lines if line["kind"] == "domain" and line["objective"] == "masked-lm"]
    loss, right = ([row[f"{name} {when}"] for when in ("before", "after")] for name in ("loss", "accuracy"))
    return [
        ("masked-token loss", f"{loss[0]:.3f}", f"{loss[1]:.3f}"),
        ("masked-token perplexity", f"{math.exp(loss[0]):.2f}", f"{math.exp(loss[1]):.2f}"),
        ("masked-token accuracy", f"{right[0]:.1%}", f"{right[1]:.1%}"),
    ]
