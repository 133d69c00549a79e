"""Static models as `model2vec` and `sentence-transformers` (StaticEmbedding) store them: one table of rows.

    config.json          model_type "model2vec"; a directory of `sentence-transformers` has none
    model.safetensors    embeddings [V, D]; or embedding.weight; `mapping` [V] and `weights` [V] may say which row a
                         token has, and its factor
    modules.json         StaticEmbedding, then Dense …, Normalize

A directory that we write is read by both libraries. `models/bundle/static_directory.py` reads directories, theirs too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.huggingface.layout import Architecture, ModelLayout
from larvatus.models.bundle.huggingface.task_heads import TaskHeads
from larvatus.models.network import ObjectiveConfig
from larvatus.models.nn.static import StaticConfig

ROWS = "embeddings"
PARAMETER = "encoder.table.weight"


class StaticEmbedding(ModelLayout):
    model_type = "model2vec"
    family = "StaticEmbedding"
    tasks = TaskHeads("Static", {}, separate=())
    architectures: Mapping[str, tuple[str, ...]] = {"StaticModel": ()}

    def unsupported(self, architecture: Architecture) -> str | None:
        if not isinstance(architecture.model, StaticConfig):
            return "it holds one vector for each token and nothing else"
        return "it has no task heads" if architecture.objectives else None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        return {
            "model_type": self.model_type,
            "architectures": ["StaticModel"],
            "hidden_dim": architecture.model.hidden,
            "vocab_size": architecture.vocabulary,
            "seq_length": 1_000_000,
            "pooling": "mean",
        }

    def module_fields(self, objectives: Sequence[ObjectiveConfig]) -> dict[str, Any]:
        """`model2vec` reads no modules.json."""
        return {"normalize": any(getattr(config, "normalise", False) for config in objectives)}

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        hidden, vocabulary = config.get("hidden_dim"), config.get("vocab_size")
        if not (isinstance(hidden, int) and isinstance(vocabulary, int) and hidden > 0 and vocabulary > 0):
            raise ArtefactError(f"{source} does not hold a table of one row or more")
        return Architecture(model=StaticConfig(hidden=hidden), objectives=(), vocabulary=vocabulary)

    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        return (ROWS if parameter == PARAMETER else parameter,)
