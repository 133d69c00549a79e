"""CoNLL-U (Universal Dependencies): ten columns, comments, multiword tokens, empty nodes, mentions in brackets.

The tag is UPOS, another column by name or number, or a key of FEATS or MISC. Words are the syntactic words (the lines
with a whole number), since they carry tags. ``# text`` and ``SpaceAfter=No`` give the characters of each token; the
words of a multiword token share them where they spell it (``did`` + ``n't``). Where they do not (``du`` = ``de`` +
``le``), words have no place in the text, and the sentence is read as its words with spaces between; notes count these.
Empty nodes (8.1) are no words of the text.

Mentions are in `Entity=` of the last column (Nedoluzhko et al. 2022, CorefUD; GUM):

    1  Research   …  Entity=(2-abstract-new
    2  on         …  _
    3  language   …  Entity=(3-abstract-giv)2)

A bracket opens with the number of its entity and further fields, named by ``# global.Entity``; `etype` is the type. It
closes with the number only. Mentions of a sentence may nest and cross; those in several pieces, ``(4[1/2]-person``, are
reported, since no span of words can hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from larvatus.core.errors import DataError, did_you_mean
from larvatus.core.ranges import digits
from larvatus.data.labelled.problems import Problems, fault
from larvatus.data.labelled.records import Place, TaggedExample, source_name
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tag_schemes import EntitySpan

Lines = Iterator[tuple[int, str]]

NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
ABSENT = "_"


@dataclass
class Sentence:
    """The lines of one sentence, as they come."""

    line: int
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    """Words: line and cells."""
    joined: dict[int, tuple[int, str, bool]] = field(default_factory=dict)
    """Multiword tokens by the number of their first word: number of the last, form, whether a space follows."""
    comments: dict[str, str] = field(default_factory=dict)
    document: int | None = None
    """Line of the ``# newdoc`` that it comes after."""
    lines: list[tuple[int, str]] = field(default_factory=list)
    """All lines by number, unchanged: comments, multiword tokens and empty nodes too."""
    broken: bool = False


def read_conllu(
    name: str,
    *,
    tag: str | int | None = None,
    labelled: bool = True,
    problems: Problems | None = None,
    lines: Lines | None = None,
) -> tuple[list[TaggedExample], str, tuple[str, ...]]:
    """The sentences of a file, what was read as what, and what else there is to say. `lines`: where it is open."""
    column, key = _asked("upos" if tag is None else tag)
    examples, apart = [], 0
    keys: set[str] = set()
    for sentence in sentences(source_name(name), problems, lines or numbered_lines(name)):
        tags: tuple[str, ...] | None = None
        if labelled:
            tags = tuple(cells[column] if key is None else pairs(cells).get(key, ABSENT) for _, cells in sentence.rows)
            if key is not None:
                keys.update(name for _, cells in sentence.rows for name in pairs(cells))
        words = tuple(cells[1] for _, cells in sentence.rows)
        in_text = located(sentence)
        apart += in_text is None
        text, spans = in_text if in_text is not None else (None, None)
        identifier = sentence.comments.get("sent_id")
        place = Place(source_name(name), sentence.line, document=sentence.document)
        examples.append(TaggedExample(words, tags, place, text, spans, identifier))
    if key is not None and key not in keys:
        raise DataError(f"{source_name(name)}: no word has {key} in FEATS or MISC{did_you_mean(key, {*keys, *NAMES})}")
    said = f"read as: word = form, tag = {key or NAMES[column]}" if labelled else "read as: word = form"
    notes = (f"{apart:,} sentences whose words do not spell their text are read as words with spaces",) if apart else ()
    return examples, said, notes


def _asked(tag: str | int) -> tuple[int, str | None]:
    """The column of the tag, from 0; or a key of FEATS or MISC."""
    if isinstance(tag, int) or tag.isdigit():
        number = tag if isinstance(tag, int) else digits(tag) or 0
        if not 2 <= number <= len(NAMES):
            raise DataError(f"CoNLL-U has 10 columns; column {tag!s:.40} cannot be the tag")
        return number - 1, None
    return (NAMES.index(tag.lower()), None) if tag.lower() in NAMES else (-1, tag)


def pairs(cells: list[str]) -> dict[str, str]:
    """The keys of FEATS and MISC; MISC counts where both have one."""
    parts = (part.partition("=") for part in f"{cells[5]}|{cells[9]}".split("|"))
    return {name: value for name, equals, value in parts if equals}


