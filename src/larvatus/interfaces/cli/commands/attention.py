"""`larvatus attention`: what the heads of a model look at, in a sentence or over a corpus, and which ones it needs.

larvatus attention "The cat sat on the mat." --model DIR --out attention.html --png head.png --layer 3 --head 1
larvatus attention --corpus TEXT --model DIR
larvatus attention importance --corpus TEXT --model DIR --prune 1:2,3:1 --out DIR2

The page (`attention_page`) stores the T × T weights of a head as bytes 255·√α, deflated, one block per head: small
weights keep their digits (no weight is off by more than 0.002 + α/250), and the browser unpacks only the selected head.
Pictures need matplotlib (the extra `plots`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console

from larvatus.core.arrays import Floats
from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs, escape_dollars, new_output, require_matplotlib, write_output
from larvatus.core.ranges import Count
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Column, Table
from larvatus.data.bulk.row_files import check_row_file, row_file
from larvatus.data.text.readers import ReadOptions, Skipped, read_documents
from larvatus.inference.interpret.attention import TextAttention, check_head
from larvatus.inference.interpret.heads import HeadStatistics, head_statistics, read_passages, text_statistics
from larvatus.inference.interpret.importance import Head, Importance, read_heads
from larvatus.inference.model import Model, load
from larvatus.inference.web_page import asset, build_page
from larvatus.interfaces.api.interpretation import ImportanceSettings, Pruning, run_head_importance
from larvatus.interfaces.cli.command_list import DefaultGroup
from larvatus.interfaces.cli.from_struct import HEAD, LAYER, PASSAGE, Panel, from_structs
from larvatus.interfaces.cli.options import READING, Device, Json, ModelName, Overwrite
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, report_skipped, report_skipped_counts, show_part
from larvatus.interfaces.settings import TextSettings


class _Group(DefaultGroup):
    default = "show"


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    help='Show what attention heads look at: larvatus attention "A sentence." --model DIR --out page.html',
)


PAGES = (".html", ".htm")


class HeadSettings(Settings):
    """Text, heads and output files."""

    corpus: tuple[str, ...] = ()
    """Text for the table of heads; repeatable."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """A page to explore, such as heads.html; or the table of heads: .jsonl, .csv, .tsv, .parquet."""
    png: Annotated[Path | None, Flag(metavar="FILE")] = None
    """Heat map of --layer and --head, or of all heads."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""
    layer: Annotated[int, LAYER] | None = None
    """Counted from 1."""
    head: Annotated[int, HEAD] | None = None
    """Counted from 1."""
    limit: Count = 1_000
    """Passages of the corpus."""
    length: Annotated[int, PASSAGE] = 128
    """Tokens of a passage, at most."""


FilesAlone = Annotated[TextSettings, Panel(READING, without=("language", "sentences", "language_field", "licence"))]
OneLanguage = Annotated[TextSettings, Panel(READING, without=("language", "language_field", "licence"))]


