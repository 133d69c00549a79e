"""Which rolesets a predicate may have, by its word form: those of its lemmas.

    lexicon = Lexicon.of(config)
    lexicon.candidates("got")          # numbers of get.01, get.02, … as training has them
    lexicon.guess("morphed")           # "morph.01": of a lemma that training lacks

Classes are compared within a lemma, not over all rolesets, because a form determines its lemma nearly always and
senses of one lemma are what must be told apart. A form that was no predicate in training gets its lemma by the endings
that training shows (-ies → -y), the first that gives a known lemma. Where none does, the roleset is the guessed lemma
with sense 01, the commonest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from larvatus.models.heads.roles import RolesConfig
from larvatus.tasks.roles.examples import FramedSentence

FIRST_SENSE = "01"
FEWEST = 2
"""Letters that a form and its lemma begin with, for an ending to be learned from them."""
MOST_ENDINGS = 200


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


def learned_endings(forms: Mapping[str, Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Endings of forms with those of their lemmas, most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for form, lemmas in forms.items():
        for lemma in lemmas:
            shared = next(
                (n for n, (a, b) in enumerate(zip(form, lemma, strict=False)) if a != b), min(len(form), len(lemma))
            )
            if shared >= FEWEST:
                counts[form[shared:], lemma[shared:]] += 1
    order = sorted(counts, key=lambda pair: (-counts[pair], pair))
    return tuple(pair for pair in order[:MOST_ENDINGS] if counts[pair] > 1)


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Rolesets by lemma, lemmas by form."""

    rolesets: tuple[str, ...]
    forms: Mapping[str, tuple[str, ...]]
    endings: tuple[tuple[str, str], ...]
    of_lemma: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, config: RolesConfig) -> Lexicon:
        of_lemma: defaultdict[str, list[int]] = defaultdict(list)
        for number, roleset in enumerate(config.rolesets):
            of_lemma[lemma_of(roleset)].append(number)
        known = {lemma: tuple(numbers) for lemma, numbers in of_lemma.items()}
        return cls(config.rolesets, config.forms, config.endings, known)

    def candidates(self, form: str) -> tuple[int, ...]:
        """Rolesets that the form may have; none where its lemma is unknown."""
        lower = form.lower()
        lemmas = self.forms.get(lower)
        if lemmas is None:
            lemmas = next(((lemma,) for lemma in self._lemmas(lower) if lemma in self.of_lemma), ())
        return tuple(number for lemma in lemmas for number in self.of_lemma.get(lemma, ()))

    def guess(self, form: str) -> str:
        """A roleset for a form of which no lemma is known: by the longest ending that it has."""
        lower = form.lower()
        matching = [pair for pair in self.endings if self._matches(lower, pair[0])]
        longest = max(matching, key=lambda pair: len(pair[0]), default=("", ""))  # of equals the most frequent
        lemma = lower.removesuffix(longest[0]) + longest[1]
        return f"{lemma}.{FIRST_SENSE}"

    def _lemmas(self, form: str) -> Iterable[str]:
        yield form
        for ending, of_lemma in self.endings:
            if self._matches(form, ending):
                yield form.removesuffix(ending) + of_lemma

    @staticmethod
    def _matches(form: str, ending: str) -> bool:
        return form.endswith(ending) and len(form) - len(ending) >= FEWEST
