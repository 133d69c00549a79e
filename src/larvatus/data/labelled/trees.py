"""Dependency trees in CoNLL-U: one example is a sentence, whose lines are kept as they are.

    train = read_trees("train.conllu")
    train.examples[0].words, train.examples[0].heads, train.examples[0].relations
    "\n".join(train.examples[0].lines)                 # byte for byte: comments, empty nodes, enhanced column, MISC

The head of a word is the number of a word, from 1, or 0 for the root. A sentence that is no tree is refused with file
and line: cycles, two roots or none, a head that does not exist, a word without a relation, ids that do not follow each
other, multiword tokens that overlap. With ``labelled=False`` the columns of the tree are not read.

`rewrite_lines` puts other columns into the lines of the words, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from larvatus.core.errors import DataError
from larvatus.core.ranges import digits
from larvatus.data.labelled.conllu import ABSENT, NAMES, Lines, Sentence, sentences
from larvatus.data.labelled.problems import Problems, cause, fault
from larvatus.data.labelled.records import Dataset, Place, WordsExample, first_names, source_name
from larvatus.data.labelled.tables import Paths, path_strings
from larvatus.data.text.learned_words import WordToken
from larvatus.data.text.streams import numbered_lines

FORM, LEMMA, UPOS, FEATS, HEAD, RELATION, MISC = (
    NAMES.index(name) for name in ("form", "lemma", "upos", "feats", "head", "deprel", "misc")
)
ROOT = 0
"""The head of the word that has none."""


@dataclass(frozen=True, slots=True)
class TreeExample(WordsExample):
    """A sentence of CoNLL-U with its tree."""

    labels_are: ClassVar = "spans"
    noun: ClassVar[str] = "sentences"
    stratified: ClassVar = "relation"

    words: tuple[str, ...]
    heads: tuple[int, ...] | None
    """Number of the head of each word, from 1; 0: it is the root. None where the tree is not known."""
    relations: tuple[str, ...] | None
    place: Place
    tokens: tuple[WordToken, ...]
    text: str
    upos: tuple[str, ...]
    feats: tuple[str, ...]
    lemmas: tuple[str, ...]
    lines: tuple[str, ...]
    """The lines of the file."""
    id: str | None = None

    @property
    def word_places(self) -> tuple[tuple[int, int], ...]:
        return tuple(span for token in self.tokens for span in token.word_spans())

    @property
    def begins_paragraph(self) -> bool:
        """Whether a paragraph or a document begins here."""
        return any(line.lstrip("# ").startswith(("newpar", "newdoc")) for line in self.lines if line.startswith("#"))

    def names(self) -> Iterable[str]:
        return self.relations or ()

    def answer(self) -> object:
        return None if self.heads is None else (self.heads, self.relations)

    def answer_shown(self) -> str:
        return first_names(
            [f"{head}:{name}" for head, name in zip(self.heads or (), self.relations or (), strict=True)]
        )

    def contents(self) -> list[Any]:
        return [self.words, self.heads, self.relations, self.upos, self.feats, self.lemmas]


def read_trees(paths: Paths, *, labelled: bool = True, problems: Problems | None = None) -> Dataset[TreeExample]:
    """The sentences of CoNLL-U files; a sentence that is no tree is refused, or noted in `problems`."""
    names = path_strings(paths)
    examples = [example for name in names for example in tree_examples(name, labelled=labelled, problems=problems)]
    source = ", ".join(source_name(name) for name in names)
    if not examples:
        raise DataError(f"{source}: no sentence can be used{cause(problems)}; give CoNLL-U with heads and relations")
    words = sum(len(example.words) for example in examples)
    crossing = sum(non_projective(example.heads) for example in examples if example.heads is not None)
    notes = [f"{words:,} words"]
    if crossing:
        notes.append(f"{crossing:,} arcs are not projective ({crossing / words:.1%})")
    return Dataset(tuple(examples), source, "read as: word = form, tree = head, deprel", notes=tuple(notes))


def tree_examples(
    name: str, *, labelled: bool = True, problems: Problems | None = None, lines: Lines | None = None
) -> Iterator[TreeExample]:
    """The sentences of one file, one at a time."""
    for sentence in sentences(source_name(name), problems, lines or numbered_lines(name), without_words=True):
        refused = find_fault(sentence, labelled=labelled)
        if refused is not None:
            fault(problems, "no tree", Place(source_name(name), refused[0]), refused[1])
            continue
        columns = [tuple(cells[column] for _, cells in sentence.rows) for column in (FORM, LEMMA, UPOS, FEATS)]
        text, tokens = located_tokens(sentence)
        yield TreeExample(
            words=columns[0],
            heads=tuple(int(cells[HEAD]) for _, cells in sentence.rows) if labelled else None,
            relations=tuple(cells[RELATION] for _, cells in sentence.rows) if labelled else None,
            place=Place(source_name(name), sentence.line, document=sentence.document),
            tokens=tokens,
            text=text,
            lemmas=columns[1],
            upos=columns[2],
            feats=columns[3],
            lines=tuple(line for _, line in sentence.lines),
            id=sentence.comments.get("sent_id"),
        )


def find_fault(sentence: Sentence, *, labelled: bool = True) -> tuple[int, str] | None:
    """Line and message of the first thing that makes a sentence unusable; None if nothing does."""
    if not sentence.rows:
        return sentence.line, "a sentence without words; drop its comments, or give it words"
    refused = _layout_fault(sentence)
    if refused is not None or not labelled:
        return refused
    return _column_fault(sentence) or _tree_fault(sentence)


def _layout_fault(sentence: Sentence) -> tuple[int, str] | None:
    """Multiword tokens and empty nodes out of place."""
    words = len(sentence.rows)
    reached = done = parts = 0
    for line, text in sentence.lines:
        if text.startswith("#"):
            continue
        identifier = text.partition("\t")[0]
        if "-" in identifier:
            first, last = int(identifier.partition("-")[0]), int(identifier.partition("-")[2])
            if first != done + 1 or first <= reached or last > words:
                return line, f"the multiword token {identifier} is not before its words, or overlaps another"
            reached = last
        elif "." in identifier:
            major, _, minor = identifier.partition(".")
            if digits(major) != done or digits(minor) != parts + 1:
                return line, f"the empty node {identifier} is out of place; the next here would be {done}.{parts + 1}"
            parts += 1
        else:
            done, parts = done + 1, 0
    return None


def _column_fault(sentence: Sentence) -> tuple[int, str] | None:
    """Heads that do not exist, and words without a relation."""
    count = len(sentence.rows)
    for number, (line, cells) in enumerate(sentence.rows, start=1):
        head = digits(cells[HEAD])
        if head is None:
            return line, f"the head of word {number} is {cells[HEAD]!r:.40}, not a number; a tree needs a head for each"
        if head > count:
            return line, f"the head of word {number} is {head}, but the sentence has {count} words"
        if not cells[RELATION].strip() or cells[RELATION] == ABSENT:
            return line, f"word {number} has no relation to its head (column deprel)"
    return None


def _tree_fault(sentence: Sentence) -> tuple[int, str] | None:
    """Roots and cycles."""
    heads = [int(cells[HEAD]) for _, cells in sentence.rows]
    roots = [number for number, head in enumerate(heads, start=1) if head == ROOT]
    if (cycle := find_cycle(heads)) is not None:
        way = " → ".join(map(str, [*cycle, cycle[0]]))
        return sentence.rows[cycle[0] - 1][0], f"heads form a cycle ({way}), so the sentence has no tree"
    if len(roots) != 1:  # without a cycle there is at least one
        line = sentence.rows[roots[1] - 1][0]
        named = " and ".join(map(str, roots[:3]))
        return line, f"words {named} are both roots (head 0); a tree has one" if len(roots) == 2 else (
            f"{len(roots)} words are roots (head 0); a tree has one"
        )
    return None


def find_cycle(heads: Sequence[int]) -> list[int] | None:
    """The words of a cycle, each followed by its head; None if there is none.

    >>> find_cycle([2, 0, 2]), find_cycle([2, 3, 1])
    (None, [1, 2, 3])
    """
    state = [0] * (len(heads) + 1)  # 0: not seen, otherwise the walk that has seen it
    state[ROOT] = -1
    for start in range(1, len(heads) + 1):
        word, way = start, []
        while state[word] == 0:
            state[word] = start
            way.append(word)
            word = heads[word - 1]
        if state[word] == start:
            return way[way.index(word) :]
    return None


def non_projective(heads: Sequence[int]) -> int:
    """Arcs over a word that does not depend on their head: one between the two words has its head outside.

    >>> non_projective([2, 0, 2]), non_projective([3, 4, 0, 3])
    (0, 2)
    """
    count = 0
    for word, head in enumerate(heads, start=1):
        low, high = sorted((word, head))
        count += head != ROOT and any(not low <= heads[between - 1] <= high for between in range(low + 1, high))
    return count


def located_tokens(sentence: Sentence) -> tuple[str, tuple[WordToken, ...]]:
    """The text of a sentence with its tokens; where ``# text`` has other characters, the text that the tokens make."""
    tokens = list(_tokens(sentence))
    text = sentence.comments.get("text", "")
    placed: list[WordToken] = []
    place = 0
    for form, words in ((form, words) for form, words, _ in tokens):
        while place < len(text) and text[place].isspace():
            place += 1
        if not text.startswith(form, place):
            break
        end = place + len(form)
        placed.append(WordToken(form, words, place, end, text[end : end + 1].isspace()))
        place = end
    if len(placed) == len(tokens) and not text[place:].strip():
        return text, (*placed[:-1], placed[-1]._replace(space=tokens[-1][2]))
    placed, place = [], 0
    for form, words, space in tokens:
        placed.append(WordToken(form, words, place, place + len(form), space))
        place += len(form) + space
    return "".join(token.form + " " * token.space for token in placed).rstrip(" "), tuple(placed)


