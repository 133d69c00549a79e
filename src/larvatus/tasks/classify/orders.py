"""Whether a pair is read in both orders, and the two vectors added (Radford et al. 2018, §3.3: similarity).

    _start_ A _delimiter_ B _classify_   →  h₁
    _start_ B _delimiter_ A _classify_   →  h₂        y = W (h₁ + h₂)

A left-to-right model reads the second text knowing the first, and not the other way about, so the order of a pair whose
order means nothing would matter to it. Where nobody says, it reads such pairs in both: of similarity (a number for a
pair) and of data sets that are known to be symmetric (MRPC, QQP). Entailment, a question with its answer, and pairs of
which nothing is known are read as they are given; so does an encoder that sees both sides, unless asked.
"""

from __future__ import annotations

from larvatus.core.errors import UsageError
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.data.text.special_tokens import has_delimiters
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import ClassificationConfig

SAID = "orders: a pair is read in both, and their vectors are added, so that neither text is the first"


def reads_both_orders(
    bundle: Bundle,
    train: Dataset[TextExample],
    config: ClassificationConfig,
    *,
    present: ClassificationConfig | None,
    asked: bool | None,
) -> bool:
    """`present` is the model's own head, which is kept if it is for the same labels."""
    pairs = all(example.pair is not None for example in train.examples)
    if asked is not None:
        if asked and not pairs:
            raise UsageError(f"both_orders is for pairs of texts, and {train.source} has single ones; leave it out")
        return asked
    if present is not None and config.same_labels(present) and present.kind == config.kind:
        return bool(present.both_orders)
    return pairs and has_delimiters(bundle.tokenizer) and (train.symmetric or config.kind == "regression")
