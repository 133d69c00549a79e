"""One file per pretraining objective: the targets it needs, its head, its loss."""

from larvatus.models.objectives.causal_lm import CausalLM, CausalLMConfig
from larvatus.models.objectives.denoising import Denoising, DenoisingConfig
from larvatus.models.objectives.linear_cross_entropy import CustomForward, Loss, WordObjective, weighted_sum
from larvatus.models.objectives.masked_lm import MaskedLM, MaskedLMConfig
from larvatus.models.objectives.permutation_lm import PermutationLM, PermutationLMConfig
from larvatus.models.objectives.replaced_tokens import ReplacedTokensConfig, ReplacedTokensHead
from larvatus.models.objectives.sentence_pairs import (
    NextSentence,
    NextSentenceConfig,
    SentenceOrder,
    SentenceOrderConfig,
)
from larvatus.models.objectives.span_boundary import SpanBoundary, SpanBoundaryConfig
from larvatus.models.objectives.word_lm import BackwardLMConfig, ForwardLMConfig, WordLM

__all__ = [
    "BackwardLMConfig",
    "CausalLM",
    "CausalLMConfig",
    "CustomForward",
    "Denoising",
    "DenoisingConfig",
    "ForwardLMConfig",
    "Loss",
    "MaskedLM",
    "MaskedLMConfig",
    "NextSentence",
    "NextSentenceConfig",
    "PermutationLM",
    "PermutationLMConfig",
    "ReplacedTokensConfig",
    "ReplacedTokensHead",
    "SentenceOrder",
    "SentenceOrderConfig",
    "SpanBoundary",
    "SpanBoundaryConfig",
    "WordLM",
    "WordObjective",
    "weighted_sum",
]
