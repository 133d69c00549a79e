"""Results of filling blanks and of scoring texts: frozen records that print and convert to dicts.

    score = model.score(["The souvenir was broken."])[0]
    score.total, score.per_word, score.perplexity             # pseudo-log-likelihood of the text
    score.words[1].text, score.words[1].score, score.words[1].start

`Fills` are the results of `model.fill`, best first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from larvatus.core import notebook
from larvatus.core.arrays import Ints
from larvatus.core.tables import Tabular
from larvatus.inference.cloze.masked_copies import Method


@dataclass(frozen=True)
class Fill:
    """One candidate for one blank."""

    token: str
    probability: float
    id: int
    text: str
    """The whole text with the blank filled (other blanks stay blank)."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.probability:8.4f}  {self.token:<16}  {self.text}"


@dataclass(frozen=True)
class JointFill:
    """One way to fill all blanks of a text together."""

    tokens: tuple[str, ...]
    probability: float
    ids: tuple[int, ...]
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "tokens": list(self.tokens), "ids": list(self.ids)}

    def __str__(self) -> str:
        return f"{self.probability:8.4f}  {' … '.join(self.tokens):<16}  {self.text}"


@dataclass(frozen=True)
class Fills(Sequence[Fill | JointFill], Tabular):
    """The best fills of a text, most probable first: `Fill`s of a single blank, `JointFill`s of several."""

    text: str
    best: tuple[Fill | JointFill, ...]
    marginals: tuple[tuple[Fill, ...], ...]
    """For each blank its own candidates, the other blanks left open."""
    read: int
    """Tokens of the text that the model read …"""
    total: int
    """… of all its tokens: a long text is read in a window around its blanks."""

    @overload
    def __getitem__(self, index: int) -> Fill | JointFill: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Fill | JointFill, ...]: ...
    def __getitem__(self, index: int | slice) -> Fill | JointFill | tuple[Fill | JointFill, ...]:
        return self.best[index]

    def __len__(self) -> int:
        return len(self.best)

    def __iter__(self) -> Iterator[Fill | JointFill]:
        return iter(self.best)

    @property
    def partial(self) -> str:
        """How much of the text was read, if not all of it; else empty."""
        return "" if self.read == self.total else f"read {self.read:,} of {self.total:,} tokens, around the blanks"

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "fills": [fill.to_dict() for fill in self.best],
            "marginals": [[fill.to_dict() for fill in blank] for blank in self.marginals],
            "read": self.read,
            "total": self.total,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each candidate, most likely first: joint fills, or those of each blank if there are none."""
        if self.best:
            return [{"text": self.text, "rank": rank, **_row(fill)} for rank, fill in enumerate(self.best, start=1)]
        return [
            {"text": self.text, "blank": blank, "rank": rank, **_row(fill)}
            for blank, fills in enumerate(self.marginals, start=1)
            for rank, fill in enumerate(fills, start=1)
        ]

    def _repr_html_(self) -> str:
        names = [each.token if isinstance(each, Fill) else " … ".join(each.tokens) for each in self]
        rows = zip(names, (each.probability for each in self), strict=True)
        return notebook.bars(rows, title=self.text, note=self.partial)

    def __str__(self) -> str:
        note = [f"({self.partial})"] if self.partial else []
        return "\n".join([self.text, *note, *(str(fill) for fill in self.best)])


def _row(fill: Fill | JointFill) -> dict[str, Any]:
    """Columns of a candidate: `token`, or `token_1`, `token_2`, … of several blanks."""
    if isinstance(fill, Fill):
        tokens = {"token": fill.token}
    else:
        tokens = {f"token_{blank}": token for blank, token in enumerate(fill.tokens, start=1)}
    return {**tokens, "probability": fill.probability, "filled": fill.text}


# Scores of texts.

_SHOWN = 40


@dataclass(frozen=True)
class TokenScore:
    token: str
    """Token in the form of the vocabulary."""
    score: float
    """log p, in nats."""
    start: int
    end: int
    """Its characters in the text."""


@dataclass(frozen=True)
class WordScore:
    text: str
    score: float
    """Sum over its tokens; 0 if it has none."""
    start: int
    end: int
    """Its characters in the text."""
    tokens: int
    """Number of tokens; 0 if the vocabulary deletes the word, or if it shares the token of the word before."""


@dataclass(frozen=True, eq=False, repr=False)
class Score(Tabular):
    """A text of T tokens and W words."""

    text: str
    method: Method | Literal["left-to-right"]
    """How tokens were masked; `left-to-right` for an exact log-likelihood."""
    pieces: tuple[str, ...]
    """[T] tokens in the form of the vocabulary."""
    log_probabilities: npt.NDArray[np.float64]
    """[T] of each token, in nats."""
    spans: Ints
    """[T, 2] characters of each token."""
    words_of_tokens: Ints
    """[T] word of each token, -1 for none."""
    word_spans: Ints
    """[W, 2] characters of each word."""
    context: int
    """Tokens that the model reads at once: fewer than T if the text is longer than its window."""
    unknown: int
    """Tokens unknown to the vocabulary, which are scored as its unknown token."""

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood of the text, in nats."""
        return math.fsum(self.log_probabilities.tolist())

    @property
    def per_token(self) -> float:
        return self.total / len(self.pieces)

    @property
    def per_word(self) -> float:
        return self.total / max(1, len(self.word_spans))

    @property
    def perplexity(self) -> float:
        """Pseudo-perplexity: exp of the mean loss of a token."""
        return _exp(-self.per_token)

    @property
    def tokens(self) -> tuple[TokenScore, ...]:
        return tuple(
            TokenScore(piece, score, start, end)
            for piece, score, (start, end) in zip(
                self.pieces, self.log_probabilities.tolist(), self.spans.tolist(), strict=True
            )
        )

    @property
    def words(self) -> tuple[WordScore, ...]:
        scores_of_words: list[list[float]] = [[] for _ in self.word_spans]
        for word, score in zip(self.words_of_tokens.tolist(), self.log_probabilities.tolist(), strict=True):
            if word >= 0:
                scores_of_words[word].append(score)
        return tuple(
            WordScore(self.text[start:end], math.fsum(scores), start, end, len(scores))
            for scores, (start, end) in zip(scores_of_words, self.word_spans.tolist(), strict=True)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the score was computed."""
        notes = []
        if self.context < len(self.pieces):
            notes.append(f"each of {len(self.pieces):,} tokens was read with {self.context:,} around it")
        if self.unknown:
            notes.append(f"{self.unknown:,} tokens are unknown to the vocabulary")
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "method": self.method,
            "total": self.total,
            "per_token": self.per_token,
            "per_word": self.per_word,
            "perplexity": self.perplexity,
            "context": self.context,
            "unknown": self.unknown,
            "words": [asdict(word) for word in self.words],
            "tokens": [asdict(token) for token in self.tokens],
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row for the whole text, without the scores of words and tokens."""
        return [{name: value for name, value in self.to_dict().items() if name not in ("words", "tokens")}]

    def __str__(self) -> str:
        lines = [ScoreTotals().plus(self).line(), *(f"note: {note}" for note in self.notes)]
        words = self.words
        lines += [f"{word.score:9.3f}  {word.text}" for word in words[:_SHOWN]]
        return "\n".join([*lines, *(["  …"] if len(words) > _SHOWN else [])])

    def __repr__(self) -> str:
        return f"<Score {self.total:.3f} ({self.method}) of {len(self.pieces):,} tokens>"


@dataclass(frozen=True)
class ScoreTotals:
    """Totals of several texts: `ScoreTotals().plus(first).plus(second)`."""

    texts: int = 0
    tokens: int = 0
    words: int = 0
    total: float = 0.0
    exact: bool = False
    """Whether they are exact likelihoods, of a left-to-right model."""

    def plus(self, score: Score) -> ScoreTotals:
        tokens, words = self.tokens + len(score.pieces), self.words + len(score.word_spans)
        return ScoreTotals(self.texts + 1, tokens, words, self.total + score.total, score.method == "left-to-right")

    @property
    def perplexity(self) -> float:
        """Pseudo-perplexity of a corpus (PPPL, Salazar et al. 2020, §2.1): exp(−Σ PLL / tokens)."""
        return _exp(-self.total / self.tokens)

    def line(self) -> str:
        """Summary in one line."""
        pseudo = "" if self.exact else "pseudo-"
        return (
            f"{pseudo}log-likelihood {self.total:.3f} · {self.total / self.tokens:.3f} a token · "
            f"{self.total / max(1, self.words):.3f} a word · {pseudo}perplexity {self.perplexity:,.1f}"
        )


def _exp(number: float) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf
