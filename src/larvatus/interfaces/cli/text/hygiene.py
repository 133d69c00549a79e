"""`larvatus corpus check` and `corpus contamination`: what is in text that should perhaps not be.

larvatus corpus check judgments/ --against test.jsonl --out check.html
larvatus corpus contamination corpus/ test.jsonl
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.core.ranges import whole
from larvatus.data.corpus.hygiene.check import CorpusCheck, SharedSet, in_words
from larvatus.data.corpus.hygiene.settings import CanarySettings, HygieneSettings
from larvatus.data.corpus.hygiene.sketch import CHANCE, WORDS
from larvatus.interfaces import api
from larvatus.interfaces.api.hygiene import run_corpus_check
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.numbers import PROCESSES, ranged
from larvatus.interfaces.cli.options import Bulk, Json, MixedReading, Overwrite, TextNames, text_of
from larvatus.interfaces.cli.quiet import Quiet, chat
from larvatus.interfaces.cli.text.counting import Counting

LEFT_OUT = "What is left out"
Filters = Annotated[HygieneSettings, Panel(LEFT_OUT)]
"""Of a build."""
Planted = Annotated[CanarySettings, Panel("What is planted")]
LookedFor = Annotated[HygieneSettings, Panel("What is looked for", without=("personal", "sketch"))]


@from_structs
def check(
    named: TextNames,
    looked_for: LookedFor,
    reading: MixedReading,
    bulk: Bulk,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="An HTML page, with examples.")] = None,
    overwrite: Overwrite = False,
    workers: Annotated[int | None, ranged(PROCESSES, help="Processes, up to 4 a core; one a core by default.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count duplicates, overlaps with evaluation sets, other languages, personal data and outliers in text."""
    text, language = text_of(named.paths, named.languages, option="PATHS")
    how = msgspec.structs.replace(reading, language=language)
    with Counting("documents") as bar:
        told = run_corpus_check(
            text, how, bulk, looked_for, out=out, overwrite=overwrite, workers=workers, progress=Seen(bar)
        )
    if as_json:
        print(json.dumps(told.to_dict(), ensure_ascii=False, indent=2))
    else:
        _show(told)
    if out is not None and not as_json:
        chat(f"saved {out}")
    if not as_json:
        chat("next: larvatus corpus build … --filter exact --filter near …    or    --filter all")


def contamination(
    corpus: Annotated[Path, typer.Argument(metavar="DIR", help="A corpus that was built with --sketch.")],
    evaluation: Annotated[list[str], typer.Argument(metavar="FILES", help="Evaluation sets: tables, JSON, lines.")],
    words: Annotated[int, ranged(whole(WORDS, 1_000), help="Of a run that counts as shared.")] = 13,
    as_json: Json = False,
) -> None:
    """What a built corpus shares with evaluation sets, asked of its sketch: the text is not needed."""
    sets = api.contamination(corpus, evaluation, words=words)
    if as_json:
        print(json.dumps([{**msgspec.to_builtins(each), "share": each.share} for each in sets], indent=2))
        return
    console = Console(highlight=False)
    console.print(_sets(sets))
    chance = CHANCE ** (words - WORDS + 1)
    console.print(f"a run of {words} words that is not in the corpus is taken for shared with probability {chance:.1g}")


class Seen:
    """Documents and rate of a first pass."""

    def __init__(self, bar: Counting) -> None:
        self._say, self._begun = bar.say, time.monotonic()

    def __call__(self, documents: int, size: int) -> None:
        rate = size / max(1e-9, time.monotonic() - self._begun) / 1e6
        self._say(f"checked {documents:,} documents · {rate:.1f} MB/s")


def _show(told: CorpusCheck) -> None:
    console = Console(highlight=False)
    console.print(f"{told.documents:,} documents · {told.words:,} words · {told.bytes:,} bytes")
    rows = [
        (in_words(name), f"{reason.documents:,}", f"{reason.documents / told.documents:.2%}", f"{reason.words:,}")
        for name, reason in told.reasons.items()
    ]
    console.print(_table(("", "documents", "share", "words"), rows))
    levels = " · ".join(f"{count:,} at {level} or more" for level, count in told.near.items())
    console.print(f"near duplicates by similarity: {levels}")
    languages = [f"{escape(code)} {count:,}" for code, count in list(told.languages.items())[:12]]
    console.print(f"languages identified: {', '.join(languages)}")
    kinds = [(kind, f"{each.places:,}", f"{each.documents:,}") for kind, each in told.personal.items()]
    console.print(_table(("personal data", "places", "documents"), kinds))
    for title, values in (("words of a document", told.lengths), ("share of letters", told.letters)):
        console.print(f"{title}: " + " · ".join(f"{name} {_number(value)}" for name, value in values.items()))
    if told.sets:
        console.print(_sets(told.sets))
    console.print(f"{told.left_out:,} documents would be left out")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or float(value).is_integer() else f"{value:.3f}"


def _sets(sets: Sequence[SharedSet]) -> Table:
    head = ("evaluation set", "examples", "judged", "shared", "share", "by half or more")
    table = _table(head, [])
    for each in sets:
        counts = (f"{count:,}" for count in (each.examples, each.judged, each.shared))
        table.add_row(escape(each.name), *counts, f"{each.share:.2%}", f"{each.mostly:,}")
    return table


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
