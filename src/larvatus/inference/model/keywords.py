"""Keyword types of the methods of a model. Generated from their options: do not edit.

`make keywords` writes this file; tests/interfaces/test_keywords.py compares it with the structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from larvatus.inference.vectors.plan import Spans
from larvatus.inference.vectors.standardise import Standardiser


class ModelEmbedKeywords(TypedDict, total=False):
    normalise: bool
    overlap: int | None
    precision: Literal["fp32", "bf16"]
    projected: bool
    tokens: int | None
    standardise: str | Standardiser | None


class ModelVectorsKeywords(ModelEmbedKeywords, total=False):
    unit: Literal["token", "word", "span", "sentence", "document"]
    layers: str | int | Sequence[float]
    pool: Literal["mean", "sum", "max", "first", "last", "cls"]
    spans: Spans | Sequence[Spans] | None


class ModelNearestKeywords(TypedDict, total=False):
    top: int
    word: str | None
    any_word: bool
    layers: str | int | Sequence[float] | None
    pool: Literal["mean", "sum", "max", "first", "last", "cls"] | None
    standardise: str | Standardiser | None
    text: str | None


class ModelMapKeywords(TypedDict, total=False):
    limit: int
    cased: bool
    language: str
    sentences: Literal["library", "newline"]
    seed: int
    layers: str | int | Sequence[float]
    pool: Literal["mean", "sum", "max", "first", "last", "cls"]
    standardise: str | Standardiser | None
    method: Literal["auto", "umap", "pca"]
    clusters: int


class ModelGenerateKeywords(TypedDict, total=False):
    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    beams: int
    length_penalty: float
    early_stopping: bool
    stop: str | Sequence[str]
    samples: int
    seed: int


class ModelPredictKeywords(TypedDict, total=False):
    merge: Literal["mean", "max"]
    truncate: bool
    overlap: int | None
    length: int | None
    top: int
    beams: int | None
    task: str | None
    batch_tokens: int
