"""`larvatus export onnx DIR --out OUT`: a model as an ONNX file, with its vocabulary beside it.

    done = export_onnx("runs/mine", out="runs/mine-onnx", output="vectors")
    done.difference                         # from torch, at most; a file that differs by more than rounding is not kept

    OUT/model.onnx                          weights and all
    OUT/onnx.json                           what it gives, of which weights, by how much it differs
    OUT/tokenizer.json …                    the vocabulary, unless it stands there already

In the model's own directory, the file is what `lv.load(DIR, runtime="onnx")` runs, in place of exporting anew.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.core import files
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import LarvatusError, UsageError
from larvatus.core.outputs import check_directory, new_output
from larvatus.core.regular_files import open_regular
from larvatus.core.version import VERSION
from larvatus.data.text.tokenizer_files import WRITTEN
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.onnx_file import OPSET, Output, check_onnx, find_scorer, open_session, run_flat, write_onnx
from larvatus.models.loaded import model_fingerprint
from larvatus.models.nn.encoder_base import Encoder

FILE, RECORD = "model.onnx", "onnx.json"


class OnnxExport(Struct, frozen=True, kw_only=True):
    """What was written."""

    path: str
    output: Output
    difference: float
    """From torch, at most."""
    weights: str
    """Fingerprint of the model that it was made from."""
    labels: tuple[str, ...] = ()
    """What the scores of a fine-tuned model are of."""
    opset: int = OPSET
    larvatus: str = VERSION

    def to_dict(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


def export_onnx(
    model: str | Path, *, out: str | Path, output: Output | None = None, overwrite: bool = False
) -> OnnxExport:
    """Write a model as an ONNX file with free batch and length, and check it against torch.

    Args:
        model: A directory of a model, or a hub name: a bidirectional transformer, fine-tuned or not.
        out: A directory for `model.onnx` and the vocabulary; the model's own serves `load(…, runtime="onnx")`.
        output: `vectors` of the last layer, or `logits`: of the head of a fine-tuned model, else of every word at every
            place. By default logits of fine-tuned models, vectors of others.
        overwrite: Replace a file that stands there.

    Returns:
        What was written: `.path`, `.output`, `.difference` from torch.

    Example:
        >>> export_onnx("runs/mine", out="runs/mine-onnx").output
        'vectors'
    """
    check_onnx()
    directory = Path(out)
    at_home = directory.exists() and directory.resolve() == Path(model).resolve()
    names = (FILE, RECORD) if at_home else (FILE, RECORD, *WRITTEN)
    check_directory(directory, names, overwrite=overwrite)
    bundle = load_bundle(model)
    chosen = output or ("logits" if _labels(bundle) else "vectors")
    directory.mkdir(parents=True, exist_ok=True)
    with new_output(directory / FILE) as aside:
        difference = write_onnx(bundle.network, aside, output=chosen)
    if not at_home:
        bundle.tokenizer.save(directory)
    done = OnnxExport(
        path=str(directory / FILE),
        output=chosen,
        difference=difference,
        weights=model_fingerprint(bundle.path, bundle.tokenizer),
        labels=_labels(bundle) if chosen == "logits" else (),
    )
    files.write_json(directory / RECORD, done.to_dict())
    return done


def exported_vectors(bundle: Bundle) -> bytes | None:
    """The file beside a model, where it was made from these very weights and gives vectors."""
    try:
        with open_regular(bundle.path / RECORD) as stream:
            record = msgspec.json.decode(stream.read(1 << 20), type=OnnxExport)
        if record.output != "vectors" or record.weights != model_fingerprint(bundle.path, bundle.tokenizer):
            return None
        with open_regular(bundle.path / FILE) as stream:
            return bytes(stream.read())
    except (OSError, msgspec.DecodeError, LarvatusError):
        return None


def _labels(bundle: Bundle) -> tuple[str, ...]:
    return tuple(getattr(getattr(find_scorer(bundle.network), "config", None), "labels", ()))


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
