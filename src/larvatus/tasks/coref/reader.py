"""Documents with coreference from files: CoNLL-2012, CorefUD, JSON lines, and GAP's pronouns.

    read_documents(["train.conllu"])
    read_documents(["books.conll.xz"], labelled=False)        # to predict: brackets are not read

| file | words | clusters |
| --- | --- | --- |
| CoNLL-2012 (`.conll`) | the 4th column | brackets in the last column; ``#begin document (name); part 0`` |
| CorefUD (`.conllu`) | the form | ``Entity=`` of MISC, with the fields of ``# global.Entity``; ``# newdoc id`` |
| JSON lines | `words`, or `sentences` of words | `clusters` of ``[first, last]`` words |
| JSON lines | `text` | `clusters` of ``[start, end]`` characters, or of records with `start` and `end` |
| GAP (`.tsv`) | text | a pronoun and two names (`gap.py`) |

Speakers are the 10th of 12 columns of CoNLL-2012, ``# speaker`` of a sentence, and `speakers`, a list as `words` or
`sentences`. Mentions of empty nodes and mentions in several pieces are no spans of words and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from larvatus.core.errors import DataError
from larvatus.data.labelled.conllu import Sentence, located, pairs, sentences
from larvatus.data.labelled.file_options import Paths
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Dataset, Place, Row, source_name
from larvatus.data.labelled.span_records import Span, SpanExample, to_words
from larvatus.data.labelled.tables import TableOptions, open_table, path_strings
from larvatus.data.labelled.tagged import format_of
from larvatus.data.text.align import join_words
from larvatus.data.text.streams import numbered_lines
from larvatus.tasks.coref.brackets import BracketReader
from larvatus.tasks.coref.examples import ClusterNotes, CorefExample, WordSpan, sort_clusters
from larvatus.tasks.coref.gap import is_gap, read_gap

EMPTY = ("", "-", "_", "*")
"""Cells without a bracket."""
WORD_COLUMN, SPEAKER_COLUMN = 3, 9
FEWEST_COLUMNS = 5
IDS = ("id", "doc_key", "doc_id")
_BEGIN = re.compile(r"#begin document \(?(?P<name>.*?)\)?;?(?:\s+part\s+(?P<part>\d+))?\s*")


@dataclass
class _Reading:
    """A document while its lines are read."""

    place: Place
    name: str | None
    brackets: BracketReader
    words: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """First word of each sentence."""
    texts: list[str] = field(default_factory=list)
    """Texts of the sentences, where they are known."""
    places: list[tuple[int, int]] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)

    def example(self, *, labelled: bool) -> tuple[CorefExample, ClusterNotes] | None:
        """None where brackets are broken, or where there are no words."""
        groups = self.brackets.close() if labelled else {}
        if self.brackets.broken or not self.words:
            return None
        clusters, notes = sort_clusters(groups, self.starts)
        text = " ".join(self.texts) if self.texts else None
        example = CorefExample(
            words=tuple(self.words),
            clusters=clusters if labelled else None,
            place=self.place,
            text=text,
            places=tuple(self.places) if self.texts else None,
            id=self.name,
            sentences=tuple(self.starts),
            speakers=tuple(self.speakers) if any(self.speakers) else (),
        )
        return example, notes + ClusterNotes(pieces=self.brackets.pieces)


Read = tuple[CorefExample, ClusterNotes]


def read_documents(
    paths: Paths, *, labelled: bool = True, format: str | None = None, problems: Problems | None = None
) -> Dataset[Any]:
    """Documents of files, in their order; `problems` collects those that cannot be used."""
    names = path_strings(paths)
    if labelled and any(is_gap(name) for name in names):
        return read_gap(names, problems)
    examples, notes, said = [], ClusterNotes(), dict[str, None]()
    for name in names:
        predicted, how = _documents_of(name, format or format_of(name), problems, labelled=labelled)
        said[how] = None
        for example, more in predicted:
            examples.append(example)
            notes += more
    source = ", ".join(map(source_name, names))
    if not examples:
        raise DataError(f"{source}: no document can be used{cause(problems)}; give documents with clusters of mentions")
    if labelled and not any(example.clusters for example in examples):
        raise DataError(f"{source}: no mention is marked; give brackets in the last column, Entity= or clusters")
    return Dataset(tuple(examples), source, "; ".join(said), notes=notes.lines())


def _documents_of(
    name: str, format: str | None, problems: Problems | None, *, labelled: bool
) -> tuple[Iterator[Read], str]:
    if format == "conllu":
        return _of_conllu(name, problems, labelled=labelled), "read as: words = form, clusters = Entity"
    if format in ("jsonl", "parquet"):
        kind: Any = format
        return _of_table(name, problems, kind, labelled=labelled), "read as: clusters of [first, last] or [start, end]"
    return _of_conll(name, problems, labelled=labelled), "read as: words = column 4, clusters = the last column"


def _of_conll(name: str, problems: Problems | None, *, labelled: bool) -> Iterator[Read]:
    """CoNLL-2012."""
    shown, reading, fresh = source_name(name), None, True
    for number, line in numbered_lines(name):
        place = Place(shown, number)
        if line.startswith("#"):
            if reading is not None:
                yield from _finished(reading, labelled=labelled)
                reading = None
            if begin := _BEGIN.fullmatch(line):
                named = begin["name"] + (f"_{int(begin['part'])}" if int(begin["part"] or 0) else "")
                reading = _Reading(place, named or None, BracketReader(problems))
            fresh = True
            continue
        if not line.strip():
            fresh = True
            continue
        reading = reading or _Reading(place, None, BracketReader(problems))
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) < FEWEST_COLUMNS or not cells[WORD_COLUMN].strip():
            said = f"{len(cells)} columns" if len(cells) < FEWEST_COLUMNS else "the word is empty"
            fault(
                problems, "broken row", place, f"{said}; CoNLL-2012 has words in the 4th column, brackets in the last"
            )
            reading.brackets.broken = True
            continue
        if fresh:
            reading.starts.append(len(reading.words))
            fresh = False
        if labelled and cells[-1].strip() not in EMPTY:
            reading.brackets.word(len(reading.words), cells[-1].strip(), place)
        speaker = cells[SPEAKER_COLUMN].strip() if len(cells) > SPEAKER_COLUMN + 1 else ""
        reading.speakers.append("" if speaker in EMPTY else speaker)
        reading.words.append(cells[WORD_COLUMN])
    if reading is not None:
        yield from _finished(reading, labelled=labelled)


def _of_conllu(name: str, problems: Problems | None, *, labelled: bool) -> Iterator[Read]:
    """CorefUD. A file without ``# newdoc`` is one document."""
    shown, reading, fields, document = source_name(name), None, ["eid"], None
    for sentence in sentences(shown, problems, numbered_lines(name)):
        if declared := sentence.comments.get("global.Entity"):
            fields = declared.split("-")
        if reading is None or sentence.document != document:
            if reading is not None:
                yield from _finished(reading, labelled=labelled)
            document = sentence.document
            named = next((i for i, each in enumerate(fields) if each in ("eid", "GRP")), 0)
            brackets = BracketReader(problems, field=None if len(fields) == 1 else named)
            place = Place(shown, document or sentence.line, document=document)
            reading = _Reading(place, sentence.comments.get("newdoc id"), brackets)
        _add_sentence(reading, sentence, shown, labelled=labelled)
    if reading is not None:
        yield from _finished(reading, labelled=labelled)


