"""Corruption: what training hides of the text. Pure functions of arrays and a seed; no torch."""

from larvatus.corrupt.corruption import Corruption, CorruptionConfig, at_place, check_mask, corrupt, packed_length
from larvatus.corrupt.course import Course
from larvatus.corrupt.masking import MaskingConfig
from larvatus.corrupt.n_grams import NGramsConfig
from larvatus.corrupt.noise import NoiseConfig
from larvatus.corrupt.permutation import PermutationConfig
from larvatus.corrupt.replacement import MaskVocabulary
from larvatus.corrupt.sampled import SampledConfig
from larvatus.corrupt.sentinels import SentinelsConfig
from larvatus.corrupt.spans import SpansConfig
from larvatus.corrupt.whole_words import WholeWordConfig

__all__ = [
    "Corruption",
    "CorruptionConfig",
    "Course",
    "MaskVocabulary",
    "MaskingConfig",
    "NGramsConfig",
    "NoiseConfig",
    "PermutationConfig",
    "SampledConfig",
    "SentinelsConfig",
    "SpansConfig",
    "WholeWordConfig",
    "at_place",
    "check_mask",
    "corrupt",
    "packed_length",
]
