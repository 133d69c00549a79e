"""Sentence-order prediction (ALBERT, Lan et al. 2020, §3.1): do the two segments stand in the order of the text?

    y = softmax(W_SOP h)        h = tanh(W z_CLS + b), the pooler of released models

Label 0: in order; 1: swapped, as in the released code. Both segments are neighbours in one document, so that topic
alone, which answers most of next-sentence prediction, says nothing.
"""

from __future__ import annotations

from typing import ClassVar

from larvatus.core.pretraining_targets import OrderLabels
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.pair_classifier import PairClassifier, PairClassifierConfig


class SentenceOrderConfig(PairClassifierConfig, tag_field="type", tag="sentence-order"):
    needs: ClassVar = OrderLabels

    def build(self, model: EncoderConfig, vocabulary: int) -> SentenceOrder:
        return SentenceOrder(self, model)


class SentenceOrder(PairClassifier):
    needs = OrderLabels
