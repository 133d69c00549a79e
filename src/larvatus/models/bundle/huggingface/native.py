"""Our own layout, for models that no Hugging Face layout can express (pre-norm, a next-sentence head without a pooler).

config.json has `"model_type": "larvatus"` and our settings unchanged; tensors keep our names. Only Larvatus loads it,
and the model card states it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from larvatus.models.bundle.huggingface.config_table import convert
from larvatus.models.bundle.huggingface.layout import Architecture, ModelLayout
from larvatus.models.bundle.huggingface.task_heads import UNNAMED, TaskHeads
from larvatus.models.nn.encoder import EncoderConfig, with_type, without_default_type


class NativeSettings(Architecture):
    model_type: str
    architectures: tuple[str, ...]


class Native(ModelLayout):
    model_type = "larvatus"
    family = "Larvatus"
    tasks = TaskHeads("Larvatus", UNNAMED, separate=())
    architectures: Mapping[str, tuple[str, ...]] = {"Larvatus": ()}

    def unsupported(self, architecture: Architecture) -> str | None:
        return None

    def config(self, architecture: Architecture, *, pad: int | None) -> dict[str, Any]:
        settings: dict[str, Any] = msgspec.to_builtins(architecture)
        settings["model"] = without_default_type(settings["model"])
        return {"model_type": self.model_type, "architectures": ["Larvatus"], **settings}

    def architecture(self, config: Mapping[str, Any], *, source: Path, names: frozenset[str]) -> Architecture:
        if isinstance(config.get("model"), dict):
            config = {**config, "model": with_type(config["model"])}
            convert(config["model"], EncoderConfig, source)
        settings: NativeSettings = convert(config, NativeSettings, source)
        return Architecture(model=settings.model, objectives=settings.objectives, vocabulary=settings.vocabulary)

    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        return (parameter,)
