"""`larvatus lens`: what each layer of a masked model would fill into a blank; and translators trained for it.

larvatus lens "The keys to the cabinet [MASK] on the table."
larvatus lens "The keys to the cabinet [MASK] on the table." --model DIR --tuned default --out lens.html
larvatus lens train --model DIR --corpus TEXT
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from larvatus.core.errors import printable
from larvatus.core.tables import Table
from larvatus.data.bulk.row_files import row_file
from larvatus.data.text.readers import expand_patterns, read_single_texts
from larvatus.evaluation.interpretation.lens_training import LensTraining
from larvatus.inference.interpret.tuned_lens import TunedLens
from larvatus.inference.model import load
from larvatus.interfaces.api.explaining import lens_file, run_lens_training
from larvatus.interfaces.cli.command_list import DefaultGroup
from larvatus.interfaces.cli.from_struct import TOP, Panel, from_structs, ranged
from larvatus.interfaces.cli.options import (
    Device,
    Json,
    ModelName,
    NamedModel,
    Overwrite,
    Reading,
    TextFileOptions,
)
from larvatus.interfaces.cli.picture_page import PAGES, picture_page
from larvatus.interfaces.cli.progress import ProgressReporter, Quiet, hint, report_skipped_counts
from larvatus.interfaces.cli.tables import show_part, wide_console


class _Group(DefaultGroup):
    default = "show"


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    help="Show what each layer would fill into a blank (logit lens, tuned lens), and train a tuned lens.",
)


@app.command("show")
@from_structs
def show(
    model: ModelName,
    chosen: Annotated[
        TextFileOptions, Panel(help={"out": "A page to look at, .html; or a table: .jsonl, .csv, .tsv, .parquet."})
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT...", help="Texts with [MASK] at each blank.")
    ] = None,
    top: Annotated[int, ranged(TOP, "--top", help="Words of each layer.")] = 3,
    tuned: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Tuned lens: the name that lens train saved with the model, or its file."),
    ] = None,
    words_only: Annotated[
        bool,
        typer.Option(
            "--words-only/--subwords", help="Whole words only, or all tokens; probabilities are not renormalised."
        ),
    ] = True,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
) -> None:
    """Top words of every layer at a blank, KL to the last layer, the deciding layer, and the words that change it."""
    chosen.check(texts or [], model, nothing="nothing to look at; give texts with [MASK], or --file", also=PAGES)
    loaded = load(model, device=device)
    rows = (text for name in expand_patterns(chosen.file) for _, text in read_single_texts(name, chosen.text))
    console = wide_console()
    with ExitStack() as files:
        out, page = chosen.out, None
        if out is not None and out.suffix.lower() in PAGES:
            page, out = files.enter_context(picture_page(out, f"lens on {Path(model).name or model}")), None
        write = None if out is None else files.enter_context(row_file(out))
        for number, text in enumerate(chain(texts or (), rows), start=1):
            result = loaded.lens(text, tuned=tuned, top=top, words_only=words_only)
            if page is not None:
                page(f"text {number}", result._repr_html_())
            elif write is not None:
                write(result.to_dict(), result.to_dicts())
            elif as_json:
                print(json.dumps(result.to_dict(), ensure_ascii=False))
            else:
                for table in result.tables():
                    show_part(console, table)


@app.command("train")
@from_structs
def train(
    model: NamedModel,
    corpus: Annotated[list[str], typer.Option(help="Text, or a built corpus; a tenth is held out; repeatable.")],
    chosen: Annotated[LensTraining, Panel()],
    reading: Reading,
    name: Annotated[str, typer.Option(help="Name for --tuned NAME.")] = "default",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .safetensors file elsewhere, if the model directory cannot be written."),
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a tuned lens (Belrose et al. 2023): a translator of each layer, by KL to the last layer on your text."""
    from larvatus.data.text.readers import Skipped

    loaded, skipped = load(model, device=device), Skipped()
    path = lens_file(loaded, name, out)
    with ProgressReporter("batches and updates") as progress:
        lens = run_lens_training(
            loaded, corpus, chosen, reading, path=path, overwrite=overwrite, progress=progress, skipped=skipped
        )
    report_skipped_counts(skipped.bad)
    if as_json:
        scores = {"logit_kl": lens.logit_kl, "tuned_kl": lens.tuned_kl}
        print(json.dumps({"path": str(path), "positions": lens.positions, "sha256": lens.checksum, **scores}, indent=2))
        return
    show_part(Console(highlight=False), Table(("layer", "logit lens", "tuned lens"), list(_rows(lens)), left=0))
    print(f"KL to the last layer in nats on held-out text; {lens.positions:,} masked tokens were trained on")
    print(f"saved {printable(str(path))}")
    hint(f'next: larvatus lens "Some [MASK] text." --model {model} --tuned {path if out else name}')


def _rows(lens: TunedLens) -> Iterator[tuple[str, str, str]]:
    for layer, (logit, tuned) in enumerate(zip(lens.logit_kl, lens.tuned_kl, strict=True)):
        yield f"{layer}", f"{logit:.3f}", f"{tuned:.3f}"
