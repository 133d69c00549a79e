"""`larvatus corpus`: check text, build token shards from it, show what is in them, verify them.

    larvatus corpus build judgments/ --tokenizer vocabulary/ --out corpus/ --filter all --personal remove --sketch
    larvatus corpus build --language sw=swahili/ --language en=english/ --tokenizer vocabulary/ --out corpus/
    larvatus corpus check judgments/ --against test.jsonl
    larvatus corpus contamination corpus/ test.jsonl
    larvatus corpus show corpus/
    larvatus corpus verify corpus/

A built corpus may be remote (s3://…). Filters and canaries are settings of `data/corpus/hygiene`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import DataError
from larvatus.core.ranges import SHARE, whole
from larvatus.core.tables import Table
from larvatus.data.corpus.build import BuildOptions, CorpusSummary
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.hygiene.check import CorpusCheck, SharedSet, describe_reason
from larvatus.data.corpus.hygiene.settings import CanarySettings, HygieneSettings
from larvatus.data.corpus.hygiene.shingles import CHANCE, WORDS
from larvatus.data.corpus.mixture import MixtureConfig, hygiene_lines, language_rows
from larvatus.data.corpus.remote import is_address, mirror_corpus
from larvatus.data.corpus.store import Corpus
from larvatus.interfaces.api.corpora import contamination as find_contamination
from larvatus.interfaces.api.corpora import run_corpus_build, run_corpus_check
from larvatus.interfaces.cli.from_struct import PROCESSES, Panel, from_structs, ranged
from larvatus.interfaces.cli.options import Bulk, CorpusPaths, Json, MixedReading, Overwrite
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, hint, print_json, progress_console, show_part

app = typer.Typer(help="Check text, and build, show and verify token shards.", no_args_is_help=True)

Shown = Annotated[float, ranged(SHARE, help="Exponent of the language mixture whose shares q are shown.")]
Where = Annotated[str, typer.Argument(metavar="DIR", help="A built corpus, local or remote (s3://…).")]


Filters = Annotated[HygieneSettings, Panel("Filters")]
Planted = Annotated[CanarySettings, Panel("Canaries")]
LookedFor = Annotated[HygieneSettings, Panel("Checks", without=("personal", "sketch"))]


@app.command()
@from_structs
def build(
    named: CorpusPaths,
    tokenizer: Annotated[str, typer.Option(metavar="DIR", help="The vocabulary to encode with, or english.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the corpus.")],
    reading: MixedReading,
    bulk: Bulk,
    filters: Filters,
    planted: Planted,
    workers: Annotated[
        int | None, ranged(PROCESSES, help="Processes, up to 4 per core; default: one per core.")
    ] = None,
    alpha: Shown = 0.3,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn documents into checksummed shards of token ids. Run it again after a kill: it resumes."""
    text, how = named.read_with(reading)
    mixture = MixtureConfig(alpha=alpha)
    console = progress_console(markup=False, emoji=False)
    with ProgressReporter("documents") as bar:
        watch = BuildOptions(
            workers=workers,
            progress=lambda counts: bar.show(f"{_counted(counts)} · {bar.rate(counts.text_bytes) / 1e6:.1f} MB/s"),
            checked=_checked(bar),
            notice=lambda sentence: console.print(escape(sentence), highlight=False),
        )
        summary = run_corpus_build(text, how, bulk, filters, planted, tokenizer=tokenizer, out=out, watch=watch)
    if as_json:
        plain = msgspec.to_builtins(summary, builtin_types=(), enc_hook=str)
        print_json(plain | _mixture_dict(summary.languages, mixture.alpha))
        return
    if len(summary.languages) > 1:
        show_part(Console(highlight=False), _table("", summary.languages, summary.counts, mixture.alpha))
    print(_sentence(summary))
    hint(f"next: larvatus corpus show {out}    or    larvatus pretrain bert --corpus {out} --out …")


