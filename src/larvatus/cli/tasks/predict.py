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
from larvatus.labelled.records import QuestionPlace, TextExample
from larvatus.labelled.squad import TABLES, read_questions, unique_id
from larvatus.labelled.squad_file import write_predictions
from larvatus.labelled.tables import ending
from larvatus.labelled.unlabelled import TextFormat, read_unlabelled
from larvatus.model import load
from larvatus.outputs import check_outputs, new_output
from larvatus.ranges import COUNT_OR_NONE, SIZE
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.predict import Example, Given, Predicted, PredictOptions, Predictor, Totals
from larvatus.tasks.results import Answer, Classified, Entity, Prediction, Spanned, Tagged

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
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
    if predictor.tags and (pair is not None or pair_column is not None or top is not None or probabilities):
        raise UsageError(f"{model} tags words; --pair, --pair-column, --top and --probabilities are for classifiers")
    if predictor.asks and probabilities:
        raise UsageError(f"{model} answers questions; --top shows its best answers, --probabilities are for classes")
    examples = _examples(texts or [], file or [], pair, _reader(predictor, columns, format))
    shown = len(predictor.head.config.labels) if probabilities else top
    totals, begun = Totals(), time.monotonic()
    by_id = out is not None and out.suffix == ".json" and predictor.asks
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


def _reader(predictor: Predictor, columns: Columns, format: TextFormat | None) -> Callable[[str], Iterator[Example]]:
    def read(name: str) -> Iterator[Example]:
        if predictor.asks and columns == Columns() and _holds_questions(name, format):
            return _questions(name)
        return read_unlabelled(name, words=predictor.tags, columns=columns, format=format, say=_say)

    return read


def _holds_questions(name: str, format: TextFormat | None) -> bool:
    """SQuAD's JSON, or rows with a question and its passage; other tables have pairs of columns."""
    return name != "-" and (ending(name) in (".json", *TABLES) if format is None else format in ("jsonl", "parquet"))


def _questions(name: str) -> Iterator[Example]:
    data = read_questions(name, labelled=False)
    _say(data.describe())
    return (TextExample(one.question, one.passage, None, one.place, one.id) for one in data)


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
    assert isinstance(answer.found, Answer)
    answers[own] = answer.found.text


def json_line(answer: Predicted, top: int | None = None) -> str:
    """An answer as JSON, with the id and line of its text where it comes from a file."""
    example = answer.example
    record: dict[str, Any] = {"id": example.id} if example.id is not None else {}
    if not isinstance(example.place, Given | QuestionPlace):
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
        return _answered(found, top)
    return _classified(found, top, width)


def _answered(found: Answer, top: int | None) -> Text:
    """The answer, or where several are asked for, those of the best spans; then the question."""
    several = [*([] if found.text else [str(found)]), *map(str, found.others)]
    answer = "  ".join(several) if top is not None else str(found)
    line = Text(_flat(answer), style="bold").append("  ", style="not bold")
    return line.append(_flat(found.question), style="not bold")


def _nested(found: Spanned) -> Text:
    """The text with its spans in brackets, inner ones within outer ones: ``[[United Airlines ORG] Holding ORG]``.

    Brackets of spans that cross would read as nested ones; they bear numbers: ``[₁the [₂river X]₁ bank Y]₂``.
    """
    order = sorted(found.entities, key=lambda one: (one.start, -one.end))
    numbers = {id(one): number for number, one in enumerate(_crossing(order), start=1)}
    marks: dict[int, list[tuple[str, Entity]]] = {}
    for entity in reversed(order):  # what opens last closes first
        marks.setdefault(entity.end, []).append(("]", entity))
    for entity in order:
        marks.setdefault(entity.start, []).append(("[", entity))
    line, at = Text(), 0
    for place in sorted(marks):
        line.append(_flat(found.text[at:place]))
        for bracket, entity in marks[place]:
            number = str(numbers.get(id(entity), "")).translate(SUBSCRIPTS)
            said = f"[{number}" if bracket == "[" else f" {entity.label}]{number}"
            line.append(said, style=f"bold {_colour(entity.label)}")
        at = place
    line.append(_flat(found.text[at:]))
    for relation in found.relations:
        line.append(f"  {_flat(str(relation))}", style="italic")
    return line


def _crossing(order: Sequence[Entity]) -> list[Entity]:
    """Those that cross another, of entities by their start, longer ones first."""
    found: dict[int, Entity] = {}
    for number, one in enumerate(order):
        for other in order[number + 1 :]:
            if other.start >= one.end:
                break
            if one.start < other.start and one.end < other.end:
                found |= {id(one): one, id(other): other}
    return [one for one in order if id(one) in found]


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
