"""`larvatus map bank --corpus TEXT --model DIR --out bank.html`: a word's instances as points (Fig. 11.7)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import typer

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.core.outputs import check_outputs, require_matplotlib, write_output
from larvatus.core.ranges import Count, SmallSeed
from larvatus.core.settings import Settings
from larvatus.data.text.documents import Skipped
from larvatus.data.text.languages import path_of
from larvatus.inference.maps.picture import about, draw_map, map_page
from larvatus.inference.maps.project import Method
from larvatus.inference.maps.word_map import WordMap
from larvatus.inference.vectors.options import Pool
from larvatus.interfaces.cli.from_struct import PLACES, Panel, from_structs
from larvatus.interfaces.cli.options import READING, Json, Machine, MixedText, ModelName
from larvatus.interfaces.cli.progress import ProgressReporter, Quiet, report_skipped
from larvatus.interfaces.settings import TextSettings


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
