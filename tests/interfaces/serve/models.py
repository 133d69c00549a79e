"""Tiny models of every kind with the same encoder weights, for tests of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.models.heads import ClassificationConfig, QuestionAnsweringConfig, SpansConfig, TaggingConfig
from larvatus.models.objectives import MaskedLMConfig

HEADS: dict[str, Any] = {
    "plain": MaskedLMConfig(),
    "classify": ClassificationConfig(labels=("dry", "wet")),
    "tag": TaggingConfig(labels=("O", "B-LOC", "I-LOC"), scheme="BIO"),
    "spans": SpansConfig(labels=("LOC", "PER"), longest=4, hidden=8),
    "answer": QuestionAnsweringConfig(null=True),
}


def save_models(folder: Path, tiny_model: Any, save_tiny: Any, *names: str) -> dict[str, Path]:
    """Directories by name; the same seed draws the same weights for their encoders."""
    return {
        name: save_tiny(folder / name, tiny_model(seed=5, objectives=(HEADS[name],)), (HEADS[name],))
        for name in names or HEADS
    }
