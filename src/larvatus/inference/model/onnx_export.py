"""`larvatus export onnx DIR --out OUT`: a model as an ONNX file, with its vocabulary beside it.

    done = export_onnx("runs/mine", out="runs/mine-onnx", output="vectors")
    done.difference                         # from torch, at most; a file that differs by more than rounding is not kept

    OUT/model.onnx                          weights and all
    OUT/onnx.json                           what it gives, of which weights, by how much it differs
    OUT/tokenizer.json …                    the vocabulary, unless it stands there already

In the model's own directory, the file is what `lv.load(DIR, runtime="onnx")` runs, in place of exporting anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from larvatus.core import files
from larvatus.core.errors import LarvatusError
from larvatus.core.outputs import check_directory, new_output
from larvatus.core.regular_files import open_regular
from larvatus.core.version import VERSION
from larvatus.data.text.tokenizer_files import WRITTEN
from larvatus.inference.vectors.fingerprints import model_fingerprint
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.onnx_file import OPSET, Output, check_onnx, find_scorer, write_onnx

FILE, RECORD = "model.onnx", "onnx.json"


class Exported(Struct, frozen=True, kw_only=True):
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
) -> Exported:
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
    done = Exported(
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
            record = msgspec.json.decode(stream.read(1 << 20), type=Exported)
        if record.output != "vectors" or record.weights != model_fingerprint(bundle.path, bundle.tokenizer):
            return None
        with open_regular(bundle.path / FILE) as stream:
            return bytes(stream.read())
    except (OSError, msgspec.DecodeError, LarvatusError):
        return None


def _labels(bundle: Bundle) -> tuple[str, ...]:
    return tuple(getattr(getattr(find_scorer(bundle.network), "config", None), "labels", ()))
