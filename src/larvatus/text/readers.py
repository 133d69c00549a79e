"""Readers: documents from plain text, JSONL and Parquet, in files, directories, globs, archives, stdin and URLs.

    skipped = Skipped()
    for document in read_documents(["judgments/", "more/*.jsonl.zst"], skipped=skipped):
        ...
    print(skipped)

Everything streams. What cannot be text (bad UTF-8, NUL bytes, lone surrogates, broken records, missing fields) is
refused as ``path:line: what``, or with `ReadOptions(on_bad="skip")` left out and counted by reason: the line in plain
text, the record elsewhere.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import fsspec
import msgspec

from larvatus.errors import DataError

TEXT_SUFFIXES = (".txt", ".text", ".md")
RECORD_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet",)
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")

Source = str | Path


@dataclass(frozen=True, slots=True)
class Document:
    """One text and where it comes from."""

    text: str
    source: str
    """File, URL, or name of an embedded text."""
    line: int = 1
    """Line (row of a Parquet file) where it begins."""
    language: str | None = None


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    split: Literal["blank-line", "file"] = "blank-line"
    """What ends a document in plain text: a blank line, or the end of its file."""
    text_field: str = "text"
    """Field of a record that holds the text."""
    language_field: str | None = None
    """Field of a record that holds its language."""
    language: str | None = None
    """Language of everything that does not say its own."""
    on_bad: Literal["fail", "skip"] = "fail"
    """What to do with what cannot be text."""
    format: Literal["auto", "text", "jsonl", "parquet"] = "auto"
    """How to read; `auto` goes by the name, and takes an unknown name for plain text."""


@dataclass
class Skipped:
    """What reading left out, by reason. It grows while reading goes on."""

    bad: Counter[str] = field(default_factory=Counter)
    """Lines or records that could not be text."""
    blank: int = 0
    """Documents without a visible character."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Files of a directory that are of no known kind, by suffix."""
    examples: list[str] = field(default_factory=list)
    """The first few messages."""

    def add(self, reason: str, message: str) -> None:
        self.bad[reason] += 1
        if len(self.examples) < 5:
            self.examples.append(message)

    def update(self, other: Skipped) -> None:
        """Add what another reader left out."""
        self.bad.update(other.bad)
        self.ignored.update(other.ignored)
        self.blank += other.blank
        self.examples = (self.examples + other.examples)[:5]

    @property
    def total(self) -> int:
        return self.bad.total()

    def __str__(self) -> str:
        parts = [f"{count:,} × {reason}" for reason, count in sorted(self.bad.items())]
        parts += [f"{self.blank:,} blank documents"] if self.blank else []
        parts += [f"{count:,} {suffix} files ignored" for suffix, count in sorted(self.ignored.items())]
        return " · ".join(parts) or "nothing skipped"


def list_files(paths: Sequence[Source], *, skipped: Skipped | None = None) -> list[Source]:
    """The files that paths, directories, globs and URLs stand for, in order, each once.

    Local files come as `Path`; URLs and ``-`` (standard input) as they are. Directories are walked in sorted order.
    """
    skipped = skipped if skipped is not None else Skipped()
    found: dict[Source, None] = {}
    for path in paths:
        name = os.fspath(path)
        if not name:
            raise DataError("an empty path was given; name a file, a directory, or - for standard input")
        if name == "-":
            found[name] = None
        elif "://" in name:
            found.update(dict.fromkeys(_remote(name, skipped)))
        else:
            found.update(dict.fromkeys(_local(name, skipped)))
    if not found:
        raise DataError("no text was named; give files, directories, globs, or - for standard input")
    return list(found)


def _local(name: str, skipped: Skipped) -> list[Source]:
    path = Path(name)
    if path.is_dir():
        below = [Path(folder) / file for folder, _, files in os.walk(path) for file in files]
        return _known(name, sorted(below), skipped)
    if path.exists():
        return [path]
    if glob.has_magic(name):
        matches = [Path(match) for match in sorted(glob.glob(name, recursive=True)) if not Path(match).is_dir()]
        if matches:
            return list(matches)
        raise DataError(f"{name} matches no file; check the pattern")
    raise DataError(f"{name} does not exist; check the path")


def _remote(name: str, skipped: Skipped) -> list[Source]:
    """Files behind a URL, by `fsspec`, where the driver of its protocol is installed."""
    try:
        system, path = fsspec.core.url_to_fs(name)
        if glob.has_magic(path):
            return [system.unstrip_protocol(match) for match in sorted(system.glob(path))]
        if not system.exists(path):
            raise DataError(f"{name} does not exist; check the address")
        if not system.isdir(path):
            return [name]
        below = [system.unstrip_protocol(match) for match in sorted(system.find(path))]
    except (ImportError, ValueError, OSError) as fault:
        raise DataError(f"{name} cannot be opened: {fault}") from fault
    return _known(name, below, skipped)


def _known(directory: str, files: Sequence[Source], skipped: Skipped) -> list[Source]:
    """Of a directory, the files whose name says what they are; the others are counted, hidden ones are not."""
    kept = []
    for file in files:
        name = os.fspath(file)
        if any(
            part.startswith(".") for part in Path(os.path.relpath(name, directory) if "://" not in name else name).parts
        ):
            continue
        if kind_of(name):
            kept.append(file)
        else:
            skipped.ignored[Path(name).suffix or "suffixless"] += 1
    if not kept:
        known = " ".join((*TEXT_SUFFIXES, *RECORD_SUFFIXES, *PARQUET_SUFFIXES))
        raise DataError(
            f"{directory} holds no text: no file of it ends in {known} (or these with {' '.join(COMPRESSIONS)})"
        )
    return kept


def kind_of(name: str) -> Literal["text", "jsonl", "parquet"] | None:
    """What a file holds, by its name; None where the name does not tell."""
    suffixes = Path(name.lower()).suffixes
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    if last in TEXT_SUFFIXES:
        return "text"
    if last in RECORD_SUFFIXES:
        return "jsonl"
    return "parquet" if last in PARQUET_SUFFIXES else None


def read_documents(
    paths: Sequence[Source], *, options: ReadOptions | None = None, skipped: Skipped | None = None
) -> Iterator[Document]:
    """All documents of all files, in order. Blank ones are not given, but counted."""
    from larvatus.text import records  # formats are opened only when something is read

    options = options or ReadOptions()
    skipped = skipped if skipped is not None else Skipped()
    for file in list_files(paths, skipped=skipped):
        name = os.fspath(file)
        kind = kind_of(name) or "text" if options.format == "auto" else options.format
        reader = {"text": records.read_text, "jsonl": records.read_jsonl, "parquet": records.read_parquet}[kind]
        for document in reader(name, options, skipped):
            if document.text.isspace() or not document.text:
                skipped.blank += 1
            else:
                yield document
