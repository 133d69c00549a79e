"""Readers: documents from plain text, JSON and Parquet, in files, directories, globs, archives, stdin and URLs.

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import fsspec

from larvatus.errors import DataError
from larvatus.text import records
from larvatus.text.documents import Document, ReadOptions, Skipped

__all__ = ["Document", "ReadOptions", "Skipped", "list_files", "read_documents"]

TEXT_SUFFIXES = (".txt", ".text", ".md")
RECORD_SUFFIXES = (".jsonl", ".ndjson")
NAMED_ONLY = ".json"
"""Read as records where a file is named; in a directory it may be anything."""
PARQUET_SUFFIXES = (".parquet",)
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")

Source = str | Path


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
        if kind_of(name) and Path(name.lower()).suffix != NAMED_ONLY:
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
    if last in (*RECORD_SUFFIXES, NAMED_ONLY):
        return "jsonl"
    return "parquet" if last in PARQUET_SUFFIXES else None


def read_documents(
    paths: Sequence[Source], *, options: ReadOptions | None = None, skipped: Skipped | None = None
) -> Iterator[Document]:
    """All documents of all files, in order. Blank ones are not given, but counted."""
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
