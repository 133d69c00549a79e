"""Layouts of model directories, by the `model_type` of their config.json. The only place that looks at a model's name.

Another family is another file beside `bert.py` and a line in `LAYOUTS`. A model is written in the first layout that can
express it; our own, which can express all, comes last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.core.errors import ArtefactError, UsageError, did_you_mean
from larvatus.models.bundle.huggingface.albert import Albert
from larvatus.models.bundle.huggingface.bert import Bert
from larvatus.models.bundle.huggingface.distilbert import DistilBert
from larvatus.models.bundle.huggingface.electra import Electra
from larvatus.models.bundle.huggingface.gpt2 import GPT2
from larvatus.models.bundle.huggingface.layout import Architecture, Layout, Recast, their_shapes, to_ours, to_theirs
from larvatus.models.bundle.huggingface.modernbert import ModernBert
from larvatus.models.bundle.huggingface.mpnet import MPNet
from larvatus.models.bundle.huggingface.native import Native
from larvatus.models.bundle.huggingface.openai_gpt import OpenAIGPT
from larvatus.models.bundle.huggingface.roberta import Roberta
from larvatus.models.bundle.huggingface.t5 import T5
from larvatus.models.bundle.huggingface.xlnet import XLNet

__all__ = [
    "LAYOUTS",
    "Architecture",
    "Layout",
    "layout_for",
    "layout_named",
    "layout_of",
    "refusal",
    "their_shapes",
    "to_ours",
    "to_theirs",
]

LAYOUTS: tuple[Layout, ...] = (
    Bert(),
    Roberta("roberta", "Roberta"),
    Roberta("xlm-roberta", "XLMRoberta", vocabulary="unigram"),
    ModernBert(),
    DistilBert(),
    MPNet(),
    Albert(),
    Electra(),
    OpenAIGPT(),
    GPT2(),
    XLNet(),
    T5(),
    Native(),
)
CODE = frozenset({"auto_map", "_target_", "class_path", "custom_pipelines", "trust_remote_code"})


def layout_for(architecture: Architecture, *, pad: int | None, vocabulary: str = "", family: str = "") -> Layout:
    """The layout in which to write a model whose vocabulary has the padding id `pad`, or none.

    That of its `family` (a `model_type`) where it can express the model. Of families that differ in nothing but their
    kind of vocabulary, the one that has this kind.
    """
    able = [layout for layout in LAYOUTS if refusal(layout, architecture, pad=pad) is None]
    for layout in able:
        if layout.model_type == family and not isinstance(layout, Native):
            return layout
    same_vocabulary = (layout for layout in able if isinstance(layout, Roberta) and layout.vocabulary == vocabulary)
    return next(same_vocabulary, able[0])


def layout_named(name: str) -> Layout:
    """The layout of a `model_type`, as a user asks for it."""
    for layout in LAYOUTS:
        if layout.model_type == name:
            return layout
    raise UsageError(f"there is no layout {name!r}{did_you_mean(name, [layout.model_type for layout in LAYOUTS])}")


def refusal(layout: Layout, architecture: Architecture, *, pad: int | None) -> str | None:
    """Why a layout cannot express a model whose vocabulary has the padding id `pad`; None if it can."""
    if isinstance(layout, Recast) and layout.pad not in (None, pad):
        return f"{layout.model_type} counts on the padding id {layout.pad}, and this vocabulary's is {pad}"
    return layout.refusal(architecture)


def layout_of(config: Any, source: Path) -> Layout:
    """The layout in which a config.json is written."""
    if not isinstance(config, dict):
        raise ArtefactError(f"{source} is not the configuration of a model: expected an object with a model_type")
    _refuse_code(config, source)
    name = config.get("model_type")
    if not isinstance(name, str):
        raise ArtefactError(f"{source} does not say its model_type, so it cannot be told what model this is")
    for layout in LAYOUTS:
        if layout.model_type == name:
            return layout
    known = [layout.model_type for layout in LAYOUTS]
    raise ArtefactError(f"{source}: model_type {name!r} is not supported{did_you_mean(name, known)}")


def _refuse_code(value: Any, source: Path) -> None:
    """A field that names Python code is refused wherever it stands; nothing is imported to find out."""
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
