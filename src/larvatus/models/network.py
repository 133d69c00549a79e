"""An encoder with the objectives it is trained on.

    tiny = TransformerConfig(layers=2, hidden=128, heads=2)
    model = Network.build(tiny, [MaskedLMConfig(), NextSentenceConfig()], 30522, seed=1)
    losses = model(batch)                         # {"masked-lm": Loss, "next-sentence": Loss}
    total, losses = model.loss(batch, counts)     # one number to call backward on

With replaced-tokens, masked-lm belongs to a generator of the model's own, which shares its embeddings:

    batch → generator → masked-lm loss, samples → batch with samples → encoder → the other losses

Adding an objective means one file beside this one and its line in `ObjectiveConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import DataError, RecipeError
from larvatus.models.heads.head import Head
from larvatus.models.heads.registry import AnyHeadConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.initialise import empty_weights, initialise
from larvatus.models.objectives.causal_lm import CausalLM, CausalLMConfig
from larvatus.models.objectives.denoising import Denoising, DenoisingConfig
from larvatus.models.objectives.loss import CustomForward, Loss, weighted_sum
from larvatus.models.objectives.masked_lm import MaskedLM, MaskedLMConfig
from larvatus.models.objectives.permutation_lm import PermutationLM, PermutationLMConfig
from larvatus.models.objectives.replaced_tokens import ReplacedTokensConfig, ReplacedTokensHead, replace_tokens
from larvatus.models.objectives.sentence_pairs import (
    NextSentence,
    NextSentenceConfig,
    SentenceOrder,
    SentenceOrderConfig,
)
from larvatus.models.objectives.span_boundary import SpanBoundary, SpanBoundaryConfig
from larvatus.models.objectives.word_lm import BackwardLMConfig, ForwardLMConfig, WordLM

ObjectiveConfig = (
    MaskedLMConfig
    | NextSentenceConfig
    | SpanBoundaryConfig
    | SentenceOrderConfig
    | ReplacedTokensConfig
    | CausalLMConfig
    | PermutationLMConfig
    | DenoisingConfig
    | ForwardLMConfig
    | BackwardLMConfig
    | AnyHeadConfig
)
Objective = (
    MaskedLM
    | NextSentence
    | SpanBoundary
    | SentenceOrder
    | ReplacedTokensHead
    | CausalLM
    | PermutationLM
    | Denoising
    | WordLM
    | Head
)  # fmt: skip


FILL_OBJECTIVES = frozenset({"masked-lm", "permutation-lm"})
"""Objectives whose heads can say what stands at a place from the text on both sides of it."""


def tag(config: Struct) -> str:
    """The name an objective has in recipes, losses and weights: ``masked-lm``."""
    return str(config.__struct_config__.tag)


def generator_config(model: EncoderConfig, objectives: Sequence[ObjectiveConfig]) -> EncoderConfig | None:
    """The generator that the objectives ask for; None where they need none."""
    widths = [config.generator for config in objectives if isinstance(config, ReplacedTokensConfig)]
    if not any(widths):
        return None
    if not any(isinstance(config, MaskedLMConfig) for config in objectives):
        raise RecipeError(
            "replaced-tokens has a generator, which learns by masked-lm, but there is none; "
            'add [[objectives]] with type = "masked-lm"'
        )
    return model.narrowed(widths[0])


class Network(nn.Module):
    encoder: Encoder
    generator: Network | None
    """Fills the blanks of the batch before the encoder reads it (ELECTRA); its embeddings are the encoder's."""

    def __init__(self, model: EncoderConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int) -> None:
        """Weights as torch makes them: `build` initialises them as published, loading replaces them."""
        super().__init__()
        names = [tag(config) for config in objectives]
        if len(set(names)) < len(names):
            raise RecipeError(f"an objective is named twice: {', '.join(names)}; name each once, with a weight")
        narrow = generator_config(model, objectives)
        of_encoder = [config for config in objectives if narrow is None or not isinstance(config, MaskedLMConfig)]
        self.encoder = model.build(vocabulary)
        self.objectives = nn.ModuleDict({tag(config): config.build(model, vocabulary) for config in of_encoder})
        for objective in self.objectives.values():
            if isinstance(objective, Head):
                objective.tie(self.encoder)
        self.generator = None
        if narrow is not None:
            self.attach(Network(narrow, [config for config in objectives if config not in of_encoder], vocabulary))

    def attach(self, generator: Network) -> None:
        """Have a generator, and share the embeddings with it."""
        generator.encoder.share_embeddings(self.encoder)
        self.generator = generator

    @classmethod
    def empty(cls, model: EncoderConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int) -> Network:
        """On CPU with memory but no values, without a single random draw: for weights that come from elsewhere."""
        with empty_weights():
            shell = cls(model, objectives, vocabulary)
        return shell.to_empty(device="cpu")

    @classmethod
    def build(cls, model: EncoderConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int, seed: int) -> Network:
        """Initialised as published; the same numbers for the same seed, on every machine."""
        built = cls.empty(model, objectives, vocabulary)
        initialise(built, seed=seed, std=model.init)
        return built

    @property
    def heads(self) -> Mapping[str, Objective]:
        """The objectives with their types, the generator's too."""
        objectives = cast(Mapping[str, Objective], self.objectives)
        return {**self.generator.heads, **objectives} if self.generator is not None else objectives

    @property
    def filler(self) -> Network | None:
        """What can fill blanks: the part with the masked-lm head, or with permutation-lm's."""
        return self if FILL_OBJECTIVES & self.objectives.keys() else self.generator

    def own_state(self) -> dict[str, Tensor]:
        """The weights without the generator's."""
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("generator.")}

    def forward(
        self, batch: TrainingBatch[Tensor], *, accuracy: bool = False, limit: int | None = None
    ) -> dict[str, Loss]:
        """Losses by objective; `limit` as in `Encoder`."""
        for name, objective in self.heads.items():
            if objective.needs not in batch.targets:
                raise DataError(
                    f"{name} needs {objective.needs.what}, but the batch has none; check packing and corruption"
                )
        losses = {}
        if self.generator is not None:
            losses["masked-lm"], samples_M = self.generator.sample(batch, accuracy=accuracy, limit=limit)
            batch = replace_tokens(batch, samples_M)
        for name, (objective, z) in self._read(batch, limit=limit).items():
            losses[name] = objective.loss(z, batch, self.encoder, accuracy=accuracy)
        return losses

    def _read(self, batch: TrainingBatch[Tensor], *, limit: int | None) -> dict[str, tuple[Objective, Tensor]]:
        """Each objective with what its loss is computed from: vectors of the last layer, or of all, or its own reading.

        The encoder runs once for all that want its layers, and not at all where none does.
        """
        objectives = cast(Mapping[str, Objective], self.objectives)
        plain = [objective for objective in objectives.values() if not isinstance(objective, CustomForward)]
        mixes = any(getattr(objective, "mix", None) is not None for objective in plain)
        states: Any = None
        if plain:
            states = self.encoder(batch.tokens, layers=range(self.encoder.depth + 1) if mixes else None, limit=limit)
        read: dict[str, tuple[Objective, Tensor]] = {}
        for name, objective in objectives.items():
            if isinstance(objective, CustomForward):
                z = objective.read(batch, self.encoder, limit=limit)
            elif getattr(objective, "mix", None) is not None:
                z = torch.stack(states)
            else:
                z = states[-1] if mixes else states
            read[name] = (objective, z)
        return read

    def sample(
        self, batch: TrainingBatch[Tensor], *, accuracy: bool = False, limit: int | None = None
    ) -> tuple[Loss, Tensor]:
        """The masked-lm loss, and a sample for each hidden token, as the batch's draws decide."""
        head = self.objectives["masked-lm"]
        assert isinstance(head, MaskedLM)
        return head.loss_and_samples(self.encoder(batch.tokens, limit=limit), batch, self.encoder, accuracy=accuracy)

    def loss(
        self, batch: TrainingBatch[Tensor], counts: Mapping[str, float], *, limit: int | None = None
    ) -> tuple[Tensor, dict[str, Loss]]:
        """What to call `backward` on for one microbatch, when its whole step makes `counts` predictions."""
        losses = self(batch, limit=limit)
        return weighted_sum(losses, counts), losses
