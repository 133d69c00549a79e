"""The models of a server: their names, their operations, and the encoders that they share.

    served = ServedModels.of([load("runs/law"), load("runs/tagger")], ServeSettings(), batcher)
    served.choose("tag", None).name                       # the first that supports it: 'tagger'

A model's heads and the registry of tasks (`operations/`) decide which operations it supports, never its name. Models
whose encoders have equal weights, such as two fine-tuned with a frozen encoder, use one encoder and share its passes.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError, UsageError, did_you_mean
from larvatus.inference.model import Model
from larvatus.inference.search.generation import read_manifest
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.vectors.standardise import STANDARDISERS, Standardiser
from larvatus.interfaces.serve.batcher import Batcher
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.operations.operation import ServedModel, is_packaged
from larvatus.interfaces.serve.responses import CannotDo, NoSuchModel
from larvatus.interfaces.serve.served_index import ServedIndex
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.bundle.model_names import NAME
from larvatus.models.network import Network
from larvatus.models.nn.encoder import Encoder

ENCODER_CALLS = ("two_streams",)
"""Methods of encoders, where they have them, that run by themselves."""
BATCHED = ("forward", "at", "attention", *ENCODER_CALLS)
"""Methods that a batched encoder replaces."""


@dataclass(eq=False)
class ServedModels:
    """All models of a server, by name, in the order they were given.

    Only `add` and `add_index` change it. They replace the mappings: a thread that reads an old one can finish with it.
    """

    models: Mapping[str, ServedModel]
    batcher: Batcher
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    """Encoders that run, by the hash of their weights."""
    _changing: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, models: Sequence[Model], settings: ServeSettings, batcher: Batcher) -> ServedModels:
        """Serve loaded models. The models themselves are not changed: the served ones have the same weights."""
        if not models:
            raise UsageError("there is no model to serve; name a directory")
        encoders: dict[str, Encoder] = {}
        served: dict[str, ServedModel] = {}
        for model in (_batched(model, encoders, batcher) for model in models):
            name = _free_name(_name_of(model), served)
            served[name] = _served(name, model, settings)
        if settings.senses is not None and not any(model.senses for model in served.values()):
            raise UsageError(
                f"the sense vectors in {settings.senses} belong to none of these models; serve the model they belong to"
            )
        models_served = cls(served, batcher, encoders)
        for path in settings.index:
            models_served.add_index(Path(path))
        return models_served

    def add(self, model: Model) -> ServedModel:
        """Serve one more model. No route calls this; the studio does, with a model that it has trained."""
        encoders = dict(self.encoders)
        model = _batched(model, encoders, self.batcher)
        with self._changing:
            added = _served(_free_name(_name_of(model), self.models), model)
            self.encoders = encoders
            self.models = {**self.models, added.name: added}
        return added

    def add_index(self, path: Path, *, name: str | None = None) -> ServedIndex:
        """Serve one more index, under the name of its folder. An index of a model that is not served is refused.

        With a name, it replaces the index of that name.
        """
        manifest = read_manifest(path)
        subject = next(
            (each for each in self.models.values() if each.model.vector_fingerprint == manifest.fingerprint), None
        )
        if subject is None:
            raise ArtefactError(
                f"{path} was built with the model {manifest.model} ({manifest.fingerprint[:8]}…), which is not served "
                f"here: {', '.join(self.models)}; name that model too, or build the index again"
            )
        index = ServedIndex.open(path, subject.model, name=name or _free_name(path.resolve().name, self.indexes))
        with self._changing:
            models = {
                each.name: each.with_indexes({held: of for held, of in each.indexes.items() if held != index.name})
                if index.name in each.indexes
                else each
                for each in self.models.values()
            }
            holder = models[subject.name]
            self.models = {**models, holder.name: holder.with_indexes({**holder.indexes, index.name: index})}
        return index

    @property
    def indexes(self) -> dict[str, ServedIndex]:
        """All indexes, by name."""
        return {name: index for model in self.models.values() for name, index in model.indexes.items()}

    def choose(self, operation: str, name: str | None) -> ServedModel:
        """The named model, or the first that supports the operation."""
        if name is not None and name not in self.models:
            raise NoSuchModel(f"there is no model {name!r}{did_you_mean(name, self.models)}")
        chosen = list(self.models.values()) if name is None else [self.models[name]]
        able = [model for model in chosen if operation in model.can]
        if not able:
            raise CannotDo(f"{chosen[0].name} cannot {operation}: {OPERATIONS[operation].lacks(chosen[0].model)}")
        return able[0]


def _served(name: str, model: Model, settings: ServeSettings | None = None) -> ServedModel:
    can = tuple(operation.name for operation in OPERATIONS.values() if operation.lacks(model) is None)
    return ServedModel(name, model, can, _standardisers(model), _senses(model, settings))


def _name_of(model: Model) -> str:
    path = Path(model.bundle.path)
    return NAME if is_packaged(path) else path.name or "model"


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _standardisers(model: Model) -> dict[str, Standardiser]:
    loaded = {name: model.standardiser(name) for name in STANDARDISERS.names(Path(model.bundle.path))}
    return {name: standardiser for name, standardiser in loaded.items() if standardiser is not None}


def _senses(model: Model, settings: ServeSettings | None) -> SenseTagger | None:
    """A tagger with the sense vectors, if this model made them."""
    if settings is None or settings.senses is None:
        return None
    if SenseInventory.load(settings.senses).origin.model != model.fingerprint:
        return None
    return model.senses(settings.senses, wordnet=settings.wordnet)


def _batched(model: Model, encoders: dict[str, Encoder], batcher: Batcher) -> Model:
    """The model with the same heads over a batched encoder: that of an earlier model where the weights are equal."""
    served = copy.copy(model)
    served.network = _batched_network(model.network, encoders, batcher)
    adapter = model.bundle.adapter
    if adapter is not None:
        adapter = adapter.with_network(_batched_network(adapter.network(model.network), encoders, batcher))
    served.bundle = dataclasses.replace(model.bundle, network=served.network, adapter=adapter)
    return served


def _batched_network(network: Network, encoders: dict[str, Encoder], batcher: Batcher) -> Network:
    encoder = encoders.setdefault(encoder_hash(network.encoder), network.encoder)
    view = network.view(encoder=batched_encoder(encoder, batcher))
    if network.generator is not None:
        view.generator = _batched_network(network.generator, encoders, batcher)
    return view


def unbatched(model: Model) -> Model:
    """The model without the batcher: gradients and edited encoders run their own passes, in the caller's thread."""
    plain = copy.copy(model)
    plain.network = _unbatched_network(model.network)
    plain.bundle = dataclasses.replace(model.bundle, network=plain.network)
    return plain


