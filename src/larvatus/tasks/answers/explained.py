"""An answer as a number to explain: log P_start(i) + log P_end(j), over the tokens of question and passage."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.answers.answer import answer, answerer_of
from larvatus.tasks.answers.passages import EncodedQuestions, encode_passages
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.outcome import ExplainedOutcome, OutcomeChoice, check_one_sequence, head_outcome, head_score
from larvatus.tasks.scoring import ScoringOptions


def answer_outcome(bundle: Bundle, pair: tuple[str, str], choice: OutcomeChoice, place: object) -> ExplainedOutcome:
    """The answer of a model to a question and its passage, or the text of the passage that was chosen."""
    if choice.at is not None:
        raise UsageError("an answer is part of the passage; leave `at` out, and choose another by `target`")
    head, tokenizer = answerer_of(bundle.network, str(bundle.path)), bundle.tokenizer
    asked = encode_passages(tokenizer, [pair], limit=WindowOptions.of(bundle).limit, places=[place])
    check_one_sequence(asked.sequences, bundle, place)
    scoring = ScoringOptions(device=str(bundle.network.encoder.device))
    (predicted,) = answer(bundle.network, [pair[0]], asked, scoring=scoring)
    start, end = predicted.start, predicted.end
    if choice.target is not None:
        start = pair[1].find(choice.target)
        if start < 0 or not choice.target.strip():
            raise UsageError(f"the passage has no {choice.target!r}; choose an answer that is a part of it")
        end = start + len(choice.target)
    first, last = _tokens(asked, start, end)

    def pick(logits_ST2: Tensor) -> Tensor:
        logs = F.log_softmax(logits_ST2 / head.config.temperature, 1)
        return logs[:, first, 0] + logs[:, last, 1]

    return head_outcome(
        bundle,
        asked.sequences,
        tokenizer.encode_many(list(pair)),
        label="no answer" if start is None else pair[1][start:end],
        score=head_score(head, pick),
        reads=np.unique([first, last]),
    )


def _tokens(asked: EncodedQuestions, start: int | None, end: int | None) -> tuple[int, int]:
    """First and last token of characters of the passage, in the sequence; [CLS] for no answer."""
    if start is None or end is None:
        return int(asked.nowhere[0]), int(asked.nowhere[0])
    tokens = asked.passages[0].tokens_of_chars(start, end)
    if not tokens:
        raise UsageError("the vocabulary deletes the answer; choose another")
    shift = int(asked.firsts[0] - asked.begins[0])
    return tokens.start + shift, tokens.stop - 1 + shift
