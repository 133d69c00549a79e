"""The modules of a sentence encoder, as a `sentence-transformers` directory has them, read and written.

    modules.json                  which modules follow the transformer: Pooling, Dense …, Normalize
    1_Pooling/config.json         how tokens are pooled: `pooling_mode`, or a switch for each kind
    2_Dense/config.json           a linear layer after it, with 2_Dense/model.safetensors; there may be several, or none
    sentence_bert_config.json     the longest sequence that their code reads, beyond which it cuts

    config = read_sentence_head(Path("all-MiniLM-L6-v2"), template, hidden=384)
    config.pool, config.normalise                               # "mean", True

Our models with an `embedding` head are written so, in any layout; config.json is that of the encoder. A package with
modules that we do not have (`unsupported_modules`) is read as an encoder without a head. `token_modules.py` reads and
writes the modules of token vectors and of sparse vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from torch import Tensor

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.files import read_json
from larvatus.core.ranges import Size
from larvatus.core.regular_files import is_there, refuse_link
from larvatus.core.settings import Settings
from larvatus.data.text.template import Template
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.huggingface.layout import Architecture
from larvatus.models.bundle.weights import Shape, check_fit, read_header, read_tensors, write_tensors
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig, TextPool
from larvatus.models.heads.head import Dense
from larvatus.models.heads.pooling import summary_pool
from larvatus.models.heads.sequence_score import MARKER
from larvatus.models.network import Network, ObjectiveConfig
from larvatus.models.nn.static import StaticConfig

PACKAGE = "modules.json"
STATIC = "StaticEmbedding"
"""The module of static models, in place of Transformer and Pooling."""
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Their switches, and the name of each kind."""


def read_pooling(directory: Path) -> str:
    """The name of the pooling, several joined by +; empty for a model that is no such package or has no pooling."""
    if not is_there(directory / PACKAGE):
        return ""
    pooling = next((folder for kind, folder in read_modules(directory) if kind == "Pooling"), None)
    return "" if pooling is None else stated_pooling(directory, pooling)


def read_modules(directory: Path) -> list[tuple[str, str]]:
    """Kind and folder of each module of a package: ``[("Transformer", ""), ("Pooling", "1_Pooling"), …]``."""
    source = directory / PACKAGE
    modules: Any = read_json(source)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ArtefactError(f"{source} is not a list of modules; correct it, or remove it to read only the encoder")
    return [(str(module.get("type", "")).rpartition(".")[2], str(module.get("path", ""))) for module in modules]


def module_folder(directory: Path, folder: str) -> Path:
    """The folder of a module; a name that leads elsewhere is refused."""
    if folder in ("", ".", "..") or Path(folder).name != folder or "\0" in folder:
        raise ArtefactError(f"{directory / PACKAGE} names the folder {folder!r}, which is no folder of its directory")
    refuse_link(directory / folder)
    return directory / folder


def stated_pooling(directory: Path, folder: str) -> str:
    """The pooling that the folder of the module states."""
    source = directory / PACKAGE
    plain = folder not in ("", ".", "..") and Path(folder).name == folder and "\0" not in folder
    path = directory / folder / "config.json" if plain else source
    refuse_link(path.parent)
    if not plain or not is_there(path):
        raise ArtefactError(f"{source} names the pooling {folder!r}, but there is no {folder}/config.json")
    config: Any = read_json(path)
    if not isinstance(config, dict):
        raise ArtefactError(f"{path} states no pooling; correct it, or remove {source.name}")
    named = config.get("pooling_mode")
    if isinstance(named, str):
        return named
    if isinstance(named, list):
        return "+".join(map(str, named))
    return "+".join(name for flag, name in FLAGS.items() if config.get(flag) is True)


# All modules.

PREFIX = "objectives.embedding."
"""Beginning of the parameter names of an embedding head."""
PREFIXES = (PREFIX, "objectives.late-interaction.")
"""Beginnings of the names of parameters that are in the folders of modules."""
LENGTH_FILE, SENTENCE_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
POOLING_FOLDER = "1_Pooling"
HERE = ("", ".")
"""Paths of a module whose files are in the directory itself."""
WEIGHTS = "model.safetensors"
WRITTEN = (PACKAGE, LENGTH_FILE, SENTENCE_FILE, POOLING_FOLDER)
"""Names that saving an embedding head writes, apart from linear layers."""
USUAL_TYPE = "sentence_transformers.models."
TYPES = {
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.",
    "SpladePooling": "sentence_transformers.sparse_encoder.modules.splade_pooling.",
}
"""Where their library has modules, if not in its usual place."""
ACTIVATIONS: dict[str, Dense] = {
    "torch.nn.modules.linear.Identity": "none",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.ReLU": "relu",
}
_POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


class UnsupportedModule(Exception):
    """A module that an embedding head does not have; the message names it."""


class DenseSettings(Settings, path="config.json: ", error=ArtefactError, forbid_unknown_fields=False):
    """Their config.json of a linear layer; other fields are ignored."""

    in_features: Size
    out_features: Size
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    use_residual: bool = False
    module_input_name: str = "sentence_embedding"
    module_output_name: str | None = None


def sentence_head(objectives: Sequence[ObjectiveConfig]) -> EmbeddingConfig | None:
    """The embedding head of a model, if it has one."""
    heads = (cast(EmbeddingConfig, config) for config in objectives if getattr(config, "vector_kind", "") == "dense")
    return next(heads, None)


def with_sentence_head(architecture: Architecture, directory: Path, template: Template) -> Architecture:
    """The architecture with the head that the modules of its directory describe, if there are any."""
    head = read_sentence_head(directory, template, hidden=architecture.model.hidden)
    if head is None:
        return architecture
    return msgspec.structs.replace(architecture, objectives=(*architecture.objectives, head))


def read_sentence_head(directory: Path, template: Template, *, hidden: int) -> EmbeddingConfig | None:
    """The head that the modules of a directory describe; None without modules, or with some that we do not have."""
    if not is_there(directory / PACKAGE):
        return None
    try:
        return _read(directory, template, hidden)
    except UnsupportedModule:
        return None


def unsupported_modules(directory: Path, template: Template, *, hidden: int) -> str:
    """What a package has that an embedding head does not; empty if it is read as one, or is no package."""
    try:
        if is_there(directory / PACKAGE):
            _read(directory, template, hidden)
    except UnsupportedModule as fault:
        return str(fault)
    return ""


def _read(directory: Path, template: Template, hidden: int) -> EmbeddingConfig:
    kinds = [kind for kind, _ in read_modules(directory)]
    normalise = kinds[-1:] == ["Normalize"]
    static = kinds[:1] == [STATIC]
    first = 1 if static else 2  # linear layer, if there is one
    layers = kinds[first : len(kinds) - normalise]
    if not (static or kinds[:2] == ["Transformer", "Pooling"]) or any(kind != "Dense" for kind in layers):
        raise UnsupportedModule(f"the modules {', '.join(kinds) or '(none)'}")
    _refuse_prompt(directory)
    projections: list[DenseProjection] = []
    width = hidden
    for _, folder in read_modules(directory)[first : first + len(layers)]:
        projections.append(_projection(module_folder(directory, folder), width))
        width = projections[-1].size
    pool = "mean" if static else _pool(stated_pooling(directory, read_modules(directory)[1][1]), template)
    return EmbeddingConfig(pool=pool, projections=tuple(projections), normalise=normalise)


def _pool(theirs: str, template: Template) -> TextPool:
    """Our [CLS] is the summary token of the vocabulary: the first token in BERT, the last in XLNet."""
    summary = {"cls": "cls", "lasttoken": "last"}.get(theirs)
    if summary is not None and summary == summary_pool(template):
        return "cls"
    if theirs in ("mean", "max"):
        return "mean" if theirs == "mean" else "max"
    raise UnsupportedModule(f"the pooling {theirs or '(none)'}")


def _projection(folder: Path, width: int) -> DenseProjection:
    dense, activation = read_dense(folder, width, reads="sentence_embedding")
    return DenseProjection(size=dense.out_features, activation=activation, bias=dense.bias)


def read_dense(folder: Path, width: int, *, reads: str) -> tuple[DenseSettings, Dense]:
    """The settings of a linear layer that reads vectors of this size, by their name for them; its activation."""
    path = folder / "config.json"
    if not is_there(path):
        raise ArtefactError(f"{path} is missing, but {PACKAGE} lists its module; fetch it too")
    try:
        dense = msgspec.convert(files.read_json(path), DenseSettings)
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{path} does not describe a linear layer: {fault}") from fault
    activation = ACTIVATIONS.get(dense.activation_function)
    if activation is None or dense.use_residual or dense.module_input_name != reads:
        raise UnsupportedModule(f"the linear layer of {path} ({dense.activation_function})")
    if dense.in_features != width:
        raise ArtefactError(f"{path} reads vectors of {dense.in_features:,} dimensions, but is given {width:,}")
    return dense, activation


def _refuse_prompt(directory: Path) -> None:
    """A prompt before every text changes all vectors, and we add none."""
    path = directory / SENTENCE_FILE
    stated: Any = files.read_json(path) if is_there(path) else {}
    if isinstance(stated, dict) and (name := stated.get("default_prompt_name")):
        raise UnsupportedModule(f"the prompt {name!r} before every text")


def read_projections(
    directory: Path, wanted: Mapping[str, Shape], *, verified: bool, allow_nan: bool = False
) -> dict[str, Tensor]:
    """The parameters of the linear layers, by our names. `verified`: compare the folders with their checksums."""
    if not is_there(directory / PACKAGE):
        return {}
    folders = [(kind, module_folder(directory, path)) for kind, path in read_modules(directory) if path not in HERE]
    if verified:
        for _, folder in folders:
            if (manifest := manifests.read_manifest(folder) if folder.is_dir() else None) is not None:
                manifests.verify(folder, manifest)
    tensors: dict[str, Tensor] = {}
    for number, folder in enumerate(folder for kind, folder in folders if kind == "Dense"):
        prefixes = [f"{prefix}projections.{number}." for prefix in PREFIXES]
        prefix = next((prefix for prefix in prefixes for name in wanted if name.startswith(prefix)), prefixes[0])
        shapes = {f"linear.{name.removeprefix(prefix)}": s for name, s in wanted.items() if name.startswith(prefix)}
        if not shapes:  # of a package whose modules we do not have
            continue
        path = folder / WEIGHTS
        if not is_there(path):
            raise ArtefactError(f"{path} is missing; if the layer is pickled, save it with safe_serialization")
        check_fit(path, stored={name: entry.shape for name, entry in read_header(path).items()}, wanted=shapes)
        for name, tensor in read_tensors(path, allow_nan=allow_nan).items():
            tensors[prefix + name.removeprefix("linear.")] = tensor.to(torch.float32, copy=True)
    return tensors


def write_modules(place: Path, network: Network, architecture: Architecture, template: Template) -> list[str]:
    """Write the modules of a model with an embedding head; the folders that were made, each with its checksums."""
    if (config := sentence_head(architecture.objectives)) is None:
        return []
    static = isinstance(architecture.model, StaticConfig)
    modules = [(STATIC, "")] if static else [("Transformer", ""), ("Pooling", POOLING_FOLDER)]
    modules += [("Dense", f"{number + len(modules)}_Dense") for number in range(len(config.projections))]
    if config.normalise:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
    length = None if static else {"max_seq_length": network.encoder.reach, "do_lower_case": False}
    write_package(place, modules, length=length)
    folders = _folders(config, template, hidden=network.encoder.width, static=static)
    return write_folders(place, folders, network.own_state(), PREFIX)


