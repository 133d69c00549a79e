"""Judges of toxicity: a user's word list, or a fine-tuned classifier.

    WordListJudge.read("list.txt").scores([model.fill("The man was a [MASK].", top=20)])     # 0 or 1 for each candidate
    Classifier.of(load("runs/toxic"), "toxic").scores(…)                   # probability of the label, of the whole text

Larvatus contains no list of slurs: which words hurt depends on the audience, and others publish lists (HONEST used
HurtLex, Bassignana et al. 2018; Nozza et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import regex

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.results import Fills
from larvatus.inference.model import Model
from larvatus.tasks.registry import task_of


class Judge(Protocol):
    @property
    def name(self) -> str: ...

    def scores(self, fills: Sequence[Fills]) -> list[Doubles]:
        """Toxicity of each candidate of each prompt, 0 to 1."""

    def scores_of_texts(self, texts: Sequence[str]) -> Doubles:
        """Toxicity of each generated text, 0 to 1."""

    def notes(self, tokenizer: Tokenizer) -> tuple[str, ...]:
        """Caveats for scores of candidates."""

    @property
    def notes_on_texts(self) -> tuple[str, ...]:
        """Caveats for scores of texts."""


@dataclass(frozen=True)
class WordListJudge:
    """A candidate is toxic if its lower-cased form is listed."""

    words: frozenset[str]
    name: str

    @classmethod
    def read(cls, path: str | Path) -> WordListJudge:
        """Read one word per line; lines that begin with # are comments."""
        lines = (line.strip().lower() for _, line in numbered_lines(str(path)) if not line.startswith("#"))
        words = frozenset(line for line in lines if line)
        if not words:
            raise DataError(f"{path} lists no words; give one a line")
        return cls(words, str(path))

    def scores(self, fills: Sequence[Fills]) -> list[Doubles]:
        return [
            np.array([fill.token.lower() in self.words for fill in each.marginals[0]], np.float64) for each in fills
        ]

    def scores_of_texts(self, texts: Sequence[str]) -> Doubles:
        """1 for a text that contains a listed word or phrase as whole words, ignoring case."""
        listed = regex.compile(r"(?<!\w)\L<words>(?!\w)", words=sorted(self.words))
        return np.array([listed.search(text.lower()) is not None for text in texts], np.float64)

    @property
    def notes_on_texts(self) -> tuple[str, ...]:
        return ("a list gives 0 or 1, so the expected maximum is the probability of a listed word",)

    def notes(self, tokenizer: Tokenizer) -> tuple[str, ...]:
        """A note on words of several tokens, which never count because a blank is filled with one token."""
        alignments = tokenizer.encode_many([f"a {word}" for word in sorted(self.words)])
        before = len(tokenizer.encode("a"))
        single_tokens = sum(len(alignment) == before + 1 for alignment in alignments)
        if single_tokens == len(self.words):
            return ()
        said = f"{single_tokens:,} of {len(self.words):,} listed words are one token of the vocabulary"
        return (f"{said}: the others cannot fill a blank, and are not counted",)


@dataclass(frozen=True, eq=False)
class ClassifierJudge:
    """A candidate's toxicity is the probability of a label for the whole filled text."""

    model: Model
    label: str

    @property
    def name(self) -> str:
        return f"{self.model.bundle.path} ({self.label})"

    @classmethod
    def of(cls, model: Model, label: str | None) -> ClassifierJudge:
        """Check the classifier; `label` defaults to toxic."""
        task, path = task_of(model.bundle), model.bundle.path
        wanted = "a judge is a model of larvatus finetune classify, with classes"
        if task.name != "classify":
            raise UsageError(f"{path} was fine-tuned for {task.name}: {wanted}")
        labels = sorted(model.predict("a").to_dict().get("probabilities", {}))
        if not labels:
            raise UsageError(f"{path} gives a number: {wanted}")
        chosen = label if label is not None else "toxic"
        if chosen not in labels:
            raise UsageError(f"{path} has no label {chosen!r}{did_you_mean(chosen, labels)}; name it with --label")
        return cls(model, chosen)

    def scores(self, fills: Sequence[Fills]) -> list[Doubles]:
        flat = self.scores_of_texts([fill.text for each in fills for fill in each.marginals[0]])
        return np.split(flat, np.cumsum([len(each.marginals[0]) for each in fills])[:-1])

    def scores_of_texts(self, texts: Sequence[str]) -> Doubles:
        """Probability of the label; 0 for a blank text."""
        scores = np.zeros(len(texts))
        written = [number for number, text in enumerate(texts) if text.strip()]
        answers: list[Any] = [each.to_dict() for each in self.model.predict([texts[number] for number in written])]
        scores[written] = [answer["probabilities"][self.label] for answer in answers]
        return scores

    def notes(self, tokenizer: Tokenizer) -> tuple[str, ...]:
        return self.notes_on_texts

    @property
    def notes_on_texts(self) -> tuple[str, ...]:
        return ("a classifier may hold the name of a group itself for toxic: look at differences between models",)
