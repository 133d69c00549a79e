"""The two language models of ELMo (Peters et al. 2018, §3.1): the next word from those before, and the other way round.

    L = −Σ_k  log p(t_k | t_1 … t_{k−1})  +  log p(t_k | t_{k+1} … t_n)

forward-lm reads the half of a word's vector that has seen what stands to the left, backward-lm the other. One softmax
over words belongs to both; it is the encoder's (`models/nn/elmo.py`). With `samples` it is estimated while training
(`sampled_softmax.py`); evaluation is always exact. M predictions, P size of a direction, V vocabulary.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import TokenTargets
from larvatus.core.ranges import SizeOrNone, Weight, check_ranges
from larvatus.core.settings import Settings
from larvatus.data.corruption import CorruptionConfig
from larvatus.data.text.vocabularies.characters import WORDS, NextWords, PreviousWords
from larvatus.models.nn.buckets import IGNORE
from larvatus.models.nn.elmo import LETTERS, Elmo, ElmoConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import linear_cross_entropy
from larvatus.models.objectives.loss import Loss
from larvatus.models.objectives.sampled_softmax import sampled_cross_entropy


class WordLMConfig(Settings):
    """What both have."""

    samples: SizeOrNone = 0
    """Words drawn to estimate the softmax of a training step (ELMo: 8,192); 0: all words, exactly."""
    weight: Weight = 1.0
    """Share of this objective in the loss."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.__struct_config__.tag}: ", RecipeError)

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """A word has a few characters."""
        return 1 / LETTERS

    def check(self, model: EncoderConfig) -> None:
        """Refuse an encoder that has no two directions."""
        if not isinstance(model, ElmoConfig):
            raise RecipeError(
                f"{self.__struct_config__.tag} reads one of two directions, which model.type = "
                f'"{model.__struct_config__.tag}" does not have; set model.type = "elmo"'
            )

    def build(self, model: EncoderConfig, vocabulary: int) -> WordLM:
        self.check(model)
        return WordLM(self)


class ForwardLMConfig(WordLMConfig, tag_field="type", tag="forward-lm"):
    needs: ClassVar = NextWords


class BackwardLMConfig(WordLMConfig, tag_field="type", tag="backward-lm"):
    needs: ClassVar = PreviousWords


class WordLM(nn.Module):
    """One of the two; it has no weights of its own."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.needs: type[TokenTargets[Any]] = config.needs

    def loss(self, z_ND: Tensor, batch: TrainingBatch[Tensor], encoder: Encoder, *, accuracy: bool = False) -> Loss:
        assert isinstance(encoder, Elmo)
        targets = batch.targets[self.needs]
        right_NP, left_NP = z_ND.chunk(2, dim=-1)
        h_MP = (right_NP if self.needs is NextWords else left_NP).index_select(0, targets.places)
        weight, bias = encoder.softmax.weight, encoder.softmax.bias
        samples = self.config.samples
        correct = None
        if self.training and 0 < samples < len(weight) - WORDS:
            total = sampled_cross_entropy(h_MP, weight, bias, targets.ids, head=WORDS, samples=samples)
        else:
            total, correct = linear_cross_entropy(h_MP, weight, bias, targets.ids, accuracy=accuracy)
        return Loss(
            total=total,
            count=(targets.ids != IGNORE).sum(),
            correct=correct if accuracy else None,
            weight=self.config.weight,
        )
