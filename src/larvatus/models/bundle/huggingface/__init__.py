"""Layouts of model directories, by the `model_type` of their config.json: Hugging Face, static, and our own.

    layout_for(architecture, pad=0)               # the first layout that can express the model
    get_layout("bert")

This is the only place that checks a model's name. Another family is a table over an existing layout, or a file of its
own, and a line in `LAYOUTS`. A model is written in the first layout that can express it; our own, which can express all
models, is last.

**Static models** are one table of rows, as `model2vec` and `sentence-transformers` (StaticEmbedding) store them. Both
read what we write; `models/bundle/static_directory.py` reads theirs.

    config.json          model_type "model2vec"; a directory of `sentence-transformers` has none
    model.safetensors    embeddings [V, D]; or embedding.weight; `mapping` [V] and `weights` [V] may say which row a
                         token has, and its factor
    modules.json         StaticEmbedding, then Dense …, Normalize

**Our own layout** is for models that no Hugging Face layout can express (pre-norm, a next-sentence head without a
pooler). config.json has `"model_type": "larvatus"` and our settings unchanged; tensors keep our names. Only Larvatus
loads it, and the model card states it. V tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.errors import ArtefactError, UsageError, did_you_mean
from larvatus.models.bundle.huggingface.bert_like import BertLike, MPNet, Roberta
from larvatus.models.bundle.huggingface.bert_variants import Albert, DistilBert, Electra
from larvatus.models.bundle.huggingface.config_table import convert
from larvatus.models.bundle.huggingface.gpt import GPT, GPT2
from larvatus.models.bundle.huggingface.layout import (
    Architecture,
    ModelLayout,
    from_huggingface,
    huggingface_shapes,
    stated_architecture,
    to_huggingface,
)
from larvatus.models.bundle.huggingface.modernbert import ModernBert
from larvatus.models.bundle.huggingface.t5 import T5
from larvatus.models.bundle.huggingface.task_heads import UNNAMED, TaskHeads
from larvatus.models.bundle.huggingface.xlnet import XLNetLayout
from larvatus.models.network import ObjectiveConfig
from larvatus.models.nn.encoder import EncoderConfig, with_type, without_default_type
from larvatus.models.nn.static import StaticConfig

__all__ = [
    "LAYOUTS",
    "Architecture",
    "ModelLayout",
    "StaticEmbedding",
    "from_huggingface",
    "get_layout",
    "huggingface_shapes",
    "layout_for",
    "layout_of",
    "stated_architecture",
    "to_huggingface",
    "unsupported_reason",
]

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


LAYOUTS: tuple[ModelLayout, ...] = (
    BertLike(),
    Roberta("roberta", "Roberta"),
    Roberta("xlm-roberta", "XLMRoberta", vocabulary="unigram"),
    ModernBert(),
    DistilBert(),
    MPNet(),
    Albert(),
    Electra(),
    GPT(),
    GPT2(),
    XLNetLayout(),
    T5(),
    StaticEmbedding(),
    Native(),
)
CODE = frozenset({"auto_map", "_target_", "class_path", "custom_pipelines", "trust_remote_code"})


def layout_for(architecture: Architecture, *, pad: int | None, vocabulary: str = "", family: str = "") -> ModelLayout:
    """The layout in which to write a model whose vocabulary has the padding id `pad`, or none.

    It is the layout of the model's `family` (a `model_type`) if that can express it. Among families that differ only in
    their kind of vocabulary, it is the one with this kind.
    """
    able = [layout for layout in LAYOUTS if unsupported_reason(layout, architecture, pad=pad) is None]
    for layout in able:
        if layout.model_type == family and not isinstance(layout, Native):
            return layout
    same_vocabulary = (layout for layout in able if isinstance(layout, Roberta) and layout.vocabulary == vocabulary)
    return next(same_vocabulary, able[0])


def get_layout(name: str) -> ModelLayout:
    """The layout with this `model_type`; an unknown name is refused with the nearest one."""
    for layout in LAYOUTS:
        if layout.model_type == name:
            return layout
    raise UsageError(f"there is no layout {name!r}{did_you_mean(name, [layout.model_type for layout in LAYOUTS])}")


def unsupported_reason(layout: ModelLayout, architecture: Architecture, *, pad: int | None) -> str | None:
    """Why a layout cannot express a model whose vocabulary has the padding id `pad`; None if it can."""
    if layout.pad not in (None, pad):
        return f"{layout.model_type} relies on the padding id {layout.pad}, but this vocabulary has {pad}"
    return layout.unsupported(stated_architecture(architecture))


def layout_of(config: Any, source: Path) -> ModelLayout:
    """The layout in which a config.json was written."""
    if not isinstance(config, dict):
        raise ArtefactError(f"{source} is not the configuration of a model: expected an object with a model_type")
    _refuse_code(config, source)
    name = config.get("model_type")
    if not isinstance(name, str):
        raise ArtefactError(f"{source} has no model_type, so the kind of model is unknown")
    for layout in LAYOUTS:
        if layout.model_type == name:
            return layout
    known = [layout.model_type for layout in LAYOUTS]
    raise ArtefactError(f"{source}: model_type {name!r} is not supported{did_you_mean(name, known)}")


def _refuse_code(value: Any, source: Path) -> None:
    """Refuse a field that names Python code, at any depth; nothing is imported to check it."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if code := sorted(CODE & part.keys()):
                raise ArtefactError(
                    f"{source}: {code[0]} is not a setting of a model: it names code to load, and Larvatus loads no "
                    "code from data; remove the field if the weights need none"
                )
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
