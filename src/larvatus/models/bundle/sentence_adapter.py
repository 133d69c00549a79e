"""A sentence adapter: a folder of a model directory that makes its encoder a sentence encoder too.

    sentence/adapter.json            rank, scale and targets of LoRA; pooling, linear layers and normalisation after it
    sentence/adapter.safetensors     A and B of each target, and the linear layers: floating point, or int8 with scales
    sentence/larvatus.json           checksums of both

    W' = W + (α / r) B A             v = normalise(D · mean(z'_1 … z'_N))        z' by the encoder with W'

The model's own weights stay bit for bit what they are, and serve everything but vectors of whole texts. The second
encoder is made when the first text is embedded, and shares with the first what LoRA does not change: embeddings, norms.

    bundle = load_bundle("english")
    bundle.adapter.network(bundle.network)              # a `Network` with an `embedding` head

In int8, B is stored transposed: a scale for each rank instead of one for each output, of which there are thousands.
Linear layers, often near the identity, whose rows one scale rounds badly, are float16 there.
LoRA: Hu et al. 2022. The model's manifest lists the folder among its `parts`; one that it does not list is ignored.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Factor, Size
from larvatus.core.settings import Settings
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.weight_files import int8_header, iter_int8, quantise_tensors
from larvatus.models.bundle.weights import Shape, check_fit, check_float, write_tensors
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig, TextPool
from larvatus.models.network import Network
from larvatus.models.nn.encoder import Encoder, EncoderConfig
from larvatus.models.nn.initialise import empty_weights
from larvatus.models.nn.lora import TARGETS, LoRAConfig, Target, lora_shapes, merged_copy

SETTINGS, WEIGHTS = "adapter.json", "adapter.safetensors"
TRANSPOSED = ".transposed"
AdapterPrecision = Literal["float32", "float16", "int8"]


class AdapterConfig(Settings, path=f"{SETTINGS}: ", error=ArtefactError):
    """What an adapter adds to its model."""

    rank: Size
    alpha: Factor
    targets: tuple[Target, ...] = TARGETS
    pool: TextPool = "mean"
    projections: tuple[DenseProjection, ...] = ()
    normalise: bool = True

    @property
    def lora(self) -> LoRAConfig:
        return LoRAConfig(rank=self.rank, alpha=self.alpha, targets=self.targets)

    @property
    def head(self) -> EmbeddingConfig:
        return EmbeddingConfig(pool=self.pool, projections=self.projections, normalise=self.normalise)

    def shapes(self, encoder: Encoder) -> dict[str, Shape]:
        """The tensors that an adapter for this encoder has; nothing is allocated."""
        shapes: dict[str, Shape] = {**lora_shapes(encoder, self.lora)}
        width = encoder.width
        for number, layer in enumerate(self.projections):
            shapes[f"projections.{number}.weight"] = (layer.size, width)
            if layer.bias:
                shapes[f"projections.{number}.bias"] = (layer.size,)
            width = layer.size
        return shapes


class SentenceAdapter:
    """The settings and tensors of an adapter, and the network that it makes of its model."""

    def __init__(self, config: AdapterConfig, tensors: Mapping[str, Tensor], *, checksum: str = "") -> None:
        """`checksum` identifies the stored files."""
        self.config, self.tensors, self.checksum = config, dict(tensors), checksum
        self._network: Network | None = None
        self._lock = threading.Lock()

    def network(self, base: Network) -> Network:
        """The sentence encoder: W' on the device of `base`, made by the first call and kept."""
        with self._lock:
            if self._network is None:
                self._network = self._made(base)
            return self._network

    def with_network(self, network: Network) -> SentenceAdapter:
        """The same adapter over a network that was made from its own, such as one in another runtime."""
        view = SentenceAdapter(self.config, self.tensors, checksum=self.checksum)
        view._network = network
        return view

    def _made(self, base: Network) -> Network:
        encoder = base.encoder
        head = self.config.head
        with empty_weights():
            network = Network(_config_of(encoder), (head,), len(encoder.word_vectors))
        network.encoder = merged_copy(encoder, self.config.lora, self.tensors)
        projections = {name: tensor for name, tensor in self.tensors.items() if name.startswith("projections.")}
        network.objectives["embedding"].load_state_dict(projections, assign=True)
        network.objectives.to(encoder.device)
        return network.requires_grad_(False).eval()


def _config_of(encoder: Encoder) -> EncoderConfig:
    config: EncoderConfig = encoder.config  # type: ignore[assignment]
    return config


