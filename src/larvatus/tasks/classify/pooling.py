"""What stands for a text in classification where nobody says: [CLS], or the mean or maximum of its tokens.

    chosen = pooling_of(bundle, labels=("bad", "good"), trained="head", family="cls")
    chosen.pool, chosen.why               # "mean", "as this sentence encoder was trained"

Where the whole encoder learns, its family's own way is taken ([CLS] of a BERT): fine-tuning teaches [CLS] what it is to
hold, and `transformers` has a class for the result. A frozen encoder is taken as it is: a sentence encoder by the
pooling that it was trained with (`1_Pooling/config.json`), any other by the mean of its tokens, since [CLS] of a
masked language model was trained for nothing, or for next sentences (Reimers & Gurevych 2019, §4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import ClassificationConfig
from larvatus.models.heads.pooling import SUMMARIES
from larvatus.tasks.arguments import Trainable

Pool = Literal["cls", "last", "mean", "max"]
SAID: dict[Pool, str] = {
    "cls": "[CLS]",
    "last": "its last token",
    "mean": "the mean of its tokens",
    "max": "the maximum of its tokens",
}


class Pooling(NamedTuple):
    pool: Pool
    why: str

    def describe(self) -> str:
        """``pooling: a text is read by the mean of its tokens, as …``"""
        return f"pooling: a text is read by {SAID[self.pool]}, {self.why}"


def pooling_of(
    bundle: Bundle,
    *,
    labels: Sequence[str],
    trained: Trainable,
    family: Pool,
    head: ClassificationConfig | None = None,
    asked: Pool | None = None,
) -> Pooling:
    """`family` is what classifiers of the model's family read, `head` the model's own; `asked` overrules all."""
    if asked is not None:
        return Pooling(asked, "as asked")
    if head is not None and head.labels == tuple(labels):
        return Pooling(head.pool, "as the model's own head for these labels")
    if trained != "head":
        return Pooling(family, "as classifiers of its family")
    trained_with = bundle.pooling
    if (known := next((pool for pool in SAID if pool == trained_with), None)) is not None:
        return Pooling(known, "as this sentence encoder was trained")
    if trained_with:
        return Pooling("mean", f"since its own pooling ({trained_with}) is not offered")
    if family not in SUMMARIES:
        return Pooling(family, "as classifiers of its family")
    return Pooling("mean", "since the encoder is frozen and its [CLS] was not trained to stand for a text")
