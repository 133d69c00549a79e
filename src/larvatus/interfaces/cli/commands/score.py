"""`larvatus score "The cat sat." --model DIR`: how well a model expects texts; with --pairs, which of two."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, islice, starmap
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Flag
from larvatus.core.signals import resumable
from larvatus.core.tables import Cell, Column, Table
from larvatus.data.bulk.parts import BlockLines, LineJob, skip_row, skips_bad_rows, write_errors_to
from larvatus.data.bulk.row_files import check_row_file, json_lines
from larvatus.data.corpus.sources import fingerprint
from larvatus.data.text.readers import expand_patterns, has_columns, read_single_texts
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.compare.minimal_pairs import GROUPS, Normalise
from larvatus.inference.cloze.likelihood import BulkScoring, LabelledText
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.cloze.results import Score, ScoreTotals
from larvatus.inference.model import Model
from larvatus.interfaces.api.text_evaluation import score_pairs
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import Bulk, Encoding, Json, Machine, ModelName, TextFileOptions
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, print_json, show_part
from larvatus.metrics.accuracy import Accuracy, PairAccuracies

LINES_AT_ONCE = 256


class ScoreSettings(TextFileOptions):
    """Texts or pairs, scoring method and output of `larvatus score`."""

    pairs: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Minimal pairs: BLiMP's JSONL, or good<TAB>bad[<TAB>phenomenon] a line; repeatable."""
    method: Method = "original"
    """Mask each token by itself, or with the rest of its word (Kauf & Ivanova 2023)."""
    normalise: Normalise = "none"
    """With --pairs: divide each sentence's score by its tokens or words."""
    resume: bool = False
    """Resume an interrupted run to --out."""


