"""The pooling of a sentence encoder, as a `sentence-transformers` package states it.

    read_pooling(Path("all-MiniLM-L6-v2"))        # "mean"

`modules.json` lists the parts of such a package; the one of type `…Pooling` has a folder (mostly `1_Pooling`) with a
`config.json` that names the pooling (`pooling_mode`) or has a switch for each kind (`pooling_mode_mean_tokens`).
`sentence_modules.py` reads all parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.core.errors import ArtefactError
from larvatus.core.files import read_json
from larvatus.core.regular_files import is_there, refuse_link

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
