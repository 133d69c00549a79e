"""A loaded model: network, tokenizer and device, with its directory. Everything that runs a model takes one.

    model = larvatus.load("runs/law")         # `inference.model.Model` is one, with `fill`, `embed`, `predict`, …
    model.network, model.tokenizer, model.device, model.fingerprint

Another process, maybe on another machine, loads the model from its directory and checks its fingerprint: weights are
never pickled. Two models with the same fingerprint give the same vectors of words, and with the same
`vector_fingerprint` also those of whole texts, which a sentence adapter may give (`models/bundle/sentence_adapter.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from socket import gethostname
from typing import Any, Protocol, Self, cast

import torch

from larvatus.core import files
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.regular_files import is_there
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.sentence_modules import module_files
from larvatus.models.bundle.static_directory import static_folder
from larvatus.models.bundle.weights import find_weights
from larvatus.models.heads.embedding import Embedding, TokenHead
from larvatus.models.heads.head import VectorKind
from larvatus.models.network import Network
from larvatus.models.nn.encoder import Encoder


class ModelOrigin(Protocol):
    """How a model was loaded, so that another process can load it again."""

    @property
    def device(self) -> str:
        """auto, cpu or cuda."""

    def load(self) -> Any: ...


class LoadedModel:
    """A network in evaluation mode on its device, with its tokenizer. No call changes its state."""

    def __init__(
        self, bundle: Bundle, device: torch.device, *, number: str = "", origin: ModelOrigin | None = None
    ) -> None:
        """`number` is the type that weights were rounded to, if any: int8; `origin` loads the model elsewhere."""
        self.bundle = bundle
        self.origin = origin
        self.device = device
        self.number = number
        self.network = bundle.network.to(device).eval()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, a model is its origin: the other process loads it from its directory."""
        if self.origin is None:
            raise UsageError("a model that was made in memory cannot be sent to a cluster; save it, and load it")
        return load_elsewhere, (self.origin, self.vector_fingerprint)

    def __copy__(self) -> Self:
        """A second object over the same weights."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    @property
    def requested_device(self) -> str:
        """The device option: auto, cpu or cuda."""
        return str(self.device) if self.origin is None else self.origin.device

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""
        return self.bundle.tokenizer

    @property
    def encoder(self) -> Encoder:
        """The network without its heads: `encoder(batch)` gives the states of the last layer."""
        return self.network.encoder

    @property
    def sentence_head(self) -> Embedding | None:
        """How the model turns a whole text into a vector, if it is a sentence encoder or has an adapter."""
        return cast(Embedding | None, next(_heads(self._sentence_network, "dense"), None))

    @property
    def token_head(self) -> TokenHead | None:
        """How the model turns a whole text into token vectors or sparse vectors, if it does."""
        return cast(TokenHead | None, next(_heads(self.network, "late", "sparse"), None))

    @property
    def sentence_encoder(self) -> Encoder:
        """The encoder of whole texts: with the weights of the adapter, if there is one."""
        return self._sentence_network.encoder

    @property
    def _sentence_network(self) -> Network:
        adapter = self.bundle.adapter
        return self.network if adapter is None else adapter.network(self.network)

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the weights, settings and vocabulary."""
        weights = model_fingerprint(self.bundle.path, self.tokenizer)
        return f"{weights}-{self.number}" if self.number else weights

    @property
    def vector_fingerprint(self) -> str:
        """Identity of the vectors of whole texts: of the model and its adapter."""
        adapter = self.bundle.adapter
        if adapter is None:
            return self.fingerprint
        return hashlib.sha256(f"{self.fingerprint} {adapter.checksum}".encode()).hexdigest()


def _heads(network: Network, *kinds: VectorKind) -> Iterator[Any]:
    """Heads that give these kinds of vectors."""
    return (head for head in network.heads.values() if getattr(head.config, "vector_kind", None) in kinds)


def load_elsewhere(origin: ModelOrigin, fingerprint: str) -> Any:
    """The model that another process has; a directory that differs from it is refused."""
    model = origin.load()
    if model.vector_fingerprint != fingerprint:
        here = f"{model.bundle.path} on {gethostname()}"
        raise ArtefactError(f"{here} is another model than where the job began; copy it there, or use a shared disk")
    return model


def model_fingerprint(directory: Path, tokenizer: Tokenizer) -> str:
    """Hash of a model directory's weights, settings and vocabulary: 64 hexadecimal digits."""
    digest = hashlib.sha256(tokenizer.fingerprint.encode())
    root = files.standing(directory)
    config, folder = root / "config.json", static_folder(root)
    stated = [config] if folder is None or is_there(config) else []  # a static model need not have one
    for path in [*stated, *find_weights(folder or root), *module_files(root)]:
        digest.update(files.sha256(path).encode())
    return digest.hexdigest()


def settings_hash(tokenizer: Tokenizer) -> str:
    """Hash of a tokenizer's settings outside `tokenizer.json`: special tokens and the template around texts."""
    settings = json.dumps([tokenizer.config, vars(tokenizer.special)], sort_keys=True, default=str)
    return hashlib.sha256(settings.encode(errors="surrogatepass")).hexdigest()
