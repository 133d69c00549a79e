"""Heads of tasks on an encoder: what fine-tuning trains."""

from larvatus.heads.answering import Answering, AnsweringConfig
from larvatus.heads.classification import Classification, ClassificationConfig
from larvatus.heads.spans import Spans, SpansConfig
from larvatus.heads.tagging import Tagging, TaggingConfig

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
