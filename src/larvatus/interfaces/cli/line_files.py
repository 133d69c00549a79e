"""Predictions as lines of a format that only some tasks have: trees in CoNLL-U, coreference in CoNLL-2012; or a page.

with line_writer(Path("novel.conll"), ".conll", task, "runs/coref", resume=False) as (write, bar):
    write(answer)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

from larvatus.core.errors import UsageError
from larvatus.core.outputs import new_output
from larvatus.interfaces.cli.picture_page import write_page
from larvatus.interfaces.cli.progress import ProgressReporter
from larvatus.tasks.predict import ExamplePrediction
from larvatus.tasks.registry import TASKS, AnyTask

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