def _add_sentence(reading: _Reading, sentence: Sentence, name: str, *, labelled: bool) -> None:
    text, places = located(sentence) or _spaced([cells[1] for _, cells in sentence.rows])
    before = sum(map(len, reading.texts)) + len(reading.texts)
    reading.starts.append(len(reading.words))
    reading.texts.append(text)
    reading.places += [(start + before, end + before) for start, end in places]
    for line, cells in sentence.rows:
        if labelled and (entity := pairs(cells).get("Entity")):
            reading.brackets.word(len(reading.words), entity, Place(name, line))
        reading.words.append(cells[1])
    reading.speakers += [sentence.comments.get("speaker", "")] * len(sentence.rows)


def _spaced(words: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    text, spans = join_words(words)
    return text, tuple((start, end) for start, end in spans.tolist())


def _finished(reading: _Reading, *, labelled: bool) -> Iterator[Read]:
    if (done := reading.example(labelled=labelled)) is not None:
        yield done


def _of_table(name: str, problems: Problems | None, format: Any, *, labelled: bool) -> Iterator[Read]:
    """JSON lines and Parquet."""
    table = open_table(name, TableOptions(format=format), problems)
    for place, row in table.rows:
        try:
            read = _of_row(row, place, problems, labelled=labelled)
        except DataError as bad:
            fault(problems, "broken document", place, str(bad).removeprefix(f"{place}: "))
            continue
        if read is not None:
            yield read


def _of_row(row: Row, place: Place, problems: Problems | None, *, labelled: bool) -> Read | None:
    identifier = next((str(row[name]) for name in IDS if row.get(name) is not None), None)
    words, starts = _words_of(row)
    given = _clusters_of(row) if labelled else []
    if words is None:
        text = row.get("text")
        if not isinstance(text, str) or not text.strip():
            raise DataError("no document; give words, sentences of words, or text")
        spans = sorted(Span(start, end, str(number)) for number, group in enumerate(given) for start, end in group)
        for start, end, _ in ((span.start, span.end, span) for span in spans):
            _check(start, end, len(text), "characters")
        spanned = to_words(SpanExample(text, tuple(spans), place, identifier), problems)
        groups: dict[str, list[WordSpan]] = {}
        for first, end, label in spanned.spans or ():
            groups.setdefault(label, []).append((first, end))
        clusters, notes = sort_clusters(groups)
        example = CorefExample(
            spanned.words, clusters if labelled else None, place, spanned.text, spanned.places, identifier
        )
        return (example, notes) if example.words else None
    for group in given:
        for first, last in group:
            _check(first, last + 1, len(words), "words")
    named = {str(number): [(first, last + 1) for first, last in group] for number, group in enumerate(given)}
    clusters, notes = sort_clusters(named, starts)
    example = CorefExample(
        words,
        clusters if labelled else None,
        place,
        id=identifier,
        sentences=tuple(starts),
        speakers=_speakers_of(row, len(words)),
    )
    return example, notes


def _words_of(row: Row) -> tuple[tuple[str, ...] | None, list[int]]:
    """The words, and the first of each sentence."""
    grouped, flat = row.get("sentences"), row.get("words")
    if flat is None and isinstance(row.get("tokens"), list):  # of a prediction it is their number
        flat = row["tokens"]
    if grouped is None and flat is None:
        return None, []
    parts: Any = grouped if grouped is not None else [flat]
    good = isinstance(parts, list) and all(isinstance(part, list) for part in parts)
    words = tuple(word for part in parts for word in part) if good else ()
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise DataError("words are no list of words, and sentences no list of such lists; repair them")
    starts, before = [], 0
    for part in parts if grouped is not None else ():
        if part:
            starts.append(before)
        before += len(part)
    return words, starts


def _speakers_of(row: Row, count: int) -> tuple[str, ...]:
    """The speaker of each word: a list as long as the words, or such lists for sentences."""
    given = row.get("speakers")
    if not isinstance(given, list):
        return ()
    flat = [each for part in given for each in (part if isinstance(part, list) else [part])]
    if len(flat) != count or not all(isinstance(each, str) for each in flat):
        raise DataError(f"{count:,} words need as many speakers, which are texts, not {len(flat):,}")
    named = ["" if each in EMPTY else each for each in flat]
    return tuple(named) if any(named) else ()


def _clusters_of(row: Row) -> list[list[tuple[int, int]]]:
    given = row.get("clusters")
    if not isinstance(given, list):
        raise DataError("no clusters; give a list of clusters, each a list of mentions such as [3, 5]")
    return [[_mention(mention) for mention in _listed(group)] for group in given]


def _listed(group: Any) -> list[Any]:
    if isinstance(group, dict):
        group = group.get("mentions")
    if not isinstance(group, list):
        raise DataError("a cluster is no list of mentions; write it as [[3, 5], [9, 9]]")
    return group


def _mention(given: Any) -> tuple[int, int]:
    pair = [given.get("start"), given.get("end")] if isinstance(given, dict) else given
    if isinstance(pair, list) and len(pair) == 2 and all(type(part) is int for part in pair):
        return pair[0], pair[1]
    raise DataError(f"{given!r:.60} is no mention; write two whole numbers, such as [3, 5]")


def _check(first: int, end: int, size: int, what: str) -> None:
    if not 0 <= first < end <= size:
        raise DataError(f"the mention at {first} is empty or outside the {size:,} {what} of its document")
