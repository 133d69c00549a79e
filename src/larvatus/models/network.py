"""An encoder with the objectives it is trained on.

    tiny = TransformerConfig(layers=2, hidden=128, heads=2)
    model = Network.build(tiny, [MaskedLMConfig(), NextSentenceConfig()], 30522, seed=1)
    losses = model(batch)                         # {"masked-lm": Loss, "next-sentence": Loss}
    total, losses = model.loss(batch, counts)     # one number to call backward on

With replaced-tokens, masked-lm belongs to a generator, which shares the model's embeddings:

    batch → generator → masked-lm loss, samples → batch with samples → encoder → the other losses

To add an objective, write a file in `objectives/` and add its line to `ObjectiveConfig`.

`quantise_network` makes a loaded network an int8 one for inference: it replaces the linear layers of blocks, and the
dense layers of heads. Embeddings, norms, attention between projections, and the last layer of a head (classes, words of
the vocabulary) stay float32: they decide the answer, and take little of the time.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Self, cast

import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import DataError, RecipeError
from larvatus.models.heads import AnyHeadConfig
from larvatus.models.heads.head import Head, Trunk
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.cross_attention import CrossAttention
from larvatus.models.nn.attention.relative_attention import RelativeAttention
from larvatus.models.nn.block_stack import Block
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.feedforward import FeedForward
from larvatus.models.nn.initialise import empty_weights, initialise
from larvatus.models.nn.linear import ROWS, Int8Linear, check_int8
from larvatus.models.nn.transformer import Embeddings
from larvatus.models.objectives import (
    BackwardLMConfig,
    CausalLM,
    CausalLMConfig,
    CustomForward,
    Denoising,
    DenoisingConfig,
    ForwardLMConfig,
    Loss,
    MaskedLM,
    MaskedLMConfig,
    NextSentence,
    NextSentenceConfig,
    PermutationLM,
    PermutationLMConfig,
    ReplacedTokensConfig,
    ReplacedTokensHead,
    SentenceOrder,
    SentenceOrderConfig,
    SpanBoundary,
    SpanBoundaryConfig,
    WordLM,
    weighted_sum,
)
from larvatus.models.objectives.replaced_tokens import replace_tokens

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
"""Objectives whose heads predict a token from the text on both sides of it."""


def tag(config: Struct) -> str:
    """The name of an objective in recipes, losses and weights: ``masked-lm``."""
    return str(config.__struct_config__.tag)


def generator_config(model: EncoderConfig, objectives: Sequence[ObjectiveConfig]) -> EncoderConfig | None:
    """The generator that the objectives need; None if they need none."""
    widths = [config.generator for config in objectives if isinstance(config, ReplacedTokensConfig)]
    if not any(widths):
        return None
    if not any(isinstance(config, MaskedLMConfig) for config in objectives):
        raise RecipeError(
            "replaced-tokens has a generator, which is trained by masked-lm, but there is none; add [[objectives]] "
            'with type = "masked-lm"'
        )
    return model.narrowed(widths[0])


class Network(nn.Module):
    encoder: Encoder
    generator: Network | None
    """Fills the blanks of the batch before the encoder reads it (ELECTRA); it shares the encoder's embeddings."""

    def __init__(self, model: EncoderConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int) -> None:
        """Weights are torch's: `build` initialises them as published, loading replaces them."""
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
                objective.join(self.objectives)
        self.generator = None
        if narrow is not None:
            self.attach(Network(narrow, [config for config in objectives if config not in of_encoder], vocabulary))

    def attach(self, generator: Network) -> None:
        """Set the generator, and share the embeddings with it."""
        generator.encoder.share_embeddings(self.encoder)
        self.generator = generator

    @classmethod
    def empty(cls, model: EncoderConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int) -> Network:
        """On CPU with memory but no values, without any random numbers: for weights that are loaded."""
        with empty_weights():
            shell = cls(model, objectives, vocabulary)
        return shell.to_empty(device="cpu")

    @classmethod
    def build(cls, model: EncoderConfig, objectives: Sequence[ObjectiveConfig], vocabulary: int, seed: int) -> Network:
        """Initialised as published; equal seeds give equal numbers on every machine."""
        built = cls.empty(model, objectives, vocabulary)
        initialise(built, seed=seed, std=model.init)
        return built

    @property
    def heads(self) -> Mapping[str, Objective]:
        """The objectives with their types, including the generator's."""
        objectives = cast(Mapping[str, Objective], self.objectives)
        return {**self.generator.heads, **objectives} if self.generator is not None else objectives

    @property
    def filler(self) -> Network | None:
        """The part that can fill blanks: with a masked-lm or permutation-lm head."""
        return self if FILL_OBJECTIVES & self.objectives.keys() else self.generator

    def view(self, *, encoder: Encoder | None = None, heads: Collection[str] | None = None) -> Self:
        """The same weights with another encoder in front of them, or with only some of the objectives."""
        view = copy.copy(self)
        parts: dict[str, Any] = view.__dict__
        parts["_modules"] = dict(self._modules)  # the weights are shared; which parts are used is not
        view.encoder = self.encoder if encoder is None else encoder
        if heads is not None:
            view.objectives = nn.ModuleDict({name: self.objectives[name] for name in heads})
        return view

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
        """Each objective with the input of its loss: vectors of the last layer, of all layers, or its own states.

        The encoder runs once for all that need its layers, and not at all if none does.
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
        """The masked-lm loss, and a sample for each hidden token, by the batch's random bits."""
        head = self.objectives["masked-lm"]
        assert isinstance(head, MaskedLM)
        return head.loss_and_samples(self.encoder(batch.tokens, limit=limit), batch, self.encoder, accuracy=accuracy)

    def loss(
        self, batch: TrainingBatch[Tensor], counts: Mapping[str, float], *, limit: int | None = None
    ) -> tuple[Tensor, dict[str, Loss]]:
        """The number to call `backward` on for one microbatch, if its whole step makes `counts` predictions."""
        losses = self(batch, limit=limit)
        return weighted_sum(losses, counts), losses


Quantise = Literal["int8"]
INT8_LAYERS: dict[type[nn.Module], tuple[str, ...]] = {
    Attention: ("qkv", "out"),
    RelativeAttention: ("out",),  # its other matrices are used in parts
    CrossAttention: ("q", "kv", "out"),
    FeedForward: ("up", "down"),
    Embeddings: ("project",),
    MaskedLM: ("dense",),
    Trunk: ("dense",),
}
"""Names of linear layers that are only ever called, by the class of their module."""


def int8_weights(network: Network) -> int:
    """Number of quantised weights."""
    return sum(module.weights for module in network.modules() if isinstance(module, Int8Linear))


def quantise_network(network: Network) -> None:
    """Replace weights by int8; the network then runs only on a CPU."""
    check_int8()
    made: dict[nn.Module, Int8Linear] = {}
    for module in list(network.modules()):
        if isinstance(module, Block):
            module.rows_at_once = ROWS
        for name in (name for kind, names in INT8_LAYERS.items() if isinstance(module, kind) for name in names):
            linear = getattr(module, name)
            if isinstance(linear, nn.Linear):
                if linear not in made:  # layers may share one
                    made[linear] = Int8Linear(linear)
                setattr(module, name, made[linear])
