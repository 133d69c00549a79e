"""Labelled examples: what every reader gives and every task takes. Each knows the file and line it comes from.

TextExample("A plane takes off.", "An air plane is taking off.", 5.0, Place("train.tsv", 2))
TaggedExample(("Mt.", "Sanitas"), ("B-LOC", "I-LOC"), Place("train.conll", 1))
QuestionExample("q1", "What is high?", "Mt. Sanitas is high.", (("Mt. Sanitas", 0),), False, None, Place("dev.json", 1))

Those with spans are in `span_records.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from larvatus.core.errors import DataError
from larvatus.core.files import as_text
from larvatus.core.ranges import digits
from larvatus.data.text.align import join_words

Kind = Literal["multi-class", "multi-label", "regression"]
Label = str | float | tuple[str, ...]
"""A class, a number (regression), or a sorted set of names (multi-label)."""
Row = dict[str, Any]
"""A row of a table: its cells by the names of their columns."""


def source_name(name: str) -> str:
    """A file's name for people."""
    return "standard input" if name == "-" else as_text(name)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where an example comes from. It prints as ``file:line``; of a Parquet file the line is the row."""

    source: str
    line: int
    document: int | None = field(default=None, compare=False, kw_only=True)
    """Line where its document begins, in files that mark documents."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"

    def after(self, first: Place) -> str:
        """The place in a list of places, where `first` has named the file already."""
        return str(self.line) if first.source == self.source else str(self)


@dataclass(frozen=True, slots=True, order=True)
class RowPlace(Place):
    """A row of a table in memory: ``DataFrame index 'a17'``, or ``list[17]`` where rows have no names of their own."""

    row: str = field(default="", compare=False, kw_only=True)
    """Its label in the index of a DataFrame, else its number from 0."""
    labelled: bool = field(default=False, compare=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.source} index {self.row}" if self.labelled else f"{self.source}[{self.row}]"

    def after(self, first: Place) -> str:
        return self.row if self.labelled else f"[{self.row}]"


class Remark(NamedTuple):
    """What a check of the data warns of: a name, a line for people, and where; nothing where there is no place."""

    name: str
    message: str
    places: list[str]


class LabelledExample:
    """Interface of every kind of labelled example, for checks, splits and hashes."""

    __slots__ = ()
    place: Place
    id: str | None

    labels_are: ClassVar[Literal["classes", "tags", "spans", "answers", "choices", "texts"]] = "choices"
    """What a check of the data looks at."""
    noun: ClassVar[str] = "examples"
    """Several of them, for people."""
    unit: ClassVar[str] = ""
    """Readable name of the unit held out whole, such as ``passages``; empty for an example with its duplicates."""
    stratified: ClassVar[str] = ""
    """What they are stratified by where some are held out, for people: ``label``."""
    checked: ClassVar[bool] = False
    """Whether fine-tuning warns of what a check of the data finds."""

    def names(self) -> Iterable[str]:
        """Its classes, tags or types, each as often as it occurs; none of a number."""
        return ()

    def relation_names(self) -> Iterable[str]:
        """Labels of relations between its spans."""
        return ()

    def reads(self) -> str:
        """What a model will read."""
        raise NotImplementedError

    def word_count(self) -> int | None:
        """Its words, where it comes cut into words."""
        return None

    def located(self) -> tuple[str, tuple[tuple[int, int], ...]] | None:
        """The text and the characters of each word in it; None where it does not come cut into words."""
        return None

    def plain_text(self) -> TextExample | None:
        """Itself, where it is a text or a pair that is not cut into words."""
        return None

    def answer(self) -> object:
        """What it is labelled with; None: nothing."""
        raise NotImplementedError

    def answer_shown(self) -> str:
        """The same for people, short."""
        return str(self.answer())

    def key(self) -> Hashable:
        """Examples with the same key are held out together."""
        return self.reads()

    def strata(self) -> set[str]:
        """What it is to be stratified by."""
        return set(self.names())

    def contents(self) -> list[Any]:
        """Its content, whatever file it came from."""
        raise NotImplementedError

    @classmethod
    def remarks(cls, parts: Mapping[str, Dataset[Any]]) -> Iterable[Remark]:
        """Further warnings of a check of examples of this kind."""
        return ()


