"""Answering questions from passages: start and end scores as the best legal spans, with their characters.

    answers = answer_questions(bundle, [("Where is Mt. Sanitas?", passage)], scoring=ScoringOptions())
    answers[0].text, answers[0].start, answers[0].score

A span is legal if it ends where it starts or later, has at most `longest` tokens, and lies in the passage. Its score is
the sum of its start and end score, its probability the softmax over all legal spans, and over [CLS], where that may say
that there is no answer. Of long passages, each token has its scores from the window where it sees most, and spans are
sought over the whole passage (merge "context"); or they are sought in each window, among those that start at such a
token, as the released BERT does it (merge "window"). The answer is the text between the ends of its tokens, widened to
whole words (`data/text/words.py`) where the model says so; a script without spaces has words of one character.
E questions, S sequences, N tokens, T tokens of a passage, L tokens of the longest answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.batch import edges
from larvatus.core.errors import DataError
from larvatus.core.ranges import Count, Score, Size
from larvatus.core.settings import Settings
from larvatus.data.labelled.records import QuestionExample
from larvatus.data.text.align import Alignment
from larvatus.data.text.words import is_space, segment_words
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import QuestionAnswering, QuestionAnsweringConfig
from larvatus.models.network import Network
from larvatus.tasks.answers.passages import EncodedQuestions, encode_passages
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.results import Answer, AnswerSpan, coverages
from larvatus.tasks.scoring import ScoringOptions, head_as, score_sequences

Merge = Literal["context", "window"]
AT_ONCE = 1 << 20
"""Spans that are looked at together."""
NOWHERE = -np.inf


class Decoding(Settings):
    """Options of decoding; None uses the values of the model's head."""

    top: Count = 1
    """Number of spans to return."""
    merge: Merge = "context"
    """How windows are merged: context, tokens by the window with most context; window, the best of each window."""
    longest: Size | None = None
    """Tokens of the longest answer."""
    threshold: Score | None = None
    """Threshold of no answer: the answer is empty if [CLS] exceeds the best span by more than this."""


@dataclass(frozen=True)
class DecodedSpans:
    """The decoded spans of one question."""

    spans: tuple[tuple[float, int, int], ...]
    """Score, first and last token of the best spans, highest score first; none where nothing may be an answer."""
    total: float
    """log Σ exp(score / temperature) over all legal spans."""
    null: float
    """The score of [CLS]: the least of all windows, since one that holds the answer is enough."""


