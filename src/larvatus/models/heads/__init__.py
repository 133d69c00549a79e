"""Task heads on an encoder, which fine-tuning trains, and the list of their configs.

    HEAD_TYPES["tagging"]            # TaggingConfig

The tag of a config is its name in a model directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from larvatus.models.heads.answering import QuestionAnswering, QuestionAnsweringConfig
from larvatus.models.heads.classification import Classification, ClassificationConfig
from larvatus.models.heads.coreference import CoreferenceConfig
from larvatus.models.heads.embedding import EmbeddingConfig, LateInteractionConfig
from larvatus.models.heads.head import HeadConfig
from larvatus.models.heads.parsing import ParsingConfig
from larvatus.models.heads.roles import RolesConfig
from larvatus.models.heads.sequence_score import MultipleChoiceConfig, RerankingConfig
from larvatus.models.heads.spans import Spans, SpansConfig
from larvatus.models.heads.sparse import SparseConfig
from larvatus.models.heads.tagging import Tagging, TaggingConfig
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.models.heads.writing import TextToTextConfig

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


HEAD_CONFIGS: tuple[type[HeadConfig], ...] = (
    ClassificationConfig,
    VerbaliserConfig,
    TaggingConfig,
    QuestionAnsweringConfig,
    SpansConfig,
    ParsingConfig,
    RolesConfig,
    TextToTextConfig,
    MultipleChoiceConfig,
    EmbeddingConfig,
    RerankingConfig,
    LateInteractionConfig,
    SparseConfig,
    CoreferenceConfig,
)
HEAD_TYPES: dict[str, type[HeadConfig]] = {str(config.__struct_config__.tag): config for config in HEAD_CONFIGS}
"""Head configs by their tags."""
if TYPE_CHECKING:
    AnyHeadConfig = HeadConfig
else:
    AnyHeadConfig = Union[HEAD_CONFIGS]  # noqa: UP007  # what files are read as, by the tag
