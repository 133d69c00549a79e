"""CoNLL columns: a word a line with its tag, or with a tag for each level of nesting; a blank line between sentences.

    Mt.      B-LOC                          Universität   B-ORG   O
    Sanitas  I-LOC                          von           I-ORG   O
    is       O                              Tokio         I-ORG   B-LOC        (GermEval 2014)

Tabs or spaces, as most lines have it. The word is the first column and the tag the last, unless their numbers are
given. Comments (a line with ``#`` that opens a sentence and has another number of columns) and ``-DOCSTART-`` are
skipped. A prefix that every word of a file has, such as WikiANN's ``en:``, is stripped, and that is reported.

With several levels (`read_levels`), columns of tags are detected: those of nothing but O, B-… and I-… (or BIOES, IOB1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Place, TaggedExample, source_name
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tag_schemes import EntitySpan, Scheme, detect_scheme, find_illegal, read_leniently, write_tags

Lines = Iterator[tuple[int, str]]

SAMPLE = 10_000
"""Lines that are looked at before the number of columns is decided."""
_NEW_DOCUMENT = re.compile(r"#\s*newdoc\b")
_PREFIX = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z]+)*:")


@dataclass(frozen=True)
class ConllLayout:
    """How the rows of a file are cut."""

    separator: str
    """A tab, or a space (any number of them)."""
    width: int

    def cells(self, line: str) -> list[str]:
        if self.separator == "\t":
            return line.split("\t")
        return [cell for cell in line.split(" ") if cell]


def read_conll(
    name: str,
    *,
    word: int = 1,
    tag: int | None = None,
    labelled: bool = True,
    problems: Problems | None = None,
    lines: Lines | None = None,
) -> tuple[list[TaggedExample], str, tuple[str, ...]]:
    """The sentences of a file, what was read as what, and what else there is to say. Columns are numbered from 1.

    `lines` are those of the file where it is open already.
    """
    lines = lines or numbered_lines(name)
    head = list(islice(lines, SAMPLE))
    layout = detect_layout(name, [line for _, line in head])
    column = layout.width if tag is None else tag
    for role, number in (("word", word), ("tag", column if labelled else 1)):
        if not 1 <= number <= layout.width:
            raise DataError(f"{source_name(name)} has {layout.width} columns, no column {number} for the {role}")
    if labelled and column == word:
        raise DataError(
            f"{source_name(name)}: column {word} is the word and cannot be its tag; rows need a tag, or a --tag"
        )
    examples = []
    for document, rows in _sentences(source_name(name), chain(head, lines), layout, problems):
        place = Place(source_name(name), rows[0][0], document=document)
        words = tuple(cells[word - 1].strip() for _, cells in rows)
        tags = tuple(cells[column - 1].strip() for _, cells in rows) if labelled else None
        empty = next(
            (line for (line, _), word, tag in zip(rows, words, tags or words, strict=True) if not (word and tag)), 0
        )
        if empty:
            fault(
                problems,
                "empty word or tag",
                Place(source_name(name), empty),
                "the word or its tag is empty; fill it in",
            )
        else:
            examples.append(TaggedExample(words, tags, place))
    examples, notes = _without_prefix(examples)
    said = f"read as: word = column {word}" + (f", tag = column {column}" if labelled else "")
    return examples, said, notes


def detect_layout(name: str, lines: list[str]) -> ConllLayout:
    """Tabs or spaces, and the commonest number of columns."""
    rows = [line for line in lines if line.strip()]
    if not rows:
        raise DataError(f"{source_name(name)} is empty; give a file with a word and its tag a line")
    separator = "\t" if sum("\t" in row for row in rows) * 2 > len(rows) else " "
    cut = ConllLayout(separator, 0)
    return ConllLayout(separator, Counter(len(cut.cells(row)) for row in rows).most_common(1)[0][0])


def _sentences(
    name: str, lines: Iterable[tuple[int, str]], layout: ConllLayout, problems: Problems | None
) -> Iterator[tuple[int | None, list[tuple[int, list[str]]]]]:
    """The line where its document begins, and numbered rows, of each sentence. One with a broken row is skipped."""
    rows: list[tuple[int, list[str]]] = []
    document, broken = None, False
    for number, line in chain(lines, [(0, "")]):
        if not line.strip():
            if rows and not broken:
                yield document, rows
            rows, broken = [], False
            continue
        cells = layout.cells(line)
        if cells[0] == "-DOCSTART-" or (not rows and _NEW_DOCUMENT.match(line)):
            document = number
        if cells[0] == "-DOCSTART-" or (line.startswith("#") and not rows and len(cells) != layout.width):
            continue
        if len(cells) != layout.width:
            message = f"{len(cells)} columns, but rows of this file have {layout.width}"
            fault(problems, "wrong number of columns", Place(name, number), message)
            broken = True
        rows.append((number, cells))


def _without_prefix(examples: list[TaggedExample]) -> tuple[list[TaggedExample], tuple[str, ...]]:
    match = _PREFIX.match(examples[0].words[0]) if examples else None
    prefix = match.group() if match else ""
    count = sum(len(example.words) for example in examples)
    all_have = all(word.startswith(prefix) and word != prefix for example in examples for word in example.words)
    if not prefix or count < 10 or not all_have:
        return examples, ()
    stripped = [
        replace(example, words=tuple(word.removeprefix(prefix) for word in example.words)) for example in examples
    ]
    return stripped, (f"prefix {prefix} stripped from every word",)


_TAG = re.compile(r"O|[BIESLU]-\S+")


def read_levels(
    name: str, *, word: int | None = None, tags: Sequence[int] | None = None, problems: Problems | None = None
) -> tuple[list[SpannedWords], str]:
    """The sentences of a file, and what was read as what. Columns are numbered from 1.

    If neither is given, tags are the columns that look like it, and the word is the column before them.
    """
    columns = list(tags) if tags else tag_columns(name)
    word_column = word or max(1, min(columns) - 1)
    levels = [read_conll(name, word=word_column, tag=column, problems=problems)[0] for column in columns]
    whole = set.intersection(*({example.place for example in level} for level in levels))
    kept = [[example for example in level if example.place in whole] for level in levels]
    schemes = [detect_scheme([example.tags or () for example in level]) for level in kept]
    examples = []
    for sentence in zip(*kept, strict=True):
        spans = {
            entity
            for example, scheme in zip(sentence, schemes, strict=True)
            for entity in _entities(example, scheme, problems)
        }
        examples.append(SpannedWords(sentence[0].words, tuple(sorted(spans)), sentence[0].place))
    said = f"read as: word = column {word_column}, tags = column{'s' if len(columns) > 1 else ''} "
    return examples, said + ", ".join(map(str, columns))


def tag_columns(name: str) -> list[int]:
    """Columns, from 1, that hold tags and nothing else."""
    lines = [line for _, line in islice(numbered_lines(name), SAMPLE)]
    layout = detect_layout(name, lines)
    rows = [cells for line in lines if line.strip() and len(cells := layout.cells(line)) == layout.width]
    columns = [n + 1 for n in range(layout.width) if all(_TAG.fullmatch(row[n].strip()) for row in rows)]
    if not columns:
        raise DataError(f"{source_name(name)} has no column of tags (O, B-PER, I-PER …); name the columns")
    return columns


def _entities(example: TaggedExample, scheme: Scheme, problems: Problems | None) -> list[EntitySpan]:
    tags = example.tags or ()
    for illegal in find_illegal(tags, scheme):
        message = f"word {illegal.index + 1} of the sentence that begins here is tagged {illegal.message}"
        fault(problems, "illegal tag, read as conlleval does", example.place, message)
    return read_leniently(tags, scheme)


def levels_of(example: SpannedWords) -> list[list[EntitySpan]]:
    """Spans in levels of which none has two that share a word: outer ones first, as deep as must be."""
    levels: list[list[EntitySpan]] = []
    for span in sorted(example.spans or (), key=lambda span: (span.start - span.end, span)):
        free = (level for level in levels if all(span.end <= other.start or other.end <= span.start for other in level))
        level = next(free, None)
        if level is None:
            levels.append([span])
        else:
            level.append(span)
    return levels


def level_lines(examples: Iterable[SpannedWords]) -> Iterator[str]:
    """Sentences as CoNLL columns, a column of BIO for each level; what `read_levels` reads."""
    levelled = [(example, levels_of(example)) for example in examples]
    depth = max((len(levels) for _, levels in levelled), default=1) or 1
    for example, levels in levelled:
        padded = [*levels, *([] for _ in range(depth - len(levels)))]
        columns = [write_tags(sorted(level), len(example.words), "BIO") for level in padded]
        for word, *tags in zip(example.words, *columns, strict=True):
            if "\t" in word or "\n" in word:
                raise DataError(f"{example.place}: word {word!r} holds a tab or a line break; CoNLL cannot write it")
            yield "\t".join([word, *tags])
        yield ""
