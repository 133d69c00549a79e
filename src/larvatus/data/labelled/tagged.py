"""Words with tags, texts with spans: CoNLL columns, CoNLL-U, JSONL and Parquet of lists, brat, JSONL of spans.

    train = read_tagged("train.conll.xz")
    train = read_tagged("train.conllu", tag="xpos")
    train = read_tagged("annotations/", problems=problems)       # brat; spans become tags
    train = read_spanned("train.iob2.xz")                        # BIO of several levels (GermEval): a column for each
    train = read_spanned("train.conllu")                         # brackets, Entity= (GUM)

The format follows from the file's name, then from its contents. Lists: ``{"tokens": […], "tags": […]}``.
`guess_task` decides whether a file has labelled texts or tagged words, by its name and its first lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import digits
from larvatus.data.labelled.conll import Lines, read_conll, read_levels
from larvatus.data.labelled.conllu import read_brackets, read_conllu
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Dataset, TaggedExample, source_name
from larvatus.data.labelled.span_records import SpanExample, SpannedWords, to_tagged, to_words
from larvatus.data.labelled.standoff import brat_documents, read_brat, read_span_rows, span_key
from larvatus.data.labelled.tables import (
    LabelledTable,
    Paths,
    TableOptions,
    ending,
    named_column,
    open_table,
    path_strings,
)
from larvatus.data.text.columns import TAGS, WORDS, first_named
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tag_schemes import Scheme

TagFormat = Literal["conll", "conllu", "jsonl", "parquet", "brat"]
_ENDINGS: dict[str, TagFormat] = {
    **dict.fromkeys((".conll", ".iob", ".iob2", ".bio", ".bioes", ".tsv", ".col", ".conll03"), "conll"),
    **dict.fromkeys((".conllu", ".conllup"), "conllu"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    ".parquet": "parquet",
    ".ann": "brat",
}
_Read = tuple[list[TaggedExample], str, tuple[str, ...]]


def format_of(name: str) -> TagFormat | None:
    """The format of a file of words or spans, by its name; None where the name does not say."""
    if name != "-" and Path(name).is_dir():
        return "brat"
    if ending(name) == ".txt" and any(Path(document).exists() for document in brat_documents(name)):
        return "brat"
    return _ENDINGS.get(ending(name))


def _told_by(lines: Lines) -> tuple[TagFormat, Lines]:
    """The format that the first lines tell, and all lines."""
    head = []
    for number, line in lines:
        head.append((number, line))
        if line.strip() and not line.startswith("#"):
            break
    first = head[-1][1] if head else ""
    cells = first.split("\t")
    universal = len(cells) == 10 and cells[0].partition("-")[0] == "1"
    format: TagFormat = "jsonl" if first.lstrip().startswith("{") else "conllu" if universal else "conll"
    return format, chain(head, lines)


def read_tagged(
    paths: Paths,
    *,
    word: int | str | None = None,
    tag: int | str | None = None,
    format: TagFormat | None = None,
    labelled: bool = True,
    scheme: Scheme = "BIO",
    problems: Problems | None = None,
) -> Dataset[TaggedExample]:
    """Sentences of words and their tags.

    `word` and `tag` are columns: numbers of CoNLL columns, names of the rest (UPOS or a key of FEATS or MISC in
    CoNLL-U). Spans (brat, JSONL) become tags in the `scheme`. Without `labelled` no tags are read.
    """
    examples: list[TaggedExample] = []
    said: dict[str, None] = {}
    notes: list[str] = []
    names = path_strings(paths)
    for name in names:
        kind, lines = format or format_of(name), None
        if kind is None:
            kind, lines = _told_by(numbered_lines(name))
        if kind == "conll":
            first, last = _number(word, "word"), _number(tag, "tag")
            part = read_conll(name, word=first or 1, tag=last, labelled=labelled, problems=problems, lines=lines)
        elif kind == "conllu":
            part = read_conllu(name, tag=tag, labelled=labelled, problems=problems, lines=lines)
        elif kind == "brat":
            part = _of_spans([read_brat(document, problems) for document in brat_documents(name)], scheme, problems)
        else:
            table = open_table(name, TableOptions(format=kind), problems, lines)
            part = _of_table(table, (word, tag), scheme, problems, labelled=labelled)
        examples += part[0]
        said[part[1]] = None
        notes += part[2]
    source = ", ".join(source_name(name) for name in names)
    if not examples:
        raise DataError(f"{source}: no sentence can be used{cause(problems)}; give words with their tags")
    return Dataset(tuple(examples), source, "; ".join(said), notes=tuple(dict.fromkeys(notes)))


def read_spanned(
    paths: Paths,
    *,
    format: TagFormat | None = None,
    word: int | None = None,
    tags: Sequence[int] | None = None,
    problems: Problems | None = None,
) -> Dataset[SpannedWords]:
    """Texts of words with spans. `word` and `tags` are columns of CoNLL, from 1; the format follows from the name."""
    examples: list[SpannedWords] = []
    said: dict[str, None] = {}
    names = path_strings(paths)
    for name in names:
        kind = format or format_of(name) or "conll"
        if kind == "conll":
            part, how = read_levels(name, word=word, tags=tags, problems=problems)
        elif kind == "conllu":
            part, how = read_brackets(name, problems)
        else:
            texts = read_spans([name], format=kind, problems=problems)
            part, how = [to_words(example, problems) for example in texts], texts.columns
        examples += [example for example in part if example.words]
        said[how] = None
    source = ", ".join(source_name(name) for name in names)
    if not examples:
        raise DataError(f"{source}: no text can be used{cause(problems)}; give texts with spans")
    return Dataset(tuple(examples), source, "; ".join(said))


def read_spans(
    paths: Paths, *, format: Literal["brat", "jsonl", "parquet"] | None = None, problems: Problems | None = None
) -> Dataset[SpanExample]:
    """Texts with labelled spans of characters, from brat's files or from JSONL and Parquet."""
    examples: list[SpanExample] = []
    names = path_strings(paths)
    for name in names:
        kind = format or format_of(name)
        if kind == "brat":
            examples += [read_brat(document, problems) for document in brat_documents(name)]
            continue
        if kind not in ("jsonl", "parquet", None):
            raise DataError(f"{source_name(name)} is no file of spans; give brat's .ann, or JSONL with text and spans")
        table = open_table(name, TableOptions(format="parquet" if kind == "parquet" else "jsonl"), problems)
        key = span_key(table.columns, table.sample)
        if key is None or "text" not in table.columns:
            raise DataError(f"{table.name} has no text and spans (it has {', '.join(table.columns)})")
        examples += read_span_rows(table, text="text", spans=key, problems=problems)
    source = ", ".join(source_name(name) for name in names)
    if not examples:
        raise DataError(f"{source}: no text can be used{cause(problems)}; give texts with spans")
    return Dataset(tuple(examples), source, "read as: text with spans of characters")


