"""One prediction as a number to explain: the log-probability of a class, of a word's tag, of an answer, of a fill.

    outcome = task_of(bundle).outcome(bundle, example, OutcomeChoice(target="positive"))
    outcome.score(outcome.encoder, batch)        # [S] of S versions of the text, with gradients

A task defines it in its folder (`Task.outcome`); the methods that attribute it to words are in
`inference/interpret/attributions.py`. S versions of one sequence of T tokens, R rows of the head, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import NO_WORD, TrainingBatch
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import digits
from larvatus.data.text.align import Alignment
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.head import Head
from larvatus.models.nn.encoder import Encoder
from larvatus.tasks.encoding.sequences import Sequences

Score = Callable[[Encoder, TrainingBatch[Tensor]], Tensor]
WordSpan = tuple[int, int, int]


class TextTooLong(UsageError):
    """A text that does not fit into the model's window."""


@dataclass(frozen=True, kw_only=True)
class OutcomeChoice:
    """Which prediction of a text is explained."""

    target: str | None = None
    """Class, tag, answer or fill; None for what the model predicts."""
    at: int | str | None = None
    """Number from 1 of the blank or the tagged word, or that word; None for the first blank, or the surest tag."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplainedOutcome:
    """A prediction of one text or pair that fits into the model's window."""

    texts: tuple[str, ...]
    label: str
    """What is explained: ``positive``, ``B-LOC of Sanitas``."""
    spans: tuple[WordSpan, ...]
    """Number of the text, and characters, of each word that has a token."""
    words: Ints
    """[T] word of each token of the sequence; `NO_WORD` for special tokens and blanks."""
    copies: Callable[[int], TrainingBatch[Ints]]
    """The sequence that many times."""
    encoder: Encoder
    score: Score
    """[S] log-probability in each sequence; the number itself of a regression."""
    reads: Ints
    """Tokens whose states the head reads for it."""
    is_number: bool = False
    """Whether the score is a number, not a log-probability."""


def head_score(head: Head, pick: Callable[[Tensor], Tensor]) -> Score:
    """The score that `pick` takes from the logits of all sequences: [S, R, K] → [S]."""

    def score(encoder: Encoder, batch: TrainingBatch[Tensor]) -> Tensor:
        features = head.features(head.states(encoder, batch.tokens), batch)
        return pick(head.logits(features, batch).unflatten(0, (batch.tokens.count, -1)))

    return score


def head_outcome(
    bundle: Bundle, sequences: Sequences, aligned: Sequence[Alignment], *, label: str, score: Score, reads: Ints
) -> ExplainedOutcome:
    """An outcome of an example that is read in one sequence."""
    template = bundle.tokenizer.template.for_texts(len(aligned))
    before = np.cumsum([0, *(len(text.word_spans) for text in aligned)])
    numbered = [
        np.where(text.words == NO_WORD, NO_WORD, text.words + n) for text, n in zip(aligned, before, strict=False)
    ]
    spans = [(part, *span) for part, text in enumerate(aligned) for span in text.word_spans.tolist()]
    words, covered = words_with_tokens(template.fill(NO_WORD, *numbered), spans)
    return ExplainedOutcome(
        texts=tuple(text.text for text in aligned),
        label=label,
        spans=covered,
        words=words,
        copies=lambda count: sequences.inputs(np.zeros(count, np.int64)),
        encoder=bundle.network.encoder,
        score=score,
        reads=reads,
    )


def words_with_tokens(words_T: Ints, spans: Sequence[WordSpan]) -> tuple[Ints, tuple[WordSpan, ...]]:
    """Words renumbered without those that no token belongs to.

    >>> words_with_tokens(np.array([-1, 2, 2, -1]), [(0, 0, 1), (0, 2, 3), (0, 4, 6)])
    (array([-1,  0,  0, -1]), ((0, 4, 6),))
    """
    kept = np.unique(words_T[words_T != NO_WORD])
    return np.where(words_T == NO_WORD, NO_WORD, np.searchsorted(kept, words_T)), tuple(spans[word] for word in kept)


def check_one_sequence(sequences: Sequences, bundle: Bundle, place: object) -> None:
    """Refuse a text that the model reads in several windows, or in two orders."""
    if int(sequences.parts[0]) > 1:
        raise TextTooLong(
            f"{place} has {int(sequences.tokens[0]):,} tokens, more than the model's window of "
            f"{bundle.model.max_positions:,} holds; explain a part of it"
        )
    if sequences.orders > 1:
        raise UsageError(f"{bundle.path} reads a pair in both orders, which cannot be explained; use a model of one")


def choose_label(labels: Sequence[str], target: str | None, predicted: str, *, what: str) -> int:
    """Number of the label to explain."""
    name = predicted if target is None else target
    if name not in labels:
        raise UsageError(f"the model has no {what} {name!r}{did_you_mean(name, labels, most=8)}")
    return labels.index(name)


def choose_word(words: Sequence[str], at: int | str, place: object) -> int:
    """Index of a word that is given by its number from 1, or by itself."""
    number = at if isinstance(at, int) else digits(at)
    if number is not None and at not in words:
        if not 1 <= number <= len(words):
            raise UsageError(f"{place} has no word {number}: its words are numbered from 1 to {len(words)}")
        return number - 1
    places = [index for index, word in enumerate(words) if word == at]
    if len(places) != 1:
        many = f"has {at!r} {len(places)} times" if places else f"has no word {at!r}{did_you_mean(str(at), words)}"
        raise UsageError(f"{place} {many}; give the number of the word, from 1 to {len(words)}")
    return places[0]
