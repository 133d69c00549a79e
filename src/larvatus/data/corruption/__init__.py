"""Corruption: what training hides of the text. Pure functions of arrays and a seed; no torch."""

from larvatus.data.corruption.corruption import (
    Corruption,
    CorruptionConfig,
    at_place,
    check_mask,
    corrupt,
    packed_length,
)
from larvatus.data.corruption.course import RunPosition
from larvatus.data.corruption.masking import MaskingConfig, SampledConfig
from larvatus.data.corruption.n_grams import NGramsConfig
from larvatus.data.corruption.noise import NoiseConfig
from larvatus.data.corruption.permutation import PermutationConfig
from larvatus.data.corruption.replacement import MaskVocabulary
from larvatus.data.corruption.sentinels import SentinelsConfig
from larvatus.data.corruption.spans import SpanCorruptionConfig
from larvatus.data.corruption.whole_words import WholeWordConfig

__all__ = [
    "Corruption",
    "CorruptionConfig",
    "MaskVocabulary",
    "MaskingConfig",
    "NGramsConfig",
    "NoiseConfig",
    "PermutationConfig",
    "RunPosition",
    "SampledConfig",
    "SentinelsConfig",
    "SpanCorruptionConfig",
    "WholeWordConfig",
    "at_place",
    "check_mask",
    "corrupt",
    "packed_length",
]
