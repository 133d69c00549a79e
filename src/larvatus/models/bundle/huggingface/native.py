"""Our own layout, for models that no Hugging Face layout can express (pre-norm, a next-sentence head without a pooler).

config.json then says `"model_type": "larvatus"` and holds our settings as they are; tensors keep our names. It loads
here and nowhere else, and the card says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from larvatus.models.bundle.huggingface.layout import Architecture, convert
from larvatus.models.bundle.huggingface.task_heads import CLS, ENDS, TOKENS, TaskHead, TaskHeads
from larvatus.models.nn.encoder import EncoderConfig, with_type, without_default_type


class NativeSettings(Architecture):
    model_type: str
    architectures: tuple[str, ...]


class Native:
    model_type = "larvatus"
    aliases: Mapping[str, str] = {}
    spare: frozenset[str] = frozenset()
    tasks = TaskHeads(
        "Larvatus",
        {
            "classification": TaskHead(names={}, fixed=CLS | {"dense": "tanh"}, fields={}),
            "tagging": TaskHead(names={}, fixed=TOKENS, fields={}),
            "answering": TaskHead(names={}, fixed=ENDS, fields={}),
        },
        beside=(),
    )

    def refusal(self, architecture: Architecture) -> str | None:
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

    def theirs(self, ours: str) -> tuple[str, ...]:
        return (ours,)

    def canonical(self, name: str) -> str | None:
        return name
