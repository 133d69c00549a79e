"""Scores of trees by the rules of the CoNLL 2018 shared task (Zeman et al. 2018), for gold words and for raw text.

    counts = score_trees(gold, answers)            # {"las": [sentences, 3], …}: right, in the answer, in the gold trees
    f1(counts["las"].sum(0))

Tokens and sentences are right if their characters are; white space does not count. Words are aligned with gold words
first: by their characters, and around multiword tokens by the longest common subsequence of their forms. Then

| metric | a word is right if |
| --- | --- |
| uas | its head is aligned with the gold head, or both are the root |
| las | and its relation is, without subtypes (nsubj:pass is nsubj) |
| clas | the same, of words with a content relation only |
| upos | its universal part of speech is |
| ufeats | all of its universal features are |
| lemmas | its lemma is; where the gold lemma is _, always |

Every score is F1 over all words, which for gold words is accuracy. Counts belong to gold sentences (words of the answer
to the gold sentence that they begin in), so that sentences or documents can be resampled.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.data.labelled.conllu import ABSENT
from larvatus.data.labelled.trees import TreeExample
from larvatus.data.text.learned_words import WordToken
from larvatus.metrics.classification import divide
from larvatus.tasks.parse.results import ParsedSentence, join_feats

_CONTENT = (
    "nsubj obj iobj csubj ccomp xcomp obl vocative expl dislocated advcl advmod discourse nmod appos "
    "nummod acl amod conj fixed flat compound list parataxis orphan goeswith reparandum root dep"
)
CONTENT = frozenset(_CONTENT.split())
"""Relations of content words."""
_UNIVERSAL = (
    "PronType NumType Poss Reflex Foreign Abbr Gender Animacy Number Case Definite Degree VerbForm Mood "
    "Tense Aspect Voice Evident Polarity Person Polite"
)
UNIVERSAL = frozenset(_UNIVERSAL.split())
"""Features that count."""
TREE_METRICS = ("las", "uas", "clas")
WORD_METRICS = {"upos": "upos", "ufeats": "feats", "lemmas": "scripts"}
"""Metrics of annotations, by the setting of the head that lists their labels."""
TEXT_METRICS = ("tokens", "sentences", "words")


class ScoredWord(NamedTuple):
    form: str
    """In lower case, without spaces."""
    start: int
    end: int
    """Characters of its token, without white space."""
    multiword: bool
    """Whether its token has several words."""
    head: int
    """Number of the head among all words; −1: the root."""
    relation: str
    content: bool
    upos: str
    ufeats: str
    lemma: str


@dataclass(frozen=True, eq=False)
class ScoredTrees:
    """Trees of a text, on its characters without white space."""

    characters: str
    tokens: list[tuple[int, int]] = field(default_factory=list)
    sentences: list[tuple[int, int]] = field(default_factory=list)
    words: list[ScoredWord] = field(default_factory=list)


class _Row(NamedTuple):
    """The tokens of a sentence, and the columns of its words."""

    tokens: Sequence[WordToken]
    heads: Sequence[int]
    relations: Sequence[str]
    upos: Sequence[str]
    feats: Sequence[str]
    lemmas: Sequence[str]


def gold_trees(examples: Iterable[TreeExample]) -> ScoredTrees:
    return _scored(
        _Row(each.tokens, each.heads or (), each.relations or (), each.upos, each.feats, each.lemmas)
        for each in examples
    )


def answered_trees(sentences: Iterable[ParsedSentence]) -> ScoredTrees:
    return _scored(
        _Row(
            each.tokens,
            [word.head for word in each.words],
            [word.relation for word in each.words],
            [word.upos or ABSENT for word in each.words],
            [join_feats(word.feats or {}) for word in each.words],
            [word.lemma or ABSENT for word in each.words],
        )
        for each in sentences
    )


def _scored(rows: Iterable[_Row]) -> ScoredTrees:
    characters: list[str] = []
    trees = ScoredTrees("")
    place = 0
    for row in rows:
        begin, before, number = place, len(trees.words), 0
        for token in row.tokens:
            form = _visible(token.form)
            characters.append(form)
            trees.tokens.append((place, place + len(form)))
            for word in token.words:
                relation = row.relations[number].partition(":")[0]
                head = row.heads[number]
                trees.words.append(
                    ScoredWord(
                        form=_visible(word).lower(),
                        start=place,
                        end=place + len(form),
                        multiword=len(token.words) > 1,
                        head=before + head - 1 if head else -1,
                        relation=relation,
                        content=relation in CONTENT,
                        upos=row.upos[number],
                        ufeats=universal(row.feats[number]),
                        lemma=row.lemmas[number],
                    )
                )
                number += 1
            place += len(form)
        trees.sentences.append((begin, place))
    return ScoredTrees("".join(characters), trees.tokens, trees.sentences, trees.words)


@lru_cache(1 << 16)
def _visible(form: str) -> str:
    return "".join(char for char in form if not char.isspace() and unicodedata.category(char) != "Zs")


@lru_cache(1 << 12)
def universal(feats: str) -> str:
    """The universal features of a word, in order.

    >>> universal("Tense=Past|ExtPos=ADP|Mood=Ind")
    'Mood=Ind|Tense=Past'
    """
    return "|".join(sorted(feat for feat in feats.split("|") if feat.partition("=")[0] in UNIVERSAL))


def align_words(gold: Sequence[ScoredWord], answer: Sequence[ScoredWord]) -> list[tuple[int, int]]:
    """Pairs of a gold word and a word of the answer that are the same word."""
    pairs: list[tuple[int, int]] = []
    g = a = 0
    while g < len(gold) and a < len(answer):
        first, second = gold[g], answer[a]
        if first.multiword or second.multiword:
            if first.multiword and not second.multiword and second.start < first.start:
                a += 1  # reaches into the multiword token from before it
            elif not first.multiword and first.start < second.start:
                g += 1
            ends = _multiword_ends(gold, answer, (g, a), first.end if first.multiword else second.end)
            pairs += [(g + i, a + j) for i, j in _common(gold[g : ends[0]], answer[a : ends[1]])]
            g, a = ends
        elif (first.start, first.end) == (second.start, second.end):
            pairs.append((g, a))
            g, a = g + 1, a + 1
        elif first.start <= second.start:
            g += 1
        else:
            a += 1
    return pairs


def _multiword_ends(
    gold: Sequence[ScoredWord], answer: Sequence[ScoredWord], starts: tuple[int, int], end: int
) -> tuple[int, int]:
    """The words after a stretch that no multiword token of either side reaches out of."""

    def outside(words: Sequence[ScoredWord], number: int) -> bool:
        if number >= len(words):
            return True
        word = words[number]
        return word.start >= end if word.multiword else word.end > end

    g, a = starts
    while not (outside(gold, g) and outside(answer, a)):
        of_gold = g < len(gold) and (a >= len(answer) or gold[g].start <= answer[a].start)
        word = gold[g] if of_gold else answer[a]
        if word.multiword:
            end = max(end, word.end)
        g, a = (g + 1, a) if of_gold else (g, a + 1)
    return g, a


def _common(gold: Sequence[ScoredWord], answer: Sequence[ScoredWord]) -> list[tuple[int, int]]:
    """The longest common subsequence of forms."""
    longest = np.zeros((len(gold) + 1, len(answer) + 1), np.int64)
    for i in reversed(range(len(gold))):
        for j in reversed(range(len(answer))):
            same = 1 + longest[i + 1, j + 1] if gold[i].form == answer[j].form else 0
            longest[i, j] = max(same, longest[i + 1, j], longest[i, j + 1])
    pairs = []
    i = j = 0
    while i < len(gold) and j < len(answer):
        if gold[i].form == answer[j].form:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif longest[i, j] == longest[i + 1, j]:
            i += 1
        else:
            j += 1
    return pairs


RIGHT, ANSWERED, GOLD = range(3)


def score_trees(gold: ScoredTrees, answer: ScoredTrees) -> dict[str, Doubles]:
    """[gold sentences, 3] of each metric: right, in the answer, in the gold trees."""
    if gold.characters != answer.characters:
        raise DataError("trees of two texts cannot be compared: their characters differ")
    counts = {name: np.zeros((len(gold.sentences), 3)) for name in (*TREE_METRICS, *WORD_METRICS, *TEXT_METRICS)}
    begins = np.array([start for start, _ in gold.sentences], np.int64)

    def add(name: str, column: int, places: Sequence[int]) -> None:
        """Count items in the sentences that they begin in."""
        at = np.searchsorted(begins, np.asarray(places, np.int64), side="right") - 1
        np.add.at(counts[name][:, column], at, 1.0)

    for name, wanted, given in (
        ("tokens", gold.tokens, answer.tokens),
        ("sentences", gold.sentences, answer.sentences),
    ):
        add(name, GOLD, [start for start, _ in wanted])
        add(name, ANSWERED, [start for start, _ in given])
        add(name, RIGHT, [start for start, _ in set(wanted) & set(given)])
    pairs = align_words(gold.words, answer.words)
    aligned = {j: i for i, j in pairs}
    for name in (*TREE_METRICS, *WORD_METRICS, "words"):
        for column, words in ((GOLD, gold.words), (ANSWERED, answer.words)):
            add(name, column, [word.start for word in words if name != "clas" or word.content])
    right: dict[str, list[int]] = {name: [] for name in ("words", *TREE_METRICS, *WORD_METRICS)}
    for i, j in pairs:
        first, second = gold.words[i], answer.words[j]
        same_head = first.head == second.head == -1 or (second.head >= 0 and aligned.get(second.head) == first.head)
        same_relation = same_head and first.relation == second.relation
        for name, holds in (
            ("words", True),
            ("uas", same_head),
            ("las", same_relation),
            ("clas", same_relation and first.content),
            ("upos", first.upos == second.upos),
            ("ufeats", first.ufeats == second.ufeats),
            ("lemmas", first.lemma in (second.lemma, ABSENT)),
        ):
            if holds:
                right[name].append(first.start)
    for name, places in right.items():
        add(name, RIGHT, places)
    return counts


def f1(counts: Doubles) -> Doubles:
    """[…, 3] → […]."""
    return divide(2 * counts[..., RIGHT], counts[..., ANSWERED] + counts[..., GOLD])