@from_structs
def score(
    model: ModelName,
    machine: Machine,
    chosen: Annotated[ScoreSettings, Panel()],
    bulk: Bulk,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; - reads lines from standard input.")] = None,
    encoding: Encoding = None,  # holds while the command runs
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score texts word by word by pseudo-log-likelihood, or minimal pairs by accuracy (--pairs)."""
    _check(texts, chosen)
    check_outputs(chosen.out, overwrite=chosen.overwrite or chosen.resume, inputs=[model, *chosen.pairs, *chosen.file])
    check_row_file(chosen.out)
    check_outputs(bulk.errors, overwrite=True, inputs=[model, *chosen.pairs, *chosen.file])
    loaded = machine.load(model)
    if chosen.pairs:
        _pairs(loaded, chosen, as_json=as_json)
        return
    scoring = BulkScoring(loaded, chosen.method, bulk.executor(device=loaded.requested_device))
    with write_errors_to(bulk.errors):
        if chosen.out is not None:
            _to_file(scoring, chosen)
            return
        totals = ScoreTotals()
        for block in scoring(_blocks(texts or [], expand_patterns(chosen.file), chosen.text)):
            for score in block.scores:
                totals = totals.plus(score)
                if as_json:
                    print(json.dumps(score.to_dict(), ensure_ascii=False))
                else:
                    _show(score, loaded.tokenizer)
            for line in block.faults:
                skip_row(line)
    if totals.texts > 1 and not as_json:
        print(f"all {totals.texts:,} texts: {totals.line()}")


def _to_file(scoring: BulkScoring, chosen: ScoreSettings) -> None:
    """Scores of files, a row each, in a file that can be resumed after a kill."""
    assert chosen.out is not None
    inputs = fingerprint(chosen.file)
    if inputs is None:
        raise UsageError("standard input cannot be read again; --out needs files")
    settings = {
        "model": scoring.model.fingerprint,
        "inputs": inputs,
        "method": chosen.method,
        "errors": skips_bad_rows(),
    }
    if any(map(has_columns, expand_patterns(chosen.file))):
        settings["column"] = chosen.text or "guessed"
    job = LineJob(chosen.out, settings, resume=chosen.resume, overwrite=chosen.overwrite)

    def answered(blocks: Iterator[list[LabelledText]]) -> Iterator[BlockLines]:
        for block in scoring(blocks):
            kept = (json_lines(job.format, score.to_dict(), score.to_dicts()) for score in block.scores)
            lines = list(chain.from_iterable(kept))
            tokens = sum(len(score.pieces) for score in block.scores)
            total = math.fsum(score.total for score in block.scores)
            sums = {"texts": len(block.scores), "tokens": tokens, "total": total}
            yield BlockLines(lines, block.faults, sums)

    way = "the same command with --resume continues from what was written"
    with ProgressReporter("texts") as bar, resumable(way):
        blocks = _blocks([], expand_patterns(chosen.file), chosen.text)
        counts = job.write(blocks, answered, lambda counts: bar(int(counts["texts"])))
    loss = -counts["total"] / max(1, counts["tokens"])
    print(f"{counts['texts']:,.0f} texts · {counts['tokens']:,.0f} tokens · {loss:.3f} nats a token · {chosen.out}")


def _check(texts: Sequence[str] | None, chosen: ScoreSettings) -> None:
    file, pairs, out, resume = chosen.file, chosen.pairs, chosen.out, chosen.resume
    if pairs and (texts or file):
        raise UsageError("--pairs is scored by itself; leave out the texts")
    if not (pairs or texts or file):
        raise UsageError("nothing to score; give texts, - for standard input, --file or --pairs")
    to_file = (out is not None or resume) and bool(texts or not file)
    if not pairs and (to_file or chosen.normalise != "none"):
        raise UsageError(
            "--out, --resume and --normalise are for --pairs, the first two for --file as well; scores of texts go to "
            "standard output"
        )
    if chosen.text is not None and not file:
        raise UsageError("--text names a column of --file; leave it out")
    if resume and out is None:
        raise UsageError("--resume needs --out, the file of the run that was interrupted")
    if resume and pairs and "-" in pairs:
        raise UsageError("standard input cannot be read again; --resume needs files")


def _blocks(texts: Sequence[str], names: Sequence[str], column: str | None) -> Iterator[list[LabelledText]]:
    """Texts as given, then lines or rows that are not blank, some at a time, each with what messages call it."""
    given = [text for text in texts if text != "-"]
    if given:
        yield [LabelledText(f"text {number} of {len(given)}", text) for number, text in enumerate(given, start=1)]
    for name in [*(text for text in texts if text == "-"), *names]:
        lines = starmap(LabelledText, read_single_texts(name, None if name == "-" else column))
        block = list(islice(lines, LINES_AT_ONCE))
        if not block:
            raise DataError(f"{'standard input' if name == '-' else name} has no text to score; give one text a line")
        while block:
            yield block
            block = list(islice(lines, LINES_AT_ONCE))


def _show(score: Score, tokenizer: Tokenizer) -> None:
    console = Console(soft_wrap=True, highlight=False)
    pieces: list[list[str]] = [[] for _ in score.word_spans]
    for piece, word in zip(score.pieces, score.words_of_tokens.tolist(), strict=True):
        if word >= 0:
            pieces[word].append(tokenizer.readable(piece))
    rows = [
        (f"{word.score:.3f}", Cell(word.text, "bold"), Cell(" ".join(parts) if len(parts) > 1 else "", "dim"))
        for word, parts in zip(score.words, pieces, strict=True)
    ]
    show_part(console, Table((Column(""), Column("", right=False), Column("", right=False)), rows))
    console.print(Text(ScoreTotals().plus(score).line()))
    for note in score.notes:
        console.print(Text(f"note: {note}"))


def _pairs(loaded: Model, chosen: ScoreSettings, *, as_json: bool) -> None:
    method, normalise, out = chosen.method, chosen.normalise, chosen.out
    begun = time.monotonic()
    with ProgressReporter("pairs", start="scoring") as bar:

        def progress(done: int, total: int) -> None:
            bar.continue_from(done)
            bar(done, total)

        result = score_pairs(
            loaded,
            chosen.pairs,
            out=out,
            overwrite=chosen.overwrite,
            resume=chosen.resume,
            progress=progress,
            method=method,
            normalise=normalise,
        )
    count = result.overall.total
    seconds = time.monotonic() - begun
    if as_json:
        told = {"method": method, "normalise": normalise, "pairs": count, "seconds": seconds, **asdict(result)}
        print_json(told)
    else:
        _show_pairs(result)
        rate = (count - (bar.before or 0)) / max(seconds, 1e-9)
        print(f"{count:,} pairs ({method}) · {rate:,.1f} pairs/s" + (f" · all scores in {out}" if out else ""))


def _show_pairs(result: PairAccuracies) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for name in GROUPS:
        if name not in result.by:
            continue
        rows = [(group, *_cells(accuracy)) for group, accuracy in result.by[name].items()]
        show_part(console, Table((GROUPS[name], "pairs", "right", "95%"), rows))
        console.print()
    overall = result.overall
    share, interval = _cells(overall)[1:]
    print(f"overall: {share} right ({interval}) · {result.ties:,} ties, counted as wrong")


def _cells(accuracy: Accuracy) -> tuple[str, str, str]:
    return f"{accuracy.total:,}", f"{accuracy.share:.1%}", f"{100 * accuracy.low:.1f}–{100 * accuracy.high:.1f}"