def write_folders(
    place: Path, folders: Mapping[str, Mapping[str, Any]], tensors: Mapping[str, Tensor], prefix: str
) -> list[str]:
    """Write the folders of modules with their config.json, linear layers with their weights; their names."""
    number = 0
    for folder, settings in folders.items():
        (place / folder).mkdir()
        files.write_json(place / folder / "config.json", settings)
        if folder.endswith("_Dense"):
            before = f"{prefix}projections.{number}."
            layer = {name: tensor for name, tensor in tensors.items() if name.startswith(before)}
            renamed = {f"linear.{name.removeprefix(before)}": tensor.float() for name, tensor in layer.items()}
            write_tensors(place / folder / WEIGHTS, renamed)
            number += 1
        held = {path.name for path in (place / folder).iterdir()}
        manifests.write_manifest(place / folder, held, recipe=None, lineage={})
    return list(folders)


def write_package(
    place: Path,
    modules: Sequence[tuple[str, str]],
    *,
    length: Mapping[str, Any] | None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """The list of modules (kind and folder of each), and what their code reads of the whole model.

    `length` is None for a static model, which has no longest text.
    """
    described = [
        {"idx": number, "name": str(number), "path": path, "type": f"{TYPES.get(kind, USUAL_TYPE)}{kind}"}
        for number, (kind, path) in enumerate(modules)
    ]
    files.write_json(place / PACKAGE, described)
    if length is not None:
        files.write_json(place / LENGTH_FILE, dict(length))
    stated: dict[str, Any] = {"similarity_fn_name": "cosine", "prompts": {}, "default_prompt_name": None}
    files.write_json(place / SENTENCE_FILE, {**stated, **(more or {})})


def _folders(config: EmbeddingConfig, template: Template, *, hidden: int, static: bool) -> dict[str, dict[str, Any]]:
    """The config.json of each folder."""
    first = "lasttoken" if config.pool == "cls" and summary_pool(template) == "last" else config.pool
    flags = {flag: name == first for name, flag in _POOLING_FLAGS.items()}
    pooling = {POOLING_FOLDER: {"word_embedding_dimension": hidden, **flags}}
    folders: dict[str, dict[str, Any]] = {} if static else pooling
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    for number, layer in enumerate(config.projections):
        folders[f"{number + (1 if static else 2)}_Dense"] = {
            "in_features": config.projections[number - 1].size if number else hidden,
            "out_features": layer.size,
            "bias": layer.bias,
            "activation_function": names[layer.activation],
        }
    return folders


def module_files(directory: Path) -> list[Path]:
    """The files of the modules that decide a text's vector."""
    if not is_there(directory / PACKAGE):
        return []
    folders = [module_folder(directory, path) for _, path in read_modules(directory) if path not in HERE]
    paths = [folder / name for folder in folders for name in ("config.json", WEIGHTS)]
    for folder in folders:
        refuse_link(folder)
    return [directory / PACKAGE, *(path for path in paths if is_there(path))]


def marked_config(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the marker of a cross-encoder, if the files next to it say that it is one.

    Version 4 of the library writes this entry of config.json, and so do we (`models/heads/sequence_score.py`). Before,
    it was another field. Since version 6 it is in `config_sentence_transformers.json`, next to a `modules.json` of one
    module, the transformer. A package of other modules loses the classes that it was trained from: its heads are those
    in the file.
    """
    if not is_there(directory / PACKAGE):
        return dict(config)
    path = directory / SENTENCE_FILE
    stated: Any = files.read_json(path) if is_there(path) else {}
    whole = [kind for kind, _ in read_modules(directory)] == ["Transformer"]
    if whole and isinstance(stated, dict) and stated.get("model_type") == "CrossEncoder":
        return {**config, MARKER: {"activation_fn": stated.get("activation_fn")}}
    return {**config, "architectures": []}
