"""`larvatus embed FILES… --model DIR --out vectors.parquet`: contextual vectors of a corpus, in a file."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from larvatus.cli.options import Json, Language, ModelName, OnBad, Sentences, Split, Standardise, TextField
from larvatus.embed.bulk import BulkOptions, BulkSummary, embed_files
from larvatus.embed.options import EmbedOptions, Pool, Precision, Unit
from larvatus.embed.parts import Stand
from larvatus.model import load
from larvatus.text.readers import ReadOptions


def embed(
    paths: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files, directories, globs, or - for stdin.")],
    model: ModelName,
    out: Annotated[Path, typer.Option(metavar="FILE", help="vectors.parquet, .arrow, .safetensors or .npy.")],
    unit: Annotated[
        Unit, typer.Option(help="What gets a vector; span: words between stars, as in the *bank* of a river.")
    ] = "sentence",
    layers: Annotated[
        str, typer.Option(help="last, last4 (mean), last4-sum, a number (0: embeddings), or weights 0.1,0.2,… of all.")
    ] = "last",
    pool: Annotated[
        Pool,
        typer.Option(help="Words, spans: mean, sum, max, first, last. Sentences, documents: mean, max, cls."),
    ] = "mean",
    normalise: Annotated[bool, typer.Option("--normalise", help="Bring vectors to length 1.")] = False,
    standardise: Standardise = None,
    dtype: Annotated[Literal["float32", "float16"], typer.Option(help="Numbers in the file.")] = "float32",
    overlap: Annotated[
        int | None, typer.Option(help="Tokens that windows of a long text share; a quarter of a window by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[Precision, typer.Option(help="bf16 is for GPUs.")] = "fp32",
    language: Language = "en",
    sentences: Sentences = "library",
    on_bad: OnBad = "fail",
    split: Split = "blank-line",
    text_field: TextField = "text",
    as_json: Json = False,
) -> None:
    """Vectors of the words, sentences or documents of a corpus, with their text and place. After a kill: --resume."""
    loaded = load(model, device=device)
    options = BulkOptions(
        embed=EmbedOptions(
            unit=unit,
            layers=layers,
            pool=pool,
            normalise=normalise,
            overlap=overlap,
            precision=precision,
            standardise=loaded.standardiser(standardise),
        ),
        reading=ReadOptions(split=split, text_field=text_field, on_bad=on_bad),
        sentences=sentences,
        language=language,
        number=dtype,
    )
    with _Bar(Console(stderr=True)) as bar:
        summary = embed_files(
            loaded.encoder,
            loaded.tokenizer,
            paths,
            out,
            options,
            model=loaded.fingerprint,
            resume=resume,
            progress=bar.update,
        )
    if as_json:
        print(json.dumps(msgspec.to_builtins(summary), ensure_ascii=False, indent=2))
    else:
        print(_sentence(summary, unit))


class _Bar:
    """Counts and rate while it runs: a line that changes on a terminal, a plain line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console, self._begun, self._said = console, time.monotonic(), time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("reading")
        self._tokens: int | None = None

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, stand: Stand) -> None:
        now = time.monotonic()
        if self._tokens is None:  # what an interrupted run had done, and the first block, are not in the rate
            self._tokens, self._begun = stand.tokens, now
        rate = (stand.tokens - self._tokens) / max(1e-9, now - self._begun)
        line = f"{_counted(stand)} · {rate:,.0f} tokens/s"
        self._bar.update(self._task, description=line)
        if not self._console.is_terminal and now - self._said > 30:
            self._said = now
            print(line, file=sys.stderr)


def _counted(stand: Stand) -> str:
    return f"{stand.documents:,} documents · {stand.units:,} vectors · {stand.tokens:,} tokens"


def _sentence(summary: BulkSummary, unit: str) -> str:
    stand = summary.stand
    more = f" in {stand.windows:,} windows" if stand.windows > stand.pieces else ""
    more += f" · {stand.missing:,} {unit}s have none (the vocabulary deletes them)" if stand.missing else ""
    more += f" · {summary.resumed:,} stood before the interruption" if summary.resumed else ""
    more += "".join(f" · skipped {count:,} {reason}" for reason, count in summary.skipped.items())
    return f"{summary.path}: {_counted(stand)} read to the end{more} · {summary.size} numbers a {unit}"
