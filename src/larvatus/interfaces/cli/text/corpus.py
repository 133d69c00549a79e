"""`larvatus corpus`: check text, build token shards from it, show what is in them, verify them.

larvatus corpus build judgments/ --tokenizer vocabulary/ --out corpus/
larvatus corpus build --language sw=swahili/ --language en=english/ --tokenizer vocabulary/ --out corpus/
larvatus corpus check judgments/ --against test.jsonl
larvatus corpus build judgments/ --tokenizer vocabulary/ --out corpus/ --filter all --personal remove --sketch
larvatus corpus contamination corpus/ test.jsonl
larvatus corpus show corpus/
larvatus corpus verify corpus/
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.core.errors import DataError
from larvatus.core.ranges import SHARE
from larvatus.data.corpus.build import BuildOptions, CorpusSummary
from larvatus.data.corpus.format import Counts
from larvatus.data.corpus.mixture import MixtureConfig
from larvatus.data.corpus.remote import is_address, mirrored
from larvatus.data.corpus.report import hygiene_lines, language_rows
from larvatus.data.corpus.store import Corpus
from larvatus.interfaces.api.text import run_corpus_build
from larvatus.interfaces.cli.from_struct import from_structs
from larvatus.interfaces.cli.numbers import PROCESSES, ranged
from larvatus.interfaces.cli.options import Bulk, Json, MixedReading, TextNames, text_of
from larvatus.interfaces.cli.quiet import Quiet, chat, progress_console
from larvatus.interfaces.cli.text.counting import Counting
from larvatus.interfaces.cli.text.hygiene import Filters, Planted, Seen, check, contamination

app = typer.Typer(help="Check text; build, show and verify token shards.", no_args_is_help=True)

Shown = Annotated[float, ranged(SHARE, help="Exponent of the language mixture whose shares q are shown.")]
Where = Annotated[str, typer.Argument(metavar="DIR", help="A built corpus; s3://… and the like are read from there.")]


@app.command()
@from_structs
def build(
    named: TextNames,
    tokenizer: Annotated[str, typer.Option(metavar="DIR", help="The vocabulary to encode with, or english.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the corpus goes.")],
    reading: MixedReading,
    bulk: Bulk,
    filters: Filters,
    planted: Planted,
    workers: Annotated[int | None, ranged(PROCESSES, help="Processes, up to 4 a core; one a core by default.")] = None,
    alpha: Shown = 0.3,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn documents into checksummed shards of token ids. Run it again after a kill: it goes on."""
    text, language = text_of(named.paths, named.languages, option="PATHS")
    how = msgspec.structs.replace(reading, language=language)
    mixture = MixtureConfig(alpha=alpha)
    console = progress_console(markup=False, emoji=False)
    with Counting("documents") as bar:
        watch = BuildOptions(
            workers=workers,
            progress=_Rate(bar.say),
            checked=Seen(bar),
            notice=lambda sentence: console.print(escape(sentence), highlight=False),
        )
        summary = run_corpus_build(text, how, bulk, filters, planted, tokenizer=tokenizer, out=out, watch=watch)
    if as_json:
        _print_json(_summary_dict(summary) | _mixture_dict(summary.languages, mixture.alpha))
        return
    if len(summary.languages) > 1:
        Console(highlight=False).print(_table("", summary.languages, summary.counts, mixture.alpha))
    print(_sentence(summary))
    chat(f"next: larvatus corpus show {out}    or    larvatus pretrain bert --corpus {out} --out …")


app.command()(check)
app.command()(contamination)


@app.command()
def show(path: Where, alpha: Shown = 0.3, as_json: Json = False) -> None:
    """Counts, languages, sources and the first few sentences of a corpus."""
    mixture = MixtureConfig(alpha=alpha)
    corpus = _opened(path)
    m = corpus.manifest
    samples = first_sentences(corpus, 5)
    if as_json:
        _print_json({**msgspec.to_builtins(m), **_mixture_dict(m.languages, mixture.alpha), "samples": samples})
        return
    console = Console(highlight=False)
    console.print(_table(str(path), m.languages, m.counts, mixture.alpha))
    pieces = m.counts.tokens / max(1, m.counts.words)
    console.print(f"vocabulary: {m.settings.vocabulary:,} pieces, {pieces:.2f} a word · {len(m.shards)} shards")
    for source in m.sources:
        licence = source.licence or "licence not given"
        console.print(escape(f"source: {source.name} ({source.files:,} files, {source.bytes:,} bytes, {licence})"))
    for reason, count in m.skipped.items():
        console.print(escape(f"skipped: {count:,} {reason}"))
    for sentence in hygiene_lines(m):
        console.print(escape(sentence))
    for sentence in samples:
        console.print(escape(f"  {sentence}"))