def sentences(name: str, problems: Problems | None, lines: Lines, *, without_words: bool = False) -> Iterator[Sentence]:
    """The sentences that can be read; `without_words`: comments that no word follows are sentences too."""
    sentence, document = None, None
    for number, line in chain(lines, [(0, "")]):
        if not line.strip():
            if sentence is not None and (sentence.rows or without_words) and not sentence.broken:
                yield sentence
            sentence = None
            continue
        sentence = sentence or Sentence(number, document=document)
        sentence.lines.append((number, line))
        if line.startswith("#"):
            what, equals, value = line[1:].partition("=")
            if what.split()[:1] == ["newdoc"]:
                sentence.document = document = number
            if equals:
                sentence.comments[what.strip()] = value.strip()
            continue
        message = _add(sentence, number, line.split("\t"))
        if message:
            fault(problems, "broken row", Place(name, number), message)
            sentence.broken = True


def _add(sentence: Sentence, number: int, cells: list[str]) -> str | None:
    """Take one row; a message where it cannot be one."""
    if len(cells) != len(NAMES):
        return f"{len(cells)} columns, but CoNLL-U has {len(NAMES)}"
    identifier = cells[0]
    if "-" in identifier:
        first, last = (digits(part) for part in (identifier.partition("-")[0], identifier.partition("-")[2]))
        if first is None or last is None or first > last:
            return f"id {identifier!r:.60} is no range of words"
        sentence.joined[first] = (last, cells[1], "SpaceAfter=No" not in cells[9].split("|"))
        return None
    if identifier.replace(".", "", 1).isdigit() and "." in identifier:
        return None  # an empty node
    if identifier != str(len(sentence.rows) + 1):
        return f"id {identifier!r}, but the next word is {len(sentence.rows) + 1}"
    if not cells[1].strip():
        return "the word is empty; CoNLL-U writes _ for it"
    sentence.rows.append((number, cells))
    return None


def located(sentence: Sentence) -> tuple[str, tuple[tuple[int, int], ...]] | None:
    """The text and the characters of every word in it; None where the words do not spell the text."""
    tokens = list(_tokens(sentence))
    made = "".join(form + " " * space for form, _, space in tokens).rstrip(" ")
    text = sentence.comments.get("text", made)
    spans: list[tuple[int, int]] = []
    place = 0
    for form, words, _ in tokens:
        while place < len(text) and text[place].isspace():
            place += 1
        if not text.startswith(form, place) or "".join(words) != form:
            return None
        for word in words:
            spans.append((place, place + len(word)))
            place += len(word)
    return text, tuple(spans)


def _tokens(sentence: Sentence) -> Iterator[tuple[str, list[str], bool]]:
    """Tokens as written: form, the words in it, whether a space follows."""
    number = 1
    while number <= len(sentence.rows):
        if number in sentence.joined:
            last, form, space = sentence.joined[number]
            yield form, [cells[1] for _, cells in sentence.rows[number - 1 : last]], space
            number = last + 1
        else:
            cells = sentence.rows[number - 1][1]
            yield cells[1], [cells[1]], "SpaceAfter=No" not in cells[9].split("|")
            number += 1


_BRACKET = re.compile(r"\((?P<opened>[^()]+)(?P<closed>\))?|(?<![^()])(?P<ended>[^()]++)\)")
_ROW = re.compile(r"(?:\([^()]+\)?|[^()]+\))*")
_PIECE = re.compile(r"(.*)\[\d+/\d+\]")
FIELDS = "GRP-etype-infstat-centering-minspan-link-identity"
"""Those of GUM, for a file that does not declare its own."""


def read_brackets(name: str, problems: Problems | None = None) -> tuple[list[SpannedWords], str]:
    """The sentences of a CoNLL-U file with their mentions, and what was read as what."""
    fields, any_found, examples = FIELDS.split("-"), False, []
    for sentence in sentences(source_name(name), problems, numbered_lines(name)):
        fields = sentence.comments.get("global.Entity", "-".join(fields)).split("-")
        kind = fields.index("etype") if "etype" in fields else 1
        spans = _mentions(sentence, source_name(name), kind, problems)
        any_found = any_found or bool(spans)
        text, places = located(sentence) or (None, None)
        words = tuple(cells[1] for _, cells in sentence.rows)
        identifier = sentence.comments.get("sent_id")
        place = Place(source_name(name), sentence.line, document=sentence.document)
        examples.append(SpannedWords(words, tuple(sorted(set(spans))), place, text, places, identifier))
    if not any_found:
        raise DataError(
            f"{source_name(name)}: no word has Entity= in its last column; give CoNLL-U with mentions, as GUM's"
        )
    return examples, f"read as: word = form, spans = Entity ({fields[kind]})"


def _mentions(sentence: Sentence, name: str, kind: int, problems: Problems | None) -> list[EntitySpan]:
    entities: list[EntitySpan] = []
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
                entities += [EntitySpan(start, index + 1, label)] if label else []
                continue
            label = _type(bracket["opened"], kind, place, problems)
            if bracket["closed"]:
                entities += [EntitySpan(index, index + 1, label)] if label else []
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
