"""Heads of tasks on an encoder: what fine-tuning trains."""

from larvatus.models.heads.answering import Answering, AnsweringConfig
from larvatus.models.heads.classification import Classification, ClassificationConfig
from larvatus.models.heads.spans import Spans, SpansConfig
from larvatus.models.heads.tagging import Tagging, TaggingConfig

__all__ = [
    "Answering",
    "AnsweringConfig",
    "Classification",
    "ClassificationConfig",
    "Spans",
    "SpansConfig",
    "Tagging",
    "TaggingConfig",
]
