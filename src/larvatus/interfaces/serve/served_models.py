"""The models of a server: what each is called, what it can do, and which of them share an encoder.

    served = ServedModels.of([load("runs/law"), load("runs/tagger")], ServeSettings())
    served.choose("tag", None).name                       # the first that can: 'tagger'

What a model can do is asked of its heads and of the registry of tasks (`operations/`); nobody looks at names. Models
whose encoders have equal weights, such as two fine-tuned with a frozen encoder, use one encoder and share its passes.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.inference.model import Model
from larvatus.inference.model.quantised import int8_weights
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.vectors.standardise.standardise import FOLDER, SUFFIX, Standardiser
from larvatus.interfaces.serve.operations.registry import OPERATIONS
from larvatus.interfaces.serve.passes import Passes
from larvatus.interfaces.serve.refusals import CannotDo, NoSuchModel
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.serve.shared_encoder import shared, whole
from larvatus.models.bundle.model_names import NAME, packaged_model
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import Network
from larvatus.models.nn.encoder import Encoder


@dataclass(frozen=True, eq=False)
class ServedModel:
    name: str
    model: Model
    can: tuple[str, ...]
    """Names of operations."""
    standardisers: Mapping[str, Standardiser]
    """Those saved with the model, by name."""
    senses: SenseTagger | None = None
    """Of WordNet, where the server was started with sense vectors of this model."""

    @property
    def labels(self) -> list[str] | None:
        """Of its head, where they have names."""
        for config in self.model.bundle.objectives:
            if isinstance(config, HeadConfig) and config.names_labels:
                return list(config.labels)
        return None

    def describe(self) -> dict[str, Any]:
        """A line of /v1/models."""
        model, path = self.model, Path(self.model.bundle.path)
        described: dict[str, Any] = {
            "name": self.name,
            "path_name": path.name,
            "can": list(self.can),
            "layers": model.encoder.depth,
            "heads": getattr(model.bundle.model, "heads", None),
            "width": model.encoder.width,
            "reach": model.encoder.reach,
            "parameters": sum(p.numel() for p in model.network.parameters()) + int8_weights(model.network),
            "standardisers": sorted(self.standardisers),
            "mask": model.tokenizer.special.mask if "fill" in self.can else None,
            "packaged": _is_packaged(path),
            "card": (path / "README.md").is_file(),
        }
        return described if self.labels is None else {**described, "labels": self.labels}


@dataclass(eq=False)
class ServedModels:
    """All of a server, by name, in the order they were given. Only `add` changes it, by new mappings: who reads an old
    one meanwhile goes on with it."""

    models: Mapping[str, ServedModel]
    passes: Passes
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    """Those that are run, by the hash of their weights."""

    @classmethod
    def of(cls, models: Sequence[Model], settings: ServeSettings) -> ServedModels:
        """Models as they are loaded, which stay as they are: what is served has their weights, in shared passes."""
        if not models:
            raise UsageError("there is no model to serve; name a directory")
        encoders: dict[str, Encoder] = {}
        passes = Passes(budget=settings.batch_tokens)
        served: dict[str, ServedModel] = {}
        try:
            for model in (_sharing(model, encoders, passes) for model in models):
                name = _free_name(_name_of(model), served)
                served[name] = _served(name, model, settings)
            if settings.senses is not None and not any(model.senses for model in served.values()):
                raise UsageError(
                    f"{settings.senses} holds sense vectors of none of these models; name the model they are of"
                )
        except BaseException:
            passes.close()  # its thread would outlive it
            raise
        return cls(served, passes, encoders)

    def add(self, model: Model) -> ServedModel:
        """Serve one more. No route of the server does: the studio does, with what it has just taught itself."""
        encoders = dict(self.encoders)
        model = _sharing(model, encoders, self.passes)
        added = _served(_free_name(_name_of(model), self.models), model)
        self.encoders = encoders
        self.models = {**self.models, added.name: added}
        return added

    def choose(self, operation: str, name: str | None) -> ServedModel:
        """The model of a name, or the first that can."""
        if name is not None and name not in self.models:
            raise NoSuchModel(f"there is no model {name!r}{did_you_mean(name, self.models)}")
        chosen = list(self.models.values()) if name is None else [self.models[name]]
        able = [model for model in chosen if operation in model.can]
        if not able:
            raise CannotDo(f"{chosen[0].name} cannot {operation}: {OPERATIONS[operation].lacks(chosen[0].model)}")
        return able[0]

    def close(self) -> None:
        self.passes.close()


def _served(name: str, model: Model, settings: ServeSettings | None = None) -> ServedModel:
    can = tuple(operation.name for operation in OPERATIONS.values() if operation.lacks(model) is None)
    return ServedModel(name, model, can, _standardisers(model), _senses(model, settings))


def _is_packaged(path: Path) -> bool:
    packaged = packaged_model()
    return packaged is not None and path.resolve() == packaged.resolve()


def _name_of(model: Model) -> str:
    path = Path(model.bundle.path)
    return NAME if _is_packaged(path) else path.name or "model"


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _standardisers(model: Model) -> dict[str, Standardiser]:
    files = sorted((Path(model.bundle.path) / FOLDER).glob(f"*{SUFFIX}"))
    loaded = {file.name.removesuffix(SUFFIX): model.standardiser(file.name.removesuffix(SUFFIX)) for file in files}
    return {name: standardiser for name, standardiser in loaded.items() if standardiser is not None}


def _senses(model: Model, settings: ServeSettings | None) -> SenseTagger | None:
    """A tagger with the sense vectors, if they were made with this model."""
    if settings is None or settings.senses is None:
        return None
    if SenseInventory.load(settings.senses).origin.model != model.fingerprint:
        return None
    return model.senses(settings.senses, wordnet=settings.wordnet)


def _sharing(model: Model, encoders: dict[str, Encoder], passes: Passes) -> Model:
    """The model with the same heads over a shared encoder, that of an earlier model where the weights are equal."""
    served = copy.copy(model)
    served.network = _network(model.network, encoders, passes)
    served.bundle = dataclasses.replace(model.bundle, network=served.network)
    return served


def _network(network: Network, encoders: dict[str, Encoder], passes: Passes) -> Network:
    encoder = whole(network.encoder)
    view = copy.copy(network)
    parts: dict[str, Any] = view.__dict__
    parts["_modules"] = dict(network._modules)  # the weights are shared, which encoder stands there is not
    view.encoder = encoders.setdefault(encoder_hash(encoder), shared(encoder, passes))
    if network.generator is not None:
        view.generator = _network(network.generator, encoders, passes)
    return view


def encoder_hash(encoder: Encoder) -> str:
    """Of its class, settings and weights; encoders with the same one give the same states."""
    digest = hashlib.sha256(type(encoder).__name__.encode())
    digest.update(msgspec.json.encode(encoder.config))
    try:
        state = encoder.state_dict()
    except UsageError:  # int8 and ONNX have no weights to compare: such an encoder shares with itself alone
        return f"{digest.hexdigest()}-{id(encoder)}"
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
