"""What readers take and give: how to read, a document, and what was skipped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from larvatus.core.settings import Settings
from larvatus.data.bulk.parts import skip_row


@dataclass(frozen=True, slots=True)
class Document:
    """One text and where it comes from."""

    text: str
    source: str
    """File, URL, or name of an embedded text."""
    line: int = 1
    """Line (row of a Parquet file) where it begins."""
    language: str | None = None
    label: str | None = None
    """A label of the record: a sense, a genre, a year."""
    start: int = 0
    """Character of a plain-text file at which it begins, counting each line break as one."""
    metadata: tuple[str | None, ...] = ()
    """Values of `ReadOptions.metadata_fields`, None for those that a record lacks."""


class ReadOptions(Settings):
    split: Literal["blank-line", "file"] = "blank-line"
    """What ends a document in plain text: a blank line, or the end of its file."""
    text_field: str = "text"
    """Column of a table, or field of a record, that holds the text; guessed where none is called text."""
    language_field: str | None = None
    """Field of a record that holds its language."""
    language: str | None = None
    """Language of documents for which none is given."""
    on_bad: Literal["fail", "skip"] = "fail"
    """What to do with what cannot be text."""
    format: Literal["auto", "text", "csv", "tsv", "jsonl", "parquet"] = "auto"
    """How to read; `auto` goes by the name, and takes an unknown name for plain text."""
    encoding: str | msgspec.UnsetType = msgspec.UNSET
    """Encoding of plain text and JSON; UTF-8 if not given, and then absent from the settings of a corpus."""
    label_field: str | None = None
    """Field of a record that holds a label of its text: a string or a number."""
    metadata_fields: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Further fields of a record that are read with its text: strings, numbers or truth values."""
    exact: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether `text_field` was named by the user though it is "text": then nothing is guessed. Left out of the settings
    of a corpus otherwise, so that those of earlier versions stay the same."""

    @property
    def further_fields(self) -> tuple[str, ...]:
        """Fields of the metadata, if any."""
        return () if self.metadata_fields is msgspec.UNSET else self.metadata_fields

    @property
    def names_column(self) -> bool:
        """Whether the text column was named, and is not to be guessed."""
        return self.text_field != "text" or self.exact is True

    def named(self, column: str | None) -> ReadOptions:
        """The same options with the text column that a user named; None leaves them as they are."""
        if column is None:
            return self
        exact = True if column == "text" else msgspec.UNSET
        return msgspec.structs.replace(self, text_field=column, exact=exact)

    def with_text(self, column: str) -> ReadOptions:
        """The same options with this text column."""
        return msgspec.structs.replace(self, text_field=column, exact=True)


@dataclass
class Skipped:
    """What reading left out, by reason. It grows while reading continues."""

    bad: Counter[str] = field(default_factory=Counter)
    """Lines or records that could not be text."""
    blank: int = 0
    """Documents without a visible character."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Files of a directory that are of no known kind, by suffix."""
    left: dict[str, str] = field(default_factory=dict)
    """Files and folders of a directory that were not read though they may hold text, each with the reason."""
    examples: list[str] = field(default_factory=list)
    """The first few messages."""

    def add(self, reason: str, message: str) -> None:
        self.bad[reason] += 1
        skip_row(message)
        if len(self.examples) < 5:
            self.examples.append(message)

    def leave(self, path: str, reason: str) -> None:
        """Count a file or folder that is not read; twice the same is one."""
        self.left[path] = reason

    @property
    def reasons(self) -> Counter[str]:
        """Why files and folders were left out, and how many each."""
        return Counter(self.left.values())

    def update(self, other: Skipped) -> None:
        """Add what another reader left out."""
        self.bad.update(other.bad)
        self.ignored.update(other.ignored)
        self.blank += other.blank
        self.left |= other.left
        self.examples = (self.examples + other.examples)[:5]

    @property
    def total(self) -> int:
        return self.bad.total()

    @property
    def files_left(self) -> str:
        """``2 × linked file, 1 × unreadable folder left out (texts/a.txt, …)``; empty where nothing was."""
        if not self.left:
            return ""
        counted = ", ".join(f"{count:,} × {reason}" for reason, count in sorted(self.reasons.items()))
        more = ", …" if len(self.left) > 3 else ""
        return f"{counted} skipped ({', '.join(sorted(self.left)[:3])}{more})"

    def __str__(self) -> str:
        parts = [f"{count:,} × {reason}" for reason, count in sorted(self.bad.items())]
        parts += [f"{self.blank:,} blank documents"] if self.blank else []
        parts += [f"{count:,} {suffix} files ignored" for suffix, count in sorted(self.ignored.items())]
        parts += [self.files_left] if self.left else []
        return " · ".join(parts) or "nothing skipped"
