"""Predicted trees as CoNLL-U, on standard output or in a file.

with conllu_writer(Path("parsed.conllu")) as (write, bar):
    write(answer)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from larvatus.core.outputs import new_output
from larvatus.interfaces.cli.progress import ProgressReporter
from larvatus.tasks.predict import ExamplePrediction

ENDING = ".conllu"


@runtime_checkable
class TreePrediction(Protocol):
    """A prediction that CoNLL-U holds."""

    @property
    def sentences(self) -> Sequence[Any]: ...

    def to_conllu(self, *, first: int = 1) -> str:
        """Its sentences, numbered from `first`."""


@contextmanager
def conllu_writer(
    out: Path | None,
) -> Iterator[tuple[Callable[[ExamplePrediction], None], ProgressReporter | None]]:
    """Write the trees of each answer; sentences are numbered through, and a file appears when whole."""
    count = 1

    def lines(answer: ExamplePrediction) -> str:
        nonlocal count
        trees = answer.found
        assert isinstance(trees, TreePrediction)  # other tasks refuse the option (`Task.shows`)
        text = trees.to_conllu(first=count)
        count += len(trees.sentences)
        return text

    if out is None:
        yield (lambda answer: print(lines(answer), end="", flush=True)), None
        return
    with (
        new_output(out) as aside,
        aside.open("w", encoding="utf-8", newline="\n") as file,
        ProgressReporter("texts") as bar,
    ):
        yield (lambda answer: print(lines(answer), end="", file=file)), bar
