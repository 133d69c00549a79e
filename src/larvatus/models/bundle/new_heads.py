"""Put a new head, or several, on the encoder of a loaded model: the start of fine-tuning.

    settings = default_head_settings(bundle, "classification")     # layers between [CLS] and classes in this family
    config = ClassificationConfig(labels=("no", "yes"), **settings)
    ready, reused = attach_head(bundle, config, seed=7)    # reused: ("objectives.classification.dense.weight", …)

The encoder is copied, so the loaded model stays unchanged. Its own heads are dropped, but parameters that the family
stores under the same name are reused: BERT's pooler becomes the dense layer of its classifier, as in `transformers`. A
head for the same labels is reused completely.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
from torch import Tensor, nn

from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.huggingface import ModelLayout, layout_for
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import Network, tag
from larvatus.models.nn.initialise import initialise


def default_head_settings(bundle: Bundle, head: str) -> dict[str, Any]:
    """`pool`, `dense` and `dense_norm` of a head, as the model's family has them in `transformers`."""
    family = _family(bundle)
    known = family.model_type == bundle.family
    defaults = dict(bundle.head_defaults.get(head, {})) if known else family.tasks.default_settings(head, {})
    if "pool" in defaults and (pool := getattr(bundle.model, "text_pool", None)) is not None:
        defaults["pool"] = pool
    return defaults


def attach_head(bundle: Bundle, *configs: HeadConfig, seed: int) -> tuple[Bundle, tuple[str, ...]]:
    """The model with the new head (or several) instead of its old ones, and the parameters that were reused.

    The others are initialised as published, f(seed, parameter name).
    """
    architecture = bundle.architecture
    objectives = tuple(objective for config in configs for objective in (config, *config.objectives))
    built = Network.empty(architecture.model, objectives, architecture.vocabulary)
    built.encoder.load_state_dict(bundle.network.encoder.state_dict())
    head = nn.ModuleDict({"objectives": built.objectives})  # so that its parameters have their full names
    initialise(head, seed=seed, std=architecture.model.init)
    state, taken = head.state_dict(), dict[str, Tensor]()
    for config in configs:
        prefixes = tuple(f"objectives.{tag(objective)}." for objective in (config, *config.objectives))
        wanted = {name: tensor for name, tensor in state.items() if name.startswith(prefixes)}
        known = _known(bundle, config, wanted)
        taken |= {name: old for name, old in known.items() if old.shape == wanted[name].shape}
    head.load_state_dict(taken, strict=False)
    network = built.requires_grad_().eval()
    fresh = dataclasses.replace(bundle, network=network, objectives=objectives, unused_tensors={}, adapter=None)
    return fresh, tuple(sorted(taken))


def sentence_bundle(bundle: Bundle) -> Bundle:
    """The sentence encoder that a model and its adapter are together; the model itself if it has none."""
    if bundle.adapter is None:
        return bundle
    network = bundle.adapter.network(bundle.network)
    return dataclasses.replace(bundle, network=network, objectives=(bundle.adapter.config.head,), adapter=None)


def _known(bundle: Bundle, config: HeadConfig, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors for parameters of the new head: all of a head with the same labels, else those with the same names."""
    state = {name: t for name, t in bundle.network.own_state().items() if name.startswith("objectives.")}
    for before in bundle.objectives:
        if isinstance(before, HeadConfig) and config.same_labels(before):
            return {name: state[name] for name in wanted if name in state}
    if config.begins_as is not None:
        known = {name: state.get(name, state.get(_beginning(config, name))) for name in wanted}
        return {name: tensor for name, tensor in known.items() if tensor is not None}
    layout = _family(bundle)
    held = dict(bundle.unused_tensors)
    for name, tensor in state.items():
        held.update(dict.fromkeys(_theirs(layout, name), tensor))
    other = tuple(f"objectives.{tag(config)}.{part}." for part in ("classifier", "crf"))  # of other labels
    names = {name: _theirs(layout, name) for name in wanted if not name.startswith(other)}
    return {name: held[theirs[0]] for name, theirs in names.items() if theirs and theirs[0] in held}


def _beginning(config: HeadConfig, name: str) -> str:
    """``objectives.verbaliser.words.bias`` is ``objectives.masked-lm.bias`` of the pretrained model."""
    return f"objectives.{config.begins_as}.{name.split('.', 3)[3]}"


def _theirs(layout: ModelLayout, name: str) -> tuple[str, ...]:
    """Their names for a parameter of a head; none if the family has no such head."""
    try:
        return layout.tensor_names(name)
    except KeyError:
        return ()


def _family(bundle: Bundle) -> ModelLayout:
    """The layout that the model was read in; for our own layout, the one that can express its encoder."""
    tokenizer = bundle.tokenizer
    alone = msgspec.structs.replace(bundle.architecture, objectives=())
    return layout_for(alone, pad=tokenizer.padding_id, vocabulary=tokenizer.kind, family=bundle.family)
