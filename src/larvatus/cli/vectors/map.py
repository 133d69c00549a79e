"""`larvatus map bank --corpus TEXT --model DIR --out bank.html`: a word's instances as points (Fig. 11.7)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from larvatus.cli.left_out import say_left_out
from larvatus.cli.numbers import PLACES, ranged
from larvatus.cli.options import (
    Device,
    Encoding,
    Json,
    LanguageField,
    Languages,
    ModelName,
    OnBad,
    Overwrite,
    Sentences,
    Split,
    Standardise,
    TextField,
    encoding_of,
    text_of,
)
from larvatus.embed.map.instances import FindOptions, find_instances
from larvatus.embed.map.page import about, map_page
from larvatus.embed.map.picture import draw_map
from larvatus.embed.map.project import Method
from larvatus.embed.map.word_map import MapOptions, WordMap, map_instances
from larvatus.embed.options import Pool
from larvatus.errors import UsageError
from larvatus.model import load
from larvatus.outputs import check_outputs, write_output
from larvatus.plots import check_can_draw
from larvatus.ranges import COUNT, SMALL_SEED
from larvatus.text.documents import ReadOptions, Skipped
from larvatus.text.languages import path_of, read_languages

ColourField = Annotated[
    str | None,
    typer.Option(help="Field of JSONL and Parquet to colour by; without it, --color sense reads the field sense."),
]
Colour = Literal["auto", "cluster", "language", "word", "source", "sense"]


def word_map(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="One word or several, such as bank.")],
    model: ModelName,
    corpus: Annotated[list[str] | None, typer.Option(help="Text to look for them in; repeatable.")] = None,
    languages: Languages = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page, such as bank.html.")] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="A picture, too.")] = None,
    table: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="The points as a table, too.")] = None,
    overwrite: Overwrite = False,
    layers: Annotated[str, typer.Option(help="last, last4 (mean), a number (0: embeddings), or weights.")] = "last",
    pool: Annotated[Pool, typer.Option(help="Of a word's subwords: mean, sum, max, first, last.")] = "mean",
    standardise: Standardise = None,
    method: Annotated[
        Method, typer.Option(help="auto: UMAP where it is installed, else principal components.")
    ] = "auto",
    limit: Annotated[int, ranged(PLACES, help="Instances drawn, a random sample of more.")] = 2_000,
    clusters: Annotated[int, ranged(COUNT, help="Clusters, at most; 1: none.")] = 8,
    color: Annotated[Colour, typer.Option(help="What the page and the picture show first.")] = "auto",
    color_field: ColourField = None,
    cased: Annotated[bool, typer.Option("--cased", help="Bank is another word than bank.")] = False,
    seed: Annotated[int, ranged(SMALL_SEED, help="Of the sample, UMAP and clusters.")] = 0,
    device: Device = "auto",
    sentences: Sentences = "library",
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    split: Split = "blank-line",
    text_field: TextField = "text",
    language_field: LanguageField = None,
    as_json: Json = False,
) -> None:
    """Instances of words in a corpus as points: a page to explore, a picture, a table. Near means used alike."""
    _check(out, png, table, as_json=as_json)
    text, language = text_of(corpus, languages, option="--corpus PATH")
    check_outputs(out, png, table, overwrite=overwrite, inputs=[model, *map(path_of, text)])
    label = color_field or ("sense" if color == "sense" else None)
    reading = ReadOptions(
        encoding=encoding_of(encoding),
        split=split,
        text_field=text_field,
        on_bad=on_bad,
        language_field=language_field,
        label_field=label,
    )
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    loaded = load(model, device=device)
    options = FindOptions(limit=limit, cased=cased, language=language, sentences=sentences, seed=seed)
    skipped = Skipped()
    with console.status("looking for instances"):
        found = find_instances(read_languages(text, options=reading, skipped=skipped), words, options)
    say_left_out(skipped)
    with console.status(f"{len(found.instances):,} instances: vectors and their map"):
        asked = MapOptions(
            layers=layers,
            pool=pool,
            standardise=loaded.standardiser(standardise),
            method=method,
            clusters=clusters,
            seed=seed,
        )
        result = map_instances(loaded.encoder, loaded.tokenizer, found, asked)
    for note in result.notes:
        console.print(note, markup=False)
    called = label or "label"
    chosen = called if color == "sense" or (label and color == "auto") else color
    written = _write(result, out, png, table, color=chosen, label=called)
    if as_json:
        print(json.dumps(result.to_dict(called), ensure_ascii=False, indent=1))
    else:
        _say(result, written)


def _check(out: Path | None, png: Path | None, table: Path | None, *, as_json: bool) -> None:
    """What would fail after the work, now."""
    if not (out or png or table or as_json):
        raise UsageError("nothing was asked for; say --out FILE.html, --png FILE, --csv FILE or --json")
    if png:
        check_can_draw()


def _say(result: WordMap, written: list[str]) -> None:
    print(f"{', '.join(result.words)}: {about(result)} · {result.tokens:,} tokens read")
    for name, size in Counter(result.clusters or ()).most_common():
        print(f"  {size:6,}  {name}")
    print(f"wrote {', '.join(written)}")


def _write(
    result: WordMap, out: Path | None, png: Path | None, table: Path | None, *, color: str, label: str
) -> list[str]:
    if out:
        write_output(out, map_page(result, colour=color, label=label))
    if png:
        draw_map(result, png, colour=color, label=label)
    if table:
        write_output(table, result.to_csv(label))
    return [str(path) for path in (out, png, table) if path]