@app.command("show")
@from_structs
def show(
    model: ModelName,
    chosen: Annotated[HeadSettings, Panel()],
    reading: FilesAlone,
    sentence: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="A sentence; or give --corpus.")] = None,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Entropy, distance and targets of every head, with its type (Clark et al. 2019); pages and pictures of a text."""
    corpus, out, png, layer, head = chosen.corpus, chosen.out, chosen.png, chosen.layer, chosen.head
    if (sentence is None) == (not corpus):
        raise UsageError('give one of the two: a text such as "The cat sat on the mat.", or --corpus PATH')
    page = out is not None and out.suffix.lower() in PAGES
    if corpus and (page or png or layer is not None or head is not None):
        raise UsageError(
            "a page, --png, --layer and --head show one text, not a corpus; give a text, or leave them out "
            "(--out heads.csv takes the table of heads)"
        )
    if (layer is None) != (head is None):
        raise UsageError("--layer and --head go together; give both, or none for all heads")
    if png:
        require_matplotlib()
    check_outputs(out, png, overwrite=chosen.overwrite, inputs=[model])
    check_row_file(out, also=PAGES)
    loaded = load(model, device=device)
    encoder = loaded.encoder
    if layer is not None and head is not None:
        check_head(layer, head, layers=encoder.depth, heads=encoder.heads)
    if sentence is not None:
        attention = loaded.attention(sentence)
        _write(attention, out, png, layer, head)
        _show_text(attention, layer, head, [str(path) for path in (out, png) if path], as_json=as_json)
        return
    length = min(chosen.length, encoder.reach)
    rows, counts = _over_corpus(loaded, corpus, reading.reading(), limit=chosen.limit, length=length)
    if out is not None:
        _write_heads(out, rows)
        return
    if as_json:
        print(json.dumps({**counts, "heads": [row.to_dict() for row in rows]}, indent=1))
        return
    said = f"{counts['passages']:,} passages, {counts['tokens']:,} tokens read"
    _print_heads(rows, said)


def _over_corpus(
    loaded: Model, corpus: Sequence[str], reading: ReadOptions, *, limit: int, length: int
) -> tuple[list[HeadStatistics], dict[str, int]]:
    skipped = Skipped()
    documents = read_documents(list(corpus), options=reading, skipped=skipped)
    passages = list(islice(read_passages(documents, loaded.tokenizer, length=length, limit=limit), limit))
    report_skipped(skipped)
    with ProgressReporter("passages") as progress:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress(done, len(passages))

        rows = head_statistics(loaded.encoder, passages, advance)
    return rows, {"passages": len(passages), "tokens": sum(len(passage.ids) for passage in passages)}


def _write(attention: TextAttention, out: Path | None, png: Path | None, layer: int | None, head: int | None) -> None:
    if out and out.suffix.lower() in PAGES:
        write_output(out, attention_page(attention, layer=layer or 1, head=head or 1))
    elif out:
        _write_heads(out, _chosen(text_statistics(attention), layer, head))
    if png and layer is not None and head is not None:
        draw_head(attention, png, layer=layer, head=head)
    elif png:
        draw_heads(attention, png)


def _write_heads(out: Path, rows: Sequence[HeadStatistics]) -> None:
    """A row for each head."""
    with row_file(out) as write:
        for row in rows:
            write(row.to_dict(), [row.to_dict()])


def _chosen(rows: Sequence[HeadStatistics], layer: int | None, head: int | None) -> Sequence[HeadStatistics]:
    return rows if layer is None else [row for row in rows if (row.layer, row.head) == (layer, head)]


def _show_text(
    attention: TextAttention, layer: int | None, head: int | None, written: Sequence[str], *, as_json: bool
) -> None:
    rows = text_statistics(attention)
    if as_json:
        result: dict[str, Any] = {
            "text": attention.text,
            "tokens": list(attention.tokens),
            "heads": [row.to_dict() for row in rows],
        }
        if layer is not None and head is not None:
            result["weights"] = {"layer": layer, "head": head, "rows": attention.head(layer, head).tolist()}
        print(json.dumps(result, ensure_ascii=False, indent=1))
        return
    _print_heads(_chosen(rows, layer, head), f"{len(attention.tokens):,} tokens")
    if written:
        print(f"wrote {', '.join(written)}")


_NAMES = {
    "uniform": "of",
    "distance": "dist.",
    "previous": "prev.",
    "cls": "[CLS]",
    "separator": "[SEP]",
    "punctuation": "punct.",
}
_SHARES = ("self", "previous", "next", "cls", "separator", "punctuation")


def _print_heads(rows: Sequence[HeadStatistics], title: str) -> None:
    print(title)
    numbers, cells = ("entropy", "uniform", "distance"), []
    for row in rows:
        fields = row.to_dict()
        shares = [f"{fields[name]:.1%}" for name in _SHARES]
        cells.append([f"{row.layer}-{row.head}", row.type, *(f"{fields[name]:.2f}" for name in numbers), *shares])
    columns = [Column(_NAMES.get(name, name), whole=True) for name in (*numbers, *_SHARES)]
    show_part(Console(highlight=False), Table(("head", "type", *columns), cells, left=2))


@app.command("importance")
@from_structs
def importance(
    model: ModelName,
    corpus: Annotated[list[str], typer.Option(help="Held-out text, or a built corpus; repeatable.")],
    chosen: Annotated[ImportanceSettings, Panel()],
    reading: OneLanguage,
    prune: Annotated[
        str | None, typer.Option(metavar="L:H,…", help="Heads to prune in a copy of the model, as layer:head.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory of the pruned model.")] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How much the loss on held-out text (masked-lm, or next token) grows with a head masked (Michel et al. 2019)."""
    skipped = Skipped()
    with ProgressReporter("passes over the text") as progress:
        try:
            result = run_head_importance(
                model,
                corpus,
                chosen,
                reading,
                pruning=Pruning(prune, out, overwrite),
                device=device,
                progress=progress,
                skipped=skipped,
            )
        finally:
            report_skipped_counts(skipped.bad)
    _show_importance(result, read_heads(prune) if prune is not None else [], out, as_json=as_json)


