"""`larvatus lens`: what each layer of a masked model would fill into a blank; and translators trained for it.

larvatus lens "The keys to the cabinet [MASK] on the table."
larvatus lens "The keys to the cabinet [MASK] on the table." --model DIR --tuned default --out lens.html
larvatus lens train --model DIR --corpus TEXT
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from larvatus.core.errors import printable
from larvatus.core.tables import Table
from larvatus.data.text.readers import Skipped, expand_patterns, read_single_texts
from larvatus.evaluation.interpretation.lens_training import LensTraining
from larvatus.inference.model import load
from larvatus.interfaces.api.explaining import lens_file, train_lens
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
from larvatus.interfaces.cli.output import (
    ProgressReporter,
    Quiet,
    hint,
    print_json,
    report_skipped_counts,
    show_part,
    wide_console,
)
from larvatus.interfaces.cli.picture_page import PAGES, write_results


class _Group(DefaultGroup):
    default = "show"


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    help="Show what each layer would fill into a blank (logit lens, tuned lens). With TEXTS, the command is `show`.",
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
    with write_results(chosen.out, f"lens on {Path(model).name or model}", as_json=as_json) as write:
        for text in chain(texts or (), rows):
            write(loaded.lens(text, tuned=tuned, top=top, words_only=words_only))


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
    loaded, skipped = load(model, device=device), Skipped()
    path = lens_file(loaded, name, out)
    settings = {**msgspec.structs.asdict(chosen), **msgspec.structs.asdict(reading)}
    with ProgressReporter("batches and updates") as progress:
        lens = train_lens(
            loaded, corpus, name=name, out=out, overwrite=overwrite, progress=progress, skipped=skipped, **settings
        )
    report_skipped_counts(skipped.bad)
    about = lens.about
    if as_json:
        print_json({"path": str(path), **msgspec.to_builtins(about), "sha256": lens.checksum})
        return
    pairs = enumerate(zip(about.logit_kl, about.tuned_kl, strict=True))
    rows = [(f"{layer}", f"{logit:.3f}", f"{tuned:.3f}") for layer, (logit, tuned) in pairs]
    show_part(wide_console(), Table(("layer", "logit lens", "tuned lens"), rows, left=0))
    print(f"KL to the last layer in nats on held-out text; {about.positions:,} masked tokens were trained on")
    print(f"saved {printable(str(path))}")
    hint(f'next: larvatus lens "Some [MASK] text." --model {model} --tuned {path if out else name}')