@dataclass(frozen=True, slots=True)
class TextExample(LabelledExample):
    """A text or a pair of texts, and what it is labelled with."""

    labels_are: ClassVar = "classes"
    stratified: ClassVar = "label"
    checked: ClassVar = True

    text: str
    pair: str | None
    label: Label | None
    place: Place
    id: str | None = None

    def names(self) -> Iterable[str]:
        if isinstance(self.label, str):
            return (self.label,)
        return self.label if isinstance(self.label, tuple) else ()

    def reads(self) -> str:
        """The text, with its pair after a tab."""
        return self.text if self.pair is None else f"{self.text}\t{self.pair}"

    def plain_text(self) -> TextExample | None:
        return self

    def answer(self) -> object:
        return self.label

    def key(self) -> Hashable:
        """The text; of a pair the first one, since a premise comes with several hypotheses."""
        return self.text

    def contents(self) -> list[Any]:
        return [self.text, self.pair, self.label]


class WordsExample(LabelledExample):
    """An example that comes cut into words, with the running text where the file gives it."""

    __slots__ = ()
    words: tuple[str, ...]
    text: str | None

    @property
    def word_places(self) -> tuple[tuple[int, int], ...] | None:
        """Characters of each word in `text`, start and end; None where `text` is."""
        raise NotImplementedError

    def reads(self) -> str:
        return self.text if self.text is not None else " ".join(self.words)

    def word_count(self) -> int | None:
        return len(self.words)

    def key(self) -> Hashable:
        return self.words

    def located(self) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The text and the characters of each word in it: as written, or with single spaces between words."""
        if self.text is not None and self.word_places is not None:
            return self.text, self.word_places
        text, spans = join_words(self.words)
        return text, tuple((start, end) for start, end in spans.tolist())


@dataclass(frozen=True, slots=True)
class TaggedExample(WordsExample):
    """The words of a sentence and a tag for each; the running text too where the file gives it."""

    labels_are: ClassVar = "tags"
    stratified: ClassVar = "tag"
    checked: ClassVar = True

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    place: Place
    text: str | None = None
    """The text as it was written; None: words with single spaces between them."""
    spans: tuple[tuple[int, int], ...] | None = None
    """Characters of each word in `text`, start and end; None where `text` is."""
    id: str | None = None

    def __post_init__(self) -> None:
        if self.tags is not None and len(self.tags) != len(self.words):
            raise DataError(f"{self.place}: {len(self.words)} words but {len(self.tags)} tags")
        if (self.text is None) != (self.spans is None):
            raise DataError(f"{self.place}: a text and the spans of its words go together; give both or neither")
        if self.spans is not None and len(self.spans) != len(self.words):
            raise DataError(f"{self.place}: {len(self.words)} words but {len(self.spans)} spans")

    @property
    def word_places(self) -> tuple[tuple[int, int], ...] | None:
        return self.spans

    def names(self) -> Iterable[str]:
        return self.tags or ()

    def answer(self) -> object:
        return self.tags

    def answer_shown(self) -> str:
        return first_names(self.tags or ())

    def contents(self) -> list[Any]:
        return [self.words, self.tags]


def first_names(names: Sequence[str]) -> str:
    """The first names in a line."""
    return " ".join(names[:8]) + (" …" if len(names) > 8 else "")


@dataclass(frozen=True, slots=True, order=True)
class QuestionPlace(Place):
    """A question of SQuAD's JSON, which has no lines: `line` is its number in the file, and it prints with its id."""

    id: str

    def __str__(self) -> str:
        return f"{self.source}: question {self.id}"

    def after(self, first: Place) -> str:
        return self.id if first.source == self.source else str(self)


