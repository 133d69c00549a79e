"""One file per learning objective of pretraining: what it needs of a batch, its head, its loss."""

from larvatus.objectives.causal_lm import CausalLM, CausalLMConfig
from larvatus.objectives.denoising import Denoising, DenoisingConfig
from larvatus.objectives.loss import Loss, PredictsWords, ReadsBatch, combine
from larvatus.objectives.masked_lm import MaskedLM, MaskedLMConfig
from larvatus.objectives.next_sentence import NextSentence, NextSentenceConfig
from larvatus.objectives.permutation_lm import PermutationLM, PermutationLMConfig
from larvatus.objectives.replaced_tokens import ReplacedTokensConfig, ReplacedTokensHead
from larvatus.objectives.sentence_order import SentenceOrder, SentenceOrderConfig
from larvatus.objectives.span_boundary import SpanBoundary, SpanBoundaryConfig
from larvatus.objectives.word_lm import BackwardLMConfig, ForwardLMConfig, WordLM

__all__ = [
    "BackwardLMConfig",
    "CausalLM",
    "CausalLMConfig",
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
    "PredictsWords",
    "ReadsBatch",
    "ReplacedTokensConfig",
    "ReplacedTokensHead",
    "SentenceOrder",
    "SentenceOrderConfig",
    "SpanBoundary",
    "SpanBoundaryConfig",
    "WordLM",
    "combine",
]
