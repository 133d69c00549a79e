"""The modules of token vectors and of sparse vectors, as `sentence-transformers` directories have them.

    Transformer, Dense, MultiVectorMask, Normalize        `MultiVectorEncoder`: late interaction
    Transformer, SpladePooling                            `SparseEncoder`: SPLADE; config.json is that of the masked LM

    read_token_head(Path("runs/late"), hidden=384)        # LateInteractionConfig(size=128)

Our models with such a head are written so, and theirs are read if they do nothing else. Packages with prompts or marker
tokens before texts, queries that are filled up with [MASK], lists of skipped tokens, several linear layers, or other
activations (PyLate's and Stanford's ColBERT have some of them) are read as an encoder without a head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there
from larvatus.models.bundle.huggingface.layout import Architecture
from larvatus.models.bundle.sentence_modules import (
    LENGTH_FILE,
    PACKAGE,
    SENTENCE_FILE,
    UnsupportedModule,
    module_folder,
    read_dense,
    read_modules,
    write_folders,
    write_package,
)
from larvatus.models.heads.embedding import LateInteractionConfig
from larvatus.models.heads.sparse import SparseConfig
from larvatus.models.network import Network, tag

TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
"""Modules that read and write the vectors of tokens."""
SPLADE = {"pooling_strategy": "max", "activation_function": "relu"}


def with_token_head(architecture: Architecture, directory: Path) -> Architecture:
    """The architecture with the head that the modules of its directory describe, if they are of these kinds."""
    head = read_token_head(directory, hidden=architecture.model.hidden)
    if head is None:
        return architecture
    missing = {tag(config) for config in head.objectives} - {tag(config) for config in architecture.objectives}
    if missing:
        raise ArtefactError(f"{directory} gives sparse vectors, but its weights have no {', '.join(missing)} head")
    return msgspec.structs.replace(architecture, objectives=(*architecture.objectives, head))


def read_token_head(directory: Path, *, hidden: int) -> LateInteractionConfig | SparseConfig | None:
    """The head that the modules of a directory describe; None for other modules, or settings that we do not have."""
    modules = read_modules(directory) if is_there(directory / PACKAGE) else []
    kinds = [kind for kind, _ in modules if kind != "MultiVectorMask"]
    late, sparse = kinds == ["Transformer", "Dense", "Normalize"], kinds[1:] == ["SpladePooling"]
    if not (late or sparse) or not _is_plain(directory):
        return None
    folders = {kind: module_folder(directory, path) for kind, path in modules[1:]}
    if sparse:
        return SparseConfig() if _states(folders["SpladePooling"], SPLADE) else None
    try:
        dense, activation = read_dense(folders["Dense"], hidden, reads="token_embeddings")
    except UnsupportedModule:
        return None
    mask = _settings(folders["MultiVectorMask"] / "config.json") if "MultiVectorMask" in folders else {}
    if dense.bias or activation != "none" or mask.get("skiplist_words") or mask.get("keep_only_token_ids"):
        return None
    return LateInteractionConfig(size=dense.out_features) if _states(folders["Normalize"], TOKENS) else None


def _is_plain(directory: Path) -> bool:
    """Whether texts are read as they are, without a prompt or added tokens."""
    stated = _settings(directory / SENTENCE_FILE)
    prompts = stated.get("prompts") or {}
    added = stated.get("query_prefix") or stated.get("document_prefix") or stated.get("default_prompt_name")
    expanded = _settings(directory / LENGTH_FILE).get("query_expansion")
    return not (added or expanded or (isinstance(prompts, dict) and any(prompts.values())))


def _states(folder: Path, wanted: dict[str, str]) -> bool:
    settings = _settings(folder / "config.json")
    return all(settings.get(name) == value for name, value in wanted.items())


def _settings(path: Path) -> dict[str, Any]:
    stated: Any = files.read_json(path) if is_there(path) else {}
    if not isinstance(stated, dict):
        raise ArtefactError(f"{path} holds no settings; correct it, or remove {PACKAGE} to read only the encoder")
    return stated


def write_token_modules(place: Path, network: Network, architecture: Architecture) -> list[str]:
    """Write the modules of a model with such a head; the folders that were made, each with its checksums."""
    length: dict[str, Any] = {"max_seq_length": network.encoder.reach, "module_output_name": "token_embeddings"}
    for config in architecture.objectives:
        kind = getattr(config, "vector_kind", None)
        if kind == "late":
            size = cast(LateInteractionConfig, config).size
            dense = {"in_features": network.encoder.width, "out_features": size, "bias": False, **TOKENS}
            dense["activation_function"] = "torch.nn.modules.linear.Identity"
            folders: dict[str, dict[str, Any]] = {
                "1_Dense": dense,
                "2_MultiVectorMask": {"skiplist_words": [], "skiplist_tasks": ["document"]},
                "3_Normalize": TOKENS,
            }
            length |= _reading("feature-extraction", "last_hidden_state")
            more = {"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim"}
        elif kind == "sparse":
            folders = {"1_SpladePooling": {**SPLADE, "embedding_dimension": architecture.vocabulary}}
            length |= _reading("fill-mask", "logits")
            more = {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}
        else:
            continue
        modules = [("Transformer", ""), *((folder.partition("_")[2], folder) for folder in folders)]
        write_package(place, modules, length=length, more={**more, "prompts": {"query": "", "document": ""}})
        return write_folders(place, folders, network.own_state(), f"objectives.{tag(config)}.")
    return []


def _reading(task: str, output: str) -> dict[str, Any]:
    """Which class of `transformers` their code loads, and what it takes of its outputs."""
    return {
        "transformer_task": task,
        "modality_config": {"text": {"method": "forward", "method_output_name": output}},
    }
