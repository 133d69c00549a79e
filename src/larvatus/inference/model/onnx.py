"""ONNX: export of a model (`larvatus export onnx DIR --out OUT`), and ONNX Runtime instead of torch.

    done = export_onnx("runs/mine", out="runs/mine-onnx", output="vectors")
    done.difference                         # largest difference from torch; a file that differs by more than rounding
                                            # is not kept
    OUT/model.onnx                          network and weights
    OUT/onnx.json                           output, fingerprint of the weights, difference from torch
    OUT/tokenizer.json …                    the vocabulary, unless it is there already

`lv.load(DIR, runtime="onnx")` runs the file in the model's own directory, or exports one (`runtime.py`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core import files
from larvatus.core.errors import LarvatusError
from larvatus.core.outputs import check_directory, new_output
from larvatus.core.regular_files import open_regular
from larvatus.core.run_identity import VERSION
from larvatus.data.text.tokenizer_files import WRITTEN
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.onnx_file import OPSET, Output, check_onnx, find_scorer, open_session, write_onnx
from larvatus.models.loaded import model_fingerprint
from larvatus.models.network import Network

FILE, RECORD = "model.onnx", "onnx.json"


class OnnxExport(Struct, frozen=True, kw_only=True):
    """Record of an exported file."""

    path: str
    output: Output
    difference: float
    """Largest difference from torch."""
    weights: str
    """Fingerprint of the exported model."""
    labels: tuple[str, ...] = ()
    """Labels of the scores of a fine-tuned model."""
    opset: int = OPSET
    larvatus: str = VERSION

    def to_dict(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


def export_onnx(
    model: str | Path, *, out: str | Path, output: Output | None = None, overwrite: bool = False
) -> OnnxExport:
    """Export a model to ONNX with dynamic batch and length, and check it against torch.

    Args:
        model: A model directory, or a hub name: a bidirectional transformer, fine-tuned or not.
        out: Directory for `model.onnx` and the vocabulary; the model's own serves `load(…, runtime="onnx")`.
        output: `vectors` of the last layer, or `logits` of the head of a fine-tuned model, else of every word at every
            position. By default logits for fine-tuned models, vectors for others.
        overwrite: Replace an existing file.

    Returns:
        A record of the export: `.path`, `.output`, `.difference` from torch.

    Example:
        >>> export_onnx("runs/mine", out="runs/mine-onnx").output
        'vectors'
    """
    check_onnx()
    directory = Path(out)
    in_place = directory.exists() and directory.resolve() == Path(model).resolve()
    names = (FILE, RECORD) if in_place else (FILE, RECORD, *WRITTEN)
    check_directory(directory, names, overwrite=overwrite)
    bundle = load_bundle(model)
    chosen = output or ("logits" if _labels(bundle) else "vectors")
    directory.mkdir(parents=True, exist_ok=True)
    with new_output(directory / FILE) as aside:
        difference = write_onnx(bundle.network, aside, output=chosen)
    if not in_place:
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
    """The ONNX file in a model directory, if it was exported from these weights and gives vectors."""
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


def onnx_session(network: Network, bundle: Bundle | None) -> Any:
    """A session of the network: from the file in its model's directory, or one that is exported now, in seconds."""
    check_onnx()
    file = None if bundle is None else exported_vectors(bundle)
    return open_session(_exported(network) if file is None else file)


def _exported(network: Network) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        write_onnx(network, path, output="vectors")
        return path.read_bytes()
