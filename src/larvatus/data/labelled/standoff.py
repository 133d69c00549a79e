"""Labelled spans of characters next to their text, and relations between them: brat (.txt and .ann) and JSONL.

    {"text": "Jane flies for United.", "spans": [{"start": 0, "end": 4, "label": "PER"}, [15, 21, "ORG"]],
     "relations": [{"head": 0, "tail": 1, "label": "works-for"}]}          # numbers of spans, from 0; or their "id"
    R1	works-for Arg1:T1 Arg2:T2                                           # brat

Spans may nest and overlap; `span_records.to_tagged` makes tags of them. Of brat's files the text-bound annotations (T
lines) are read, and the relations of two of them (R lines); a discontinuous one is reported. A span outside its text,
or one whose words differ from those in brat's file, is an error with its place: offsets that are wrong once are wrong
elsewhere. A relation goes from its head to its tail. One that names a span which does not exist is refused with its
place; one whose span was skipped as a fault (`Problems`) is skipped with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from larvatus.core.errors import DataError
from larvatus.core.ranges import digits
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Place, Row, source_name
from larvatus.data.labelled.span_records import Span, SpanExample, SpanRelation
from larvatus.data.labelled.tables import LabelledTable
from larvatus.data.text.archives import COMPRESSIONS
from larvatus.data.text.readers import list_whole_folder
from larvatus.data.text.streams import numbered_lines, read_whole

_HEADS, _TAILS, _KINDS = ("head", "from_id", "from"), ("tail", "to_id", "to"), ("label", "type")


def row_relations(given: Any, spans: Sequence[Any], order: Sequence[int], place: Place) -> tuple[SpanRelation, ...]:
    """The relations of a row of JSONL or Parquet; `order` says the number of each of its spans once they are sorted."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise DataError(f"{place}: relations is {type(given).__name__}, not a list")
    names = [span.get("id") if isinstance(span, dict) else None for span in spans]
    named = any(name is not None for name in names)
    numbers: dict[str, int] = {}
    for name, number in zip(names if named else range(len(names)), order, strict=True):
        if name is not None and numbers.setdefault(str(name), number) != number:
            raise DataError(f"{place}: two spans have the id {name!r}; give each its own")
    way = f"{len(numbers):,} spans have an id" if named else f"there are {len(numbers):,} spans, numbered from 0"
    return tuple(sorted({_row_relation(relation, numbers, way, place) for relation in given}))


def _row_relation(given: Any, numbers: Mapping[str, int], way: str, place: Place) -> SpanRelation:
    parts = _three(given, _HEADS, _TAILS, _KINDS)
    sound = len(parts) == 3 and isinstance(parts[2], str) and parts[2]
    if not sound or any(isinstance(span, bool) or not isinstance(span, int | str) for span in parts[:2]):
        raise DataError(f"{place}: a relation is {json.dumps(given)[:80]}; write head, tail and label")
    for span in parts[:2]:
        if str(span) not in numbers:
            raise DataError(f"{place}: the relation {parts[2]!r} names the span {span!r}, which does not exist ({way})")
    return SpanRelation(numbers[str(parts[0])], numbers[str(parts[1])], parts[2])


def brat_relations(
    lines: Iterable[tuple[Place, str]], numbers: Mapping[str, int | None], problems: Problems | None
) -> tuple[SpanRelation, ...]:
    """Relations of R lines; `numbers` maps each T to its span, None if that was skipped."""
    relations = set()
    for place, line in lines:
        identifier, _, rest = line.partition("\t")
        label, *ends = rest.split() or [""]
        roles = [role for role, _, _ in (end.partition(":") for end in ends)]
        names = [name for _, _, name in (end.partition(":") for end in ends)]
        if len(ends) != 2 or not all(names):
            said = f"{identifier} is no relation of the form R1<TAB>label Arg1:T1 Arg2:T2"
            fault(problems, "broken annotation", place, said)
            continue
        if roles == ["Arg2", "Arg1"]:
            names.reverse()
        for name in names:
            if name.startswith("T") and name not in numbers:
                raise DataError(
                    f"{place}: {identifier} names {name}, which does not exist; annotate it, or drop {identifier}"
                )
        if names[0] == names[1]:
            raise DataError(f"{place}: {identifier} joins {names[0]} with itself; give it two spans")
        head, tail = (numbers.get(name) for name in names)
        if head is None or tail is None:
            lost = names[0] if head is None else names[1]
            fault(
                problems,
                "relation without its spans",
                place,
                f"{identifier} names {lost}, which is not read as one span",
            )
            continue
        relations.add(SpanRelation(head, tail, label))
    return tuple(sorted(relations))


def relation_records(relations: Iterable[SpanRelation]) -> list[dict[str, Any]]:
    """As JSONL has them."""
    return [relation._asdict() for relation in relations]


SPAN_KEYS = ("spans", "entities", "label", "labels", "annotations")
_STARTS, _ENDS, _LABELS = ("start", "start_offset", "begin"), ("end", "end_offset", "stop"), ("label", "type", "tag")


def brat_documents(name: str) -> list[str]:
    """The .ann files of a directory, an .ann file or its .txt file."""
    path = Path(name)
    if path.is_dir():
        files = [str(file) for file in list_whole_folder(path) if _bare(file.name).endswith(".ann")]
        if not files:
            raise DataError(f"{name} holds no .ann files; give a directory of brat's .txt and .ann")
        return files
    return [_other(name, ".txt", ".ann") if _bare(name).endswith(".txt") else name]


