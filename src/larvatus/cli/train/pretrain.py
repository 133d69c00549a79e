"""`larvatus pretrain`: one command from raw text to a model.

larvatus pretrain bert --size tiny --corpus my_texts/ --out runs/mine
larvatus pretrain xlm-r --size tiny --language sw=swahili/ --language en=english/ --out runs/two
larvatus pretrain --from bert-base/ --corpus my_texts/ --out runs/mine --add-words 500 --old embedded
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.cli.numbers import EVERY, MICROBATCH, MINUTES, PASSES, WORKERS, ranged
from larvatus.cli.options import (
    Device,
    Encoding,
    LanguageField,
    Languages,
    Licence,
    OnBad,
    Overwrite,
    Sentences,
    Set,
    Size,
    Split,
    TextField,
    encoding_of,
    text_of,
)
from larvatus.engine.settings import Budget, Runtime
from larvatus.engine.watch import Watcher
from larvatus.errors import UsageError, printable
from larvatus.pretrain.adapt import AdaptedTexts, ModelsVocabulary
from larvatus.pretrain.adapted_recipe import EPOCHS, adapted_recipe
from larvatus.pretrain.job import Job
from larvatus.pretrain.origin import Origin
from larvatus.pretrain.prepare import TextOptions, prepare
from larvatus.pretrain.run import train
from larvatus.ranges import SEED, STEPS
from larvatus.recipes import Recipe, read_recipe
from larvatus.text.readers import ReadOptions
from larvatus.text.tokenizer import Tokenizer

RecipeName = Annotated[
    str | None,
    typer.Argument(
        help="A recipe's name (larvatus recipes), or a TOML file of your own; with --from, that model's own.",
        show_default=False,
    ),
]
Text = Annotated[list[str] | None, typer.Option(help="Text (files, folders, globs, -), or a built corpus; repeatable.")]
From = Annotated[
    Path | None, typer.Option("--from", help="Go on from this model directory, with its vocabulary (3 epochs).")
]
AddWords = Annotated[
    list[str] | None,
    typer.Option(help="With --from: learn so many new words from the text, or take those of a file; repeatable."),
]
Old = Annotated[
    str | None, typer.Option(help="With --from: text of the old domain, to see what is forgotten; or embedded.")
]


def pretrain(
    out: Annotated[Path, typer.Option(help="The run's directory; it becomes the model's.")],
    recipe: RecipeName = None,
    corpus: Text = None,
    size: Size = None,
    settings: Set = None,
    steps: Annotated[int | None, ranged(STEPS, help="Train this many steps.")] = None,
    minutes: Annotated[float | None, ranged(MINUTES, help="Measure, then train as many steps as fit.")] = None,
    epochs: Annotated[float | None, ranged(PASSES, help="Read the corpus this many times.")] = None,
    valid: Annotated[
        str | None, typer.Option(help="Held-out text; else every 50th document, or passages of few.")
    ] = None,
    from_: From = None,
    add_words: AddWords = None,
    old: Old = None,
    seed: Annotated[int, ranged(SEED, help="All randomness follows from it.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest sound checkpoint, if any.")] = False,
    overwrite: Overwrite = False,
    fork: Annotated[bool, typer.Option("--fork", help="Resume although settings were edited.")] = False,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, bf16, or auto.")] = "auto",
    compile: Annotated[bool | None, typer.Option(help="Compile the step (auto: on CUDA).")] = None,
    microbatch: Annotated[int | None, ranged(MICROBATCH, help="Tokens of one forward pass.")] = None,
    workers: Annotated[int | None, ranged(WORKERS, help="Processes that pack and mask ahead, up to 4 a core.")] = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="The same bits again, on CUDA too.")] = False,
    evaluate_every: Annotated[int | None, ranged(EVERY, help="Steps between evaluations.")] = None,
    save_every: Annotated[int | None, ranged(EVERY, help="Steps between checkpoints.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")] = False,
    languages: Languages = None,
    sentences: Sentences = "library",
    split: Split = "blank-line",
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    text_field: TextField = "text",
    language_field: LanguageField = None,
    licence: Licence = "",
) -> None:
    """Pretrain an encoder on your own text; vocabulary and shards are built beside the run, a built corpus is taken."""
    console = Console(markup=False, emoji=False, highlight=False, quiet=os.environ.get("RANK", "0") != "0")
    watcher = Watcher(console)
    origin = _origin(from_, out, add_words=add_words, old=old)
    chosen = _recipe(recipe, origin, size=size, settings=settings or [], console=console)
    runtime = Runtime.here(
        device=device, precision=precision, compile=compile, microbatch=microbatch, workers=workers,
        deterministic=deterministic,
    )  # fmt: skip
    text, language = text_of(corpus, languages, option="--corpus PATH")
    reading = ReadOptions(
        encoding=encoding_of(encoding), split=split, on_bad=on_bad, text_field=text_field, language_field=language_field
    )
    options = TextOptions(reading=reading, language=language, sentences=sentences, licence=licence)
    budget = Budget(steps=steps, minutes=minutes, epochs=epochs)
    job = Job(
        recipe=chosen,
        out=out,
        runtime=runtime,
        budget=Budget(epochs=EPOCHS) if origin and budget == Budget() else budget,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        fork=fork,
        evaluate_every=evaluate_every,
        save_every=save_every,
        tensorboard=tensorboard,
        origin=origin,
    )
    texts = partial(prepare, chosen, text, out=out, valid=valid, options=options, watcher=watcher)
    adapted = None if origin is None else AdaptedTexts(ModelsVocabulary(origin, add_words or ()), texts, old)
    train(job, adapted or texts, watcher)
    if not console.quiet:
        _say_what_is_next(out, console)


def _origin(path: Path | None, out: Path, *, add_words: list[str] | None, old: str | None) -> Origin | None:
    if path is not None:
        return Origin.load(path, out=out)
    for flag, given in (("--add-words", add_words), ("--old", old)):
        if given:
            raise UsageError(f"{flag} goes with --from DIR: there is no model whose words or domain could be old")
    return None


def _recipe(
    name: str | None, origin: Origin | None, *, size: str | None, settings: list[str], console: Console
) -> Recipe:
    if origin is not None:
        adapted = adapted_recipe(origin.bundle, name, size=size, settings=settings)
        console.print(f"going on from {origin.path}, {adapted.why}", soft_wrap=True, markup=False)
        return adapted.recipe
    if name is None:
        raise UsageError("name a recipe (larvatus recipes lists them), or a model to go on from with --from DIR")
    return read_recipe(name, size=size, settings=settings)


def _say_what_is_next(out: Path, console: Console) -> None:
    taken = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    console.print(f"saved {printable(str(out))} ({taken / 1e6:,.0f} MB, a model directory; its card is README.md)")
    mask = Tokenizer.load(out).special.mask
    console.print(f'next: larvatus fill "Some text with a {mask}." --model {printable(str(out))}')
