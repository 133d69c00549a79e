"""`larvatus pretrain`, `recipes`, `convert` and `export`: from raw text to a model, and to other layouts.

    larvatus recipes show bert --size tiny --set model.layers=6 > mine.toml
    larvatus pretrain bert --size tiny --corpus my_texts/ --out runs/mine
    larvatus pretrain xlm-r --size tiny --language sw=swahili/ --language en=english/ --out runs/two
    larvatus pretrain --from bert-base/ --corpus my_texts/ --out runs/mine --add-words 500 --old embedded
    larvatus convert runs/mine out/ --to bert
    larvatus export onnx runs/mine --out out/

A recipe is that of a published system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

from larvatus.core.errors import UsageError, printable
from larvatus.core.tables import Table
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.model.onnx import export_onnx
from larvatus.interfaces.api.pretraining import run_pretraining
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import MACHINE, Json, MixedReading, MixedText, Overwrite, Set, Size
from larvatus.interfaces.cli.output import Quiet, hint, is_quiet, show_part
from larvatus.interfaces.settings import BudgetSettings, MachineSettings, PretrainSettings
from larvatus.models.bundle.convert import ConversionResult, Precision, convert_bundle
from larvatus.models.bundle.huggingface import LAYOUTS, Native
from larvatus.models.bundle.onnx_file import TOLERANCE, Output
from larvatus.models.recipes import annotated_recipe, read_recipe, recipe_names, recipe_table, recipe_text, recipe_toml
from larvatus.training.engine.launch import launch
from larvatus.training.pretraining.evaluation import HeldOutScores

RecipeName = Annotated[
    str | None,
    typer.Argument(
        help="A recipe's name (larvatus recipes), or your own TOML file; default with --from: that model's.",
        show_default=False,
    ),
]


@from_structs
def pretrain(
    text: MixedText,
    out: Annotated[Path, typer.Option(help="Directory of the run, which becomes the model directory.")],
    chosen: Annotated[PretrainSettings, Panel("The run", first=("size", "start", "resume"))],
    time: Annotated[BudgetSettings, Panel("How long", first=("minutes",), without=("tokens",))],
    machine: Annotated[MachineSettings, Panel(MACHINE)],
    reading: MixedReading,
    recipe: RecipeName = None,
    quiet: Quiet = False,
) -> None:
    """Pretrain an encoder on your own text. Without a built corpus, the vocabulary and shards are built first."""
    given, how = text.read_with(reading)
    results = run_pretraining(recipe, chosen, time, machine, how, corpus=given, out=out, quiet=is_quiet())
    if launch().main:
        _say(out, results)


def _say(out: Path, results: Mapping[int, HeldOutScores]) -> None:
    if is_quiet():  # else the run has shown it
        for length, held_out in results.items():
            for name, score in held_out.scores.items():
                print(f"held out, length {length}: {name} loss {score.loss:.4f}, {score.accuracy:.1%} right")
    taken = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    print(f"saved {printable(str(out))} ({taken / 1e6:,.0f} MB, a model directory; its card is README.md)")
    words = {name for held_out in results.values() for name in held_out.scores}
    mask = Tokenizer.load(out).special.mask
    if words & {"causal-lm", "denoising"}:
        hint(f'next: larvatus generate "Some text" --model {printable(str(out))}')
    elif mask:
        hint(f'next: larvatus fill "Some text with a {mask}." --model {printable(str(out))}')
    else:
        hint(f"next: larvatus embed TEXTS --unit word --model {printable(str(out))} --out vectors.parquet")


app = typer.Typer(help="List the published systems, or show one as TOML.")


@app.callback(invoke_without_command=True)
def list_recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the recipes."""
    if context.invoked_subcommand is not None:
        return
    recipes = [read_recipe(name) for name in recipe_names()]
    if as_json:
        print(json.dumps([recipe_table(recipe) for recipe in recipes]))
        return
    rows = []
    for recipe in recipes:
        plain = recipe_table(recipe)
        objectives = " + ".join(objective["type"] for objective in plain["objectives"])
        corruption = plain["corruption"]["type"] if plain["corruption"] else "none"
        rows.append((recipe.name, recipe.about, plain["packing"]["type"], corruption, objectives))
    show_part(Console(), Table(("recipe", "what it is", "packing", "corruption", "objectives"), rows, left=5))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A recipe's name, or a TOML file.")],
    size: Size = None,
    settings: Set = None,
    annotated: Annotated[
        bool,
        typer.Option("--annotated", help="The whole recipe, each line explained, with its place in the chapter."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The whole recipe, defaults included, as JSON.")] = False,
) -> None:
    """Show one recipe as TOML that pretrain takes: the file as written, or with --size or --set what it comes to."""
    if annotated and as_json:
        raise UsageError("JSON has no comments; leave out --annotated or --json")
    recipe = read_recipe(name, size=size, settings=settings or [])
    if as_json:
        print(json.dumps(recipe_table(recipe), indent=2))
        return
    whole = bool(size or settings) or name.endswith(".toml")
    console = Console()
    if annotated:
        text = annotated_recipe(name, size=size, settings=settings or []).rstrip()
    else:
        text = (recipe_toml(recipe) if whole else recipe_text(name)).rstrip()
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default"))
    else:
        print(text)


# `larvatus convert` and `larvatus export`.

NAMES = ", ".join(layout.model_type for layout in LAYOUTS)


def convert(
    source: Annotated[str, typer.Argument(metavar="DIR", help="Model directory, or a model of the hub (org/name).")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory of the converted model.")],
    to: Annotated[str | None, typer.Option("--to", help=f"{NAMES}; default: the first of these that fits.")] = None,
    dtype: Annotated[
        Precision, typer.Option("--dtype", help="Precision of the weights; int8: integers with a scale per row.")
    ] = "float32",
    revision: Annotated[str | None, typer.Option("--revision", help="Commit of a hub model, 40 digits.")] = None,
    online: Annotated[bool, typer.Option("--online", help="Fetch a hub model that is not in the cache.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Convert a model to another layout: ours or one of Hugging Face's. Heads that the layout lacks are dropped."""
    done = convert_bundle(source, out, to=to, dtype=dtype, revision=revision, online=online, overwrite=overwrite)
    if as_json:
        print(json.dumps(done.to_dict()))
    else:
        _show(done, Console(soft_wrap=True, highlight=False, markup=False, emoji=False))


def _show(done: ConversionResult, console: Console) -> None:
    console.print(f"saved {printable(str(done.path))} in the layout {done.layout} ({done.architecture}, {done.dtype})")
    console.print(f"  weights: {done.bytes / 1e6:,.1f} MB")
    if done.reconstruction is not None:
        lost = done.reconstruction
        console.print(
            f"  rounded: {lost.error:.2%} of the weights' norm, at most {lost.worst_error:.2%} ({lost.worst})"
        )
        console.print(
            "  what that costs: larvatus evaluate OUT --corpus TEXT, and the same of DIR; only Larvatus reads it"
        )
    console.print(f"  heads kept: {', '.join(done.kept) or 'none'}")
    console.print(f"  heads dropped: {', '.join(done.left_out) or 'none'}")
    elsewhere = [name for name in done.fits if name != Native.model_type]
    if done.layout == Native.model_type and elsewhere:
        console.print(f"  transformers loads it with --to {' or '.join(elsewhere)}, which may drop heads")
    if done.unused:
        console.print(f"  tensors not read: {', '.join(done.unused)}")


export_app = typer.Typer(help="Export a model to ONNX, and check it against torch.", no_args_is_help=True)


@export_app.callback()
def _export() -> None:
    """Write a model for other programs."""


@export_app.command("onnx")
def onnx(
    source: Annotated[str, typer.Argument(metavar="DIR", help="Model directory, or a model of the hub (org/name).")],
    out: Annotated[Path, typer.Option(metavar="OUT", help="Directory for model.onnx and the vocabulary; may be DIR.")],
    output: Annotated[
        Output | None, typer.Option(help="vectors of tokens, or logits; default: logits of fine-tuned models.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a bidirectional transformer as an ONNX file with free batch and length, checked against torch."""
    done = export_onnx(source, out=out, output=output, overwrite=overwrite)
    if as_json:
        print(json.dumps(done.to_dict(), ensure_ascii=False))
        return
    size = Path(done.path).stat().st_size / 1e6
    print(f"saved {printable(done.path)} ({size:,.1f} MB): {done.output}, of any batch and length")
    print(f"  largest difference from torch: {done.difference:.1e} (refused above {TOLERANCE:g})")
