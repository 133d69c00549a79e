"""`larvatus similar` and `larvatus map`: how alike the instances of words are, in figures and as points (Fig. 11.7).

    larvatus similar "the *bank* of the river" "the *bank* raised its rates" --model runs/mine
    larvatus similar "the *bank* of the river" --in texts/ --top 10 --model runs/mine
    larvatus similar index texts/ --word bank --out bank.index --model runs/mine
    larvatus similar evaluate scws scws.tsv.xz --model runs/mine
    larvatus similar layers 7 --model runs/mine
    larvatus map bank --corpus texts/ --model runs/mine --out bank.html

`*` marks the instance of a word in its text.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console

from larvatus.core.errors import DataError, UsageError, printable
from larvatus.core.outputs import check_outputs, require_matplotlib, write_output
from larvatus.core.ranges import Count, ShareBetween, SmallSeed, digits
from larvatus.core.regular_files import read_named
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Row, Table
from larvatus.data.bulk.row_files import check_row_file, row_file
from larvatus.data.text.documents import Skipped
from larvatus.data.text.languages import path_of
from larvatus.evaluation.compare.word_similarity import SimilarityOptions, evaluate_scws, evaluate_wic
from larvatus.inference.maps.clusters import Method
from larvatus.inference.maps.picture import about, draw_map, map_page
from larvatus.inference.maps.word_map import WordMap
from larvatus.inference.model import Model, load
from larvatus.inference.search.search import SearchOptions, open_source, search
from larvatus.inference.vectors.layers import layers_label
from larvatus.inference.vectors.pooling import Pool
from larvatus.inference.vectors.similarity import WordInstance, similarities, word_instance
from larvatus.inference.vectors.word_layers import set_word_layers
from larvatus.interfaces.api.vectors import ALL, IndexRequest, VectorSettings, run_index_build
from larvatus.interfaces.cli.command_list import DefaultGroup
from larvatus.interfaces.cli.from_struct import PLACES, TOP, Panel, from_structs
from larvatus.interfaces.cli.options import READING, Device, Json, Machine, MixedText, ModelName, Reading
from larvatus.interfaces.cli.output import (
    ProgressReporter,
    Quiet,
    hint,
    print_json,
    reading_text,
    report_skipped,
    show_part,
)
from larvatus.interfaces.settings import TextSettings


class _Group(DefaultGroup):
    default = "words"


app = typer.Typer(
    cls=_Group,
    help="Compare word instances by cosine, or find the nearest ones in a corpus. With TEXTS, the command is `words`.",
    no_args_is_help=True,
)


class QuerySettings(Settings):
    """Which word instance, and where others are looked for."""

    word: str | None = None
    """The word, if it is not marked; with --in: the word to find."""
    span: Annotated[tuple[str, ...], Flag(metavar="START:END")] = ()
    """Characters of the word, one for each text."""
    where: Annotated[tuple[str, ...], Flag("--in", metavar="CORPUS")] = ()
    """Text, an index, or a file of embed --unit word; repeatable."""
    top: Annotated[int, TOP] = 10
    """Nearest instances to show."""
    any_word: bool = False
    """With --in: instances of all words."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """Write the cosines or the nearest instances here: .jsonl, .csv, .tsv or .parquet."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""


Vectors = Annotated[VectorSettings, Panel()]


