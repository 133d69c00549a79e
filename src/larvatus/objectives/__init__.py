"""One file per learning objective of pretraining: what it needs of a batch, its head, its loss."""

from larvatus.objectives.loss import Loss, PredictsWords, ReadsBatch, combine
from larvatus.objectives.masked_lm import MaskedLM, MaskedLMConfig
from larvatus.objectives.next_sentence import NextSentence, NextSentenceConfig
from larvatus.objectives.replaced_tokens import ReplacedTokensConfig, ReplacedTokensHead
from larvatus.objectives.sentence_order import SentenceOrder, SentenceOrderConfig
from larvatus.objectives.span_boundary import SpanBoundary, SpanBoundaryConfig

__all__ = [
    "Loss",
    "MaskedLM",
    "MaskedLMConfig",
    "NextSentence",
    "NextSentenceConfig",
    "PredictsWords",
    "ReadsBatch",
    "ReplacedTokensConfig",
    "ReplacedTokensHead",
    "SentenceOrder",
    "SentenceOrderConfig",
    "SpanBoundary",
    "SpanBoundaryConfig",
    "combine",
]
