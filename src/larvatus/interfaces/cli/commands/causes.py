"""`larvatus patch`, `knockout` and `features`: what causes an answer, and what the states of a layer are made of.

larvatus patch "The key to the cabinets [MASK] here." "The keys to the cabinets [MASK] here." --answers is,are
larvatus knockout --pairs blimp.jsonl.xz --phenomena distractor_agreement_relational_noun --examples 100
larvatus features train --corpus texts/ --layer 6 --out runs/features
larvatus features show runs/features --word bank
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from larvatus.core.drawing import as_html, legible
from larvatus.core.outputs import check_outputs
from larvatus.core.ranges import Count, whole
from larvatus.core.settings import Flag, Settings
from larvatus.data.text.readers import Skipped
from larvatus.evaluation.features.autoencoder import FeatureSettings
from larvatus.evaluation.features.results import NAMES, Sort, SparseFeatures, feature_parts
from larvatus.inference.interpret.knockout import KnockoutOptions
from larvatus.inference.model import load
from larvatus.interfaces.api.causes import KnockoutSources, OutcomeSettings, run_feature_training, run_knockout
from larvatus.interfaces.cli.from_struct import Panel, from_structs, ranged
from larvatus.interfaces.cli.options import READING, Device, Json, ModelName, Overwrite, Reading
from larvatus.interfaces.cli.output import (
    ProgressReporter,
    Quiet,
    hint,
    print_json,
    reading_text,
    report_skipped_counts,
    show_report,
    wide_console,
)
from larvatus.interfaces.cli.picture_page import picture_page
from larvatus.interfaces.settings import TextSettings

app = typer.Typer(help="Find sparse features of a layer's states, and show them.", no_args_is_help=True)
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page, such as map.html.")]


@from_structs
def patch(
    model: ModelName,
    first: Annotated[str, typer.Argument(help="A sentence with one blank: The key [MASK] here.")],
    second: Annotated[str, typer.Argument(help="The same sentence with other words: The keys [MASK] here.")],
    answers: Annotated[str, typer.Option(metavar="A,B", help="The first sentence's answer, and the second's: is,are.")],
    html: Html = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show which states make a model answer as it does in another sentence (activation patching)."""
    check_outputs(html, overwrite=overwrite, inputs=[model])
    pair = [answer.strip() for answer in answers.split(",")]
    with ProgressReporter("layers", start="patching") as bar:
        patched = load(model, device=device).patch(first, second, answers=pair, progress=bar)
    if html is not None:
        with picture_page(html, legible(f"patches · {first} · {second}")) as add:
            add("effects", as_html(patched.draw()))
    if as_json:
        print_json(patched.to_dict())
    else:
        show_report(wide_console(), patched.parts())


class MeasuredOn(Settings):
    """What a knockout is measured on: one of these."""

    pairs: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Minimal pairs: BLiMP's JSONL, or good<TAB>bad[<TAB>phenomenon] a line; repeatable."""
    corpus: tuple[str, ...] = ()
    """Held-out text, or a built corpus: masked tokens are predicted; repeatable."""
    data: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Labelled examples for a fine-tuned model; repeatable."""


OneLanguage = Annotated[TextSettings, Panel(READING, without=("language", "language_field", "licence"))]


@from_structs
def knock_out(
    model: ModelName,
    sources: Annotated[MeasuredOn, Panel()],
    chosen: Annotated[OutcomeSettings, Panel("What is measured")],
    options: Annotated[KnockoutOptions, Panel("What is switched off, and how it is tested")],
    reading: OneLanguage,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Switch off heads or neurons, singly and in greedy sets, and measure minimal pairs, masked tokens or a task."""
    given = KnockoutSources(sources.pairs or None, sources.corpus or None, list(sources.data) or None)
    skipped = Skipped()
    with ProgressReporter("knockouts", start="measuring") as bar:
        report = run_knockout(model, given, options, chosen, reading, device=device, progress=bar, skipped=skipped)
    report_skipped_counts(skipped.bad)
    if as_json:
        print_json(report.to_dict())
    else:
        show_report(wide_console(), report.parts())


@app.command("train")
@from_structs
def train(
    model: ModelName,
    corpus: Annotated[list[str], typer.Option("--corpus", help="Text: a file, directory or glob; repeatable.")],
    layer: Annotated[int, ranged(whole(0, 10_000), help="Layer whose states are explained; 0: the embeddings.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="New directory for the features.")],
    chosen: Annotated[FeatureSettings, Panel()],
    reading: Reading,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a top-k sparse autoencoder on a layer, next to one on random weights, and keep each feature's contexts."""
    with reading_text("tokens") as (progress, skipped):
        features = run_feature_training(
            partial(load, model, device=device), corpus, chosen, reading, layer=layer, out=out, progress=progress,
            skipped=skipped,
        )  # fmt: skip
    if as_json:
        print_json(
            {"path": str(out), **{name: msgspec.to_builtins(each) for name, each in features.dictionaries.items()}}
        )
        return
    show_report(wide_console(), [features.comparison()])
    hint(f"next: larvatus features show {out}    or    larvatus features show {out} --html features.html")


class ShownFeatures(Settings):
    """Which features are shown."""

    feature: Annotated[Count, Flag(metavar="N")] | None = None
    """Only this one, with all its contexts."""
    word: str | None = None
    """Only those whose strongest contexts mark this word."""
    sort: Sort = "consistency"
    """consistency of contexts, rate of firing, or number."""
    top: Count = 20
    """How many."""
    random: bool = False
    """Those of the encoder with random weights."""


@app.command("show")
@from_structs
def show(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Output of features train.")],
    chosen: Annotated[ShownFeatures, Panel()],
    html: Html = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Show features with their strongest contexts, and how they compare with those of random weights."""
    check_outputs(html, overwrite=overwrite, inputs=[directory])
    features, of = SparseFeatures.load(directory), NAMES[chosen.random]
    listed = features.chosen(of=of, sort=chosen.sort, word=chosen.word, number=chosen.feature)[: chosen.top]
    if html is not None:
        with picture_page(html, f"features of layer {features.origin.layer}") as add:
            add("features", as_html(features.draw(listed, of)))
    if as_json:
        record = {name: msgspec.to_builtins(getattr(features, name)) for name in ("origin", "dictionaries")}
        print_json({**record, "of": of, "features": msgspec.to_builtins(listed)})
        return
    contexts = 3 if chosen.feature is None else features.origin.settings.contexts
    show_report(wide_console(), [features.comparison(), *feature_parts(listed, contexts)])
