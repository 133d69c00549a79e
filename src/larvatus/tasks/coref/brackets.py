"""Mentions in brackets, as CoNLL-2012 and CorefUD write them.

    reader = BracketReader(problems)
    reader.word(0, "(12|(3)", place)            # mention of 12 opens, a mention of 3 is this word
    reader.word(1, "12)", place)
    reader.close()                              # {"12": [(0, 2)], "3": [(0, 1)]}

A bracket opens with the name of its cluster and closes with it. CoNLL-2012 separates brackets by a bar; CorefUD writes
further fields after the name, ``(e12-person-new``, and numbers the pieces of a mention, ``(e12[1/2]``. Mentions may
nest, cross, and reach over the end of a sentence, never of a document.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Place
from larvatus.tasks.coref.examples import Clusters, WordSpan

_BRACKET = re.compile(r"\((?P<opened>[^()|]+)(?P<closed>\))?|(?P<ended>[^()|]+)\)")
_CELL = re.compile(r"(?:(?:\([^()|]+\)?|[^()|]+\))(?:\|(?!$))?)+")
_PIECE = re.compile(r"(?P<name>.*)\[\d+/\d+\]")


class _Opened(NamedTuple):
    word: int
    place: Place


class BracketReader:
    """Mentions of a document, word by word."""

    def __init__(self, problems: Problems | None, *, field: int | None = None) -> None:
        """`field` is the number of the name among fields with hyphens between them; None: it is all there is."""
        self.problems, self.field = problems, field
        self.mentions: dict[str, list[WordSpan]] = {}
        self.pieces = 0
        self.broken = False
        self._opened: dict[str, list[_Opened]] = {}

    def word(self, number: int, cell: str, place: Place) -> None:
        """Read the brackets of one word."""
        if not _CELL.fullmatch(cell):
            self._fault(place, f"{cell:.60} is no row of brackets such as (1 or 1)")
            return
        for bracket in _BRACKET.finditer(cell):
            written = bracket["opened"] or bracket["ended"]
            name = self._name(written) if bracket["opened"] else written
            if piece := _PIECE.fullmatch(name):
                self.pieces += bracket["opened"] is not None and "[1/" in name
                name = f"{piece['name']}\0{name}"  # apart from whole mentions
            if bracket["closed"]:
                self._add(name, number, number + 1)
            elif bracket["opened"]:
                self._opened.setdefault(name, []).append(_Opened(number, place))
            elif waiting := self._opened.get(name):
                self._add(name, waiting.pop().word, number + 1)
            else:
                self._fault(place, f"{written}) closes what nothing opened")

    def close(self) -> dict[str, list[WordSpan]]:
        """The mentions of each cluster, at the end of the document."""
        for name, waiting in self._opened.items():
            for opened in waiting:
                self._fault(opened.place, f"({name.partition(chr(0))[0]} is never closed in its document")
        return self.mentions

    def _add(self, name: str, first: int, end: int) -> None:
        if "\0" not in name:
            self.mentions.setdefault(name, []).append((first, end))

    def _name(self, written: str) -> str:
        if self.field is None:
            return written
        fields = written.split("-")
        return fields[self.field] if self.field < len(fields) else written

    def _fault(self, place: Place, message: str) -> None:
        self.broken = True
        fault(self.problems, "broken brackets", place, message)


def write_brackets(clusters: Clusters, words: int, separator: str) -> list[str]:
    """The cell of each word; brackets that close come first, then outer ones that open before inner ones."""
    opening: list[list[tuple[int, str]]] = [[] for _ in range(words)]
    closing: list[list[tuple[int, str]]] = [[] for _ in range(words)]
    for number, cluster in enumerate(clusters):
        for first, end in cluster:
            if end == first + 1:
                opening[first].append((-end, f"({number})"))
            else:
                opening[first].append((-end, f"({number}"))
                closing[end - 1].append((-first, f"{number})"))
    return [
        separator.join(_in_order(closes) + _in_order(opens)) for closes, opens in zip(closing, opening, strict=True)
    ]


def _in_order(brackets: Sequence[tuple[int, str]]) -> list[str]:
    return [text for _, text in sorted(brackets)]
