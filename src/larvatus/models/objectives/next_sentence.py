"""Next-sentence prediction (Devlin et al. 2019; chapter §11.2.2): does the second segment really follow the first?

    y = softmax(W_NSP h)        h = z_CLS as the chapter writes it, or tanh(W z_CLS + b), the pooler of released models

Label 0: it follows; 1: it was drawn at random.
"""

from __future__ import annotations

from typing import ClassVar

from larvatus.core.pretraining_targets import PairLabels
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.pair_classifier import PairClassifier, PairClassifierConfig


class NextSentenceConfig(PairClassifierConfig, tag_field="type", tag="next-sentence"):
    needs: ClassVar = PairLabels

    def build(self, model: EncoderConfig, vocabulary: int) -> NextSentence:
        return NextSentence(self, model)


class NextSentence(PairClassifier):
    needs = PairLabels
