"""`larvatus evaluate`: how well a model predicts hidden tokens of held-out text, in all or language by language.

larvatus evaluate runs/two --language sw=held_out/sw.txt --language en=held_out/en.txt --by language
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
from larvatus.cli.options import Device, Json, LanguageField, Languages, OnBad, Sentences, Split, TextField, text_of
from larvatus.corpus import BuildOptions, Corpus
from larvatus.corpus.report import language_rows
from larvatus.evaluate.languages import evaluate_text, open_text
from larvatus.text.readers import ReadOptions
from larvatus.train.evaluation import HeldOut, perplexity
from larvatus.train.settings import Runtime


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.")],
    corpus: Annotated[list[str] | None, typer.Option(help="Held-out text, or a built corpus; repeatable.")] = None,
    languages: Languages = None,
    by: Annotated[Literal["language"] | None, typer.Option(help="language: a row for each.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Read no more, in all; of each language as much.")] = 1_048_576,
    device: Device = "auto",
    sentences: Sentences = "library",
    split: Split = "blank-line",
    on_bad: OnBad = "fail",
    text_field: TextField = "text",
    language_field: LanguageField = None,
    as_json: Json = False,
) -> None:
    """Masked loss, perplexity and accuracy on held-out text; masks are fixed, so that models compare."""
    text, language = text_of(corpus, languages, option="--corpus PATH")
    reading = ReadOptions(split=split, on_bad=on_bad, text_field=text_field, language_field=language_field)
    options = BuildOptions(language=language, sentences=sentences, reading=reading)
    runtime = Runtime.here(device=device, compile=False)
    bundle = load_bundle(model)
    with tempfile.TemporaryDirectory() as folder:
        opened = open_text(text, bundle.tokenizer, Path(folder) / "corpus", options)
        result = evaluate_text(bundle, opened, runtime=runtime, tokens=tokens)
        rows = _rows(result, opened, each=by == "language")
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
    Console(highlight=False).print(table)


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