def _number(column: int | str | None, role: str) -> int | None:
    if isinstance(column, str):
        if (number := digits(column)) is None:
            raise DataError(f"CoNLL columns have no names; give the {role} as a number from 1, not {column!r:.60}")
        return number
    return column


def _of_spans(texts: list[SpanExample], scheme: Scheme, problems: Problems | None) -> _Read:
    examples = [to_tagged(example, scheme, problems) for example in texts]
    return [example for example in examples if example.words], f"read as: spans of characters, tagged in {scheme}", ()


def _of_table(
    table: LabelledTable,
    asked: tuple[int | str | None, int | str | None],
    scheme: Scheme,
    problems: Problems | None,
    *,
    labelled: bool,
) -> _Read:
    """Rows with lists of words and of tags; or with a text and spans."""
    word = named_column(table, asked[0], "word") if asked[0] is not None else first_named(WORDS, table.columns)
    key = span_key(table.columns, table.sample)
    if word is None and key is not None and "text" in table.columns:
        return _of_spans(list(read_span_rows(table, text="text", spans=key, problems=problems)), scheme, problems)
    if word is None:
        there = ", ".join(table.columns)
        raise DataError(f"{table.name} has neither tokens nor text with spans (it has {there}); name the words: --word")
    tag = named_column(table, asked[1], "tag") if asked[1] is not None else first_named(TAGS, table.columns)
    if tag is None and labelled:
        raise DataError(f"{table.name} has no tags (it has {', '.join(table.columns)}); name them: --tag COLUMN")
    said = f"read as: word = {word}, tag = {tag}" if labelled else f"read as: word = {word}"
    return list(list_rows(table, word, tag if labelled else None, problems)), said, ()


def list_rows(table: LabelledTable, word: str, tag: str | None, problems: Problems | None) -> Iterator[TaggedExample]:
    """Rows whose cells are lists of words, and of tags where their column is named."""
    for place, row in table.rows:
        words, tags = _strings(row.get(word)), None if tag is None else _strings(row.get(tag))
        if words is None or (tag is not None and tags is None):
            fault(problems, "no list", place, f"{word if words is None else tag} is no list of strings")
        elif not words or not all(word.strip() for word in words):
            fault(problems, "empty word or tag", place, "a word is empty; fill it in, or drop it with its tag")
        elif tags is not None and len(words) != len(tags):
            fault(problems, "words and tags differ in number", place, f"{len(words)} words but {len(tags)} tags")
        else:
            identifier = row.get("id")
            yield TaggedExample(words, tags, place, id=None if identifier is None else str(identifier))


def _strings(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not all(
        isinstance(item, str | int) and not isinstance(item, bool) for item in value
    ):
        return None
    return tuple(str(item) for item in value)


Task = Literal["classify", "tag"]


def guess_task(name: str) -> Task:
    """classify for texts with labels, tag for words with tags or texts with spans."""
    if name == "-":
        raise UsageError("standard input is read once; name its task: --for classify, tag or spans, or another task")
    if ending(name) in (".csv", ".tab"):
        return "classify"
    format = format_of(name)
    if format in ("conllu", "brat"):
        return "tag"
    if format in ("jsonl", "parquet"):
        table = open_table(name, TableOptions(format="parquet" if format == "parquet" else "jsonl"), Problems())
        return "tag" if first_named(WORDS, table.columns) or span_key(table.columns, table.sample) else "classify"
    if format == "conll" and ending(name) != ".tsv":
        return "tag"
    return "tag" if _words_a_line(name) else "classify"


def _words_a_line(name: str) -> bool:
    """Whether blank lines part rows of a few cells, the first a single word."""
    lines = [line for _, line in islice(numbered_lines(name), 2_000)]
    while lines and not lines[-1].strip():
        lines.pop()
    rows = [line.split("\t") if "\t" in line else line.split(" ") for line in lines if line.strip()]
    short = sum(len(row) > 1 and len(row[0]) < 40 for row in rows)
    return len(rows) < len(lines) and short > 0.9 * len(rows)
