"""What may be said of files of choices, and of a choice on the command line.

larvatus finetune choose --text passage --label gold …
larvatus predict runs/next "She opened the umbrella." --ending "It was raining." --ending "The bread was stale."
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.data.labelled.file_options import Column, TableFiles
from larvatus.tasks.inputs import Input, PlainTexts


class ChoiceFiles(TableFiles):
    """Tables of contexts with endings."""

    things: ClassVar[str] = "choices"
    refusal: ClassVar[str] = "{flags} are for {things}; choices have --text (the context), --pair and --label"

    text: Column = None
    """Column of the context, by name or number; default: guessed."""
    pair: Column = None
    """Column of what every ending begins with; default: guessed, or none."""
    label: Column = None
    """Column of the right ending: its number from 0, letter or text; default: guessed."""


class ContextAndEndings(PlainTexts):
    ending: Annotated[tuple[str, ...], Flag(metavar="TEXT")] = ()
    """An ending to choose from, for one TEXT; give two or more."""

    def inputs(self, texts: Sequence[str], *, files: bool) -> list[Input]:
        if not self.ending:
            return list(texts)
        if files or len(texts) != 1:
            raise UsageError("--ending goes with one TEXT, the context; the choices of a file have theirs in it")
        return [(texts[0], list(self.ending))]