@app.command()
def verify(path: Where, as_json: Json = False) -> None:
    """Check every shard against its checksum, and look inside each chunk."""
    corpus = _opened(path)
    for chunk in range(len(corpus.chunks)):
        corpus.block([chunk])
    counts = corpus.manifest.counts
    if as_json:
        _print_json({"path": str(path), "shards": len(corpus.manifest.shards), **msgspec.to_builtins(counts)})
    else:
        print(f"{path}: {len(corpus.manifest.shards)} shards are whole · {_counted(counts)}")


def _opened(path: str) -> Corpus:
    mirror = mirrored(path) if is_address(path) else None
    if is_address(path) and mirror is None:
        raise DataError(f"{path} holds no corpus; build one with larvatus corpus build, and copy it there")
    return Corpus.open(mirror or Path(path))


def first_sentences(corpus: Corpus, count: int) -> list[str]:
    """The first sentences of the corpus, decoded."""
    block = corpus.block([0])
    ends = block.sentences[: count + 1].tolist()
    return [corpus.tokenizer.decode(block.ids[a:b].tolist()) for a, b in pairwise(ends)]


class _Rate:
    """Counts and rate while it runs."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._begun = say, time.monotonic()

    def __call__(self, counts: Counts) -> None:
        rate = counts.text_bytes / max(1e-9, time.monotonic() - self._begun) / 1e6
        self._say(f"{_counted(counts)} · {rate:.1f} MB/s")


def _table(title: str, languages: Mapping[str, Counts], total: Counts, alpha: float) -> Table:
    """Counts by language, and tokens a word; where there are several, their shares as they come and as drawn."""
    mixed = len(languages) > 1
    fields = ["documents", "sentences", "words", "tokens", *([] if mixed else ["text_bytes"])]
    shares = ("p", "q") if mixed else ()
    table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False)
    if mixed:
        table.caption = f"p: share of the sentences; q: share that is drawn at α = {alpha:g}; fertility: tokens a word"
    for name in ("language", *fields, *shares, "fertility"):
        table.add_column(name.replace("_", " "), justify="left" if name == "language" else "right")
    for row in language_rows(languages, alpha):
        counts = languages[row.language]
        drawn = (f"{row.p:.4f}", f"{row.q:.4f}") if mixed else ()
        table.add_row(escape(row.language), *_numbers(counts, fields), *drawn, f"{row.fertility:.2f}")
    if mixed:
        table.add_row("all", *_numbers(total, fields), "", "", f"{total.tokens / max(1, total.words):.2f}")
    return table


def _numbers(counts: Counts, fields: Sequence[str]) -> list[str]:
    return [f"{getattr(counts, field):,}" for field in fields]


def _mixture_dict(languages: Mapping[str, Counts], alpha: float) -> dict[str, Any]:
    rows = language_rows(languages, alpha)
    shares = {row.language: {"p": row.p, "q": row.q, "fertility": row.fertility} for row in rows}
    return {"mixture": {"alpha": alpha, "languages": shares}}


def _counted(counts: Counts) -> str:
    return (
        f"{counts.documents:,} documents · {counts.sentences:,} sentences · "
        f"{counts.words:,} words · {counts.tokens:,} tokens"
    )


def _sentence(summary: CorpusSummary) -> str:
    skipped = "".join(f" · skipped {count:,} {reason}" for reason, count in summary.skipped.items())
    done = "is there already, unchanged" if summary.unchanged else f"built, {summary.shards} shards"
    if summary.resumed and not summary.unchanged:
        done += f" ({summary.resumed} of them before the interruption)"
    return f"{summary.path}: {done} · {_counted(summary.counts)}{skipped}"


def _summary_dict(summary: CorpusSummary) -> dict[str, Any]:
    return {**msgspec.to_builtins(summary, builtin_types=(), enc_hook=str)}


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