@app.command("words")
@from_structs
def words(
    texts: Annotated[list[str], typer.Argument(metavar="TEXTS...", help='"the *bank* of the river": one word marked.')],
    model: ModelName,
    query: Annotated[QuerySettings, Panel()],
    vectors: Vectors,
    reading: Reading,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Cosines between marked words; with --in, the instances in a corpus that are nearest to the marked one."""
    spans, word, where = _spans(query.span, texts), query.word, query.where
    marked = [word_instance(text, span, word=word) for text, span in zip(texts, spans, strict=True)]
    if where and len(marked) != 1:
        raise UsageError(f"--in searches for one word instance, and {len(marked)} texts are given; give one")
    check_outputs(query.out, overwrite=query.overwrite, inputs=[model, *where])
    check_row_file(query.out)
    loaded = load(model, device=device)
    options = vectors.options(loaded)
    if not where:
        if query.any_word:
            raise UsageError("--any-word searches a corpus; name one with --in")
        cosines = similarities(loaded.encoder, loaded.tokenizer, marked, options)
        if not _written(query.out, cosines.to_dict(), cosines.to_dicts()):
            print(json.dumps(cosines.to_dict(), ensure_ascii=False, indent=2) if as_json else cosines)
        return
    asked = SearchOptions(
        top=query.top,
        word=word,
        any_word=query.any_word,
        layers=vectors.layers,
        pool=vectors.pool,
        standardise=options.standardise,
        passages=reading.passages,
    )
    _show_nearest(loaded, marked[0], query, asked, as_json=as_json)


def _written(out: Path | None, record: Row, rows: Sequence[Row]) -> bool:
    """Write one result to its file, where there is one."""
    if out is None:
        return False
    with row_file(out) as write:
        write(record, rows)
    print(f"{printable(str(out))}: {len(rows):,} rows")
    return True


def _show_nearest(
    loaded: Model, marked: WordInstance, query: QuerySettings, asked: SearchOptions, *, as_json: bool
) -> None:
    with reading_text("instances") as (progress, skipped):
        nearest = search(loaded, marked, open_source(query.where), asked, progress=progress, skipped=skipped)
    if _written(query.out, nearest.to_dict(), nearest.to_dicts()):
        return
    if as_json:
        print_json(nearest.to_dict())
    else:
        of = "" if nearest.layers == "last" else f", {layers_label(nearest.layers)}"
        print(f"{marked}: nearest of {nearest.searched:,} instances{of}")
        print(nearest)


@app.command("index")
@from_structs
def index(
    corpus: Annotated[list[str], typer.Argument(metavar="CORPUS...", help="Files, directories or globs of text.")],
    model: ModelName,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The new index.")],
    vectors: Vectors,
    reading: Reading,
    word: Annotated[list[str] | None, typer.Option(help="A word to index; repeatable. all: every word.")] = None,
    words: Annotated[Path | None, typer.Option("--words", metavar="FILE", help="Words to index, one per line.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted build.")] = False,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Vectors of a word's instances in a corpus, or of all words, to be searched with --in DIR."""
    request = IndexRequest(words=_wanted(word, words), vectors=vectors, reading=reading, resume=resume)
    with reading_text("instances") as (progress, skipped):
        built = run_index_build(model, corpus, request, out=out, device=device, progress=progress, skipped=skipped)
    if as_json:
        print_json({"path": str(out), **msgspec.to_builtins(built)})
    else:
        print(f"{printable(str(out))}: {built.instances:,} instances of {built.words:,} words")
        hint(f'next: larvatus similar "… *word* …" --in {printable(str(out))} --model {model}')


@app.command("layers")
def layers(
    layers: Annotated[str, typer.Argument(metavar="LAYERS", help="last, last4 (mean), a layer's number, or weights.")],
    model: Annotated[Path, typer.Option(metavar="DIR", help="Model directory that is changed.")],
    as_json: Json = False,
) -> None:
    """Set which layers a model's word vectors are of where no --layers is given. `evaluate` measures every layer."""
    name = set_word_layers(model, layers)
    if as_json:
        print_json({"path": str(model), "word_layers": name})
    else:
        print(f"{printable(str(model))}: word vectors of {layers_label(name)}")


class JudgementSettings(Settings):
    """Vectors that are compared with human judgements."""

    layers: tuple[str, ...] = ()
    """Layers, as in embed; repeatable. Every layer by default."""
    pool: Pool | None = None
    """Subwords: mean, sum, max, first or last."""
    standardise: Annotated[str | None, Flag(metavar="NAME")] = None
    """z-scores: the name that isotropy fit saved with the model, or its file."""
    train: ShareBetween = 0.5
    """WiC: share of the pairs that the threshold is fitted on."""


@app.command("evaluate")
@from_structs
def evaluate(
    benchmark: Annotated[Literal["scws", "wic"], typer.Argument(help="scws or wic.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="scws.tsv or wic.jsonl, also .xz .gz .zst.")],
    model: ModelName,
    chosen: Annotated[JudgementSettings, Panel()],
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Similarity in context against people: SCWS (Spearman's ρ) or WiC (accuracy)."""
    loaded = load(model, device=device)
    options = SimilarityOptions(
        layers=chosen.layers or None,
        pool=chosen.pool or "mean",
        standardise=loaded.standardiser(chosen.standardise),
        train=chosen.train,
    )
    judge = evaluate_scws if benchmark == "scws" else evaluate_wic
    result = judge(loaded.encoder, loaded.tokenizer, file, options)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
        return
    columns = ("layers", result.measure, *(("±",) if benchmark == "wic" else ()))
    rows = [
        (score.layers, f"{score.value:.4f}", *([f"{score.error:.4f}"] if score.error else []))
        for score in result.scores
    ]
    title = f"{benchmark}: {result.pairs:,} pairs"
    show_part(Console(soft_wrap=True), Table(columns, rows, title=title, left=0))
    for note in result.notes:
        print(f"note: {note}")


def _spans(given: Sequence[str], texts: list[str]) -> list[tuple[int, int] | None]:
    if not given:
        return [None] * len(texts)
    if len(given) != len(texts):
        raise UsageError(f"{len(texts)} texts, but {len(given)} spans; give --span START:END once for each text")
    spans: list[tuple[int, int] | None] = []
    for word in given:
        start, end = (digits(part) for part in (word.partition(":")[0], word.partition(":")[2]))
        if start is None or end is None:
            raise UsageError(f"--span {word:.60} is not START:END, such as 4:8")
        spans.append((start, end))
    return spans


def _wanted(word: list[str] | None, words: Path | None) -> str | list[str]:
    if words is None and word:
        return ALL if word == [ALL] else word
    if words is None or word:
        raise UsageError("name the words to index: --word bank, --words FILE, or --word all")
    return read_named(words, DataError).splitlines()


# `larvatus map`.


class MapSettings(Settings):
    """Vectors, projection and output files of a map."""

    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """The page, such as bank.html."""
    png: Annotated[Path | None, Flag(metavar="FILE")] = None
    """A picture, too."""
    table: Annotated[Path | None, Flag("--csv", metavar="FILE")] = None
    """The points as a table, too."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""
    layers: str | None = None
    """last, last4 (mean), a number (0: embeddings), or weights; default: the model's own, mostly the last."""
    pool: Pool = "mean"
    """Pooling of a word's subwords: mean, sum, max, first, last."""
    standardise: Annotated[str | None, Flag(metavar="NAME")] = None
    """z-scores: the name that isotropy fit saved with the model, or its file."""
    method: Method = "auto"
    """auto: UMAP where it is installed, else principal components."""
    limit: Annotated[int, PLACES] = 2_000
    """Most instances, sampled at random where there are more."""
    clusters: Count = 8
    """Clusters, at most; 1: none."""
    color: Literal["auto", "cluster", "language", "word", "source", "sense"] = "auto"
    """Initial colouring of page and picture."""
    color_field: str | None = None
    """Field of JSONL and Parquet to colour by; without it, --color sense reads the field sense."""
    cased: bool = False
    """Distinguish Bank from bank."""
    seed: SmallSeed = 0
    """Seed of the sample, UMAP and clusters."""

    @property
    def label(self) -> str | None:
        return self.color_field or ("sense" if self.color == "sense" else None)

    @property
    def shown_first(self) -> str:
        if self.color == "sense" or (self.label and self.color == "auto"):
            return self.label or "label"
        return self.color


OF_MODEL = ("layers", "pool", "standardise", "method", "limit", "clusters", "cased", "seed")


@from_structs
def word_map(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="One word or several, such as bank.")],
    model: ModelName,
    machine: Machine,
    text: MixedText,
    chosen: Annotated[MapSettings, Panel("The map", first=("out", "png", "layers", "color"))],
    reading: Annotated[TextSettings, Panel(READING, without=("language", "licence"))],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw instances of words in a corpus as points: a page to explore, a picture, a table.

    Near points are similar uses.
    """
    _check(chosen, as_json=as_json)
    given, how = text.read_with(reading)
    outputs = (chosen.out, chosen.png, chosen.table)
    check_outputs(*outputs, overwrite=chosen.overwrite, inputs=[model, *map(path_of, given)])
    loaded = machine.load(model)
    skipped = Skipped()
    settings = {name: getattr(chosen, name) for name in OF_MODEL}
    settings |= {"language": how.language, "sentences": how.sentences}
    with ProgressReporter("instances", start="looking for instances, their vectors and their map"):
        reader = how.reading(label_field=chosen.label)
        result = loaded.map(words, given, reading=reader, skipped=skipped, **settings)
    report_skipped(skipped)
    for note in result.notes:
        print(note, file=sys.stderr)
    called = chosen.label or "label"
    written = _write(result, chosen, label=called)
    if as_json:
        print(json.dumps(result.to_dict(called), ensure_ascii=False, indent=1))
    else:
        _say(result, written)


def _check(chosen: MapSettings, *, as_json: bool) -> None:
    """What would fail after the work, now."""
    if not (chosen.out or chosen.png or chosen.table or as_json):
        raise UsageError("there is no output; give --out FILE.html, --png FILE, --csv FILE or --json")
    if chosen.png:
        require_matplotlib()


def _say(result: WordMap, written: list[str]) -> None:
    print(f"{', '.join(result.words)}: {about(result)} · {result.tokens:,} tokens read")
    for name, size in Counter(result.clusters or ()).most_common():
        print(f"  {size:6,}  {name}")
    print(f"wrote {', '.join(written)}")


def _write(result: WordMap, chosen: MapSettings, *, label: str) -> list[str]:
    colour = chosen.shown_first
    if chosen.out:
        write_output(chosen.out, map_page(result, colour=colour, label=label))
    if chosen.png:
        draw_map(result, chosen.png, colour=colour, label=label)
    if chosen.table:
        write_output(chosen.table, result.to_csv(label))
    return [str(path) for path in (chosen.out, chosen.png, chosen.table) if path]
