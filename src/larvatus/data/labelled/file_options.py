"""How files of labelled examples are read: a struct for each form of files; None: detected.

    TextFiles(text="review", label="stars")

A task names the struct of the files that it reads (`Task.Reading`); commands make their options from its fields.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeVar

from larvatus.core.errors import UsageError
from larvatus.core.settings import Flag, Settings
from larvatus.data.labelled.records import Kind
from larvatus.data.labelled.tables import Columns, Paths, TableOptions

__all__ = ["FileOptions", "Paths", "QuestionFiles", "TextFiles", "WordFiles", "as_file_options", "refusal"]

Column = Annotated[str | None, Flag(metavar="COLUMN")]


class FileOptions(Settings):
    """Files that need no options."""

    things: ClassVar[str] = "other tasks"
    """What these files hold."""
    refusal: ClassVar[str] = "{flags} are for {things}; leave them out"
    """Error message for flags that belong to files of other `things`."""

    @property
    def table(self) -> TableOptions:
        """How tables are read, by the options `header` and `quoting` of files that have them."""
        options = (name for name in ("header", "quoting") if name in self.__struct_fields__)
        return TableOptions(**{name: getattr(self, name) for name in options})


class TableFiles(FileOptions):
    """Tables with a text, a second text and a label."""

    text: Column = None
    """Column of the text, by name or number; default: guessed."""
    pair: Column = None
    """Column of the second text of a pair; default: guessed."""
    label: Column = None
    """Column of the label; default: guessed."""
    header: bool | None = None
    """Whether the first row names columns; default: detected."""
    quoting: bool | None = None
    """Whether quotes hold cells together; default: only in CSV."""

    @property
    def columns(self) -> Columns:
        return Columns(text=self.text, pair=self.pair, label=self.label)


class TextFiles(TableFiles):
    """Tables of texts, or of pairs, with their labels."""

    things: ClassVar[str] = "texts"
    refusal: ClassVar[str] = "{flags} name columns of {things}; texts have --text, --pair and --label"

    labels: Kind | None = None
    """Kind of labels; default: detected."""
    separator: Annotated[str | None, Flag(metavar="TEXT")] = None
    """Separator of several labels in a cell."""


class WordFiles(FileOptions):
    """Columns of words and of their tags: CoNLL, CoNLL-U."""

    things: ClassVar[str] = "words"
    refusal: ClassVar[str] = "{flags} are for {things}; words have --word and --tag"

    word: Column = None
    """Column of the word; default: the first."""
    tag: Column = None
    """Column of the tag, or a key of CoNLL-U; default: last, UPOS."""


class QuestionFiles(FileOptions):
    """Questions and their passages."""

    things: ClassVar[str] = "questions"
    refusal: ClassVar[str] = "questions are read from SQuAD's JSON, or JSONL with question, context and answers"


Files = TypeVar("Files", bound=FileOptions)


def as_file_options(given: FileOptions, kind: type[Files]) -> Files:
    """The given options, as a reader of this kind takes them."""
    if isinstance(given, kind):
        return given
    if given != type(given)():
        flags = [name for name in given.__struct_fields__ if getattr(given, name) is not None]
        raise UsageError(refusal(kind, flags, type(given)))
    return kind()


def refusal(kind: type[FileOptions], names: list[str], other: type[FileOptions]) -> str:
    """Error message for options that do not apply to these files."""
    flags = " and ".join(f"--{name}" for name in names)
    return kind.refusal.format(flags=flags, things=other.things)
