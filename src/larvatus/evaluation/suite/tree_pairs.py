"""Minimal pairs from a treebank: a word of a sentence is replaced by another attested form of its lemma.

    lexicon = FormLexicon.of(trees)                                  # forms by lemma and part of speech
    rules = agreement_rules(trees)                                   # which relations agree in which features
    tree_pairs(trees, lexicon, rules)[0]
    # good: "The keys are here." · bad: "The keys is here." · number agreement

The two forms have the same lemma and UPOS, and their FEATS differ in one feature: number, gender, case, person, tense.

**Agreement.** The word and its head, a dependent, or (auxiliaries and copulas with subjects) a sibling share the value,
and their relation agrees as a rule: over the whole treebank, Cohen's κ of the two values is at least 0.8. So relations
are found by counting, in any language, and no list of them exists. The other form breaks the agreement.

**Form.** Case and tense that agree with nothing: the attested form against another one. That form need not be wrong
("she walks" for "she walked"), so that 100% is out of reach; the same pairs still compare models.

A form that is also attested with the features of the word (*sheep*) is never an alternative. Words without characters
of their own (*du* = *de* + *le*), or in capitals, are left as they are. After Linzen et al. (2016) and Gulordava et al.
(2018), who made pairs for number agreement from treebanks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from larvatus.core.rng import stream
from larvatus.data.labelled.trees import ROOT, TreeExample
from larvatus.data.text.words import segment_words
from larvatus.evaluation.compare.minimal_pairs import MinimalPair
from larvatus.evaluation.compare.word_nll import MaskedPassage

FEATURES = ("Number", "Gender", "Case", "Person", "Tense")
FREE = ("Case", "Tense")
"""Features that are swapped without agreement too."""
KAPPA, FEWEST = 0.8, 20
"""Agreement of a rule beyond chance, and the fewest places that it is counted on."""
SUBJECT, VERBAL = "nsubj", ("aux", "cop")

Features = tuple[tuple[str, str], ...]
"""Names and values, sorted."""
Rule = tuple[str, str, str, str]
"""Feature, relation, UPOS of the dependent, UPOS of the head."""


def read_features(cell: str) -> Features:
    """
    >>> read_features("Number=Sing|Case=Nom"), read_features("_")
    ((('Case', 'Nom'), ('Number', 'Sing')), ())
    """
    parts = (part.partition("=") for part in cell.split("|"))
    return tuple(sorted((name, value) for name, equals, value in parts if equals))


class Link(NamedTuple):
    """Two words that may agree, by number from 0, and their relation."""

    dependent: int
    head: int
    relation: str


def links(tree: TreeExample) -> Iterator[Link]:
    """Heads and dependents; auxiliaries and copulas with the subjects of the same word."""
    relations = [relation.partition(":")[0] for relation in tree.relations or ()]
    subjects: defaultdict[int, list[int]] = defaultdict(list)
    for place, head in enumerate(tree.heads or ()):
        if head == ROOT:
            continue
        yield Link(place, head - 1, relations[place])
        if relations[place] == SUBJECT:
            subjects[head].append(place)
    for place, head in enumerate(tree.heads or ()):
        if relations[place] in VERBAL:
            for subject in subjects[head]:
                yield Link(place, subject, f"{relations[place]} with {SUBJECT}")


def agreement_rules(trees: Iterable[TreeExample]) -> frozenset[Rule]:
    """Relations whose two words have the same value of a feature nearly always, and more often than by chance."""
    counts: defaultdict[Rule, Counter[tuple[str, str]]] = defaultdict(Counter)
    for tree in trees:
        features = [dict(read_features(cell)) for cell in tree.feats]
        for dependent, head, relation in links(tree):
            for name in FEATURES:
                values = features[dependent].get(name), features[head].get(name)
                if values[0] is not None and values[1] is not None:
                    counts[name, relation, tree.upos[dependent], tree.upos[head]][values[0], values[1]] += 1
    return frozenset(rule for rule, table in counts.items() if table.total() >= FEWEST and kappa(table) >= KAPPA)


def kappa(table: Mapping[tuple[str, str], int]) -> float:
    """Cohen's κ: agreement beyond what the frequencies of the values give; 0 where there is one value only.

    >>> round(kappa({("Sing", "Sing"): 45, ("Plur", "Plur"): 45, ("Sing", "Plur"): 10}), 3)
    0.802
    """
    total = sum(table.values())
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for (mine, other), count in table.items():
        first[mine] += count
        second[other] += count
    same = sum(count for (mine, other), count in table.items() if mine == other) / total
    chance = sum(first[value] * second[value] for value in first) / total**2
    return 0.0 if chance == 1 else (same - chance) / (1 - chance)


@dataclass(frozen=True)
class FormLexicon:
    """Attested forms in small letters, by lemma and UPOS, with their features and frequencies."""

    forms: Mapping[tuple[str, str], Counter[tuple[str, Features]]]
    spellings: Mapping[str, Counter[str]]
    """How a form is written where it does not begin a sentence."""

    @classmethod
    def of(cls, trees: Iterable[TreeExample]) -> FormLexicon:
        forms: defaultdict[tuple[str, str], Counter[tuple[str, Features]]] = defaultdict(Counter)
        spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for tree in trees:
            start = True
            for word, lemma, upos, cell in zip(tree.words, tree.lemmas, tree.upos, tree.feats, strict=True):
                forms[lemma, upos][word.lower(), read_features(cell)] += 1
                if not start:
                    spellings[word.lower()][word] += 1
                start = start and not word[0].isalnum()
        return cls(dict(forms), dict(spellings))

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each form occurs."""
        counts: Counter[str] = Counter()
        for table in self.forms.values():
            for (form, _), count in table.items():
                counts[form] += count
        return counts

    def other_form(self, lemma: str, upos: str, form: str, features: Features, name: str) -> str | None:
        """The most frequent form that differs in one feature only, and is not attested with these features."""
        table = self.forms.get((lemma, upos), Counter())
        same = {each for each, attested in table if attested == features}
        value = dict(features)[name]
        rest = {pair for pair in features if pair[0] != name}
        others: Counter[str] = Counter()
        for (each, attested), count in table.items():
            if each in same or each == form:
                continue
            other = dict(attested).get(name)
            single = other is not None and "," not in other and other != value
            if single and {pair for pair in attested if pair[0] != name} == rest:
                others[each] += count
        return min(others, key=lambda each: (-others[each], each)) if others else None

    def spelled(self, form: str, like: str, *, first: bool) -> str:
        """A form as it is written: with a capital where a sentence begins, else as it occurs within sentences.

        Where it never does, its case is that of the word `like` that it replaces (nouns of German); *I* says nothing.
        """
        known = self.spellings.get(form)
        written = form if known is None else min(known, key=lambda each: (-known[each], each))
        capital = first or (known is None and len(like) > 1)
        return written[0].upper() + written[1:] if capital and like[0].isupper() else written


