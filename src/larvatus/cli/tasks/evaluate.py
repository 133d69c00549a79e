"""`larvatus evaluate`: how well a model predicts hidden tokens of held-out text, in all or language by language; or,
where it was fine-tuned, how well it does its task (`evaluate_task.py`).

larvatus evaluate runs/two --language sw=held_out/sw.txt --language en=held_out/en.txt --by language
larvatus evaluate runs/rte --data test.tsv
larvatus evaluate runs/nested --data test.conllu
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from larvatus.bundle.directory import load_bundle
from larvatus.cli.left_out import say_counts
from larvatus.cli.numbers import SAMPLES, TOKENS, ranged
from larvatus.cli.options import (
    Device,
    Encoding,
    Json,
    LanguageField,
    Languages,
    OnBad,
    Overwrite,
    Sentences,
    Split,
    TextField,
    encoding_of,
    text_of,
)
from larvatus.cli.tasks.evaluate_task import Asked, evaluate_task
from larvatus.cli.tasks.labelled import (
    Header,
    Label,
    Labelled,
    Length,
    Merge,
    Pair,
    Quoting,
    Repair,
    Separator,
    Strict,
    Tag,
    Text,
    Truncate,
    Word,
)
from larvatus.corpus import BuildOptions, Corpus
from larvatus.corpus.report import language_rows
from larvatus.engine.settings import Runtime
from larvatus.errors import UsageError
from larvatus.evaluation.languages import evaluate_text, open_text
from larvatus.pretraining.evaluation import HeldOut, perplexity
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.fit.loop import scoring_of
from larvatus.tasks.registry import is_tuned
from larvatus.text.languages import Given
from larvatus.text.readers import ReadOptions


def evaluate(
    models: Annotated[list[Path], typer.Argument(metavar="DIR...", help="A model directory; several for GLUE.")],
    corpus: Annotated[list[str] | None, typer.Option(help="Held-out text, or a built corpus; repeatable.")] = None,
    languages: Languages = None,
    by: Annotated[Literal["language"] | None, typer.Option(help="language: a row for each.")] = None,
    tokens: Annotated[int, ranged(TOKENS, help="Read no more, in all; of each language as much.")] = 1_048_576,
    device: Device = "auto",
    sentences: Sentences = "library",
    split: Split = "blank-line",
    on_bad: OnBad = "fail",
    encoding: Encoding = None,
    text_field: TextField = "text",
    language_field: LanguageField = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Labelled examples, for a fine-tuned model; repeatable."),
    ] = None,
    against: Annotated[Path | None, typer.Option(metavar="DIR", help="Another model to compare with.")] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="NAME",
            help="Task of GLUE, one for each DIR; default: as DIR is named.",
        ),
    ] = None,
    glue: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory of GLUE's files.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the confusion matrix.")] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answers to questions by id, for official scorers."),
    ] = None,
    overwrite: Overwrite = False,
    truncate: Truncate = False,
    merge: Merge = "mean",
    length: Length = None,
    repair: Repair = False,
    strict: Strict = False,
    samples: Annotated[int, ranged(SAMPLES, help="Of the bootstrap.")] = 1000,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    separator: Separator = None,
    header: Header = None,
    quoting: Quoting = None,
    word: Word = None,
    tag: Tag = None,
    as_json: Json = False,
) -> None:
    """Masked loss, perplexity and accuracy on held-out text (--corpus), with fixed masks, so that models compare.

    Of a fine-tuned model, on labelled examples (--data, or --glue): metrics with 95% intervals, classes, confusions,
    entity errors, calibration; of spans types and depths, of answers exact match and F1; two models by paired tests
    (--against).
    """
    asked = Asked(
        models=models,
        data=data or (),
        against=against,
        tasks=tasks or (),
        glue=glue,
        plot=plot,
        predictions=predictions,
        overwrite=overwrite,
        reading=Labelled(
            text=text,
            pair=pair,
            label=label,
            separator=separator,
            header=header,
            quoting=quoting,
            word=word,
            tag=tag,
        ),
        options=EvaluationOptions(
            scoring=scoring_of(Runtime.here(device=device, precision="fp32", compile=False)),
            merge=merge,
            length=length,
            truncate=truncate,
            repair=repair,
            strict=strict,
            samples=samples,
        ),
        as_json=as_json,
    )
    if asked.any:
        if corpus or languages or by:
            raise UsageError("give one of the two: --corpus for hidden words, or --data and the like for a task")
        evaluate_task(asked)
        return
    if len(models) > 1:
        raise UsageError("held-out text is read by one model at a time; name one directory")
    (model,) = models
    if not (corpus or languages) and is_tuned(load_bundle(model)):
        raise UsageError(f"{model} was fine-tuned; give labelled examples: --data FILE, or --glue DIR")
    if asked.reading != Labelled() or truncate or repair or strict or length is not None:
        flags = "columns, --truncate, --repair, --strict and --length"
        raise UsageError(f"{flags} are for labelled examples; name some: --data FILE")
    reading = ReadOptions(
        encoding=encoding_of(encoding), split=split, on_bad=on_bad, text_field=text_field, language_field=language_field
    )
    given, language = text_of(corpus, languages, option="--corpus PATH")
    options = BuildOptions(language=language, sentences=sentences, reading=reading)
    _evaluate_text(model, given, options, each=by == "language", device=device, tokens=tokens, as_json=as_json)


def _evaluate_text(
    model: Path, text: list[Given], options: BuildOptions, *, each: bool, device: str, tokens: int, as_json: bool
) -> None:
    runtime = Runtime.here(device=device, compile=False)
    bundle = load_bundle(model)
    with tempfile.TemporaryDirectory() as folder:
        opened = open_text(text, bundle.tokenizer, Path(folder) / "corpus", options)
        result = evaluate_text(bundle, opened, runtime=runtime, tokens=tokens)
        rows = _rows(result, opened, each=each)
    say_counts(opened.manifest.skipped)
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    table = Table(title=escape(str(model)), title_justify="left", box=None, pad_edge=False)
    for name in (
        "language",
        "tokens",
        "hidden",
        "loss",
        "perplexity",
        "right",
        "unigram loss",
        "unigram right",
        "fert.",
    ):
        table.add_column(name, justify="left" if name == "language" else "right")
    for row in rows:
        table.add_row(
            escape(row["language"]),
            f"{row['tokens']:,}",
            f"{row['hidden']:,}",
            f"{row['loss']:.3f}",
            f"{row['perplexity']:,.1f}",
            f"{row['accuracy']:.1%}",
            f"{row['unigram_loss']:.3f}",
            f"{row['unigram_accuracy']:.1%}",
            f"{row['fertility']:.2f}",
        )
    console = Console(highlight=False)
    console.print(table)
    if bundle.network.generator is not None:
        console.print("hidden tokens were predicted by the generator, as fill and score do", soft_wrap=True)


def _rows(result: HeldOut, corpus: Corpus, *, each: bool) -> list[dict[str, Any]]:
    """A row for each language, if asked for, then one for all."""
    counts = corpus.manifest.counts
    fertility = {row.language: row.fertility for row in language_rows(corpus.manifest.languages, 1.0)}
    parts = result.languages or {name: result for name in corpus.manifest.languages if len(corpus.languages) == 1}
    rows = [_row(name, part, fertility[name]) for name, part in parts.items()] if each else []
    return [*rows, _row("all", result, counts.tokens / max(1, counts.words))]


def _row(language: str, result: HeldOut, fertility: float) -> dict[str, Any]:
    score = result.scores["masked-lm"]
    return {
        "language": language,
        "tokens": result.tokens,
        "hidden": score.count,
        "loss": score.loss,
        "perplexity": perplexity(score.loss),
        "accuracy": score.accuracy,
        "unigram_loss": result.guess_loss,
        "unigram_accuracy": result.guess_accuracy,
        "fertility": fertility,
    }