def _show_importance(result: Importance, heads: Sequence[Head], out: Path | None, *, as_json: bool) -> None:
    pruned = result.pruned
    if as_json:
        record = msgspec.to_builtins(result)
        for row in record["rows"]:
            row["error"] = row["error"] if row["error"] == row["error"] else None
        if out is not None:
            record["pruned"] = {"heads": [f"{a}:{b}" for a, b in heads], "loss": pruned, "path": str(out)}
        print(json.dumps(record, indent=1))
        return
    name, which = ("masked loss", "hidden") if result.objective == "masked-lm" else ("next-token loss", "predicted")
    print(f"{name} {result.loss:.4f} on {result.hidden:,} {which} of {result.tokens:,} tokens; with a head masked:")
    rows = [
        (f"{row.layer}-{row.head}", f"{row.loss:.4f}", f"{row.change:+.4f}", f"{row.error:.4f}")
        for row in sorted(result.rows, key=lambda row: -row.change)
    ]
    show_part(Console(highlight=False), Table(("head", "loss", "change", "±"), rows))
    if out is not None:
        names = ", ".join(f"{layer}-{head}" for layer, head in heads)
        print(f"without {names} together: {name} {pruned:.4f} ({(pruned or 0) - result.loss:+.4f})")
        print(f"saved {out}: their columns of the output projection are zero, shapes stay")


_TITLE = 70


def attention_page(attention: TextAttention, *, layer: int = 1, head: int = 1) -> str:
    """`layer` and `head` are shown first."""
    layers, heads, tokens, _ = attention.weights.shape
    check_head(layer, head, layers=layers, heads=heads)
    text = attention.text if len(attention.text) <= _TITLE else attention.text[: _TITLE - 1] + "…"
    blobs = {
        f"w-{row + 1}-{column + 1}": zlib.compress(packed(attention.weights[row, column]).tobytes(), 6)
        for row in range(layers)
        for column in range(heads)
    }
    data = {
        "tokens": list(attention.tokens),
        "layers": layers,
        "heads": heads,
        "layer": layer,
        "head": head,
        "about": f"{' '.join(text.split())} · {tokens:,} tokens, {layers} layers × {heads} heads",
        "table": [
            {"type": row.type, "entropy": row.entropy, "uniform": row.uniform, "distance": row.distance}
            for row in text_statistics(attention)
        ],
    }
    package = "larvatus.inference.interpret"
    return build_page(
        f"attention · {text}",
        body=asset(package, "attention.html"),
        script=asset(package, "attention.js"),
        data=data,
        blobs=blobs,
    )


def packed(weights: Floats) -> npt.NDArray[np.uint8]:
    """255·√α, rounded."""
    squeezed: npt.NDArray[np.uint8] = np.rint(255 * np.sqrt(weights)).astype(np.uint8)
    return squeezed


_NAMED = 64
"""Most tokens whose names are drawn."""
_MAP = "magma_r"


def draw_head(attention: TextAttention, path: Path, *, layer: int, head: int) -> None:
    """Draw one head; rows attend to columns."""
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window

    weights = attention.head(layer, head)
    count = len(attention.tokens)
    side = min(11.0, max(4.6, 0.3 * count + 2))
    figure = Figure(figsize=(side + 0.9, side), dpi=110, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights, cmap=_MAP, vmin=0, vmax=max(0.05, float(weights.max())), interpolation="nearest")
    if count <= _NAMED:
        names = [escape_dollars(token) for token in attention.tokens]
        size = 9 if count <= 32 else 6
        axes.set_xticks(np.arange(count), names, rotation=90, fontsize=size)
        axes.set_yticks(np.arange(count), names, fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    row = text_statistics(attention)[(layer - 1) * attention.weights.shape[1] + head - 1]
    axes.set_title(f"layer {layer}, head {head}: {row.type}", loc="left", fontsize=11)
    figure.colorbar(image, ax=axes, shrink=0.7, label="attention weight")
    with new_output(path) as aside:
        figure.savefig(aside, format="png")


def draw_heads(attention: TextAttention, path: Path) -> None:
    """All heads, layers from top to bottom; colours by √α, so that small weights show."""
    from matplotlib.figure import Figure

    layers, heads = attention.weights.shape[:2]
    types = [row.type for row in text_statistics(attention)]
    figure = Figure(figsize=(0.95 * heads + 0.6, 1.12 * layers + 0.5), dpi=110, layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False)
    for layer in range(layers):
        for head in range(heads):
            axes = grid[layer][head]
            axes.imshow(np.sqrt(attention.weights[layer, head]), cmap=_MAP, vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("#cccccc")
            axes.set_title(f"{layer + 1}-{head + 1} {types[layer * heads + head]}", fontsize=6.5, pad=2)
    text = " ".join(attention.text.split())
    short = text if len(text) <= 80 else text[:79] + "…"
    figure.suptitle(escape_dollars(f"layer-head, rows attend to columns: {short}"), fontsize=9, x=0.01, ha="left")
    with new_output(path) as aside:
        figure.savefig(aside, format="png")