def read_brat(name: str, problems: Problems | None = None) -> SpanExample:
    """One document: its text, whole, and its text-bound annotations."""
    text = read_whole(_other(name, ".ann", ".txt")).decode()  # with its line ends: brat counts them
    spans: list[tuple[Span, str]] = []
    numbers: dict[str, int | None] = {}
    links: list[tuple[Place, str]] = []
    for number, line in numbered_lines(name):
        place = Place(source_name(name), number)
        if line.startswith("T"):
            identifier, span = line.partition("\t")[0].strip(), _annotation(line, text, place, problems)
            numbers[identifier] = None  # until it is sorted
            if span is not None:
                spans.append((span, identifier))
        elif line.startswith("R"):
            links.append((place, line))
    spans.sort()
    often = Counter(identifier for _, identifier in spans)
    unique = ((identifier, number) for number, (_, identifier) in enumerate(spans) if often[identifier] == 1)
    numbers |= dict(unique)  # of two with the same identifier, who knows which is meant
    relations = brat_relations(links, numbers, problems)
    place = Place(source_name(_other(name, ".ann", ".txt")), 1)
    return SpanExample(text, tuple(span for span, _ in spans), place, Path(name).stem, relations)


def _annotation(line: str, text: str, place: Place, problems: Problems | None) -> Span | None:
    name, _, rest = line.partition("\t")
    where, tab, words = rest.partition("\t")
    label, _, offsets = where.partition(" ")
    parts = [part.split() for part in offsets.split(";")]
    if not label or any(len(part) != 2 or None in map(digits, part) for part in parts):
        fault(problems, "broken annotation", place, f"{name} is no annotation of the form T1<TAB>Label 0 5<TAB>words")
        return None
    if len(parts) > 1:
        fault(problems, "discontinuous span", place, f"{name} is discontinuous ({offsets}), which no tagger can give")
        return None
    span = Span(int(parts[0][0]), int(parts[0][1]), label)
    _refuse_outside(span, text, place)
    if tab and words.split() != text[span.start : span.end].split():
        there = text[span.start : span.end]
        raise DataError(f"{place}: {name} says {words!r}, but its text has {there!r} at {span.start} to {span.end}")
    return span


def _refuse_outside(span: Span, text: str, place: Place) -> None:
    if not 0 <= span.start < span.end <= len(text):
        said = f"span {span.start} to {span.end} ({span.label})"
        raise DataError(f"{place}: {said} is empty or outside its text of {len(text):,} characters")


def span_key(columns: Iterable[str], sample: Iterable[Row]) -> str | None:
    """The field of JSONL and Parquet that holds spans: a list of records, or of [start, end, label]."""
    rows = list(sample)
    for key in SPAN_KEYS:
        values = [value for row in rows if isinstance(row.get(key), list) for value in row[key]]
        if key in columns and values and all(isinstance(value, dict | list) for value in values):
            return key
    return "spans" if "spans" in columns else "entities" if "entities" in columns else None


def read_span_rows(
    table: LabelledTable, *, text: str, spans: str, problems: Problems | None = None
) -> Iterator[SpanExample]:
    """The rows of JSONL or Parquet as texts with spans."""
    for place, row in table.rows:
        value = row.get(text)
        if not isinstance(value, str) or not value.strip():
            fault(problems, "empty text", place, f"{text} is empty; drop the row, or give it a text")
            continue
        given = row.get(spans)
        if given is not None and not isinstance(given, list):
            raise DataError(f"{place}: {spans} is {type(given).__name__}, not a list")
        made = [_span(span, value, place) for span in given or ()]
        order = sorted(range(len(made)), key=lambda n: (made[n], n))
        numbers = [number for _, number in sorted(zip(order, range(len(made)), strict=True))]
        relations = row_relations(row.get("relations"), given or (), numbers, place)
        identifier = row.get("id")
        yield SpanExample(value, tuple(sorted(made)), place, None if identifier is None else str(identifier), relations)


def _span(given: Any, text: str, place: Place) -> Span:
    parts = _three(given, _STARTS, _ENDS, _LABELS)
    if (
        len(parts) != 3
        or not isinstance(parts[2], str)
        or not parts[2]
        or any(isinstance(part, bool) or not isinstance(part, int) for part in parts[:2])
    ):
        raise DataError(f"{place}: a span is {json.dumps(given)[:80]}; write start, end and label")
    span = Span(*parts)
    _refuse_outside(span, text, place)
    return span


def _three(given: Any, *names: Sequence[str]) -> list[Any]:
    """The three values of a span or relation: an object with one key of each of `names`, or a list."""
    if isinstance(given, dict):
        return [next((given[key] for key in keys if key in given), None) for keys in names]
    return list(given) if isinstance(given, list) else []


def span_lines(examples: Iterable[SpanExample]) -> Iterator[str]:
    """Texts with spans as lines of JSON; what `read_spans` reads."""
    for example in examples:
        record: dict[str, Any] = {} if example.id is None else {"id": example.id}
        record["text"] = example.text
        record["spans"] = [{"start": span.start, "end": span.end, "label": span.label} for span in example.spans]
        if example.relations:
            record["relations"] = relation_records(example.relations)
        yield json.dumps(record, ensure_ascii=False)


def _bare(name: str) -> str:
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return name


def _other(name: str, ending: str, wanted: str) -> str:
    """The file of the same name and the other kind."""
    bare = _bare(name)
    return bare.removesuffix(ending) + wanted + name[len(bare) :]