@dataclass(frozen=True, slots=True)
class QuestionExample(LabelledExample):
    """A question about a passage, and the answers that people marked in it."""

    labels_are: ClassVar = "answers"
    noun: ClassVar = "questions"
    unit: ClassVar = "passages"

    id: str
    question: str
    passage: str
    answers: tuple[tuple[str, int], ...]
    """Each the text, and the character of the passage that it begins at."""
    impossible: bool
    """Whether it is known that the passage does not answer it (SQuAD 2)."""
    title: str | None
    place: Place

    @property
    def known(self) -> bool:
        """Whether it is known what to answer: not so of test sets that keep their answers to themselves."""
        return self.impossible or bool(self.answers)

    @property
    def golds(self) -> tuple[str, ...]:
        """The texts of the answers; none where it cannot be answered."""
        return tuple(text for text, _ in self.answers)

    def reads(self) -> str:
        """The question, with its passage after a tab."""
        return f"{self.question}\t{self.passage}"

    def answer(self) -> object:
        return self.golds

    def answer_shown(self) -> str:
        return shorten(" / ".join(self.golds)) if self.golds else "no answer"

    def key(self) -> Hashable:
        return self.passage

    def strata(self) -> set[str]:
        return {"no answer"} if self.impossible else {"answer"}

    def contents(self) -> list[Any]:
        return [self.question, self.passage, self.answers, self.impossible]


Example = TypeVar("Example", bound=LabelledExample)


def shorten(text: str) -> str:
    """A text on one line of at most 60 characters, quoted."""
    line = " ".join(text[:200].split())
    return repr(line if len(line) <= 60 else line[:59] + "…")


@dataclass(frozen=True)
class Dataset(Generic[Example]):
    """Examples in the order of their files, and how they were read."""

    examples: tuple[Example, ...]
    source: str
    """Names of the files."""
    columns: str = ""
    """What was read as what, a line for people."""
    kind: Kind | None = None
    """What the labels of texts are; None where texts have none, and of words and spans."""
    notes: tuple[str, ...] = ()
    """Further remarks of the reader: a prefix stripped, rows skipped."""
    groups: Mapping[Place, str] = field(default_factory=dict)
    """The group of examples, by their place, if they must stay together (`split.py`)."""
    symmetric: bool = False
    """Whether pairs are known to mean the same in either order (paraphrases, similarity)."""

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    def labels(self) -> Counter[str]:
        """How often each class, name of a set, tag or type of span occurs; nothing of numbers."""
        counts: Counter[str] = Counter()
        for example in self.examples:
            counts.update(example.names())
        return counts

    def label_names(self) -> tuple[str, ...]:
        """The labels in the order that gives them their ids: whole numbers by size, anything else by alphabet."""
        return in_order(self.labels())

    def relation_names(self) -> tuple[str, ...]:
        """The labels of relations between spans, in the order that gives them their ids."""
        return in_order({label for example in self.examples for label in example.relation_names()})

    def describe(self) -> str:
        """The line to print before anything is done with the data."""
        return " · ".join([f"{self.source}: {len(self):,} examples", self.columns, *self.notes]).rstrip(" ·")


OTHER_TYPE = "larvatus: a value of type"
"""Key of the record that a value in memory becomes which no table can hold: bytes, an object."""


def nul_in(row: Row) -> str | None:
    """The first column whose value, or a part of it, holds a NUL: no text does."""
    return next((column for column, value in row.items() if _has_nul(value)), None)


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(map(_has_nul, value)) or any(map(_has_nul, value.values()))
    return isinstance(value, list) and any(map(_has_nul, value))


def in_order(names: Counter[str] | set[str]) -> tuple[str, ...]:
    """Whole numbers by size, anything else by alphabet.

    >>> in_order({"10", "9"}), in_order({"b", "10", "a"})
    (('9', '10'), ('10', 'a', 'b'))
    """
    if all(digits(name.removeprefix("-")) is not None for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
