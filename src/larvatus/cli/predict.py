"""`larvatus predict DIR "A text."`: classes or tags from a fine-tuned model, for texts, files and pipes."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from larvatus.cli.counting import Counting
from larvatus.cli.options import Device, Json
from larvatus.errors import UsageError
from larvatus.files import new_file
from larvatus.model import load
from larvatus.tasks.classify import Merge
from larvatus.tasks.data.columns import Columns
from larvatus.tasks.data.records import TextExample
from larvatus.tasks.data.unlabelled import TextFormat, read_unlabelled
from larvatus.tasks.predict import Example, Given, Predicted, PredictOptions, Predictor, Totals
from larvatus.tasks.results import Answer, Classified, Prediction, Spanned, Tagged

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def predict(
    model: Annotated[str, typer.Argument(metavar="DIR", help="A fine-tuned model.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; - is standard input.")] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="Text a line, CSV, TSV, JSONL, Parquet, CoNLL; -; repeatable."),
    ] = None,
    pair: Annotated[str | None, typer.Option(metavar="TEXT", help="The second text of a pair, for one TEXT.")] = None,
    text: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the text, by name or number.")] = None,
    pair_column: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the second text.")] = None,
    format: Annotated[TextFormat | None, typer.Option(help="Of the files; default: by their names.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JSONL here; it appears when whole.")] = None,
    truncate: Annotated[bool, typer.Option("--truncate", help="Read the first window of long texts alone.")] = False,
    merge: Annotated[Merge, typer.Option(help="How windows decide on a class: mean or highest score.")] = "mean",
    length: Annotated[int | None, typer.Option(help="Tokens of a window; default: the model's positions.")] = None,
    overlap: Annotated[int | None, typer.Option(help="Tokens that windows share; default: a quarter.")] = None,
    batch_tokens: Annotated[int, typer.Option(min=0, help="Tokens of a batch; 0: as suits the device.")] = 0,
    top: Annotated[int | None, typer.Option(min=1, help="Show the most probable classes, so many of them.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Show all classes.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Classify texts or tag their words: labels, probabilities, characters, and how much of each text was read."""
    options = PredictOptions(merge=merge, truncate=truncate, length=length, overlap=overlap, tokens=batch_tokens)
    columns = Columns(text=text, pair=pair_column)
    _check(texts, file, pair=pair, columns=columns, format=format)
    loaded = load(model, device=device)
    predictor = Predictor(loaded.bundle, options, loaded.device)
    if predictor.tags and (pair is not None or pair_column is not None or top is not None or probabilities):
        raise UsageError(f"{model} tags words; --pair, --pair-column, --top and --probabilities are for classifiers")
    examples = _examples(texts or [], file or [], pair, _reader(predictor, columns, format))
    shown = len(predictor.head.config.labels) if probabilities else top
    totals, begun = Totals(), time.monotonic()
    with _writer(out, as_json=as_json, top=shown, labels=predictor.head.config.labels) as (write, bar):
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


def _reader(predictor: Predictor, columns: Columns, format: TextFormat | None) -> Callable[[str], Iterator[Example]]:
    def read(name: str) -> Iterator[Example]:
        return read_unlabelled(name, words=predictor.tags, columns=columns, format=format, say=_say)

    return read


def _examples(
    texts: Sequence[str], names: Sequence[str], pair: str | None, read: Callable[[str], Iterator[Example]]
) -> Iterator[Example]:
    """Texts as given, then those of files, one after the other."""
    given = [text for text in texts if text != "-"]
    own = (TextExample(text, pair, None, Given("text", number)) for number, text in enumerate(given, start=1))
    files = [*(text for text in texts if text == "-"), *names]
    return chain(own, chain.from_iterable(read(name) for name in files))


