"""Mentions in brackets, `Entity=` in the last column of CoNLL-U (Nedoluzhko et al. 2022, CorefUD; GUM).

    1  Research   …  Entity=(2-abstract-new
    2  on         …  _
    3  language   …  Entity=(3-abstract-giv)2)

A bracket opens with the number of what it speaks of and further fields, whose names ``# global.Entity`` gives; `etype`
is the type. It closes with the number alone. Mentions of a sentence may nest and cross; those in several pieces,
``(4[1/2]-person``, are reported, since no span of words can hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from larvatus.core.errors import DataError
from larvatus.data.labelled.conllu import Sentence, located, pairs, sentences
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Place, shown
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tag_schemes import Entity

_BRACKET = re.compile(r"\((?P<opened>[^()]+)(?P<closed>\))?|(?<![^()])(?P<ended>[^()]++)\)")
_ROW = re.compile(r"(?:\([^()]+\)?|[^()]+\))*")
_PIECE = re.compile(r"(.*)\[\d+/\d+\]")
FIELDS = "GRP-etype-infstat-centering-minspan-link-identity"
"""Those of GUM, for a file that does not declare its own."""


def read_brackets(name: str, problems: Problems | None = None) -> tuple[list[SpannedWords], str]:
    """The sentences of a CoNLL-U file with their mentions, and what was read as what."""
    fields, any_found, examples = FIELDS.split("-"), False, []
    for sentence in sentences(shown(name), problems, numbered_lines(name)):
        fields = sentence.comments.get("global.Entity", "-".join(fields)).split("-")
        kind = fields.index("etype") if "etype" in fields else 1
        spans = _mentions(sentence, shown(name), kind, problems)
        any_found = any_found or bool(spans)
        text, places = located(sentence) or (None, None)
        words = tuple(cells[1] for _, cells in sentence.rows)
        identifier = sentence.comments.get("sent_id")
        place = Place(shown(name), sentence.line, document=sentence.document)
        examples.append(SpannedWords(words, tuple(sorted(set(spans))), place, text, places, identifier))
    if not any_found:
        raise DataError(f"{shown(name)}: no word has Entity= in its last column; give CoNLL-U with mentions, as GUM's")
    return examples, f"read as: word = form, spans = Entity ({fields[kind]})"


def _mentions(sentence: Sentence, name: str, kind: int, problems: Problems | None) -> list[Entity]:
    entities: list[Entity] = []
    opened: dict[str, list[tuple[int, str, Place]]] = {}  # by number, the last one opened last
    for index, (line, cells) in enumerate(sentence.rows):
        value, place = pairs(cells).get("Entity", ""), Place(name, line)
        if not _ROW.fullmatch(value):
            fault(problems, "broken brackets", place, f"Entity={value} is no row of brackets such as (1-person or 1)")
            continue
        for bracket in _BRACKET.finditer(value):
            if bracket["ended"] is not None:
                waiting = opened.get(bracket["ended"])
                if not waiting:
                    fault(problems, "broken brackets", place, f"{bracket['ended']}) closes what nothing opened")
                    continue
                start, label, _ = waiting.pop()
                entities += [Entity(start, index + 1, label)] if label else []
                continue
            label = _type(bracket["opened"], kind, place, problems)
            if bracket["closed"]:
                entities += [Entity(index, index + 1, label)] if label else []
            else:
                opened.setdefault(bracket["opened"].partition("-")[0], []).append((index, label, place))
    for number, waiting in opened.items():
        for _, _, place in waiting:
            fault(problems, "broken brackets", place, f"({number} is never closed in its sentence")
    return entities


def _type(opened: str, kind: int, place: Place, problems: Problems | None) -> str:
    """The type of a mention; empty for a piece of one, which is reported once."""
    parts = opened.split("-")
    if len(parts) <= kind or not parts[kind]:
        fault(problems, "broken brackets", place, f"({opened} names no type")
        return ""
    if _PIECE.fullmatch(parts[0]):
        fault(problems, "discontinuous span", place, f"({opened} is one of several pieces, which no span can hold")
        return ""
    return parts[kind]


def bracket_lines(examples: Iterable[SpannedWords]) -> Iterator[str]:
    """Sentences as CoNLL-U with brackets; what `read_brackets` reads. Other columns are empty."""
    yield "# global.Entity = GRP-etype"
    number = 0
    for example in examples:
        text, places = example.located()
        yield f"# sent_id = {example.id or example.place.line}"
        if "\n" not in text and "\r" not in text:
            yield f"# text = {text}"
        opens: dict[int, list[str]] = {}
        closes: dict[int, list[str]] = {}
        # outer brackets open first; inner ones close first
        for span in sorted(example.spans or (), key=lambda span: (span.start, -span.end, span.label)):
            number += 1
            if "-" in span.label or re.search(r"[()|\s]", span.label):
                raise DataError(f"{example.place}: the type {span.label!r} cannot be written in brackets; rename it")
            if span.end == span.start + 1:
                opens.setdefault(span.start, []).append(f"({number}-{span.label})")
            else:
                opens.setdefault(span.start, []).append(f"({number}-{span.label}")
                closes.setdefault(span.end - 1, []).insert(0, f"{number})")
        for index, word in enumerate(example.words):
            brackets = "".join([*closes.get(index, ()), *opens.get(index, ())])
            misc = [f"Entity={brackets}"] if brackets else []
            if index + 1 < len(places) and places[index][1] == places[index + 1][0]:
                misc.append("SpaceAfter=No")
            yield "\t".join([str(index + 1), word, *"_" * 7, "|".join(misc) or "_"])
        yield ""
