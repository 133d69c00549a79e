"""Readers: documents from plain text and tables (CSV, TSV, JSON, Parquet) in files, folders, globs, archives and URLs.

    skipped = Skipped()
    for document in read_documents(["judgments/", "more/*.jsonl.zst"], skipped=skipped):
        ...
    print(skipped)
    for place, text in read_single_texts("reviews.csv", column="review"): ...   # ("reviews.csv:2", "Not bad.")

Everything streams. What cannot be text (bad UTF-8, NUL bytes, lone surrogates, broken records, missing fields) is
refused as ``path:line: what``, or with `ReadOptions(on_bad="skip")` skipped and counted by reason: the line in plain
text, the record elsewhere. Files and folders of a directory that are links, or cannot be opened, are skipped and
counted too; an archive that breaks off is always refused, since it is not known what is missing.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Literal

import fsspec
import msgspec

from larvatus.core import regular_files
from larvatus.core.errors import DataError, UsageError
from larvatus.core.files import as_text
from larvatus.data.text import records
from larvatus.data.text.archives import COMPRESSIONS
from larvatus.data.text.columns import note, note_blank_rows
from larvatus.data.text.delimited import read_delimited
from larvatus.data.text.documents import Document, ReadOptions, Skipped
from larvatus.data.text.streams import UTF_8, encoding_in_use, numbered_lines, storage_errors

__all__ = ["Document", "ReadOptions", "Skipped", "list_files", "read_documents"]

TEXT_SUFFIXES = (".txt", ".text", ".md")
RECORD_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet",)
DELIMITED_SUFFIXES: dict[str, Literal["csv", "tsv"]] = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
NAMED_ONLY = (".json", *DELIMITED_SUFFIXES)
"""Read where a file is named, or matched by a pattern; in a directory it may be anything (metadata of its texts)."""

Source = str | Path


def list_files(paths: Sequence[Source], *, skipped: Skipped | None = None) -> list[Source]:
    """The files of paths, directories, globs and URLs, in order, each once.

    Local files come as `Path`; URLs and ``-`` (standard input) as they are. Directories are walked in sorted order.
    """
    skipped = skipped if skipped is not None else Skipped()
    sources: dict[Source, None] = {}
    for path in paths:
        name = os.fspath(path)
        if not name:
            raise DataError("an empty path was given; name a file, a directory, or - for standard input")
        try:
            os.fsencode(name)
        except UnicodeEncodeError as fault:
            raise DataError(f"{name!r:.60} is no name that a file can have: it holds a lone surrogate") from fault
        if name == "-":
            sources[name] = None
        elif "://" in name:
            sources.update(dict.fromkeys(_remote(name, skipped)))
        else:
            sources.update(dict.fromkeys(_local(name, skipped)))
    if not sources:
        raise DataError("no text was named; give files, directories, globs, or - for standard input")
    return list(sources)


def expand_patterns(names: Sequence[str]) -> list[str]:
    """Names of files, with the matches of a pattern in its place; anything else is left as it is."""
    return [
        os.fspath(file)
        for name in names
        for file in (list_files([name]) if glob.has_magic(name) and not os.path.exists(name) else [name])
    ]


def _local(name: str, skipped: Skipped) -> list[Source]:
    path = Path(name)
    if path.is_dir():
        return _known(name, walk(path, skipped), skipped)
    if path.exists():
        return [path]
    if glob.has_magic(name):
        return _matching(name, skipped)
    if path.is_symlink():
        raise DataError(f"{name} is a link that leads nowhere; check the path")
    raise DataError(f"{name} does not exist; check the path")


def walk(folder: Path, skipped: Skipped) -> list[Path]:
    """All files of a folder and of those in it, in order, hidden ones left aside.

    A folder that cannot be opened, or that is a link (which may lead back, or anywhere), is counted as left out.
    """

    def refused(fault: OSError) -> None:
        skipped.leave(os.fspath(fault.filename or folder), "unreadable folder")

    paths = []
    for place, folders, names in regular_files.walk(folder, refused):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if (Path(place) / name).is_symlink():
                skipped.leave(os.path.join(place, name), "linked folder")
        paths += [Path(place) / name for name in names if not name.startswith(".")]
    return sorted(paths)


def list_whole_folder(folder: Path) -> list[Path]:
    """The files of a folder of which none may be missing: what cannot be read is refused, not counted."""
    skipped = Skipped()
    paths = walk(folder, skipped)
    for path in paths:
        if reason := skip_reason(path, links=True):
            skipped.leave(os.fspath(path), reason)
    if skipped.left:
        raise DataError(f"{folder} cannot be read whole: {skipped.files_left}; mend that, or copy what is wanted")
    return paths


def _matching(pattern: str, skipped: Skipped) -> list[Source]:
    """The files that a pattern matches. Links are followed here: a pattern names what it matches."""
    if "**" in pattern:  # where `glob` passes over what it cannot open
        plain = takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts)
        walk(Path(*plain), skipped)
    try:
        matches = [Path(match) for match in sorted(glob.glob(pattern, recursive=True))]
    except RecursionError as fault:
        raise DataError(f"{pattern} leads through folders nested too deep; name the folder itself") from fault
    sources: list[Source] = []
    for path in matches:
        if path.is_dir():
            continue
        if reason := skip_reason(path, links=True):
            skipped.leave(os.fspath(path), reason)
        else:
            sources.append(path)
    if not sources:
        raise DataError(f"{pattern} matches no file{_but(skipped)}; check the pattern")
    return sources


def skip_reason(path: Path, *, links: bool = False) -> str | None:
    """Why a file of a folder is left out: it is a link, or nothing that can be opened and read as a file."""
    try:
        if path.is_symlink():
            if not path.exists():
                return "dangling link"
            if not links:
                return "linked file"
        if not path.is_file():
            return "FIFO, socket or device"
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return "unreadable file"
    return None


def _but(skipped: Skipped) -> str:
    return f" that can be read: {skipped.files_left}" if skipped.left else ""


def _remote(name: str, skipped: Skipped) -> list[Source]:
    """Files behind a URL, by `fsspec`, where the driver of its protocol is installed."""
    with storage_errors(name):
        system, path = fsspec.core.url_to_fs(name)
        if glob.has_magic(path):
            return [system.unstrip_protocol(match) for match in sorted(system.glob(path))]
        if not system.exists(path):
            raise DataError(f"{name} does not exist; check the address")
        if not system.isdir(path):
            return [name]
        below = [system.unstrip_protocol(match) for match in sorted(system.find(path))]
    return _known(name, below, skipped)


def _links(skipped: Skipped) -> bool:
    return any("link" in reason for reason in skipped.left.values())


def _known(directory: str, files: Sequence[Source], skipped: Skipped) -> list[Source]:
    """Files of a directory that are recognised by their names. Others are counted, except hidden ones."""
    kept = []
    for file in files:
        name = os.fspath(file)
        if any(
            part.startswith(".") for part in Path(os.path.relpath(name, directory) if "://" not in name else name).parts
        ):
            continue
        if os.path.islink(name) and not os.path.exists(name):
            skipped.leave(name, "dangling link")  # of a file or a folder, who knows
        elif not file_kind(name) or _last_suffix(name) in NAMED_ONLY:
            skipped.ignored[Path(name).suffix or "suffixless"] += 1
        elif isinstance(file, Path) and (reason := skip_reason(file)):
            skipped.leave(name, reason)
        else:
            kept.append(file)
    if not kept and skipped.left:
        way = f"; a pattern such as {directory.rstrip('/')}/* reads links too" if _links(skipped) else ""
        raise DataError(f"{directory} holds no text that can be read: {skipped.files_left}{way}")
    if not kept:
        known = " ".join((*TEXT_SUFFIXES, *RECORD_SUFFIXES, *PARQUET_SUFFIXES))
        tables = next((suffix for suffix in NAMED_ONLY if suffix in skipped.ignored), None)
        way = f"; tables are read where they are named: {directory.rstrip('/')}/*{tables}" if tables else ""
        raise DataError(
            f"{directory} holds no text: no file of it ends in {known} (or these with {' '.join(COMPRESSIONS)}){way}"
        )
    return kept


def _last_suffix(name: str) -> str:
    """The ending of a name in lower case, compression left aside: ``.csv`` of ``News.csv.gz``."""
    suffixes = Path(name.lower()).suffixes
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


FileKind = Literal["text", "csv", "tsv", "jsonl", "parquet"]


def file_kind(name: str) -> FileKind | None:
    """What a file holds, by its name; None where the name does not tell."""
    last = _last_suffix(name)
    if last in TEXT_SUFFIXES:
        return "text"
    if last in (*RECORD_SUFFIXES, ".json"):
        return "jsonl"
    if last in DELIMITED_SUFFIXES:
        return DELIMITED_SUFFIXES[last]
    return "parquet" if last in PARQUET_SUFFIXES else None


def has_columns(name: str) -> bool:
    """Whether a file is a table or holds records, by its name."""
    return file_kind(name) not in ("text", None)


READERS: dict[str, Callable[[str, ReadOptions, Skipped], Iterator[Document]]] = {
    "text": records.read_text,
    "csv": partial(read_delimited, "csv"),
    "tsv": partial(read_delimited, "tsv"),
    "jsonl": records.read_jsonl,
    "parquet": records.read_parquet,
}


def read_documents(
    paths: Sequence[Source], *, options: ReadOptions | None = None, skipped: Skipped | None = None
) -> Iterator[Document]:
    """All documents of all files, in order. Blank ones are not given, but counted."""
    options = options or ReadOptions()
    skipped = skipped if skipped is not None else Skipped()
    names = [os.fspath(file) for file in list_files(paths, skipped=skipped)]
    if options.names_column and options.format == "auto" and not any(map(has_columns, names)):
        note(f"{as_text(names[0])} is plain text, which has no columns; --text {options.text_field} is not used")
    for name in names:
        kind = file_kind(name) or "text" if options.format == "auto" else options.format
        before = skipped.blank
        for document in READERS[kind](name, options, skipped):
            if document.text.isspace() or not document.text:
                skipped.blank += 1
            else:
                yield document
        if kind in ("csv", "tsv") and (blank := skipped.blank - before):
            note_blank_rows(name, blank)


def read_single_texts(name: str, column: str | None = None) -> Iterator[tuple[str, str]]:
    """Texts that are not blank, each with its place. `column` names the text column of a table; None: guessed."""
    if has_columns(name):
        yield from _rows(name, column)
        return
    shown = "standard input" if name == "-" else name
    if column is not None:
        raise UsageError(f"{shown} is plain text, which has no columns; leave --text out, or name a table")
    for number, line in numbered_lines(name):
        if line.strip():
            yield f"{shown}:{number}", line


def _rows(name: str, column: str | None) -> Iterator[tuple[str, str]]:
    encoding = encoding_in_use()
    options = ReadOptions(
        encoding=msgspec.UNSET if encoding == UTF_8 else encoding,
    ).named(column)
    skipped = Skipped()
    for document in read_documents([name], options=options, skipped=skipped):
        yield f"{document.source}:{document.line}", document.text
    if skipped.blank:
        note_blank_rows(name, skipped.blank)