@dataclass(frozen=True)
class TreePair:
    """A minimal pair and the word that differs."""

    pair: MinimalPair
    sentence: int
    """Number of its sentence in the treebank."""
    good: str
    """Form in the good sentence, in small letters; `bad` is that of the other."""
    bad: str
    start: int
    """Character at which the two sentences begin to differ in a word."""
    lengths: tuple[int, int]
    """Characters of the two words."""

    def passage(self, good: bool) -> MaskedPassage:
        """One of the two sentences with the word masked; other words are those of the aligner."""
        text = self.pair.good if good else self.pair.bad
        end = self.start + self.lengths[0 if good else 1]
        others = [(low, high) for low, high in segment_words(text).tolist() if high <= self.start or low >= end]
        words = sorted([*others, (self.start, end)])
        return MaskedPassage(text, tuple(words), (words.index((self.start, end)),))


def tree_pairs(
    trees: Sequence[TreeExample], lexicon: FormLexicon, rules: frozenset[Rule], *, most: int | None = None
) -> list[TreePair]:
    """All pairs in the order of the treebank, or up to `most` of each kind, sampled at random: always the same ones."""
    pairs = [pair for number, tree in enumerate(trees) for pair in _pairs_of(tree, number, lexicon, rules)]
    if most is None:
        return pairs
    kinds: defaultdict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(pairs):
        kinds[each.pair.groups["linguistics_term"]].append(place)
    kept: set[int] = set()
    for kind, places in kinds.items():
        order = stream(0, f"treebank pairs {kind}").permutation(len(places)).tolist()
        kept.update(places[place] for place in order[:most])
    return [pairs[place] for place in sorted(kept)]


def _pairs_of(tree: TreeExample, number: int, lexicon: FormLexicon, rules: frozenset[Rule]) -> Iterator[TreePair]:
    features = [read_features(cell) for cell in tree.feats]
    agreeing = _agreeing(tree, [dict(each) for each in features], rules)
    places = tree.word_places
    begin = next((place for place, word in enumerate(tree.words) if word[0].isalnum()), 0)
    for place, word in enumerate(tree.words):
        start, end = places[place]
        if tree.text[start:end] != word or not word[0].isalpha() or (len(word) > 1 and word.isupper()):
            continue
        for name, value in features[place]:
            relation = agreeing.get((place, name))
            if name not in FEATURES or "," in value or (relation is None and name not in FREE):
                continue
            other = lexicon.other_form(tree.lemmas[place], tree.upos[place], word.lower(), features[place], name)
            if other is None:
                continue
            written = lexicon.spelled(other, word, first=place == begin)
            kind = f"{name.lower()} {'form' if relation is None else 'agreement'}"
            detail = f"{kind}, {tree.upos[place]}" + ("" if relation is None else f" ({relation})")
            yield TreePair(
                MinimalPair(
                    good=tree.text,
                    bad=tree.text[:start] + written + tree.text[end:],
                    groups={"UID": detail, "linguistics_term": kind},
                    where=str(tree.place),
                ),
                number,
                word.lower(),
                other,
                start,
                (len(word), len(written)),
            )


def _agreeing(
    tree: TreeExample, features: Sequence[Mapping[str, str]], rules: frozenset[Rule]
) -> dict[tuple[int, str], str]:
    """Words and features for which a rule holds, with its relation."""
    agreeing: dict[tuple[int, str], str] = {}
    for dependent, head, relation in links(tree):
        for name in FEATURES:
            value = features[dependent].get(name)
            rule = name, relation, tree.upos[dependent], tree.upos[head]
            if value is not None and value == features[head].get(name) and rule in rules:
                agreeing.setdefault((dependent, name), relation)
                agreeing.setdefault((head, name), relation)
    return agreeing
