"""Files of predictions: for GLUE's server, lines of a task's own format, a page of pictures.

Predictions of a test set as a file for GLUE's server.

write_for_server(test, predictor, answering, file="test.tsv", columns=Columns(), out=Path("glue"), say=print)

A page of predictions as notebooks show them: trees as arcs, clusters as marks, roles as layers, classes as bars.

with write_page(Path("trees.html"), "runs/parser") as (write, bar):
    write(answer)

The page has no script, and its policy allows none. It is written one prediction at a time.

Predictions as lines of a format that only some tasks have: trees in CoNLL-U, coreference in CoNLL-2012; or a page.

with line_writer(Path("novel.conll"), ".conll", task, "runs/coref", resume=False) as (write, bar):
    write(answer)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from html import escape
from itertools import count, islice
from pathlib import Path

from larvatus.core.drawing import STYLE, STYLE_BLOCK, legible
from larvatus.core.errors import UsageError
from larvatus.core.files import saying_what_is_full
from larvatus.core.outputs import new_output
from larvatus.data.labelled.glue import FILES, GlueTestSet, check_labels, prediction, read_test_rows, write_submission
from larvatus.data.labelled.tables import Columns
from larvatus.inference.web_page import PAGE_END, asset, page_start
from larvatus.interfaces.cli.output import ProgressReporter
from larvatus.tasks.predict import BulkPredictor, ExamplePrediction, TaskPredictor, blocks
from larvatus.tasks.registry import TASKS, AnyTask


def write_for_server(
    test: GlueTestSet,
    predictor: TaskPredictor,
    answering: BulkPredictor,
    *,
    file: str,
    columns: Columns,
    out: Path,
    say: Callable[[str], None],
) -> None:
    """Predict a test set and write its file into `out`; report which files the server still lacks."""
    config, model = predictor.head.config, str(answering.model.bundle.path)
    if not predictor.task.of_glue:
        raise UsageError(f"{model} {predictor.task.card.what}; GLUE's tasks are classification and regression")
    check_labels(test, config.labels, numbers=predictor.task.label_kind(config) == "regression", model=model)
    examples = read_test_rows(test, file, columns, say)

    def answered() -> Iterator[tuple[str, str]]:
        for block in answering(blocks(examples)):
            for answer in block.answers:
                record = answer.found.to_dict()
                yield str(answer.example.id), prediction(test, record.get("label"), record.get("value"))

    with saying_what_is_full(out):
        out.mkdir(parents=True, exist_ok=True)
    with ProgressReporter("rows") as bar:
        rows = write_submission(out / test.file, _counted(answered(), bar))
    missing = [name for name in FILES if not (out / name).is_file()]
    way = f"still missing for the server: {', '.join(missing)}" if missing else f"all files are there: zip {out}/*.tsv"
    print(f"{out / test.file}: {rows:,} predictions · {way}")


def _counted(rows: Iterator[tuple[str, str]], bar: Callable[[int], None]) -> Iterator[tuple[str, str]]:
    done = 0
    while some := list(islice(rows, 256)):
        done += len(some)
        bar(done)
        yield from some


POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@contextmanager
def write_page(out: Path, model: str) -> Iterator[tuple[Callable[[ExamplePrediction], None], ProgressReporter]]:
    """A function that adds a prediction to the page, and the bar that counts them."""
    title = f"predictions of {Path(model).name or model}"
    numbers = count(1)
    with new_output(out) as aside, aside.open("w", encoding="utf-8") as file, ProgressReporter("texts") as bar:

        def write(answer: ExamplePrediction) -> None:
            draw = getattr(answer.found, "_repr_html_", None)
            if draw is None:
                raise UsageError(
                    f"{out}: no picture shows what {model} gives; end it in .jsonl, .csv, .tsv or .parquet"
                )
            name = legible(answer.example.id or f"text {next(numbers)}")
            html = draw().replace(STYLE_BLOCK, "")  # the page has it once
            print(f'<section aria-label="{escape(name)}"><h2>{escape(name)}</h2>{html}</section>', file=file)

        style = asset("larvatus.inference", "page.css") + STYLE
        print(page_start(title, policy=POLICY, style=style), file=file)
        print(f'<header><h1>{escape(title)}</h1></header>\n<main class="pictures">', file=file)
        yield write, bar
        print(f"</main>\n{PAGE_END}", end="", file=file)


LINE_FORMATS = tuple(sorted({ending for task in TASKS.values() for ending in task.line_formats}))
"""Endings of files that some task writes in its format."""
PAGE = ".html"
"""Ending of a page of pictures, which almost all tasks have."""
Writer = tuple[Callable[[ExamplePrediction], None], ProgressReporter | None]
"""What to do with each answer, and the bar that counts them."""


def line_writer(
    out: Path | None, ending: str, task: AnyTask, model: str, *, resume: bool
) -> AbstractContextManager[Writer] | None:
    """A writer of the format `ending`, to a file or standard output; None for rows. Other tasks refuse the format."""
    if not ending:
        return None
    if ending == PAGE and out is not None and not resume:
        return write_page(out, model)
    if ending not in task.line_formats or resume:
        why = "--resume writes rows" if resume else f"{model} {task.card.what}, which {ending} does not hold"
        raise UsageError(
            f"{why}; leave --conllu out" if out is None else f"{out}: {why}; end it in .jsonl, .csv, .tsv or .parquet"
        )
    return _lines(out, task, ending)


def writes_by_id(out: Path | None, task: AnyTask, model: str) -> bool:
    """Whether `out` holds answers by id; refused of models that do not answer questions."""
    by_id = out is not None and out.suffix == ".json"
    if by_id and not task.answers_by_id:
        raise UsageError(
            f"{out}: .json holds answers to questions by id, and {model} {task.card.what}; "
            "end it in .jsonl, .csv, .tsv or .parquet"
        )
    return by_id


@contextmanager
def _lines(out: Path | None, task: AnyTask, ending: str) -> Iterator[Writer]:
    numbers = count(1)

    def lines(answer: ExamplePrediction) -> str:
        return "".join(f"{line}\n" for line in task.lines(ending, answer.example, answer.found, number=next(numbers)))

    if out is None:
        yield (lambda answer: print(lines(answer), end="", flush=True)), None
        return
    with (
        new_output(out) as aside,
        aside.open("w", encoding="utf-8", newline="\n") as file,
        ProgressReporter("texts") as bar,
    ):
        yield (lambda answer: print(lines(answer), end="", file=file)), bar