@contextmanager
def _writer(
    out: Path | None, *, as_json: bool, top: int | None, labels: Sequence[str]
) -> Iterator[tuple[Callable[[Predicted], None], Counting | None]]:
    """What to do with each answer; a bar counts them where they go to a file."""
    if out is not None:
        with new_file(out) as path, path.open("w", encoding="utf-8") as stream, Counting("texts") as bar:
            yield (lambda answer: print(json_line(answer, top), file=stream)), bar
    elif as_json:
        yield (lambda answer: _print(json_line(answer, top))), None
    else:
        console = _Console(soft_wrap=True, highlight=False)
        width = max(map(len, labels))

        def show(answer: Predicted) -> None:
            console.print(shown(answer.found, top=top, width=width))
            sys.stdout.flush()

        yield show, None


def _print(line: str) -> None:
    """A line at once: who reads the pipe need not wait for more."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise BrokenPipeError from None  # without its number: with it, typer exits with 1 before `main.run` sees it


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The library would exit with 1; a reader who has enough is no fault (see `main.run`)."""
        raise BrokenPipeError


def json_line(answer: Predicted, top: int | None = None) -> str:
    """An answer as JSON, with the id and line of its text where it comes from a file."""
    example = answer.example
    record: dict[str, Any] = {"id": example.id} if example.id is not None else {}
    if not isinstance(example.place, Given):
        record["line"] = example.place.line
    record |= answer.found.to_dict()
    if top is not None and "probabilities" in record:
        record["probabilities"] = dict(_best(record["probabilities"], top))
    return json.dumps(record, ensure_ascii=False)


def _best(probabilities: dict[str, float], top: int) -> list[tuple[str, float]]:
    return sorted(probabilities.items(), key=lambda item: -item[1])[:top]


def shown(found: Prediction, *, top: int | None = None, width: int = 0) -> Text:
    """A line for people: a class and its text, entities in brackets, or word/TAG."""
    if isinstance(found, Tagged):
        return _tagged(found)
    if isinstance(found, Spanned):
        return _nested(found)
    if isinstance(found, Answer):
        answer = Text(str(found), style="bold").append("  ", style="not bold")
        return answer.append(_flat(found.question), style="not bold")
    return _classified(found, top, width)


def _nested(found: Spanned) -> Text:
    """The text with its spans in brackets, inner ones within outer ones."""
    opens: dict[int, int] = Counter(entity.start for entity in found.entities)
    closes: dict[int, list[str]] = {}
    for entity in sorted(found.entities, key=lambda one: one.start, reverse=True):  # what opens last closes first
        closes.setdefault(entity.end, []).append(entity.label)
    line = Text()
    for place in range(len(found.text) + 1):
        for label in closes.get(place, ()):
            line.append(f" {label}]", style="bold")
        line.append("[" * opens.get(place, 0), style="bold")
        line.append(found.text[place : place + 1].replace("\n", " "))
    for relation in found.relations:
        line.append(f"  {_flat(str(relation))}", style="italic")
    return line


def _classified(found: Classified, top: int | None, width: int) -> Text:
    if top is not None and found.probabilities:
        answer = "  ".join(f"{label} {share:.3f}" for label, share in _best(found.probabilities, top))
    elif found.label is not None:
        answer = f"{found.label:<{width}} {found.probability:.3f}"
    else:
        answer = str(found)
    line = Text(answer, style="bold").append("  ", style="not bold")
    line.append(_flat(found.text), style="not bold")
    if found.pair is not None:
        line.append(" ⟷ ", style="dim").append(_flat(found.pair), style="not bold")
    return line


def _tagged(found: Tagged) -> Text:
    line = Text()
    if not found.entities and all(word.tag != "O" for word in found.words):  # parts of speech: every word has its own
        for word in found.words:
            line.append(word.text).append(f"/{word.tag} ", style=f"dim {_colour(word.tag)}")
        return line
    at = 0
    for entity in found.entities:
        line.append(_flat(found.text[at : entity.start]))
        line.append(f"[{_flat(entity.text)} ", style=f"bold {_colour(entity.label)}")
        line.append(f"{entity.label}]", style=_colour(entity.label))
        at = entity.end
    return line.append(_flat(found.text[at:]))


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
