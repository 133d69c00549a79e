"""Reading a static model: our directory, or one of `model2vec` or `sentence-transformers` (StaticEmbedding).

    folder = static_folder(Path("potion-base-8M"))            # where the table is; None for any other model
    read_static(root, folder, manifest).network

`mapping` and `weights` of `model2vec` are multiplied into the rows, once. It also leaves unknown tokens out of the
mean: their row becomes 0, which gives the same direction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle import sentence_modules
from larvatus.models.bundle.huggingface import PARAMETER, ROWS, StaticEmbedding
from larvatus.models.bundle.manifest import Manifest
from larvatus.models.bundle.sentence_modules import PACKAGE, STATIC, module_folder, read_modules
from larvatus.models.bundle.weights import find_weights, read_header, read_tensors
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.models.network import Network
from larvatus.models.nn.initialise import empty_weights

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
THEIR_ROWS = "embedding.weight"
TENSORS = ({ROWS}, {ROWS, "weights"}, {ROWS, "mapping"}, {ROWS, "weights", "mapping"}, {THEIR_ROWS})
"""The tensors that a file may have."""


def static_folder(directory: Path) -> Path | None:
    """The folder that holds the table of a static model; None for other models."""
    if is_there(directory / PACKAGE):
        kind, folder = next(iter(read_modules(directory)), ("", ""))
        if kind == STATIC:
            return directory if folder in ("", ".") else module_folder(directory, folder)
        return None
    return directory if _is_model2vec(directory) else None


def _is_model2vec(directory: Path) -> bool:
    config: Any = files.read_json(directory / CONFIG) if is_there(directory / CONFIG) else None
    return isinstance(config, dict) and config.get("model_type") == StaticEmbedding.model_type


def read_static(directory: Path, folder: Path, manifest: Manifest | None, *, allow_nan: bool) -> dict[str, Any]:
    """What a `Bundle` holds of the model whose table is in `folder`."""
    path = _weights(folder)
    if manifest is not None:
        manifests.verify(directory, manifest, required=[CONFIG, TOKENIZER, path.name])
    tokenizer = Tokenizer.load(folder).without_template()
    rows_VD = _rows(path, tokenizer, skips_unknown=_is_model2vec(directory), allow_nan=allow_nan)
    layout = StaticEmbedding()
    sizes = {"vocab_size": rows_VD.shape[0], "hidden_dim": rows_VD.shape[1]}
    architecture = layout.architecture(sizes, source=path, names=frozenset())
    architecture = msgspec.structs.replace(architecture, objectives=(_head(directory, tokenizer, rows_VD.shape[1]),))
    with empty_weights():
        network = Network(architecture.model, architecture.objectives, architecture.vocabulary)
    dense = {name: tuple(t.shape) for name, t in network.state_dict().items() if name != PARAMETER}
    projections = sentence_modules.read_projections(
        directory, dense, verified=manifest is not None, allow_nan=allow_nan
    )
    network.load_state_dict({PARAMETER: rows_VD, **projections}, assign=True)
    return {
        "network": network.requires_grad_().eval(),
        "model": architecture.model,
        "objectives": architecture.objectives,
        "tokenizer": tokenizer,
        "family": layout.model_type,
        "pooling": "mean",
        "lineage": manifest.lineage if manifest else {},
        "claims": manifest.claims if manifest else (),
    }


def _weights(folder: Path) -> Path:
    paths = find_weights(folder)
    if len(paths) != 1:
        raise ArtefactError(f"{folder} has a table in {len(paths)} files; save it in one")
    return paths[0]


def _head(directory: Path, tokenizer: Tokenizer, hidden: int) -> EmbeddingConfig:
    if not is_there(directory / PACKAGE):
        config = files.read_json(directory / CONFIG)
        return EmbeddingConfig(normalise=bool(config.get("normalize", False)))
    head = sentence_modules.read_sentence_head(directory, tokenizer.template, hidden=hidden)
    if head is None:
        reason = sentence_modules.unsupported_modules(directory, tokenizer.template, hidden=hidden)
        raise ArtefactError(f"{directory} is a static model with {reason}, which Larvatus does not have")
    return head


def _rows(path: Path, tokenizer: Tokenizer, *, skips_unknown: bool, allow_nan: bool) -> Tensor:
    """The row of each token, in float32: [V, D]."""
    entries = read_header(path)
    if entries.keys() not in TENSORS:
        raise ArtefactError(f"{path} holds {', '.join(sorted(entries))}; a static model holds {ROWS} or {THEIR_ROWS}")
    tensors = read_tensors(path, allow_nan=allow_nan, integers=True)
    stored = tensors[ROWS] if ROWS in tensors else tensors[THEIR_ROWS]
    if stored.ndim != 2:
        raise ArtefactError(f"{path}: the table has {stored.ndim} dimensions instead of 2")
    rows_VD = stored.to(torch.float32, copy=True)
    if "mapping" in tensors:
        mapping_V = tensors["mapping"].long()
        if (
            mapping_V.ndim != 1
            or not len(mapping_V)
            or not 0 <= int(mapping_V.min()) <= int(mapping_V.max()) < len(rows_VD)
        ):
            raise ArtefactError(f"{path}: mapping names rows that the table does not have")
        rows_VD = rows_VD[mapping_V]
    if "weights" in tensors:
        if tensors["weights"].shape != rows_VD.shape[:1]:
            raise ArtefactError(f"{path}: there is not one weight for each of {len(rows_VD):,} tokens")
        rows_VD *= tensors["weights"].float()[:, None]
    if tokenizer.size > len(rows_VD):
        raise ArtefactError(
            f"{path} has {len(rows_VD):,} rows, but its tokenizer has {tokenizer.size:,} tokens; they belong to "
            "different models"
        )
    unknown = tokenizer.id(tokenizer.special.unk)
    if skips_unknown and unknown is not None:
        rows_VD[unknown] = 0.0
    return rows_VD
