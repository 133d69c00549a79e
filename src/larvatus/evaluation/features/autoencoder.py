"""Top-k sparse autoencoder (Gao et al. 2024, *Scaling and evaluating sparse autoencoders*).

    z = TopK(W_enc (x − c) + b)             all but the k largest of F features are 0, and those are not negative
    x̂ = W_dec z + c                         c: the mean state; rows of W_dec have length 1
    L = |x − x̂|² / |x − c|²  +  α |e − ê|² / |e|²             e = x − x̂,  ê = W_dec z_dead

W_enc starts as the transpose of W_dec. A feature that has not fired for `dead_after` tokens is dead. The second term
lets the best of the dead features explain the error, so that they find something to do.

    trainer = AutoencoderTrainer.of(states_ND, FeatureSettings(k=32))
    trainer.train(states_ND)                                # shuffled batches, `epochs` passes
    values_NK, features_NK = trainer.autoencoder.encode(states_ND)

N states, D their size, F features, K active features of a state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.errors import NumericsError, UsageError
from larvatus.core.ranges import Count, Instances, LearningRate, Size, SizeOrNone, Weight, whole
from larvatus.core.rng import stream
from larvatus.core.settings import SeededSettings

ROWS = 4_096
"""States that are encoded at once."""
CLIP = 1.0
"""Largest norm of a gradient."""


class FeatureSettings(SeededSettings):
    """Size and training of an autoencoder, and what is kept of each feature."""

    size: SizeOrNone = 0
    """Number of features; 0: four times the size of a state."""
    k: Size = 32
    """Features that are active at once."""
    tokens: Annotated[int, whole(1_000, 10**9)] = 200_000
    """Tokens of text to train on, at most."""
    epochs: Count = 4
    """Passes over the states of each buffer."""
    buffer: Annotated[int, whole(1_000, 10**7)] = 65_536
    """States held in memory, which are shuffled together."""
    batch: Count = 1_024
    """States of a step."""
    learning_rate: LearningRate = 1e-3
    """Learning rate of Adam."""
    auxiliary: Weight = 1 / 32
    """Weight of the loss of dead features."""
    dead_after: Count = 50_000
    """States without firing after which a feature is dead."""
    contexts: Instances = 8
    """Strongest contexts that are kept of each feature."""


class SparseAutoencoder(nn.Module):
    """The encoder and decoder of features. States are divided by `scale` first, their root mean square."""

    def __init__(self, centre_D: Tensor, scale: Tensor, decoder_FD: Tensor, *, k: int) -> None:
        super().__init__()
        self.register_buffer("centre", centre_D)
        self.register_buffer("scale", scale)
        self.decoder = nn.Parameter(decoder_FD)
        self.encoder = nn.Parameter(decoder_FD.clone())
        self.bias = nn.Parameter(torch.zeros(len(decoder_FD)))
        self.k = k

    centre: Tensor
    scale: Tensor

    @property
    def size(self) -> int:
        """F, the number of features."""
        return len(self.decoder)

    def normalise(self, x_ND: Tensor) -> Tensor:
        """States as they are encoded."""
        return (x_ND - self.centre) / self.scale

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values [N, K] and features [N, K] of normalised states, and all activations [N, F] before TopK."""
        a_NF = F.linear(x_ND, self.encoder, self.bias)
        values_NK, features_NK = a_NF.topk(self.k, dim=-1)
        return values_NK.relu(), features_NK, a_NF

    def decode(self, values_NK: Tensor, features_NK: Tensor) -> Tensor:
        """Normalised states [N, D]."""
        return F.embedding_bag(features_NK, self.decoder, per_sample_weights=values_NK, mode="sum")

    @torch.inference_mode()
    def encode(self, states_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Values [N, K] and features [N, K] of states; a value of 0 means that nothing more is active."""
        parts = [self(self.normalise(part))[:2] for part in states_ND.split(ROWS)]
        return torch.cat([values for values, _ in parts]), torch.cat([features for _, features in parts])

    @torch.no_grad()
    def normalise_decoder(self) -> None:
        """Rows of length 1: else the values could shrink while the rows grow."""
        self.decoder.div_(self.decoder.norm(dim=1, keepdim=True).clamp(min=1e-8))


@dataclass(eq=False)
class AutoencoderTrainer:
    """An autoencoder in training. Everything random is a function of the seed and the number of the buffer."""

    autoencoder: SparseAutoencoder
    settings: FeatureSettings
    states: int = 0
    """States seen, repeated ones too."""
    _buffers: int = 0
    _fired_F: Tensor = field(init=False)
    """When each feature fired last."""
    _adam: torch.optim.Adam = field(init=False)

    def __post_init__(self) -> None:
        self._fired_F = torch.zeros(self.autoencoder.size, dtype=torch.int64)
        self._adam = torch.optim.Adam(self.autoencoder.parameters(), lr=self.settings.learning_rate, eps=6.25e-10)

    @classmethod
    def of(cls, states_ND: Tensor, settings: FeatureSettings) -> Self:
        """A new one; the first states give centre and scale."""
        width = states_ND.shape[1]
        size = settings.size or 4 * width
        if settings.k > size:
            raise UsageError(f"--k {settings.k} features cannot be active of {size}; lower --k or raise --size")
        centre_D = states_ND.double().mean(0)
        scale = (states_ND - centre_D).square().mean().sqrt()
        if not bool(torch.isfinite(scale)) or float(scale) == 0:
            raise NumericsError("the states of this layer are all equal or not finite, so there is nothing to explain")
        drawn = torch.from_numpy(stream(settings.seed, "features").standard_normal((size, width))).float()
        made = SparseAutoencoder(centre_D.float(), scale.float(), drawn, k=settings.k)
        made.normalise_decoder()
        with torch.no_grad():
            made.encoder.copy_(made.decoder)
        return cls(made, settings)

    def train(self, states_ND: Tensor) -> None:
        """Train on a buffer of states: `epochs` shuffled passes."""
        x_ND = self.autoencoder.normalise(states_ND)
        for epoch in range(self.settings.epochs):
            order = stream(self.settings.seed, "feature-states", epoch, self._buffers).permutation(len(x_ND))
            for rows in torch.from_numpy(order).split(self.settings.batch):
                self.step(x_ND[rows])
        self._buffers += 1

    def step(self, x_ND: Tensor) -> float:
        """One update on normalised states; returns the loss."""
        made = self.autoencoder
        values_NK, features_NK, a_NF = made(x_ND)
        error_ND = x_ND - made.decode(values_NK, features_NK)
        loss = error_ND.square().sum() / x_ND.square().sum().clamp(min=1e-12)
        self.states += len(x_ND)
        self._fired_F[features_NK[values_NK > 0].unique()] = self.states
        dead_F = self.dead
        if self.settings.auxiliary and (count := int(dead_F.sum())):
            few = min(count, max(1, x_ND.shape[1] // 2))
            best_NK, which_NK = a_NF.masked_fill(~dead_F, -torch.inf).topk(few, dim=-1)
            target_ND = error_ND.detach()
            missed_ND = target_ND - made.decode(best_NK.relu(), which_NK)
            loss = loss + self.settings.auxiliary * missed_ND.square().sum() / target_ND.square().sum().clamp(min=1e-12)
        self._adam.zero_grad()
        loss.backward()
        gradient_FD = made.decoder.grad
        assert gradient_FD is not None
        with torch.no_grad():  # what would only change the length of a row
            gradient_FD -= (gradient_FD * made.decoder).sum(1, keepdim=True) * made.decoder
        torch.nn.utils.clip_grad_norm_(made.parameters(), CLIP)
        self._adam.step()
        made.normalise_decoder()
        value = float(loss.detach())
        if value != value:
            raise NumericsError("the loss of the autoencoder is NaN; lower --learning-rate")
        return value

    @property
    def dead(self) -> Tensor:
        """[F] features that have not fired for `dead_after` states."""
        return self._fired_F <= self.states - self.settings.dead_after
