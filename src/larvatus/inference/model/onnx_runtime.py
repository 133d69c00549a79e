"""An encoder that ONNX Runtime computes, in the place of one that torch does: `lv.load(DIR, runtime="onnx")`.

What reads vectors (embed, heads, fill, score) does not know the difference. Batches are padded on the way in and
flattened on the way out; layers below the last are not to be had.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.inference.model.onnx_export import FILE, exported_vectors
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.onnx_file import check_onnx, open_session, run_flat, write_onnx
from larvatus.models.nn.encoder_base import Encoder


def run_in_onnx(bundle: Bundle) -> None:
    """Have the encoder computed by ONNX Runtime, from the file beside the model or one that is made now, in seconds."""
    check_onnx()
    network, file = bundle.network, exported_vectors(bundle)
    if file is None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / FILE
            write_onnx(network, path, output="vectors")
            file = path.read_bytes()
    network.encoder = OnnxEncoder(network.encoder, open_session(file))


class OnnxEncoder(Encoder):
    def __init__(self, encoder: Encoder, session: Any) -> None:
        super().__init__()
        self.config = encoder.config
        self.words = nn.Parameter(encoder.word_vectors, requires_grad=False)
        self._session = session
        self._process = os.getpid()

    @property
    def word_vectors(self) -> Tensor:
        return self.words

    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        if layers is not None and set(layers) != {self.depth}:
            raise UsageError("ONNX Runtime gives the last layer alone; leave out runtime onnx for others, or for a mix")
        if os.getpid() != self._process:  # its threads are the parent's, and would be waited for without end
            raise UsageError(
                "a model in ONNX Runtime cannot be used in a forked process; load it there, leave out runtime onnx, or "
                'start processes with multiprocessing.get_context("spawn")'
            )
        z_ND = torch.from_numpy(run_flat(self._session, batch.map(lambda tensor: tensor.numpy())))
        return z_ND if layers is None else [z_ND for _ in layers]

    def parts(self) -> list[tuple[int, nn.Module]]:
        raise UsageError("a model in ONNX Runtime cannot be trained; load it without runtime")

    def flops(self, length: int) -> int:
        raise UsageError("a model in ONNX Runtime cannot be trained; load it without runtime")

    def train(self, mode: bool = True) -> OnnxEncoder:
        if mode:
            raise UsageError("a model in ONNX Runtime cannot be trained; load it without runtime")
        super().train(mode)
        return self

    def _save_to_state_dict(self, *_: Any) -> None:
        raise UsageError("a model in ONNX Runtime has no weights to save or train; load it without runtime")
