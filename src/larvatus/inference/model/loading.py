"""Loading a model from a directory or the local cache of the Hugging Face hub.

model = load("runs/law", device="cpu", quantise="int8")
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec
import torch

from larvatus.core.errors import UsageError
from larvatus.core.settings import Settings
from larvatus.inference.model.model import Model
from larvatus.inference.model.runtime import FixedRuntime, RuntimeName, fastest_runtime, run_in
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.model_names import model_or_packaged
from larvatus.models.network import Quantise
from larvatus.models.nn.device import choose_device, explain_out_of_memory


class LoadOptions(Settings):
    """How a model is run: options of every command that takes a model."""

    device: str = "auto"
    """auto, cpu or cuda."""
    quantise: Quantise | None = None
    """int8 linear layers: faster on a CPU, slightly less exact."""
    runtime: RuntimeName = "torch"
    """What runs the encoder on a CPU: torch, onnx or openvino (extras of these names), or auto, the fastest here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantise not in (None, "int8"):
            raise UsageError(f"quantise is int8 or nothing, not {self.quantise!r}")
        if self.runtime not in get_args(RuntimeName):
            raise UsageError(f"runtime is torch, onnx, openvino or auto, not {self.runtime!r}")
        if self.quantise is not None and self.runtime == "onnx":
            raise UsageError("int8 needs the runtime torch or openvino; leave out quantise, or runtime onnx")

    @property
    def on_cpu(self) -> str | None:
        """The option that works only on CPUs, if any."""
        return self.quantise or (None if self.runtime == "torch" else f"runtime {self.runtime}")

    def torch_device(self) -> torch.device:
        """The device; `auto` is the CPU if an option needs it."""
        if self.on_cpu is None:
            return choose_device(self.device)
        chosen = choose_device("cpu" if self.device == "auto" else self.device)
        if chosen.type != "cpu":
            raise UsageError(f"{self.on_cpu} is for CPUs, not {chosen.type}; use --device cpu, or leave it out")
        return chosen

    def bundle(self, path: str | Path, **settings: Any) -> Bundle:
        """Load a model directory with these options; settings are those of `load_bundle`."""
        return self._run(path, **settings)[0]

    def _run(self, path: str | Path, **settings: Any) -> tuple[Bundle, LoadOptions]:
        """The bundle, and the options with the runtime that `auto` chose."""
        self.torch_device()  # refuses a wrong device before anything is read
        bundle = load_bundle(path, **settings)
        runtime: FixedRuntime = fastest_runtime(bundle, self.quantise) if self.runtime == "auto" else self.runtime
        run_in(bundle, runtime, self.quantise)
        return bundle, msgspec.structs.replace(self, device="cpu" if self.on_cpu else self.device, runtime=runtime)

    def load(self, path: str | Path, **settings: Any) -> Model:
        """The same, as a `Model`."""
        place = self.torch_device()
        with explain_out_of_memory("use a smaller model, or end other programs"):
            bundle, running = self._run(path, **settings)
            return Model(bundle, place, number=running.number, origin=_Origin(_anywhere(path), running, settings))

    @property
    def number(self) -> str:
        """How vectors differ from those of the same weights in float32: the type of numbers; else empty."""
        if self.quantise is None:
            return ""
        return self.quantise if self.runtime == "torch" else f"{self.quantise}-{self.runtime}"


def _anywhere(path: str | Path) -> str:
    """An absolute path for other processes; a hub name stays unchanged."""
    return os.path.abspath(path) if os.path.isdir(path) else str(path)


@dataclass(frozen=True)
class _Origin:
    """Path and options of a model: all that another process needs to load it."""

    path: str
    running: LoadOptions
    settings: dict[str, Any]

    @property
    def device(self) -> str:
        return "cpu" if self.running.on_cpu else self.running.device

    def load(self) -> Model:
        return self.running.load(self.path, **self.settings)


def load(
    path: str | Path | None = None,
    *,
    device: str | torch.device = "auto",
    quantise: Quantise | None = None,
    runtime: RuntimeName = "torch",
    allow_nan: bool = False,
    revision: str | None = None,
    online: bool = False,
) -> Model:
    """Load a model directory of Larvatus or `transformers`, or a model of the Hugging Face hub by its name.

    Args:
        path: A directory, or `org/name` or `org/name@COMMIT` in the local cache. None for the English model that comes
            with Larvatus, if it is installed.
        device: `auto`, `cpu`, `cuda`, or a device of torch.
        quantise: `int8` for int8 linear layers: faster on a CPU, slightly less exact, only for inference.
        runtime: What runs the encoder on the CPU: `torch`, `onnx` (extra `larvatus[onnx]`), `openvino` (extra
            `larvatus[openvino]`), or `auto`: the fastest of those installed, measured once on this machine.
        allow_nan: Accept weights that are NaN.
        revision: The commit of a hub model, 40 digits.
        online: Download a hub model that is not in the cache; needs a revision.

    Returns:
        The model, in evaluation mode.

    Example:
        >>> load("runs/mine", device="cpu").encoder.config.layers
        2
        >>> load("runs/mine", quantise="int8").embed("the river").shape
        (16,)
    """
    running = LoadOptions(device=str(device), quantise=quantise, runtime=runtime)
    return running.load(
        model_or_packaged() if path is None else path, allow_nan=allow_nan, revision=revision, online=online
    )
