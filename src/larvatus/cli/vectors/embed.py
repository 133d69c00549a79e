"""`larvatus embed FILES… --model DIR --out vectors.parquet`: contextual vectors of a corpus, in a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from larvatus.cli.numbers import ranged
from larvatus.cli.options import (
    Device,
    Encoding,
    Json,
    Language,
    ModelName,
    OnBad,
    Overwrite,
    Sentences,
    Split,
    Standardise,
    TextField,
    encoding_of,
)
from larvatus.cli.text.counting import Counting
from larvatus.embed.bulk.bulk import BulkOptions, BulkSummary, embed_files
from larvatus.embed.bulk.parts import Stand
from larvatus.embed.options import EmbedOptions, Pool, Precision, Unit
from larvatus.model import load
from larvatus.outputs import check_outputs
from larvatus.ranges import COUNT_OR_NONE
from larvatus.signals import resumable
from larvatus.text.readers import ReadOptions

LayersOption = Annotated[
    str, typer.Option(help="last, last4 (mean), last4-sum, a number (0: embeddings), or weights 0.1,0.2,… of all.")
]
PoolOption = Annotated[
    Pool, typer.Option(help="Words, spans: mean, sum, max, first, last. Sentences, documents: mean, max, cls.")
]


def embed(
    paths: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files, directories, globs, or - for stdin.")],
    model: ModelName,
    out: Annotated[Path, typer.Option(metavar="FILE", help="vectors.parquet, .arrow, .safetensors or .npy.")],
    unit: Annotated[
        Unit, typer.Option(help="What gets a vector; span: words between stars, as in the *bank* of a river.")
    ] = "sentence",
    layers: LayersOption = "last",
    pool: PoolOption = "mean",
    normalise: Annotated[bool, typer.Option("--normalise", help="Bring vectors to length 1.")] = False,
    standardise: Standardise = None,
    dtype: Annotated[Literal["float32", "float16"], typer.Option(help="Numbers in the file.")] = "float32",
    overlap: Annotated[
        int | None,
        ranged(COUNT_OR_NONE, help="Tokens that windows of a long text share; a quarter of a window by default."),
    ] = None,
    overwrite: Overwrite = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    device: Device = "auto",
    precision: Annotated[Precision, typer.Option(help="bf16 is for GPUs.")] = "fp32",
    language: Language = "en",
    sentences: Sentences = "library",
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    split: Split = "blank-line",
    text_field: TextField = "text",
    as_json: Json = False,
) -> None:
    """Vectors of the words, sentences or documents of a corpus, with their text and place. After a kill: --resume."""
    check_outputs(out, overwrite=overwrite or resume, inputs=[model, *paths])
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
        reading=ReadOptions(encoding=encoding_of(encoding), split=split, text_field=text_field, on_bad=on_bad),
        sentences=sentences,
        language=language,
        number=dtype,
    )
    with Counting(unit) as bar, resumable(lambda: _way_on(out)):
        summary = embed_files(
            loaded.encoder,
            loaded.tokenizer,
            paths,
            out,
            options,
            model=loaded.fingerprint,
            resume=resume,
            overwrite=overwrite,
            progress=_Rate(bar.say),
        )
    if as_json:
        print(json.dumps(msgspec.to_builtins(summary), ensure_ascii=False, indent=2))
    else:
        print(_sentence(summary, unit))


def _way_on(out: Path) -> str:
    """How a run that was stopped goes on."""
    kept = out.with_name(out.name + ".parts").exists()
    return f"the same command {'with --resume goes on from what was written' if kept else 'starts it again'}"


class _Rate:
    """Counts and rate while it runs."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._begun = say, time.monotonic()
        self._tokens: int | None = None

    def __call__(self, stand: Stand) -> None:
        now = time.monotonic()
        if self._tokens is None:  # what an interrupted run had done, and the first block, are not in the rate
            self._tokens, self._begun = stand.tokens, now
        rate = (stand.tokens - self._tokens) / max(1e-9, now - self._begun)
        self._say(f"{_counted(stand)} · {rate:,.0f} tokens/s")


def _counted(stand: Stand) -> str:
    return f"{stand.documents:,} documents · {stand.units:,} vectors · {stand.tokens:,} tokens"


def _sentence(summary: BulkSummary, unit: str) -> str:
    stand = summary.stand
    more = f" in {stand.windows:,} windows" if stand.windows > stand.pieces else ""
    more += f" · {stand.missing:,} {unit}s have none (the vocabulary deletes them)" if stand.missing else ""
    more += f" · {summary.resumed:,} stood before the interruption" if summary.resumed else ""
    more += "".join(f" · skipped {count:,} {reason}" for reason, count in summary.skipped.items())
    return f"{summary.path}: {_counted(stand)} read to the end{more} · {summary.size} numbers a {unit}"