@app.command()
@from_structs
def check(
    named: CorpusPaths,
    looked_for: LookedFor,
    reading: MixedReading,
    bulk: Bulk,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="An HTML page, with examples.")] = None,
    overwrite: Overwrite = False,
    workers: Annotated[
        int | None, ranged(PROCESSES, help="Processes, up to 4 per core; default: one per core.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count duplicates, overlaps with evaluation sets, other languages, personal data and outliers in text."""
    text, how = named.read_with(reading)
    with ProgressReporter("documents") as bar:
        told = run_corpus_check(
            text, how, bulk, looked_for, out=out, overwrite=overwrite, workers=workers, progress=_checked(bar)
        )
    if as_json:
        print_json(told.to_dict())
    else:
        _show(told)
    if out is not None and not as_json:
        hint(f"saved {out}")
    if not as_json:
        hint("next: larvatus corpus build … --filter exact --filter near …    or    --filter all")


@app.command()
def contamination(
    corpus: Annotated[Path, typer.Argument(metavar="DIR", help="A corpus that was built with --sketch.")],
    evaluation: Annotated[list[str], typer.Argument(metavar="FILES", help="Evaluation sets: tables, JSON, lines.")],
    words: Annotated[int, ranged(whole(WORDS, 1_000), help="Words of a run that counts as shared.")] = 13,
    as_json: Json = False,
) -> None:
    """Report what a built corpus shares with evaluation sets. It reads the sketch; the text is not needed."""
    sets = find_contamination(corpus, evaluation, words=words)
    if as_json:
        print(json.dumps([{**msgspec.to_builtins(each), "share": each.share} for each in sets], indent=2))
        return
    console = Console(highlight=False)
    show_part(console, _sets(sets))
    chance = CHANCE ** (words - WORDS + 1)
    console.print(f"a run of {words} words that is not in the corpus is falsely found with probability {chance:.1g}")


def _checked(bar: ProgressReporter) -> Callable[[int, int], None]:
    """Progress of a first pass over the text."""
    return lambda documents, size: bar.show(f"checked {documents:,} documents · {bar.rate(size) / 1e6:.1f} MB/s")


def _show(told: CorpusCheck) -> None:
    console = Console(highlight=False)
    console.print(f"{told.documents:,} documents · {told.words:,} words · {told.bytes:,} bytes")
    rows = [
        (
            describe_reason(name),
            f"{reason.documents:,}",
            f"{reason.documents / told.documents:.2%}",
            f"{reason.words:,}",
        )
        for name, reason in told.reasons.items()
    ]
    show_part(console, Table(("", "documents", "share", "words"), rows))
    levels = " · ".join(f"{count:,} at {level} or more" for level, count in told.near.items())
    console.print(f"near duplicates by similarity: {levels}")
    languages = [f"{escape(code)} {count:,}" for code, count in list(told.languages.items())[:12]]
    console.print(f"languages identified: {', '.join(languages)}")
    kinds = [(kind, f"{each.places:,}", f"{each.documents:,}") for kind, each in told.personal.items()]
    show_part(console, Table(("personal data", "places", "documents"), kinds))
    for title, values in (("words of a document", told.lengths), ("share of letters", told.letters)):
        console.print(f"{title}: " + " · ".join(f"{name} {_number(value)}" for name, value in values.items()))
    if told.sets:
        show_part(console, _sets(told.sets))
    console.print(f"{told.left_out:,} documents would be skipped")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or float(value).is_integer() else f"{value:.3f}"


def _sets(sets: Sequence[SharedSet]) -> Table:
    head = ("evaluation set", "examples", "judged", "shared", "share", "by half or more")
    rows = []
    for each in sets:
        counts = (f"{count:,}" for count in (each.examples, each.judged, each.shared))
        rows.append((each.name, *counts, f"{each.share:.2%}", f"{each.mostly:,}"))
    return Table(head, rows)


@app.command()
def show(path: Where, alpha: Shown = 0.3, as_json: Json = False) -> None:
    """Counts, languages, sources and the first few sentences of a corpus."""
    mixture = MixtureConfig(alpha=alpha)
    corpus = _opened(path)
    m = corpus.manifest
    samples = first_sentences(corpus, 5)
    if as_json:
        print_json({**msgspec.to_builtins(m), **_mixture_dict(m.languages, mixture.alpha), "samples": samples})
        return
    console = Console(highlight=False)
    show_part(console, _table(str(path), m.languages, m.counts, mixture.alpha))
    pieces = m.counts.tokens / max(1, m.counts.words)
    console.print(f"vocabulary: {m.settings.vocabulary:,} tokens, {pieces:.2f} per word · {len(m.shards)} shards")
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
        print_json({"path": str(path), "shards": len(corpus.manifest.shards), **msgspec.to_builtins(counts)})
    else:
        print(f"{path}: {len(corpus.manifest.shards)} shards are whole · {_counted(counts)}")


def _opened(path: str) -> Corpus:
    mirror = mirror_corpus(path) if is_address(path) else None
    if is_address(path) and mirror is None:
        raise DataError(f"{path} holds no corpus; build one with larvatus corpus build, and copy it there")
    return Corpus.open(mirror or Path(path))


def first_sentences(corpus: Corpus, count: int) -> list[str]:
    """The first sentences of the corpus, decoded."""
    block = corpus.block([0])
    ends = block.sentences[: count + 1].tolist()
    return [corpus.tokenizer.decode(block.ids[a:b].tolist()) for a, b in pairwise(ends)]


def _table(title: str, languages: Mapping[str, CorpusCounts], total: CorpusCounts, alpha: float) -> Table:
    """Counts and tokens per word by language; for several languages also their shares before and after sampling."""
    mixed = len(languages) > 1
    fields = ["documents", "sentences", "words", "tokens", *([] if mixed else ["text_bytes"])]
    shares = ("p", "q") if mixed else ()
    rows = []
    for row in language_rows(languages, alpha):
        counts = languages[row.language]
        drawn = (f"{row.p:.4f}", f"{row.q:.4f}") if mixed else ()
        rows.append([row.language, *_numbers(counts, fields), *drawn, f"{row.fertility:.2f}"])
    note = f"p: share of the sentences · q: share after sampling with α = {alpha:g} · fertility: tokens per word"
    if mixed:
        rows.append(["all", *_numbers(total, fields), "", "", f"{total.tokens / max(1, total.words):.2f}"])
    columns = [name.replace("_", " ") for name in ("language", *fields, *shares, "fertility")]
    return Table(columns, rows, title=title, notes=[note] if mixed else [])


def _numbers(counts: CorpusCounts, fields: Sequence[str]) -> list[str]:
    return [f"{getattr(counts, field):,}" for field in fields]


def _mixture_dict(languages: Mapping[str, CorpusCounts], alpha: float) -> dict[str, Any]:
    rows = language_rows(languages, alpha)
    shares = {row.language: {"p": row.p, "q": row.q, "fertility": row.fertility} for row in rows}
    return {"mixture": {"alpha": alpha, "languages": shares}}


def _counted(counts: CorpusCounts) -> str:
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
