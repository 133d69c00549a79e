"""Any task as text to text (T5, Raffel et al. 2020, §2.4): the encoder reads a text, the decoder generates the answer.

    L = −1/M Σ_i log P(y_i | y_1 … y_{i−1}, x)        x the input, y_1 … y_M the output, its end token last

The head is the model's own pretraining objective: nothing is newly initialised, and the model stays the same for
`transformers`. Its settings define how texts become inputs, so that a loaded model reads them as in training. N input
tokens, M output tokens, D hidden size.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.pretraining_targets import DenoisedText
from larvatus.core.ranges import Count, Temperature, Weight
from larvatus.models.heads.head import Head, HeadConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, EncoderOutput, shift_right
from larvatus.models.objectives.denoising import Denoising, DenoisingConfig
from larvatus.models.objectives.linear_cross_entropy import Loss


class TextToTextConfig(HeadConfig, path="writing: ", tag="writing"):
    needs: ClassVar = DenoisedText
    begins_as: ClassVar = "denoising"
    labels: ClassVar[tuple[str]] = ("text",)
    mix: ClassVar[bool] = False
    stores_labels: ClassVar = False  # generated text has none

    prefix: str = ""
    """Text before every input, such as ``sst2 sentence:``."""
    parts: tuple[str, ...] = ()
    """Names of the two texts of a pair, such as premise and hypothesis; empty for single texts."""
    words: tuple[tuple[str, str], ...] = ()
    """Labels of the data with the words that are generated for them."""
    classes: tuple[str, ...] = ()
    """All valid answers, if these are few: label words; empty if any text may be generated."""
    most: Count = 64
    """Most tokens to generate, including the end token."""
    temperature: Temperature = 1.0
    """Always 1: generated text has no calibrated probability."""
    weight: Weight = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.parts) not in (0, 2):
            raise UsageError("writing: parts are the names of the two texts of a pair, or nothing")

    def build(self, model: EncoderConfig, vocabulary: int) -> TextToText:
        if not isinstance(model, EncoderDecoderConfig):
            raise RecipeError('writing needs a decoder; set model.type = "encoder-decoder"')
        return TextToText(self, model)

    def describe(self) -> str:
        if self.classes:
            some = ", ".join(self.classes[:6]) + (" …" if len(self.classes) > 6 else "")
            return f"writes one of {len(self.classes)} texts ({some})"
        return f"writes texts of up to {self.most:,} tokens"

    @property
    def writes(self) -> int:
        return self.most

    def read_as(self, text: str, pair: str | None) -> str:
        """The encoder's input.

        >>> TextToTextConfig(prefix="mnli", parts=("premise", "hypothesis")).read_as("It rains.", "It is wet.")
        'mnli premise: It rains. hypothesis: It is wet.'
        """
        body = text if pair is None else f"{self.parts[0]}: {text} {self.parts[1]}: {pair}"
        return f"{self.prefix} {body}" if self.prefix else body

    def word(self, target: str) -> str:
        """The word for a label, or the text itself."""
        return dict(self.words).get(target, target)


class TextToText(Head):
    config: TextToTextConfig

    def __init__(self, config: TextToTextConfig, model: EncoderConfig) -> None:
        super().__init__(config, model)
        self.denoising = Denoising(DenoisingConfig())  # it has no weights: words are scored by the encoder's vectors
        self._encoder: tuple[EncoderDecoder, ...] = ()  # in a tuple, so that its weights are not counted as the head's

    def tie(self, encoder: Encoder) -> None:
        assert isinstance(encoder, EncoderDecoder), "build refuses others"
        self._encoder = (encoder,)

    def parts(self, encoder: Encoder) -> list[tuple[int, nn.Module]]:
        """Both sides are trained."""
        return self._encoder[0].both_sides()

    def rows(self, tokens: TokenBatch[Ints], *, learning: bool = False) -> Ints:
        """Rows of the input; generated text is not scored from frozen features."""
        return np.asarray(tokens.lengths, np.int64)

    def features(self, states: Tensor, batch: TrainingBatch[Tensor], *, learning: bool = False) -> Tensor:
        """The decoder's states from which each token is predicted, from the encoder's: [N, D] → [M, D]."""
        encoder, targets = self._encoder[0], batch.targets[DenoisedText]
        inputs_M = shift_right(targets.ids, targets.lengths, encoder.config.start)
        return encoder.decode(inputs_M, targets.lengths, EncoderOutput(states, batch.tokens.lengths))

    def size(self, batch: TrainingBatch[Any]) -> float:
        """Number of output tokens."""
        return float(batch.targets[DenoisedText].count)

    def forward(self, x: Tensor, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        return self.denoising.loss(x, batch, self._encoder[0], accuracy=accuracy)
