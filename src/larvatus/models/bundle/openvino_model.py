"""An encoder in OpenVINO, Intel's runtime for CPUs: the padded encoder of `onnx_file.py`, converted in memory.

    session = open_openvino(bundle.network.encoder, int8=True)
    run_flat(session, batch)                    # as with a session of ONNX Runtime

In int8, weights are rounded to 8 bits when they are converted, with a scale for each output, and OpenVINO rounds their
inputs as they come, in groups of a token's numbers that share a scale (`group_size`). So nothing is calibrated, and the
vectors of a text do not depend on the texts of its batch. Processors need AVX-512 VNNI or AMX for it.

The converted model is compared with the flat encoder before it is used, in float32. Where `openvino-telemetry` is
installed, as it is by default, OpenVINO reports to Intel that it is imported and what it converts. Here nothing is
sent: it is imported as if that package were absent, and its frontend is called directly.
"""

from __future__ import annotations

import math
import sys
import threading
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.models.bundle.onnx_file import INPUTS, TOLERANCE, PaddedEncoder, run_flat
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.transformer import Transformer

TELEMETRY = "openvino_telemetry"
LARGEST = 127
SMALLEST_GROUP = 32
"""Smallest group that OpenVINO rounds together."""
_LENGTHS = (3, 17, 9, 32, 1, 150)
"""Lengths of the sequences that a converted model is compared on, cut to what the model reads."""


def check_openvino(encoder: Encoder) -> None:
    """Refuse if the extra is not installed, or if the encoder has no padded form that can be traced."""
    if find_spec("openvino") is None:
        raise UsageError("the runtime openvino is not installed; install the extra: pip install 'larvatus[openvino]'")
    if not isinstance(encoder, Transformer):
        raise UsageError(
            f"a {type(encoder).__name__} cannot run in OpenVINO, bidirectional transformers such as bert can; leave "
            "out the runtime"
        )
    if encoder.relative is not None:
        raise UsageError("a model with relative positions cannot run in OpenVINO; leave out the runtime, or use onnx")


def import_openvino() -> Any:
    """OpenVINO without its telemetry."""
    if {"openvino", TELEMETRY} & sys.modules.keys():
        return import_module("openvino")
    sys.modules[TELEMETRY] = None  # type: ignore[assignment]  # an import of it then fails, and OpenVINO goes without
    try:
        return import_module("openvino")
    finally:
        del sys.modules[TELEMETRY]


class OpenvinoSession:
    """A compiled model, called as a session of ONNX Runtime is. Each thread has a request of its own."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._requests = threading.local()

    def run(self, _: None, inputs: Mapping[str, Ints]) -> list[Floats]:
        """The outputs; they are overwritten by the next call of this thread."""
        request = getattr(self._requests, "request", None)
        if request is None:
            request = self._requests.request = self._compiled.create_infer_request()
        arrays = [inputs[name] for name in INPUTS]
        return [request.infer(arrays, share_inputs=True, share_outputs=True)[0]]


def open_openvino(encoder: Encoder, *, int8: bool = False) -> OpenvinoSession:
    """Convert an encoder and compile it for this CPU, on as many threads as torch has."""
    check_openvino(encoder)
    import_openvino()
    model = _converted(encoder)
    session = _compiled(model)
    difference, largest = _difference(encoder, session)
    if not difference <= TOLERANCE * max(1.0, largest):
        raise ArtefactError(
            f"the model in OpenVINO differs from torch by {difference:.1e}; leave out the runtime, or use onnx"
        )
    return _compiled(model, group=quantise_weights(model)) if int8 else session


def _converted(encoder: Encoder) -> Any:
    from openvino import PartialShape, Type
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in INPUTS)
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")  # of the tracer, about shapes that stay free
        decoder = TorchScriptPythonDecoder(PaddedEncoder(encoder).eval(), example_input=example)
        frontend = FrontEndManager().load_by_framework("pytorch")
        model = frontend.convert(frontend.load(decoder))
    for given in model.inputs:
        given.get_node().set_partial_shape(PartialShape([-1, -1]))
        given.get_node().set_element_type(Type.i64)
    model.validate_nodes_and_infer_types()
    return model


def quantise_weights(model: Any) -> int:
    """Round the weights of matrix products to 8 bits in place; returns the numbers of an input that share a scale."""
    from openvino import Type
    from openvino import opset13 as ops

    sizes = []
    for product in model.get_ordered_ops():
        weights = product.input_value(1).get_node() if product.get_type_name() == "MatMul" else None
        if weights is None or weights.get_type_name() != "Constant":
            continue
        numbers = weights.data
        axis = 1 if product.get_attributes()["transpose_b"] else 0
        scales = np.maximum(np.abs(numbers).max(axis, keepdims=True), np.finfo(np.float32).tiny) / LARGEST
        whole = ops.constant(np.rint(numbers / scales).astype(np.int8), dtype=Type.i8)
        read = ops.multiply(ops.convert(whole, "f32"), ops.constant(scales.astype(np.float32)))
        product.input(1).replace_source_output(read.output(0))
        sizes.append(numbers.shape[axis])
    group = math.gcd(*sizes)
    return group if group >= SMALLEST_GROUP else 0


@cache
def _core() -> Any:
    """OpenVINO's entry. Each sets a signal stack, and the later of two restores one that is gone: one a process."""
    from openvino import Core

    return Core()


def _compiled(model: Any, *, group: int = 0) -> OpenvinoSession:
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "ENABLE_CPU_PINNING": False,  # leave the cores to other programs
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(group),
    }
    return OpenvinoSession(_core().compile_model(model, "CPU", settings))


@torch.inference_mode()
def _difference(encoder: Encoder, session: OpenvinoSession) -> tuple[float, float]:
    """Largest difference at tokens from the flat encoder; and the largest value."""
    draw = np.random.default_rng(0)
    words = len(encoder.word_vectors)
    batch = TokenBatch.of([draw.integers(0, words, min(length, encoder.reach)).tolist() for length in _LENGTHS])
    wanted: Tensor = encoder(batch.map(torch.from_numpy))
    given = run_flat(session, batch)
    return float(np.abs(given - wanted.numpy()).max()), float(wanted.abs().max())
