"""A new head on the encoder of a model that is there: where fine-tuning begins.

    settings = natural_head(bundle, "classification")     # what the family has between [CLS] and classes
    config = ClassificationConfig(labels=("no", "yes"), **settings)
    ready, taken = with_head(bundle, config, seed=7)     # taken: ("objectives.classification.dense.weight", …)

The encoder is copied, so the model that was loaded stays as it is. Its own heads go, but what the new one has under the
same name in the family's files is taken over: BERT's pooler becomes the dense layer of its classifier, as it does in
`transformers`. A head for the same labels is taken over whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
from torch import Tensor, nn

from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.huggingface import Layout, layout_for
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import Network, tag
from larvatus.models.nn.initialise import initialise


def default_head_settings(bundle: Bundle, head: str) -> dict[str, Any]:
    """`pool`, `dense` and `dense_norm` of a head, as the model's family has them in `transformers`."""
    family = _family(bundle)
    known = family.model_type == bundle.family
    natural = dict(bundle.natural.get(head, {})) if known else family.tasks.natural(head, {})
    if "pool" in natural and (pool := getattr(bundle.model, "text_pool", None)) is not None:
        natural["pool"] = pool
    return natural


def attach_head(bundle: Bundle, config: HeadConfig, *, seed: int) -> tuple[Bundle, tuple[str, ...]]:
    """The model with the new head in place of its old ones, and which parameters of the head it had already.

    The others are drawn as published, f(seed, their names).
    """
    architecture = bundle.architecture
    built = Network.empty(architecture.model, (config,), architecture.vocabulary)
    built.encoder.load_state_dict(bundle.network.encoder.state_dict())
    head = nn.ModuleDict({"objectives": built.objectives})  # so that its parameters have their full names
    initialise(head, seed=seed, std=architecture.model.init)
    taken = {
        name: old
        for name, old in _known(bundle, config, head.state_dict()).items()
        if old.shape == head.state_dict()[name].shape
    }
    head.load_state_dict(taken, strict=False)
    fresh = dataclasses.replace(bundle, network=built.requires_grad_().eval(), objectives=(config,), spare={})
    return fresh, tuple(sorted(taken))


def _known(bundle: Bundle, config: HeadConfig, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the model has for parameters of the new head: of a head for the same labels all, else by their names."""
    state = {name: t for name, t in bundle.network.own_state().items() if name.startswith("objectives.")}
    for before in bundle.objectives:
        if isinstance(before, HeadConfig) and config.same_labels(before):
            return {name: state[name] for name in wanted if name in state}
    if config.begins_as is not None:
        known = {name: state.get(name, state.get(_beginning(config, name))) for name in wanted}
        return {name: tensor for name, tensor in known.items() if tensor is not None}
    layout = _family(bundle)
    held = dict(bundle.spare)
    for name, tensor in state.items():
        held.update(dict.fromkeys(_theirs(layout, name), tensor))
    other = tuple(f"objectives.{tag(config)}.{part}." for part in ("classifier", "crf"))  # of other labels
    names = {name: _theirs(layout, name) for name in wanted if not name.startswith(other)}
    return {name: held[theirs[0]] for name, theirs in names.items() if theirs and theirs[0] in held}


def _beginning(config: HeadConfig, name: str) -> str:
    """``objectives.verbaliser.words.bias`` is ``objectives.masked-lm.bias`` of the pretrained model."""
    return f"objectives.{config.begins_as}.{name.split('.', 3)[3]}"


def _theirs(layout: Layout, name: str) -> tuple[str, ...]:
    """Their names for a parameter of a head; none where the family has no such head."""
    try:
        return layout.theirs(name)
    except KeyError:
        return ()


def _family(bundle: Bundle) -> Layout:
    """The layout that the model was read in; for one of our own, the one that can express its encoder."""
    tokenizer = bundle.tokenizer
    alone = msgspec.structs.replace(bundle.architecture, objectives=())
    return layout_for(alone, pad=tokenizer.padding_id, vocabulary=tokenizer.kind, family=bundle.family)