def read_adapter(directory: Path, encoder: Encoder, *, allow_nan: bool = False) -> SentenceAdapter:
    """The adapter in a folder, for this encoder; everything is checked before anything is allocated."""
    settings, path = directory / SETTINGS, directory / WEIGHTS
    manifest = manifests.read_manifest(directory)
    if manifest is None:
        raise ArtefactError(f"{directory} has no {manifests.NAME}, so it is no adapter; fetch or make it again")
    manifests.verify(directory, manifest, required=(SETTINGS, WEIGHTS))
    try:
        config = msgspec.convert(files.read_json(settings), AdapterConfig)
        _ = config.lora
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{settings} does not describe an adapter: {fault}; fetch or make it again") from fault
    entries = int8_header(path)
    for name, entry in entries.items():
        check_float(path, name, entry)
    stored = dict(_plain_shape(name, entry.shape) for name, entry in entries.items())
    check_fit(path, stored=stored, wanted=config.shapes(encoder))
    tensors = dict(_plain(name, tensor.float()) for name, tensor in iter_int8(path, allow_nan=allow_nan))
    sums = "".join(manifest.files[name].sha256 for name in (SETTINGS, WEIGHTS))
    return SentenceAdapter(config, tensors, checksum=hashlib.sha256(sums.encode()).hexdigest())


def write_adapter(directory: Path, adapter: SentenceAdapter, *, dtype: AdapterPrecision) -> None:
    """Write the files of an adapter, with their checksums, into an empty folder."""
    files.write_json(directory / SETTINGS, msgspec.to_builtins(adapter.config))
    write_tensors(directory / WEIGHTS, stored_tensors(adapter.tensors, dtype))
    manifests.write_manifest(directory, (SETTINGS, WEIGHTS), recipe=None, lineage={})


def stored_tensors(tensors: Mapping[str, Tensor], dtype: AdapterPrecision) -> dict[str, Tensor]:
    """The contents of the file."""
    if dtype == "int8":
        layers = {name: tensor for name, tensor in tensors.items() if ".lora." not in name}
        pairs = {name: tensor for name, tensor in tensors.items() if name not in layers}
        return quantise_tensors(dict(_transposed(pairs))) | stored_tensors(layers, "float16")
    kind = torch.float32 if dtype == "float32" else torch.float16
    rounded = {name: tensor.to(kind) for name, tensor in tensors.items()}
    for name, tensor in rounded.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ArtefactError(f"{name} of the adapter holds numbers that {dtype} has not; store it as float32")
    return rounded


def rounded_adapter(adapter: SentenceAdapter, dtype: AdapterPrecision) -> SentenceAdapter:
    """The adapter as it is read back from a file of this precision."""
    stored = stored_tensors(adapter.tensors, dtype)
    tensors: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        scale = stored.get(f"{name}.scale")
        weights = tensor.float() if scale is None else tensor.float() * scale[:, None]
        if not name.endswith(".scale"):
            tensors |= dict([_plain(name, weights)])
    return SentenceAdapter(adapter.config, tensors)


def _transposed(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        yield (name + TRANSPOSED, tensor.T.contiguous()) if _is_b(name) else (name, tensor)


def _is_b(name: str) -> bool:
    return ".lora." in name and name.endswith(".b")


def _plain(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    stored = name.removesuffix(TRANSPOSED)
    return (name, tensor) if stored == name else (stored, tensor.T.contiguous())


def _plain_shape(name: str, shape: Shape) -> tuple[str, Shape]:
    stored = name.removesuffix(TRANSPOSED)
    return (name, shape) if stored == name else (stored, shape[::-1])


def trained_adapter(tensors: Mapping[str, Tensor], alpha: float | None, *, source: Path) -> SentenceAdapter:
    """An adapter from the tensors of a training script: ``blocks.0.attention.qkv.lora.query.a`` …, ``dense.weight``.

    Rank and targets follow from them. The linear layer, if there is one, has no activation; texts are averaged, and
    vectors have length 1.
    """
    pairs = {name: tensor for name, tensor in tensors.items() if ".lora." in name}
    ranks = {len(tensor) for name, tensor in pairs.items() if name.endswith(".a") and tensor.ndim == 2}
    targets = {name.split(".lora.")[1].split(".")[0] for name in pairs}
    if len(ranks) != 1 or not targets <= set(TARGETS):
        raise ArtefactError(f"{source} holds no LoRA of one rank (*.lora.query.a and .b …); save encoder.state_dict()")
    rank, dense = ranks.pop(), tensors.get("dense.weight")
    if alpha is None:
        raise ArtefactError(f"{source} does not state the scale of LoRA; give its alpha (--alpha {2 * rank}?)")
    renamed = {f"projections.0.{name.removeprefix('dense.')}": t for name, t in tensors.items() if name[:6] == "dense."}
    layer = (
        () if dense is None else (DenseProjection(size=len(dense), activation="none", bias="dense.bias" in tensors),)
    )
    config = AdapterConfig(
        rank=rank, alpha=alpha, targets=tuple(name for name in TARGETS if name in targets), projections=layer
    )
    others = {name: t for name, t in tensors.items() if name not in pairs and not name.startswith("dense.")}
    return SentenceAdapter(config, {name: t.float() for name, t in (pairs | renamed | others).items()})


def check_adapter(adapter: SentenceAdapter, encoder: nn.Module, source: Path) -> None:
    """Refuse an adapter of another encoder."""
    assert isinstance(encoder, Encoder)
    stored = {name: tuple(tensor.shape) for name, tensor in adapter.tensors.items()}
    check_fit(source, stored=stored, wanted=adapter.config.shapes(encoder))
