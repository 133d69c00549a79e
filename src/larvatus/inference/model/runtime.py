"""Other runtimes than torch for the encoder of a loaded model, and the choice of the fastest on this CPU.

    lv.load(DIR, runtime="openvino", quantise="int8")       # heads stay in torch
    lv.load(DIR, runtime="auto")                            # the fastest of those that are installed, measured once

Everything that reads vectors (embed, predict, fill, score, the server) calls `network.encoder`, so a `RuntimeEncoder`
in its place is all that a runtime needs. Batches are padded on the way in and flattened on the way out; layers below
the last are not available.

`auto` runs sentences of different lengths through each candidate, in turn, on the threads of torch, and takes the one
with the fastest round. The result is kept in a file for this processor, these versions and this shape of model
(`choices_file`), which `larvatus bench` also writes. ONNX Runtime takes part where the model's directory has
an exported file, since exporting takes longer than most uses. A GPU is not considered.
"""

from __future__ import annotations

import copy
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from larvatus.core import files
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import LarvatusError, UsageError
from larvatus.core.run_identity import VERSION
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.onnx_file import run_flat
from larvatus.models.network import Network, Quantise, quantise_network
from larvatus.models.nn.device import processor_name
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.transformer import Transformer

RuntimeName = Literal["torch", "onnx", "openvino", "auto"]
FixedRuntime = Literal["torch", "onnx", "openvino"]
TITLES: Mapping[str, str] = {"onnx": "ONNX Runtime", "openvino": "OpenVINO"}
ROUNDS = 4
"""Rounds of a measurement; the first warms up."""
LENGTHS = (6, 9, 12, 14, 17, 20, 24, 29, 36, 48, 64)
"""Tokens of the measured sequences, as ragged as sentences are."""


class RuntimeEncoder(Encoder):
    """An encoder that another runtime computes."""

    def __init__(self, encoder: Encoder, session: Any, runtime: FixedRuntime) -> None:
        super().__init__()
        self.config = encoder.config
        self.words = nn.Parameter(encoder.word_vectors, requires_grad=False)
        self.runtime = runtime
        self._session = session
        self._process = os.getpid()

    @property
    def word_vectors(self) -> Tensor:
        return self.words

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        if layers is not None and set(layers) != {self.depth}:
            raise UsageError(
                f"{TITLES[self.runtime]} gives only the last layer; leave out runtime {self.runtime} for others, or "
                "for a mix"
            )
        if os.getpid() != self._process:  # its threads belong to the parent: waiting for them would never end
            raise UsageError(
                f"a model in {TITLES[self.runtime]} cannot be used in a forked process; load it there, leave out "
                f'runtime {self.runtime}, or start processes with multiprocessing.get_context("spawn")'
            )
        z_ND = torch.from_numpy(run_flat(self._session, batch.map(lambda tensor: tensor.numpy())))
        return z_ND if layers is None else [z_ND for _ in layers]

    def parts(self) -> list[tuple[int, nn.Module]]:
        raise self._not_trained()

    def flops(self, length: int) -> int:
        raise self._not_trained()

    def train(self, mode: bool = True) -> RuntimeEncoder:
        if mode:
            raise self._not_trained()
        super().train(mode)
        return self

    def _not_trained(self) -> UsageError:
        return UsageError(f"a model in {TITLES[self.runtime]} cannot be trained; load it without runtime")

    def _save_to_state_dict(self, *_: Any) -> None:
        raise UsageError(f"a model in {TITLES[self.runtime]} has no weights to save or train; load it without runtime")


def run_in(bundle: Bundle, runtime: FixedRuntime, quantise: Quantise | None) -> None:
    """Replace the encoders of a bundle, that of its sentence adapter too, by those of a runtime, or by int8 ones."""
    networks = [bundle.network]
    if bundle.adapter is not None:
        networks.insert(0, bundle.adapter.network(bundle.network))  # made from the weights as they are stored
    for network in networks:
        place_encoder(network, runtime, quantise, bundle if network is bundle.network else None)


