"""Retrieval collections: documents, queries, and judgements of which document answers which query.

    collection = read_collection("scifact/")                                            # BEIR
    collection = read_collection("CISI.ALL", queries="CISI.QRY", judgements="CISI.REL")  # SMART

Documents and queries are JSON lines as in BEIR (`_id`, `title`, `text`; Thakur et al. 2021) or SMART records (`.I`
number, `.T` title, `.W` text). Judgements are TREC's (query, iteration, document, grade), BEIR's table with a header
(query, document, grade), or SMART's (query, document, 0, 0.000000: every line is a relevant document).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.streams import numbered_lines

BEIR = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


@dataclass(frozen=True)
class RetrievalCollection:
    """Texts by id, and grades of relevance."""

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, float]]
    """Query to document to grade; only grades above 0."""

    def __post_init__(self) -> None:
        if not self.documents or not any(query in self.queries for query in self.judgements):
            raise DataError("the collection has no documents, or no judgement of one of its queries; check its files")

    @property
    def judged(self) -> list[str]:
        """Queries with a relevant document, in order."""
        return [query for query in self.queries if self.judgements.get(query)]


def read_collection(
    documents: str | Path, *, queries: str | Path | None = None, judgements: str | Path | None = None
) -> RetrievalCollection:
    """A collection from a BEIR folder, or from three files."""
    if queries is None and judgements is None and os.path.isdir(documents):
        paths = [_there(Path(documents), name) for name in BEIR]
    elif queries is None or judgements is None:
        raise UsageError("name a BEIR folder, or documents with --queries and --judgements")
    else:
        paths = [str(documents), str(queries), str(judgements)]
    return RetrievalCollection(read_texts(paths[0]), read_texts(paths[1]), read_judgements(paths[2]))


def _there(folder: Path, name: str) -> str:
    for suffix in ("", ".xz", ".gz", ".zst"):
        if (folder / f"{name}{suffix}").is_file():
            return str(folder / f"{name}{suffix}")
    raise DataError(f"{folder} holds no {name}, which a BEIR collection has; name its files instead")


def read_texts(name: str) -> dict[str, str]:
    """Documents or queries by id, title first."""
    lines = numbered_lines(name)
    first = next(((number, line) for number, line in lines if line.strip()), None)
    if first is None:
        raise DataError(f"{name} is empty; name a file with documents or queries")

    def every() -> Iterator[tuple[int, str]]:
        yield first
        yield from lines

    pairs = _smart(every()) if first[1].startswith(".I") else _json_lines(name, every())
    texts: dict[str, str] = {}
    for number, id, text in pairs:
        if id in texts:
            raise DataError(f"{name}:{number}: the id {id!r:.60} occurs twice; leave one of them")
        texts[id] = text
    return texts


def _smart(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    begun, id, field = 0, "", ""
    kept: list[str] = []
    for number, line in lines:
        if line.startswith(".I"):
            if id:
                yield begun, id, " ".join(" ".join(kept).split())
            begun, id, field, kept = number, line[2:].strip(), "", []
        elif len(line.strip()) == 2 and line.startswith(".") and line[1].isupper():
            field = line[1]
        elif field in ("T", "W"):
            kept.append(line)
    if id:
        yield begun, id, " ".join(" ".join(kept).split())


class _Record(msgspec.Struct):
    id: str | int = msgspec.field(name="_id")
    text: str
    title: str | None = None


def _json_lines(name: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line.encode(), type=_Record)
        except (msgspec.MsgspecError, UnicodeError) as fault:
            raise DataError(f'{name}:{number}: no record {{"_id": …, "text": …}} ({fault}); repair it') from fault
        yield number, str(record.id), " ".join(part for part in (record.title, record.text) if part)


def read_judgements(name: str) -> dict[str, dict[str, float]]:
    """Grades above 0, by query and document."""
    rows = [(number, line.split()) for number, line in numbered_lines(name) if line.strip()]
    if rows and not _is_grade(rows[0][1][-1]):  # BEIR's header
        rows = rows[1:]
    widths = {len(words) for _, words in rows}
    if not rows or widths not in ({3}, {4}):
        raise DataError(f"{name} has no rows of 3 or 4 columns; name a file of judgements (TREC, BEIR or SMART)")
    smart = widths == {4} and all(words[2] == "0" and "." in words[3] for _, words in rows)
    judgements: dict[str, dict[str, float]] = {}
    for number, words in rows:
        query, document = words[0], words[1] if smart or len(words) == 3 else words[2]
        if not smart and not _is_grade(words[-1]):
            raise DataError(f"{name}:{number}: {words[-1]!r:.40} is no grade of relevance; write a number")
        grade = 1.0 if smart else float(words[-1])
        if grade > 0:
            judgements.setdefault(query, {})[document] = grade
    return judgements


def _is_grade(word: str) -> bool:
    try:
        return abs(float(word)) < 1e6
    except ValueError:
        return False
