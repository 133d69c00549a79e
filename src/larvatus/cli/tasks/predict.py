"""`larvatus predict DIR "A text."`: classes, tags, spans or answers of a fine-tuned model, for texts, files and pipes.

larvatus predict runs/nested "She works for United Airlines Holding."
larvatus predict runs/qa "Where is Mt. Sanitas?" --pair "Mt. Sanitas is in Sunshine Canyon."
larvatus predict runs/qa --file dev-v2.0.json --out predictions.json
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from larvatus.cli.numbers import TOP, ranged
from larvatus.cli.options import Device, Encoding, Json, Overwrite
from larvatus.cli.text.counting import Counting
from larvatus.errors import UsageError
from larvatus.labelled.columns import Columns
from larvatus.labelled.records import QuestionPlace
from larvatus.labelled.squad import unique_id
from larvatus.labelled.squad_file import write_predictions
from larvatus.labelled.unlabelled import TextFormat
from larvatus.model import load
from larvatus.outputs import check_outputs, new_output
from larvatus.ranges import COUNT_OR_NONE, SIZE
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.predict import Given, Predicted, PredictOptions, Predictor, Totals
from larvatus.tasks.results import Prediction, best

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def predict(
    model: Annotated[str, typer.Argument(metavar="DIR", help="A fine-tuned model.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; - is standard input.")] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", metavar="FILE", help="Text a line, CSV, TSV, JSONL, Parquet, CoNLL, SQuAD; -; repeatable."
        ),
    ] = None,
    pair: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The second text of a pair, or the passage of a question, for one TEXT."),
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the text, by name or number.")] = None,
    pair_column: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the second text.")] = None,
    format: Annotated[TextFormat | None, typer.Option(help="Of the files; default: by their names.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write JSONL here, or answers by id to .json; it appears when whole."),
    ] = None,
    overwrite: Overwrite = False,
    truncate: Annotated[bool, typer.Option("--truncate", help="Read the first window of long texts alone.")] = False,
    merge: Annotated[Merge, typer.Option(help="How windows decide on a class: mean or highest score.")] = "mean",
    length: Annotated[int | None, ranged(SIZE, help="Tokens of a window; default: the model's positions.")] = None,
    overlap: Annotated[int | None, ranged(COUNT_OR_NONE, help="Tokens that windows share; default: a quarter.")] = None,
    batch_tokens: Annotated[int, ranged(COUNT_OR_NONE, help="Tokens of a batch; 0: as suits the device.")] = 0,
    top: Annotated[int | None, ranged(TOP, help="Show the most probable classes or answers, so many of them.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Show all classes.")] = False,
    device: Device = "auto",
    encoding: Encoding = None,  # holds while the command runs
    as_json: Json = False,
) -> None:
    """Classify texts, tag their words, find spans or answer questions: labels, probabilities, characters, and how much
    of each text was read."""
    options = PredictOptions(
        merge=merge, truncate=truncate, length=length, overlap=overlap, tokens=batch_tokens, top=top or 1
    )
    columns = Columns(text=text, pair=pair_column)
    _check(texts, file, pair=pair, columns=columns, format=format)
    check_outputs(out, overwrite=overwrite, inputs=[model, *(file or ())])
    loaded = load(model, device=device)
    predictor = Predictor(loaded.bundle, options, loaded.device)
    flags = {
        "pair": pair is not None or pair_column is not None,
        "top": top is not None,
        "probabilities": probabilities,
    }
    if any(given and flag not in predictor.task.predict_flags for flag, given in flags.items()):
        useless = [f"--{flag}" for flag in flags if flag not in predictor.task.predict_flags]
        said = " and ".join(useless).replace("--pair and --top and", "--pair, --pair-column, --top and")
        raise UsageError(f"{model} {predictor.task.card.what}; {said} are for classifiers")
    examples = _examples(predictor, texts or [], file or [], pair, _reader(predictor, columns, format))
    shown = len(predictor.head.config.labels) if probabilities else top
    totals, begun = Totals(), time.monotonic()
    by_id = out is not None and out.suffix == ".json" and predictor.task.answers_by_id
    with _writer(out, as_json=as_json, top=shown, labels=predictor.head.config.labels, by_id=by_id) as (write, bar):
        for answer in predictor.answers(examples):
            totals.add(answer.found)
            write(answer)
            if bar is not None:
                bar(totals.texts)
    _summary(totals, time.monotonic() - begun, out)


def _check(
    texts: Sequence[str] | None,
    file: Sequence[str] | None,
    *,
    pair: str | None,
    columns: Columns,
    format: TextFormat | None,
) -> None:
    if not (texts or file):
        raise UsageError("nothing to predict; give texts, - for standard input, or --file")
    if [*(texts or ()), *(file or ())].count("-") > 1:
        raise UsageError("standard input is read once; give - once")
    if pair is not None and (file or len(texts or ()) != 1 or texts == ["-"]):
        raise UsageError("--pair goes with one TEXT; the pairs of a file are a column, --pair-column")
    if not file and "-" not in (texts or ()) and (columns != Columns() or format is not None):
        raise UsageError("--text, --pair-column and --format are for files; leave them out")
    if columns.pair is not None and columns.text is None:
        raise UsageError("--pair-column goes with --text, the column of the first text")


def _reader(predictor: Predictor, columns: Columns, format: TextFormat | None) -> Callable[[str], Iterator[Any]]:
    return lambda name: predictor.task.read_plain(name, columns, format, _say)


def _examples(
    predictor: Predictor,
    texts: Sequence[str],
    names: Sequence[str],
    pair: str | None,
    read: Callable[[str], Iterator[Any]],
) -> Iterator[Any]:
    """Texts as given, then those of files, one after the other."""
    given = [text if pair is None else (text, pair) for text in texts if text != "-"]
    own = (predictor.task.example(text, Given("text", number)) for number, text in enumerate(given, start=1))
    files = [*(text for text in texts if text == "-"), *names]
    return chain(own, chain.from_iterable(read(name) for name in files))


@contextmanager
def _writer(
    out: Path | None, *, as_json: bool, top: int | None, labels: Sequence[str], by_id: bool = False
) -> Iterator[tuple[Callable[[Predicted], None], Counting | None]]:
    """What to do with each answer; a bar counts them where they go to a file."""
    if out is not None and by_id:
        answers: dict[str, str] = {}
        with Counting("questions") as bar:
            yield (lambda answer: _keep(answers, answer)), bar
        write_predictions(out, answers)
    elif out is not None:
        with new_output(out) as path, path.open("w", encoding="utf-8") as stream, Counting("texts") as bar:
            yield (lambda answer: print(json_line(answer, top), file=stream)), bar
    elif as_json:
        # a line at once: who reads the pipe need not wait for more
        yield (lambda answer: print(json_line(answer, top), flush=True)), None
    else:
        console = Console(soft_wrap=True, highlight=False)
        width = max(map(len, labels))

        def show(answer: Predicted) -> None:
            console.print(shown(answer.found, top=top, width=width))
            sys.stdout.flush()

        yield show, None


def _keep(answers: dict[str, str], answer: Predicted) -> None:
    """An answer under the id of its question, as official scorers read them."""
    own, place = answer.example.id, answer.example.place
    if own is None:
        raise UsageError(f"{place} has no id, by which a .json file tells answers; write .jsonl, or give questions ids")
    if own in answers:  # of another file: those of one are numbered already
        own, given = unique_id(own, answers), own
        _say(f"{place}: the id {given} is taken by another file; its answer stands under {own}")
    answers[own] = str(answer.found.to_dict()["text"])


def json_line(answer: Predicted, top: int | None = None) -> str:
    """An answer as JSON, with the id and line of its text where it comes from a file."""
    example = answer.example
    record: dict[str, Any] = {"id": example.id} if example.id is not None else {}
    if not isinstance(example.place, Given | QuestionPlace):
        record["line"] = example.place.line
    record |= answer.found.to_dict()
    if top is not None and "probabilities" in record:
        record["probabilities"] = dict(best(record["probabilities"], top))
    return json.dumps(record, ensure_ascii=False)


def shown(found: Prediction, *, top: int | None = None, width: int = 0) -> Text:
    """A line for people: a class and its text, entities in brackets, or word/TAG."""
    line = Text()
    for piece in found.pieces(top=top, width=width):
        style = " ".join(
            _colour(word.removeprefix("label:")) if word.startswith("label:") else word for word in _styles(piece.style)
        )
        line.append(_flat(piece.text), style=style or None)
    return line


def _styles(style: str) -> list[str]:
    """The words of a style; a label may have spaces, and comes last."""
    plain, mark, label = style.partition("label:")
    return [*plain.split(), *([f"label:{label}"] if mark else [])]


def _colour(label: str) -> str:
    return COLOURS[sum(label.encode()) % len(COLOURS)]


def _flat(text: str) -> str:
    """On one line, with nothing that a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _summary(totals: Totals, seconds: float, out: Path | None) -> None:
    rate = totals.texts / max(seconds, 1e-9)
    read = "100% read" if not totals.cut else f"{totals.read / totals.tokens:.1%} read"
    texts = "1 text" if totals.texts == 1 else f"{totals.texts:,} texts"
    _say(f"{texts} · {rate:,.1f} texts/s · {totals.tokens:,} tokens, {read}" + (f" · {out}" if out else ""))
    if totals.cut:
        _say(f"warning: {totals.unread}; leave out --truncate to read all")