def place_encoder(network: Network, runtime: FixedRuntime, quantise: Quantise | None, source: Bundle | None) -> None:
    """Run one network in a runtime; `source` may have an exported file of it."""
    if runtime == "torch":
        if quantise is not None:
            quantise_network(network)
        return
    if runtime == "onnx":
        from larvatus.inference.model.onnx import onnx_session  # an extra, and a second of imports

        session = onnx_session(network, source)
    else:
        from larvatus.models.bundle.openvino_model import open_openvino

        session = open_openvino(network.encoder, int8=quantise is not None)
    network.encoder = RuntimeEncoder(network.encoder, session, runtime)


# The choice.


class RuntimeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the fastest round of each runtime."""

    chosen: FixedRuntime
    seconds: dict[str, float]


def candidates(bundle: Bundle, quantise: Quantise | None) -> list[FixedRuntime]:
    """Runtimes that can run this model here without preparation of minutes."""
    names: list[FixedRuntime] = ["torch"]
    encoder = bundle.network.encoder
    if isinstance(encoder, Transformer) and encoder.relative is None and find_spec("openvino") is not None:
        names.append("openvino")
    if quantise is None and find_spec("onnxruntime") is not None:
        from larvatus.inference.model.onnx import exported_vectors

        if exported_vectors(bundle) is not None:
            names.append("onnx")
    return names


def fastest_runtime(bundle: Bundle, quantise: Quantise | None) -> FixedRuntime:
    """The fastest runtime for this model on this CPU: from an earlier measurement, or from one that is made now."""
    names = candidates(bundle, quantise)
    if len(names) == 1:
        return names[0]
    key = choice_key(bundle, quantise, names)
    kept = _read_choices().get(key)
    if kept is None:
        encoders = {name: encoder_in(bundle, name, quantise) for name in names}
        kept = measure_runtimes(encoders)
        keep_choice(key, kept)
    return kept.chosen


def encoder_in(bundle: Bundle, runtime: FixedRuntime, quantise: Quantise | None) -> Encoder:
    """The encoder of a bundle in a runtime; the bundle keeps its own."""
    network = copy.deepcopy(bundle.network) if runtime == "torch" and quantise else bundle.network.view()
    place_encoder(network, runtime, quantise, bundle)
    return network.encoder


@torch.inference_mode()
def measure_runtimes(encoders: Mapping[FixedRuntime, Callable[[TokenBatch[Tensor]], Any]]) -> RuntimeChoice:
    """Time encoders on the same sequences, in turn."""
    draw = np.random.default_rng(0)
    batch = TokenBatch.of([draw.integers(5, 1_000, length).tolist() for length in LENGTHS * 2]).map(torch.from_numpy)
    fastest = dict.fromkeys(encoders, float("inf"))
    for number in range(ROUNDS):
        for name, encoder in encoders.items():
            began = time.perf_counter()
            encoder(batch)
            if number:
                fastest[name] = min(fastest[name], time.perf_counter() - began)
    chosen = min(fastest, key=lambda name: fastest[name])
    return RuntimeChoice(chosen=chosen, seconds={str(name): seconds for name, seconds in fastest.items()})


def choices_file() -> Path:
    """The file of measured choices, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "larvatus" / "runtimes.json"


def keep_choice(key: str, choice: RuntimeChoice) -> None:
    """Write a choice for later loads; where the cache cannot be written, each load measures again."""
    path = choices_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, msgspec.to_builtins({**_read_choices(), key: choice}))
    except (OSError, LarvatusError):
        return


def _read_choices() -> dict[str, RuntimeChoice]:
    """What was measured; a file that is absent or damaged is as good as empty, and is written again."""
    try:
        return msgspec.json.decode(choices_file().read_bytes(), type=dict[str, RuntimeChoice])
    except (OSError, msgspec.DecodeError):
        return {}


def choice_key(bundle: Bundle, quantise: Quantise | None, names: Sequence[str]) -> str:
    """All that a measurement depends on: processor, threads, versions, shape of the model."""
    shape = hashlib.sha256(msgspec.json.encode(bundle.network.encoder.config)).hexdigest()[:16]
    packages = {"openvino": "openvino", "onnx": "onnxruntime"}
    versions = [f"{name} {version(packages[name])}" for name in names if name in packages]
    machine = [processor_name(), f"{torch.get_num_threads()} threads", f"torch {torch.__version__}", *versions]
    return "; ".join([*machine, f"larvatus {VERSION}", quantise or "float32", shape])