def best_spans(
    starts_T: Floats, ends_T: Floats, *, longest: int, top: int, temperature: float = 1.0
) -> tuple[list[tuple[float, int, int]], float]:
    """The best spans (score, first, last) of at most `longest` tokens, and log Σ exp(score / temperature) of all."""
    count = len(starts_T)
    longest = min(longest, count)
    if not longest:
        return [], NOWHERE
    padded = np.concatenate([ends_T.astype(np.float64), np.full(longest - 1, NOWHERE)])
    ends_TL = np.lib.stride_tricks.sliding_window_view(padded, longest)
    best: list[tuple[float, int, int]] = []
    total = NOWHERE
    step = max(1, AT_ONCE // longest)
    for low in range(0, count, step):
        scores = (starts_T[low : low + step, None].astype(np.float64) + ends_TL[low : low + step]).ravel()
        some = min(top, len(scores))
        for at in np.argpartition(-scores, some - 1)[:some].tolist():
            if scores[at] > NOWHERE:
                first, more = divmod(at, longest)
                best.append((float(scores[at]), low + first, low + first + more))
        total = float(np.logaddexp(total, _log_sum(scores / temperature)))
    return heapq.nsmallest(top, best, key=lambda span: (-span[0], span[1], span[2])), total


def _log_sum(x: Doubles) -> float:
    highest = x.max()
    return float(highest + np.log(np.exp(x - highest).sum())) if highest > NOWHERE else NOWHERE


def decode(
    asked: EncodedQuestions, scores_N2: Floats, config: QuestionAnsweringConfig, decoding: Decoding = Decoding()
) -> Iterator[DecodedSpans]:
    """The best spans for each question."""
    longest = decoding.longest or config.longest
    top = 4 * decoding.top + 4 if decoding.top > 1 else 1  # some may be the same characters
    for pieces, null in passage_scores(asked, scores_N2, decoding.merge):
        spans: list[tuple[float, int, int]] = []
        total = NOWHERE
        for begin, both_T2 in pieces:
            best, more = best_spans(
                both_T2[:, 0], both_T2[:, 1], longest=longest, top=top, temperature=config.temperature
            )
            spans += [(score, first + begin, last + begin) for score, first, last in best]
            total = float(np.logaddexp(total, more))
        spans.sort(key=lambda span: (-span[0], span[1], span[2]))
        yield DecodedSpans(tuple(spans[:top]), total, null)


def passage_scores(
    asked: EncodedQuestions, scores_N2: Floats, merge: Merge = "context"
) -> Iterator[tuple[list[tuple[int, Floats]], float]]:
    """For each question the stretches in which to look for spans, and the score of [CLS].

    A stretch is its first token in the passage and the scores [T, 2] of its tokens: one for the whole passage, or one
    for each window. What may not be is −∞.
    """
    rows, parts = edges(asked.sequences.lengths), edges(asked.sequences.parts)
    for number, passage in enumerate(asked.passages):
        windows = range(int(parts[number]), int(parts[number + 1]))
        barred = ~_visible(passage)
        pieces: list[tuple[int, Floats]] = []
        for sequence in windows:
            at = int(rows[sequence] + asked.firsts[sequence])
            begin, size = int(asked.begins[sequence]), int(asked.sizes[sequence])
            both_T2 = np.array(scores_N2[at : at + size])
            both_T2[barred[begin : begin + size]] = NOWHERE
            low, high = (asked.owns[sequence] - begin).tolist()
            if merge == "context":
                pieces.append((begin + low, both_T2[low:high]))
            else:
                both_T2[:low, 0] = both_T2[high:, 0] = NOWHERE  # these start in another window
                pieces.append((begin, both_T2))
        if merge == "context":
            pieces = [(pieces[0][0], np.concatenate([both for _, both in pieces]))]
        nulls = (scores_N2[rows[sequence] + asked.nowhere[sequence]] for sequence in windows)
        yield pieces, min(float(null_2.astype(np.float64).sum()) for null_2 in nulls)


def _visible(passage: Alignment) -> npt.NDArray[np.bool_]:
    """[T] whether a token has a character that is no white space: only such ones may be the ends of an answer."""
    seen = np.concatenate([[0], np.cumsum(~is_space(passage.text))])
    return np.asarray(seen[passage.spans[:, 1]] > seen[passage.spans[:, 0]])


def spans_of(
    passage: Alignment, decoded: DecodedSpans, config: QuestionAnsweringConfig, top: int = 1
) -> tuple[AnswerSpan, ...]:
    """The best spans with their characters and probabilities, each text of the passage once."""
    total = float(np.logaddexp(decoded.total, decoded.null / config.temperature)) if config.null else decoded.total
    made: dict[tuple[int, int], AnswerSpan] = {}
    for score, first, last in decoded.spans:
        start, end = int(passage.spans[first, 0]), int(passage.spans[last, 1])
        text = passage.text[start:end]
        start, end = end - len(text.lstrip()), start + len(text.rstrip())
        if config.whole_words:
            start, end = to_words(passage.text, start, end)
        if (start, end) not in made and len(made) < top:
            share = float(np.exp(score / config.temperature - total))
            made[start, end] = AnswerSpan(text=passage.text[start:end], start=start, end=end, score=share)
    return tuple(made.values())


def to_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Characters [start, end) widened to the words that they begin and end in.

    >>> to_words("born in Regensburg", 11, 15), to_words("在北京市", 1, 3)
    ((8, 18), (1, 3))
    """
    first, last = words_at(text, start, end)
    return first if first is not None else start, last if last is not None else end


def words_at(text: str, start: int, end: int) -> tuple[int | None, int | None]:
    """Where the word begins that `start` lies inside, and where the word ends that `end` does; None: in none."""
    spans = _words(text)
    before, after = (int(np.searchsorted(spans[:, 0], at, side="left")) - 1 for at in (start, end))
    first = int(spans[before, 0]) if before >= 0 and start < spans[before, 1] else None
    last = int(spans[after, 1]) if after >= 0 and end < spans[after, 1] else None
    return first, last


@lru_cache(maxsize=64)
def _words(text: str) -> Ints:
    """Words of a passage; cached, since consecutive questions are often about the same passage."""
    return segment_words(text)


def null_score(decoded: DecodedSpans, config: QuestionAnsweringConfig) -> float | None:
    """Score of no answer minus that of the best span."""
    if not config.null:
        return None
    return decoded.null - decoded.spans[0][0] if decoded.spans else float("inf")


def chosen_text(
    passage: Alignment, decoded: DecodedSpans, config: QuestionAnsweringConfig, threshold: float | None = None
) -> str:
    """The text of the answer; empty for none."""
    against = null_score(decoded, config)
    if against is not None and against > (config.threshold if threshold is None else threshold):
        return ""
    spans = spans_of(passage, decoded, config)
    return spans[0].text if spans else ""


def answerer_of(model: Network, name: str = "the model") -> QuestionAnswering:
    """The head of a model that answers questions."""
    return head_as(model, QuestionAnswering, "answer questions", name)


def answer(
    model: Network,
    questions: Sequence[str],
    asked: EncodedQuestions,
    *,
    scoring: ScoringOptions,
    decoding: Decoding = Decoding(),
) -> list[Answer]:
    """The answers of a model to questions that are encoded already, with their passages."""
    config = answerer_of(model).config
    scores = score_sequences(model, asked.sequences, scoring)
    answers = []
    rows = zip(
        questions, asked.passages, decode(asked, scores, config, decoding), coverages(asked.sequences), strict=True
    )
    for question, passage, decoded, coverage in rows:
        spans = spans_of(passage, decoded, config, decoding.top)
        against = null_score(decoded, config)
        limit = config.threshold if decoding.threshold is None else decoding.threshold
        none = not spans or (against is not None and against > limit)
        total = float(np.logaddexp(decoded.total, decoded.null / config.temperature))
        answers.append(
            Answer(
                question=question,
                text="" if none else spans[0].text,
                start=None if none else spans[0].start,
                end=None if none else spans[0].end,
                score=float(np.exp(decoded.null / config.temperature - total)) if none else spans[0].score,
                null_score=against,
                others=spans,
                coverage=coverage,
            )
        )
    return answers


def encode_questions(bundle: Bundle, examples: Sequence[QuestionExample], windows: WindowOptions) -> EncodedQuestions:
    """Questions in windows over their passages, answered or not."""
    return encode_passages(
        bundle.tokenizer,
        [(example.question, example.passage) for example in examples],
        limit=windows.limit,
        truncate=windows.truncate,
        overlap=windows.overlap,
        places=[example.place for example in examples],
    )


def answer_questions(
    bundle: Bundle,
    pairs: Sequence[tuple[str, str]],
    *,
    scoring: ScoringOptions,
    decoding: Decoding = Decoding(),
    windows: WindowOptions | None = None,
) -> list[Answer]:
    """Answers to pairs of a question and its passage, in windows as long as the model's positions by default."""
    for number, (question, passage) in enumerate(pairs, start=1):
        if not question.strip() or not passage.strip():
            raise DataError(f"question {number}: its {'passage' if question.strip() else 'text'} is empty; give one")
    windows = windows or WindowOptions.of(bundle)
    asked = encode_passages(
        bundle.tokenizer, pairs, limit=windows.limit, overlap=windows.overlap, truncate=windows.truncate
    )
    questions = [question for question, _ in pairs]
    return answer(bundle.network, questions, asked, scoring=scoring, decoding=decoding)
