"""What may be chosen where questions are answered, and the head that the training questions then ask for.

config = answering_head(train, AnswerOptions(longest=20), natural={})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from larvatus.core.errors import DataError
from larvatus.core.ranges import DropoutRate, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.labelled.records import Dataset, QuestionExample
from larvatus.models.heads import QuestionAnsweringConfig
from larvatus.tasks.answers.answer import Decoding, words_at
from larvatus.tasks.answers.passages import EmptyWindows

WHOLE = 0.95
"""Share of training answers of whole words from which on answers are widened to words: of TyDiQA, English has 0.99,
Swahili 0.94, Korean 0.42; XQuAD in English has 1.00."""


class AnswerOptions(Settings):
    """What may be chosen of a model that answers questions."""

    null: bool | None = None
    """Whether a passage may not answer; None: as the training questions say."""
    longest: Size = 30
    """Tokens of the longest answer."""
    overlap: SizeOrNone | None = None
    """Tokens that windows of a long passage share; None: a quarter of a window."""
    empty: EmptyWindows = EmptyWindows()
    """What is learnt from windows without the answer."""
    whole_words: bool | None = None
    """Whether answers are widened to whole words; None: where nearly all training answers are of whole words."""
    decoding: Decoding = Decoding()
    """How held-out questions are answered."""
    dropout: DropoutRate | None = None
    """Dropout before the scores; default: as the model's family has it."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""
    layers: str | None = None
    """Which layers are read: all, last4 or concat4, or one by number (0: embeddings); default: the last."""
    lstm: SizeOrNone = 0
    """Size of a BiLSTM over the tokens; 0: none."""


def answering_head(
    train: Dataset[QuestionExample], options: AnswerOptions, *, natural: Mapping[str, Any]
) -> QuestionAnsweringConfig:
    """The head that the questions ask for."""
    impossible = sum(example.impossible for example in train)
    if len(train) == impossible:
        raise DataError(f"{train.source}: not one question has an answer, so there is nothing to learn")
    null = options.null if options.null is not None else impossible > 0
    if impossible and not null:
        raise DataError(
            f"{train.source}: {impossible:,} questions have no answer, which a model that always answers cannot learn; "
            "leave null to the data, or drop them"
        )
    settings = dict(natural) if options.dropout is None else {**natural, "dropout": options.dropout}
    whole = marks_whole_words(train) if options.whole_words is None else options.whole_words
    return QuestionAnsweringConfig(
        null=null,
        longest=options.longest,
        whole_words=whole,
        mix=options.layers or bool(options.mix),
        lstm=options.lstm or UNSET,
        **settings,
    )


def marks_whole_words(train: Dataset[QuestionExample]) -> bool:
    """Whether nearly all answers begin and end where words do."""
    cut = total = 0
    for example in train:
        for text, start in example.answers[:1]:
            total += 1
            cut += words_at(example.passage, start, start + len(text)) != (None, None)
    return cut <= (1 - WHOLE) * total
