"""One file per learning objective: what it needs of a batch, its head, its loss."""

from larvatus.objectives.answering import Answering, AnsweringConfig
from larvatus.objectives.classification import Classification, ClassificationConfig
from larvatus.objectives.loss import Loss, combine
from larvatus.objectives.masked_lm import MaskedLM, MaskedLMConfig
from larvatus.objectives.next_sentence import NextSentence, NextSentenceConfig
from larvatus.objectives.pretraining import ObjectiveConfig, Pretraining, generator_of, tag
from larvatus.objectives.replaced_tokens import ReplacedTokensConfig, ReplacedTokensHead
from larvatus.objectives.sentence_order import SentenceOrder, SentenceOrderConfig
from larvatus.objectives.span_boundary import SpanBoundary, SpanBoundaryConfig
from larvatus.objectives.spans import Spans, SpansConfig
from larvatus.objectives.tagging import Tagging, TaggingConfig

__all__ = [
    "Answering",
    "AnsweringConfig",
    "Classification",
    "ClassificationConfig",
    "Loss",
    "MaskedLM",
    "MaskedLMConfig",
    "NextSentence",
    "NextSentenceConfig",
    "ObjectiveConfig",
    "Pretraining",
    "ReplacedTokensConfig",
    "ReplacedTokensHead",
    "SentenceOrder",
    "SentenceOrderConfig",
    "SpanBoundary",
    "SpanBoundaryConfig",
    "Spans",
    "SpansConfig",
    "Tagging",
    "TaggingConfig",
    "combine",
    "generator_of",
    "tag",
]
