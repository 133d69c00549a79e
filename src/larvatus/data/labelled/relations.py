"""Relations between spans as files have them: JSONL and brat.

    {"text": "Jane flies for United.", "spans": [[0, 4, "PER"], [15, 21, "ORG"]],
     "relations": [{"head": 0, "tail": 1, "label": "works-for"}]}          # numbers of spans, from 0; or their "id"
    R1	works-for Arg1:T1 Arg2:T2                                           # brat

A relation runs from its head to its tail. One that names a span which does not exist is refused with its place; one
whose span was set aside as a fault (`Problems`) is set aside with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Place
from larvatus.data.labelled.span_records import Relation

_HEADS, _TAILS, _LABELS = ("head", "from_id", "from"), ("tail", "to_id", "to"), ("label", "type")


def row_relations(given: Any, spans: Sequence[Any], order: Sequence[int], place: Place) -> tuple[Relation, ...]:
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


def _row_relation(given: Any, numbers: Mapping[str, int], way: str, place: Place) -> Relation:
    if isinstance(given, dict):
        parts: list[Any] = [
            next((given[key] for key in keys if key in given), None) for keys in (_HEADS, _TAILS, _LABELS)
        ]
    else:
        parts = list(given) if isinstance(given, list) else []
    sound = len(parts) == 3 and isinstance(parts[2], str) and parts[2]
    if not sound or any(isinstance(span, bool) or not isinstance(span, int | str) for span in parts[:2]):
        raise DataError(f"{place}: a relation is {json.dumps(given)[:80]}; write head, tail and label")
    for span in parts[:2]:
        if str(span) not in numbers:
            raise DataError(f"{place}: the relation {parts[2]!r} names the span {span!r}, which does not exist ({way})")
    return Relation(numbers[str(parts[0])], numbers[str(parts[1])], parts[2])


def brat_relations(
    lines: Iterable[tuple[Place, str]], numbers: Mapping[str, int | None], problems: Problems | None
) -> tuple[Relation, ...]:
    """Relations of R lines; `numbers` says which span each T is, None of one that was set aside."""
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
        relations.add(Relation(head, tail, label))
    return tuple(sorted(relations))


def renumbered(relations: Iterable[Relation], numbers: Sequence[int | None]) -> tuple[tuple[Relation, ...], int]:
    """Relations of spans that have new numbers, None where they are gone; and how many relations go with them.

    Spans that have become one are not related to themselves.
    """
    kept, lost = set(), 0
    for head, tail, label in relations:
        a, b = numbers[head], numbers[tail]
        if a is None or b is None or a == b:
            lost += 1
        else:
            kept.add(Relation(a, b, label))
    return tuple(sorted(kept)), lost


def relation_records(relations: Iterable[Relation]) -> list[dict[str, Any]]:
    """As JSONL has them."""
    return [relation._asdict() for relation in relations]
