"""The two language models of ELMo (Peters et al. 2018, §3.1): the next word from those before, and the previous word.

    L = −Σ_k  log p(t_k | t_1 … t_{k−1})  +  log p(t_k | t_{k+1} … t_n)

forward-lm reads the half of a word's vector that has seen the words to the left, backward-lm the other. Both share one
softmax over words, which is the encoder's (`models/nn/elmo.py`). With `samples` its normaliser is estimated in training
from a sample of words; evaluation is always exact:

    Z = Σ_v exp s_v  ≈  Σ_{v < H} exp s_v  +  exp s_t  +  1/K Σ_{j = 1 … K, n_j ≠ t}  exp s_{n_j} / q(n_j)

The first H rows, which hold the commonest marks, are always included, and so is the target t; K words n_j are sampled
from q for the whole batch (importance sampling, Bengio & Senécal 2003; Jean et al. 2015). The estimate of Z is
unbiased. q falls with the rank of a word, as in Zipf's law, and is the log-uniform one of released code:

    q(H + r) = log((r + 2) / (r + 1)) / log(V − H + 1)            r = 0 … V − H − 1

Random numbers come from torch's generator, as for dropout. M predictions, P size of a direction, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import TokenTargets
from larvatus.core.ranges import SizeOrNone, Weight, check_ranges
from larvatus.core.settings import Settings
from larvatus.data.corruption import CorruptionConfig
from larvatus.data.text.vocabularies.characters import WORDS, NextWords, PreviousWords
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.elmo import CHARACTERS_PER_WORD, Elmo, ElmoConfig
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import Loss, word_loss


def log_uniform(count: int, ranks: int, device: torch.device) -> Tensor:
    """Ranks sampled with replacement: [K]. P(r) = log((r + 2) / (r + 1)) / log(ranks + 1)."""
    u_K = torch.rand(count, device=device, dtype=torch.float64)
    return (torch.exp(u_K * math.log(ranks + 1)).long() - 1).clamp(0, ranks - 1)


def log_normalisers(
    h_MP: Tensor, w_VP: Tensor, b_V: Tensor, ids_M: Tensor, *, head: int, samples: int
) -> tuple[Tensor, Tensor]:
    """The target's score, and the logarithm of the estimate of Z: [M] each."""
    ranks = len(w_VP) - head
    drawn_K = log_uniform(samples, ranks, w_VP.device)
    log_q_K = ((drawn_K + 2).log() - (drawn_K + 1).log()).log() - math.log(math.log(ranks + 1))
    words_K = drawn_K + head
    target_M = (h_MP * w_VP.index_select(0, ids_M)).sum(-1) + b_V.index_select(0, ids_M)
    first_MH = F.linear(h_MP, w_VP[:head], b_V[:head])
    drawn_MK = F.linear(h_MP, w_VP.index_select(0, words_K), b_V.index_select(0, words_K))
    wide = torch.promote_types(first_MH.dtype, torch.float32)
    drawn_MK = drawn_MK.to(wide) - (log_q_K + math.log(samples)).to(wide)
    drawn_MK = drawn_MK.masked_fill(words_K == ids_M[:, None], -torch.inf)
    beyond_M1 = target_M.to(wide).masked_fill(ids_M < head, -torch.inf)[:, None]  # others are in the head already
    log_z_M = torch.logsumexp(torch.cat([first_MH.to(wide), beyond_M1, drawn_MK], dim=-1), dim=-1)
    return target_M.to(wide), log_z_M


def sampled_cross_entropy(h_MP: Tensor, w_VP: Tensor, b_V: Tensor, ids_M: Tensor, *, head: int, samples: int) -> Tensor:
    """Sum of the losses, estimated; labels of −100 are ignored."""
    target_M, log_z_M = log_normalisers(h_MP, w_VP, b_V, ids_M.clamp(min=0), head=head, samples=samples)
    return (log_z_M - target_M).masked_fill(ids_M == IGNORE, 0.0).sum()


class WordLMConfig(Settings):
    """Settings of both."""

    samples: SizeOrNone = 0
    """Words sampled to estimate the softmax of a training step (ELMo: 8,192); 0: all words, exactly."""
    weight: Weight = 1.0
    """Share of this objective in the loss."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.__struct_config__.tag}: ", RecipeError)

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """A word has a few characters."""
        return 1 / CHARACTERS_PER_WORD

    def check(self, model: EncoderConfig) -> None:
        """Refuse an encoder without two directions."""
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
        if not (self.training and 0 < samples < len(weight) - WORDS):
            return word_loss(h_MP, weight, bias, targets.ids, weight=self.config.weight, accuracy=accuracy)
        total = sampled_cross_entropy(h_MP, weight, bias, targets.ids, head=WORDS, samples=samples)
        return Loss(total=total, count=(targets.ids != IGNORE).sum(), weight=self.config.weight)
