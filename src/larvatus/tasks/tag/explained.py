"""The tag of a word as a number to explain: log p(tag), under a CRF the log of its marginal probability."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.errors import DataError
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import Tagging
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.encoding.words import WordExample
from larvatus.tasks.outcome import (
    ExplainedOutcome,
    OutcomeChoice,
    check_one_sequence,
    choose_label,
    choose_word,
    head_outcome,
    head_score,
)
from larvatus.tasks.results import Tagged
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.tag.tag import encode_words, tag, tagger_of

EXCLUDED = -1e4
"""Score of a tag that a word must not have."""


def tag_outcome(bundle: Bundle, example: WordExample, choice: OutcomeChoice) -> ExplainedOutcome:
    """The predicted tag of a word, or the one that was chosen; by default of the word with the surest tag but O."""
    head = tagger_of(bundle.network, str(bundle.path))
    encoded = encode_words(bundle, [example], head.config, WindowOptions.of(bundle))
    (text,), sequences = encoded.texts, encoded.sequences
    if not len(text.word_spans) or not len(text):
        raise DataError(f"{example.place} has no word to tag; give a text with words")
    check_one_sequence(sequences, bundle, example.place)
    scoring = ScoringOptions(device=str(bundle.network.encoder.device))
    (answer,) = tag(bundle.network, encoded.texts, sequences, scoring=scoring)
    names = [word.text for word in answer.words]
    word = _surest(answer) if choice.at is None else choose_word(names, choice.at, example.place)
    number = choose_label(head.config.labels, choice.target, answer.words[word].tag, what="tag")
    tokens = np.array(text.tokens_of_word(word), np.int64)
    if not len(tokens):
        raise DataError(f"{example.place}: the vocabulary deletes {names[word]!r}; choose another word")
    tokens = tokens[:1] if head.config.pool == "first" else tokens
    return head_outcome(
        bundle,
        sequences,
        encoded.texts,
        label=f"{head.config.labels[number]} of {names[word]}",
        score=head_score(head, lambda logits_SWK: _score(head, logits_SWK, word, number)),
        reads=tokens + bundle.tokenizer.template.single.opening,
    )


def _surest(answer: Tagged) -> int:
    words = range(len(answer.words))
    tagged = [word for word in words if answer.words[word].tag != "O"]
    return max(tagged or words, key=lambda word: answer.words[word].probability)


def _score(head: Tagging, logits_SWK: Tensor, word: int, number: int) -> Tensor:
    scaled = logits_SWK / head.config.temperature
    if head.crf is None:
        return F.log_softmax(scaled[:, word], -1)[:, number]
    # log Σ over sequences with this tag, minus that over all: the score of any one path cancels in the difference
    count, words, tags = scaled.shape
    path_N = torch.full((count * words,), number, device=scaled.device)
    lengths_S = torch.full((count,), words, device=scaled.device)
    other_K = torch.arange(tags, device=scaled.device) != number
    only = scaled.clone()
    only[:, word] = only[:, word].masked_fill(other_K, EXCLUDED)
    every, given = (head.crf.log_likelihood(e.flatten(0, 1), path_N, lengths_S) for e in (scaled, only))
    difference: Tensor = every - given
    return difference