def _unbatched_network(network: Network) -> Network:
    encoder = copy.copy(network.encoder)
    for name in BATCHED:
        encoder.__dict__.pop(name, None)
    view = network.view(encoder=encoder)
    if network.generator is not None:
        view.generator = _unbatched_network(network.generator)
    return view


def batched_encoder(encoder: Encoder, batcher: Batcher) -> Encoder:
    """A view of an encoder whose passes go through the batcher: same class, same attributes, the same tensors.

    Only the methods that run the network differ. Those that cannot share a pass (attention weights, two streams) run
    one at a time on the encoder thread, so that two passes never compete for the cores.
    """
    view = copy.copy(encoder)

    def forward(
        batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        return batcher.forward(encoder, batch, layers)

    def at(batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        if len(places_B) != batch.count:
            return batcher.forward(encoder, batch).index_select(0, places_B)  # type: ignore[union-attr]
        return batcher.at(encoder, batch, places_B)

    def attention(batch: TokenBatch[Tensor]) -> Iterator[list[Tensor]]:
        """All layers at once: another thread would advance the encoder's own iterator."""
        return iter(batcher.run_alone(encoder, lambda: list(encoder.attention(batch))))

    def alone(name: str) -> Callable[..., Any]:
        return lambda *given, **options: batcher.run_alone(encoder, lambda: getattr(encoder, name)(*given, **options))

    methods = {name: alone(name) for name in ENCODER_CALLS if hasattr(encoder, name)}
    view.__dict__.update(methods, forward=forward, at=at, attention=attention)  # before the methods of its class
    return view


def encoder_hash(encoder: Encoder) -> str:
    """Hash of an encoder's class, settings and weights. Encoders with equal hashes compute equal states."""
    digest = hashlib.sha256(type(encoder).__name__.encode())
    digest.update(msgspec.json.encode(encoder.config))
    try:
        state = encoder.state_dict()
    except UsageError:  # int8 and ONNX have no weights to compare: such an encoder is not shared
        return f"{digest.hexdigest()}-{id(encoder)}"
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
