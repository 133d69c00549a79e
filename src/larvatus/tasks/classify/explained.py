"""The class of a text or pair as a number to explain: log p(class), log p(label), or the number of a regression."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.data.labelled.records import TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import ClassificationConfig
from larvatus.tasks.classify.classify import classifier_of, classify, encode_texts, texts_of
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.outcome import (
    ExplainedOutcome,
    OutcomeChoice,
    check_one_sequence,
    choose_label,
    head_outcome,
    head_score,
)
from larvatus.tasks.scoring import ScoringOptions


def class_outcome(bundle: Bundle, example: TextExample, choice: OutcomeChoice) -> ExplainedOutcome:
    """The predicted class of a text, or the one that was chosen."""
    if choice.at is not None:
        raise UsageError("a classifier reads the whole text; leave `at` out, and choose a class by `target`")
    head, tokenizer = classifier_of(bundle.network, str(bundle.path)), bundle.tokenizer
    sequences = encode_texts(bundle, [example], head.config, WindowOptions.of(bundle))
    sequences.check_tokens([example])
    check_one_sequence(sequences, bundle, example.place)
    scoring = ScoringOptions(device=str(bundle.network.encoder.device))
    (answer,) = classify(bundle.network, texts_of([example]), sequences, scoring=scoring)
    labels, shares = head.config.labels, answer.probabilities
    best = max(shares, key=shares.__getitem__, default=labels[0])
    number = choose_label(labels, choice.target, best, what="class")
    texts = [example.text] if example.pair is None else [example.text, example.pair]
    places = {"cls": [0], "last": [-1]}.get(head.config.pool)
    every = np.arange(int(sequences.lengths[0]))
    outcome = head_outcome(
        bundle,
        sequences,
        tokenizer.encode_many(texts),
        label=labels[number],
        score=head_score(head, lambda logits_S1K: _score(head.config, logits_S1K[:, 0], number)),
        reads=every if places is None else every[places],
    )
    return dataclasses.replace(outcome, is_number=head.config.kind == "regression")


def _score(config: ClassificationConfig, logits_SK: Tensor, number: int) -> Tensor:
    if config.kind == "regression":
        return logits_SK[:, number]
    scaled = logits_SK / config.temperature
    logs = F.log_softmax(scaled, -1) if config.kind == "multi-class" else F.logsigmoid(scaled)
    return logs[:, number]
