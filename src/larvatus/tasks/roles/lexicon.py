"""Which rolesets a predicate may have, by its word form: those of its lemmas.

    lexicon = PredicateLexicon.of(config)
    lexicon.candidates("got")          # numbers of get.01, get.02, … as training has them
    lexicon.guess("morphed")           # "morph.01": of a lemma that training lacks

Classes are compared within a lemma, not over all rolesets, because a form determines its lemma nearly always and
senses of one lemma are what must be told apart. A form that was no predicate in training is made a lemma as the
training forms with the longest common ending are (-ies → -y), if that gives a lemma that training has; otherwise as
most of them are, and its roleset has the sense 01, the commonest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from larvatus.models.heads.roles import RolesConfig
from larvatus.tasks.roles.examples import FramedSentence

FIRST_SENSE = "01"
LONGEST_ENDING = 5
"""Letters of the endings that forms are compared by."""
MOST_CHANGES = 3
"""Changes that are tried for an ending."""
Change = tuple[int, str]
"""How a form becomes its lemma: letters that its end loses, and what it gets instead."""


def lemma_of(roleset: str) -> str:
    """The lemma of a roleset; itself where it has no sense."""
    lemma, _, _ = roleset.rpartition(".")
    return lemma or roleset


def learned_forms(sentences: Iterable[FramedSentence]) -> dict[str, tuple[str, ...]]:
    """Lemmas of each word form that is a predicate, most frequent first."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        for frame in sentence.frames or ():
            counts[sentence.words[frame.predicate].lower()][lemma_of(frame.roleset)] += 1
    return {
        form: tuple(sorted(lemmas, key=lambda lemma: (-lemmas[lemma], lemma)))
        for form, lemmas in sorted(counts.items())
    }


def changes_by_ending(forms: Mapping[str, Sequence[str]]) -> dict[str, tuple[Change, ...]]:
    """How forms with each ending become their lemmas, most frequent changes first.

    >>> changes_by_ending({"tries": ["try"], "cries": ["cry"]})["es"]
    ((3, 'y'),)
    """
    counts: defaultdict[str, Counter[Change]] = defaultdict(Counter)
    for form, lemmas in forms.items():
        for lemma in lemmas[:1]:
            shared = next((n for n, (a, b) in enumerate(zip(form, lemma, strict=False)) if a != b), len(form))
            shared = min(shared, len(lemma))
            for size in range(min(LONGEST_ENDING, len(form)) + 1):
                counts[form[len(form) - size :]][len(form) - shared, lemma[shared:]] += 1
    return {
        ending: tuple(sorted(changes, key=lambda change: (-changes[change], change))[:MOST_CHANGES])
        for ending, changes in counts.items()
    }


@dataclass(frozen=True, eq=False)
class PredicateLexicon:
    """Rolesets by lemma, lemmas by form."""

    rolesets: tuple[str, ...]
    forms: Mapping[str, tuple[str, ...]]
    of_lemma: Mapping[str, tuple[int, ...]]
    changes: Mapping[str, tuple[Change, ...]]

    @classmethod
    def of(cls, config: RolesConfig) -> PredicateLexicon:
        of_lemma: defaultdict[str, list[int]] = defaultdict(list)
        for number, roleset in enumerate(config.rolesets):
            of_lemma[lemma_of(roleset)].append(number)
        known = {lemma: tuple(numbers) for lemma, numbers in of_lemma.items()}
        return cls(config.rolesets, config.forms, known, changes_by_ending(config.forms))

    def candidates(self, form: str) -> tuple[int, ...]:
        """Rolesets that the form may have; none where its lemma is unknown."""
        lower = form.lower()
        lemmas = self.forms.get(lower)
        if lemmas is None:
            lemmas = next(((lemma,) for lemma in self._lemmas(lower) if lemma in self.of_lemma), ())
        return tuple(number for lemma in lemmas for number in self.of_lemma.get(lemma, ()))

    def guess(self, form: str) -> str:
        """A roleset for a form of which no lemma is known."""
        lower = form.lower()
        return f"{next(iter(self._lemmas(lower)), lower)}.{FIRST_SENSE}"

    def _lemmas(self, form: str) -> Iterator[str]:
        """Lemmas that the form may have, by its longest ending first; at last the form itself."""
        for size in range(min(LONGEST_ENDING, len(form) - 1), -1, -1):
            for cut, added in self.changes.get(form[len(form) - size :], ()):
                if cut < len(form):
                    yield form[: len(form) - cut] + added
        yield form
