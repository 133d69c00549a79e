"""Heads of tasks on an encoder: what fine-tuning trains."""

from larvatus.models.heads.answering import QuestionAnswering, QuestionAnsweringConfig
from larvatus.models.heads.classification import Classification, ClassificationConfig
from larvatus.models.heads.spans import Spans, SpansConfig
from larvatus.models.heads.tagging import Tagging, TaggingConfig

__all__ = [
    "Classification",
    "ClassificationConfig",
    "QuestionAnswering",
    "QuestionAnsweringConfig",
    "Spans",
    "SpansConfig",
    "Tagging",
    "TaggingConfig",
]
