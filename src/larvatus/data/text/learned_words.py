"""Words of raw text as a treebank cuts them, by rules that are learned from the treebank itself.

    rules = learn_words(sentences)                       # each a row of `WordToken`
    [token.form for token in rules.tokens("I don't.")]        # I, don't (the words do and n't), "."

Universal Dependencies cut text into tokens, and some tokens into several words: "don't" is one token of two words, the
French "du" one of de and le. Guidelines differ from treebank to treebank, so nothing is written by hand:

- White space always separates tokens. Each place between two characters that touch is a border of tokens, a border of
  words within a token, or none: as in most training places with the same characters around it. Contexts of one to five
  characters on either side, and of their kinds (letters, capitals, digits), are counted; the widest one that training
  has seen at least twice decides. Only contexts that decide otherwise than narrower ones are stored.
- A token whose words do not spell it ("du") has the words that it has most often in training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, cast

import regex

from larvatus.core.settings import Settings
from larvatus.data.text.words import UNSPACED

INSIDE, TOKEN, WORD = 0, 1, 2
"""What a place between two characters is: no border, a border of tokens, or of words within a token."""
Border = Literal[0, 1, 2]
LEAST = 2
"""Training places of a context that decides."""
EDGE = " "
"""Stands for white space, which no token holds."""
_QUOTES = frozenset(('"', "''", "``"))
"""Marks that open and close in turn."""
_LEFT = regex.compile(rf"(?:n?['’`´]\p{{L}}{{1,3}}|[\p{{Pe}}\p{{Pf}}\p{{Pd}}\"'.,;:!?%…/@]+)$|[{UNSPACED}]")
"""Words that touch the one before them: clitics (n't, 's), closing marks, dashes, all words of unspaced scripts."""
_RIGHT = regex.compile(r"[\p{Ps}\p{Pi}\p{Pd}\p{Sc}#/@]+")
"""Words that touch the one after them."""


class WordToken(NamedTuple):
    """A token of a text with its words."""

    form: str
    words: tuple[str, ...]
    """The form itself, or the words of a multiword token."""
    start: int
    end: int
    """Characters [start, end) of the text."""
    space: bool
    """Whether white space follows."""

    @property
    def spelled(self) -> bool:
        """Whether the words, end to end, are the token."""
        return "".join(self.words) == self.form

    def word_spans(self) -> Iterator[tuple[int, int]]:
        """Characters of each word; words that do not spell the token all have those of the token."""
        start = self.start
        for word in self.words:
            yield (start, start + len(word)) if self.spelled else (self.start, self.end)
            start += len(word)


def _letters(text: str) -> str:
    return "".join("0" if char.isdigit() else char for char in text.lower())


def _kinds(text: str) -> str:
    return "".join(map(_kind, text))


def _kind(char: str) -> str:
    if char.isdigit():
        return "0"
    if char.isalpha():
        return "a" if char.islower() else "A"
    return char


CONTEXTS: tuple[tuple[Callable[[str], str], int], ...] = (
    (_kinds, 1),
    (_letters, 1),
    (_kinds, 2),
    (_letters, 2),
    (_kinds, 4),
    (_letters, 3),
    (_letters, 4),
    (_letters, 5),
)
"""What is looked at, and how many characters on either side: the narrowest first."""


class WordRules(Settings):
    """Learned rules that cut raw text into tokens and words."""

    borders: tuple[Mapping[str, Border], ...] = ()
    """For each of the contexts: what a place is, where narrower contexts say otherwise."""
    expansions: Mapping[str, tuple[str, ...]] = {}
    """Words of tokens that they do not spell, in lower case."""

    def tokens(self, text: str, start: int = 0, end: int | None = None) -> list[WordToken]:
        """The tokens of a part of a text, with their characters in the text."""
        row: list[WordToken] = []
        stop = len(text) if end is None else end
        place = start
        for chunk in text[start:stop].split():
            place = text.index(chunk, place)
            row += self._chunk(chunk, place)
            place += len(chunk)
            if place == len(text) or text[place].isspace():
                row[-1] = row[-1]._replace(space=True)
        return row

    def _chunk(self, chunk: str, at: int) -> Iterator[WordToken]:
        """The tokens of a run of characters without white space."""
        labels = self.labels(chunk)
        stops = [place for place in range(1, len(chunk)) if labels[place - 1] == TOKEN]
        for low, high in pairwise([0, *stops, len(chunk)]):
            form = chunk[low:high]
            words = self.expansions.get(form.lower())
            if words is None:
                cuts = [place for place in range(low + 1, high) if labels[place - 1] == WORD]
                words = tuple(chunk[a:b] for a, b in pairwise([low, *cuts, high]))
            elif form[0].isupper():
                words = (words[0][0].upper() + words[0][1:], *words[1:])
            yield WordToken(form, words, at + low, at + high, space=False)

    def labels(self, chunk: str) -> list[int]:
        """What each place between two characters of a chunk is."""
        labels = [INSIDE] * (len(chunk) - 1)
        for (view, reach), known in zip(CONTEXTS, self.borders, strict=False):
            if known:
                for number, context in enumerate(_contexts(view(chunk), reach)):
                    label = known.get(context)
                    if label is not None:
                        labels[number] = label
        return labels


def _contexts(viewed: str, reach: int) -> Iterator[str]:
    """The characters around each place between two characters of a chunk."""
    padded = EDGE * reach + viewed + EDGE * reach
    return (padded[place : place + 2 * reach] for place in range(1, len(viewed)))


def learn_words(sentences: Iterable[Sequence[WordToken]]) -> WordRules:
    """The rules of a treebank, from the tokens of its sentences."""
    chunks: Counter[tuple[str, tuple[int, ...]]] = Counter()
    uses: Counter[str] = Counter()
    expansions: dict[str, Counter[tuple[str, ...]]] = {}
    for tokens in sentences:
        for chunk in _chunks(tokens):
            labels = [label for token in chunk for label in (*_inside(token), TOKEN)][:-1]
            text = "".join(token.form for token in chunk)
            if text.split() == [text]:  # a token with a space in it is cut by the space
                chunks[text, tuple(labels)] += 1
        for token in tokens:
            uses[token.form.lower()] += 1
            if not token.spelled:
                words = tuple(word.lower() for word in token.words)
                expansions.setdefault(token.form.lower(), Counter())[words] += 1
    return WordRules(
        borders=cast(tuple[dict[str, Border], ...], _borders(chunks)),
        expansions={
            form: counts.most_common(1)[0][0]
            for form, counts in sorted(expansions.items())
            if 2 * counts.total() > uses[form]
        },
    )


def print_tokens(words: Sequence[str]) -> Iterator[WordToken]:
    """Words that come without their text, with white space as English prints it: to learn rules from.

    >>> [token.space for token in print_tokens(["I", "did", "n't", "(", "yet", ")", "."])]
    [True, False, True, False, False, False, True]
    """
    place, quoted = 0, False
    for word, following in pairwise([*words, EDGE]):
        if word in _QUOTES:
            quoted = not quoted
        after = following in _QUOTES and not quoted  # it opens
        touches = bool(_LEFT.match(following)) and not after
        space = not touches and not (quoted if word in _QUOTES else _RIGHT.fullmatch(word))
        yield WordToken(word, (word,), place, place + len(word), space)
        place += len(word) + space


def _chunks(tokens: Sequence[WordToken]) -> Iterator[list[WordToken]]:
    """Tokens without white space between them."""
    chunk: list[WordToken] = []
    for token in tokens:
        chunk.append(token)
        if token.space:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _inside(token: WordToken) -> list[int]:
    """What the places within a token are."""
    labels = [INSIDE] * (len(token.form) - 1)
    if token.spelled:
        for start, _ in list(token.word_spans())[1:]:
            labels[start - token.start - 1] = WORD
    return labels


def _borders(chunks: Counter[tuple[str, tuple[int, ...]]]) -> tuple[dict[str, int], ...]:
    """What each context decides, without those that agree with narrower ones."""
    decided = [[INSIDE] * len(labels) for _, labels in chunks]
    levels: list[dict[str, int]] = []
    for view, reach in CONTEXTS:
        counts: dict[str, list[int]] = {}
        views = [list(_contexts(view(text), reach)) for text, _ in chunks]
        for contexts, ((_, labels), times) in zip(views, chunks.items(), strict=True):
            for context, label in zip(contexts, labels, strict=True):
                counts.setdefault(context, [0, 0, 0])[label] += times
        best = {context: row.index(max(row)) for context, row in counts.items() if sum(row) >= LEAST}
        needed: dict[str, int] = {}
        for contexts, before in zip(views, decided, strict=True):
            for number, context in enumerate(contexts):
                decision = best.get(context, before[number])
                if decision != before[number]:
                    needed[context] = decision
        # a context that changes one place decides all places that have it
        for contexts, before in zip(views, decided, strict=True):
            for number, context in enumerate(contexts):
                before[number] = needed.get(context, before[number])
        levels.append(dict(sorted(needed.items())))
    return tuple(levels)