def _tokens(sentence: Sentence) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Tokens as written: form, words, whether a space follows."""
    number, words = 1, [cells[FORM] for _, cells in sentence.rows]
    while number <= len(words):
        last, form, space = sentence.joined.get(number, (number, "", False))
        if number in sentence.joined:
            yield form, tuple(words[number - 1 : last]), space
        else:
            space = "SpaceAfter=No" not in sentence.rows[number - 1][1][MISC].split("|")
            yield words[number - 1], (words[number - 1],), space
        number = last + 1


def rewrite_lines(lines: Sequence[str], columns: Mapping[int, Sequence[str]]) -> list[str]:
    """The lines of a sentence with other values in some columns of its words; all else stays as it is."""
    rewritten, number = [], 0
    for line in lines:
        identifier = line.partition("\t")[0]
        if digits(identifier) is not None:
            cells = line.split("\t")
            for column, values in columns.items():
                cells[column] = values[number]
            line, number = "\t".join(cells), number + 1
        rewritten.append(line)
    return rewritten


def raw_text(examples: Sequence[TreeExample]) -> tuple[str, list[tuple[int, int]]]:
    """The running text of sentences, and the characters of each in it. A blank line parts paragraphs."""
    parts: list[str] = []
    spans = []
    place = 0
    for before, example in pairwise([None, *examples]):
        assert example is not None
        if before is not None:
            gap = "\n\n" if example.begins_paragraph else " " if before.tokens[-1].space else ""
            parts.append(gap)
            place += len(gap)
        parts.append(example.text)
        spans.append((place, place + len(example.text)))
        place += len(example.text)
    return "".join(parts), spans
