"""A vector for each token of a text, as late interaction compares them (ColBERT, Khattab & Zaharia 2020, §3.2).

    v_i = normalise(W z_i)        for every token i of the text, special tokens included; no bias, no activation

    LateInteractionConfig(size=128, loss=MultipleNegatives(scale=1.0))

Queries and documents are read alike: there are no marker tokens before them, and a query is not filled up with [MASK].
These are the modules Dense and Normalize of `sentence-transformers`, applied to tokens (`MultiVectorEncoder`;
`models/bundle/token_modules.py` reads and writes them). `objectives/sentence/late_interaction.py` compares texts.

N tokens, T texts, D hidden size, K size of a vector.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.ranges import Size, Temperature, Weight
from larvatus.core.targets import SentenceTargets
from larvatus.models.heads.text_head import TextHeadConfig, TokenHead, text_lengths
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.sentence.late_interaction import TokenVectors
from larvatus.models.objectives.sentence.losses import MultipleNegatives, PlainLoss


class LateInteractionConfig(TextHeadConfig, path="late-interaction: ", tag="late-interaction"):
    vector_kind: ClassVar = "late"

    size: Size = 128
    """Size of a token's vector."""
    loss: PlainLoss = MultipleNegatives(scale=1.0)
    """Loss that training minimises, from MaxSim scores."""
    temperature: Temperature = 1.0
    weight: Weight = 1.0

    def build(self, model: EncoderConfig, vocabulary: int) -> LateInteraction:
        return LateInteraction(self, model)

    def describe(self) -> str:
        return f"a vector of {self.size} dimensions for each token, compared by MaxSim"


class LateInteraction(TokenHead):
    config: LateInteractionConfig

    def __init__(self, config: LateInteractionConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.projections = nn.ModuleList([nn.Linear(model.hidden, config.size, bias=False)])
        self.size_of_vector = config.size

    def vectors(self, x: Tensor, targets: SentenceTargets[Tensor]) -> Tensor:
        """Unit vectors of all tokens: [N, D] → [N, K]."""
        return F.normalize(self.projections[0](x).float(), dim=-1)

    def vector_rows(self, targets: SentenceTargets[Any]) -> int:
        return int(text_lengths(targets).sum())

    def compared(self, vectors: Tensor, targets: SentenceTargets[Tensor]) -> TokenVectors:
        return TokenVectors(vectors, text_lengths(targets))
