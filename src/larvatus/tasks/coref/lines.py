"""Documents with clusters as lines of files, which `reader.py` reads: CoNLL-2012, CorefUD, JSON lines.

print("\\n".join(conll_lines(example)))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from larvatus.data.labelled.records import LabelledExample
from larvatus.data.text.words import sentence_spans
from larvatus.tasks.coref.brackets import write_brackets
from larvatus.tasks.coref.examples import CorefExample
from larvatus.tasks.coref.reader import SPEAKER_COLUMN
from larvatus.tasks.coref.results import ResolvedDocument

COLUMNS = 12
"""Columns of CoNLL-2012; only document, part, number, word, speaker and brackets are written."""


def conll_lines(example: CorefExample) -> Iterator[str]:
    """CoNLL-2012."""
    name = _name(example)
    cells = write_brackets(example.clusters or (), len(example.words), "|")
    yield f"#begin document ({name}); part 0"
    for begin, end in _sentences(example):
        for number in range(begin, end):
            columns = [name, "0", str(number - begin), example.words[number], *"-" * (COLUMNS - 4)]
            columns[-1] = cells[number] or "-"
            columns[SPEAKER_COLUMN] = (example.speakers[number] if example.speakers else "") or "-"
            yield "\t".join(columns)
        yield ""
    yield "#end document"


def conllu_lines(example: CorefExample) -> Iterator[str]:
    """CorefUD, with the columns of words, spaces and mentions."""
    text, places = example.located()
    cells = write_brackets(example.clusters or (), len(example.words), "")
    yield f"# newdoc id = {_name(example)}"
    yield "# global.Entity = eid"
    for sentence, (begin, end) in enumerate(_sentences(example), start=1):
        yield f"# sent_id = {_name(example)}-{sentence}"
        if example.speakers and (speaker := example.speakers[begin]):
            yield f"# speaker = {speaker}"
        yield f"# text = {' '.join(text[places[begin][0] : places[end - 1][1]].split())}"
        for number in range(begin, end):
            touches = number + 1 < end and places[number][1] == places[number + 1][0]
            misc = [f"Entity={cells[number]}"] * bool(cells[number]) + ["SpaceAfter=No"] * touches
            yield "\t".join([str(number - begin + 1), example.words[number], *"_" * 7, "|".join(misc) or "_"])
        yield ""


def jsonl_lines(example: CorefExample) -> Iterator[str]:
    """One line: sentences of words, and clusters of first and last words."""
    groups = [[[first, end - 1] for first, end in cluster] for cluster in example.clusters or ()]
    parts = [example.words[begin:end] for begin, end in _sentences(example)]
    row: dict[str, Any] = {"doc_key": _name(example), "sentences": parts, "clusters": groups}
    if example.speakers:
        row["speakers"] = [example.speakers[begin:end] for begin, end in _sentences(example)]
    yield json.dumps(row, ensure_ascii=False)


FORMATS: Mapping[str, Callable[[CorefExample], Iterator[str]]] = {".conll": conll_lines, ".conllu": conllu_lines}
"""By the ending of a file."""


def as_example(given: LabelledExample, predicted: ResolvedDocument) -> CorefExample:
    """A prediction as a labelled document; sentences are those of the document, if it has some."""
    places = tuple((word.start, word.end) for word in predicted.words)
    starts = given.sentences if isinstance(given, CorefExample) else ()
    speakers = given.speakers if isinstance(given, CorefExample) else ()
    if not starts and places:
        begins = [begin for begin, _ in sentence_spans(predicted.text)]
        at = np.searchsorted([start for start, _ in places], begins)
        starts = tuple(sorted({0, *(int(word) for word in at if word < len(places))}))
    return CorefExample(
        words=tuple(word.text for word in predicted.words),
        clusters=predicted.spans,
        place=given.place,
        text=predicted.text,
        places=places,
        id=given.id,
        sentences=starts,
        speakers=speakers if len(speakers) == len(places) else (),
    )


def _name(example: CorefExample) -> str:
    return "_".join((example.id or f"document {example.place.line}").split())


def _sentences(example: CorefExample) -> list[tuple[int, int]]:
    return list(pairwise([*(example.sentences or (0,)), len(example.words)]))
