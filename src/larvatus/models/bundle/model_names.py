"""Find a model directory by name: a local directory, the packaged English model, or a model of the Hugging Face hub.

    find_model("runs/law")                                     a local directory comes first
    find_model("english")                                      the packaged model
    find_model("./english")                                    a local directory of that name
    find_model("org/name")                                     the local cache, at the `main` that was downloaded
    find_model("org/name@COMMIT")                              the local cache, at that commit
    find_model("org/name", revision=COMMIT, online=True)       downloaded, unless it is cached

The packaged model is the folder `model/` of the package `larvatus_english`, if installed; the package is located, never
imported. Hub models are read offline by default, at a pinned revision, and never as a pickle or code: a branch or a tag
can have other contents tomorrow, so downloads are named by their commit. Downloading needs the package huggingface_hub:
``pip install "larvatus[hub]"``.
"""

from __future__ import annotations

import importlib
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.regular_files import is_there

PACKAGE, FOLDER = "larvatus_english", "model"
NAME = "english"
"""Its name, wherever a model directory is expected."""
MODEL_FILES = ("config.json", "larvatus.json", "tokenizer.json")
"""A local directory with one of these is a model of the user's."""
HELP = "the packaged English model"


def packaged_model() -> Path | None:
    """Its directory; None if it is not installed."""
    spec = find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        directory = Path(location) / FOLDER
        if directory.is_dir() and is_there(directory / "config.json"):
            return directory
    return None


def display_name(directory: Path) -> str:
    """Name of a model directory in titles: `english` of the packaged one."""
    return NAME if directory == packaged_model() else directory.name


def model_path(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The directory of the packaged model if `name` is its name, else `name` itself.

    A local model directory called `english` and the packaged model never hide each other: if both exist, the name is
    refused. A `Path` is always a directory.
    """
    if name != NAME or not isinstance(name, str):
        return name
    is_model_here = any((Path(NAME) / file).is_file() for file in MODEL_FILES)
    directory = packaged_model()
    if directory is None:
        if os.path.exists(NAME):
            return name
        raise UsageError(
            f"this installation has no model {NAME!r} (package {PACKAGE}), and there is no directory of that name; "
            "pip install a wheel of larvatus that includes it, or give a directory"
        )
    if is_model_here:
        raise UsageError(
            f"{NAME} is both the packaged model and a local model directory; write ./{NAME} for the directory, or "
            "rename it to use the packaged one"
        )
    return directory


def model_or_packaged(name: str | None = None) -> str:
    """The named model, or the packaged one; refused if there is none."""
    if name is not None:
        return name
    directory = packaged_model()
    if directory is None:
        raise UsageError(
            "no model is named, and this installation has no English one (package larvatus_english); give yours "
            "(--model DIR, load(DIR)), or pip install a wheel of larvatus that includes it"
        )
    return str(directory)


FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "README.md")
"""Files that are downloaded: weights, settings, vocabularies, the card. No pickle or Python file matches."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
LONGEST = 96  # characters of a name, the hub's limit
COMMIT = re.compile(r"[0-9a-f]{40}")
REFERENCE = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)


def find_model(name: str | os.PathLike[str], *, revision: str | None = None, online: bool = False) -> Path:
    """The directory of a model: the name itself if it is a directory, or else a hub model in the local cache.

    `online` downloads what the cache does not have; `revision` must then be a commit.
    """
    text = os.fspath(model_path(name))
    if os.path.exists(text):  # unlike Path's method, it accepts any text
        if revision is not None or online:
            raise UsageError(
                f"{text} is a local directory; leave out revision and online, which are for models of the hub"
            )
        return Path(text)
    identity, _, pinned = text.partition("@")
    if not HUB_NAME.fullmatch(identity) or ".." in identity or "--" in identity or len(identity) > LONGEST:
        raise ArtefactError(
            f"{text} is not a directory here, and Larvatus downloads nothing by name unless requested; download the "
            "model first and give its directory"
        )
    if pinned and revision not in (None, pinned):
        raise UsageError(f"{text} names one revision, but revision = {revision} names another; give one of them")
    revision = revision or pinned or None
    if revision is not None and (not REFERENCE.fullmatch(revision) or ".." in revision):
        raise UsageError(f"{revision!r} is not a revision; give a commit, 40 hexadecimal digits")
    hub = _import_hub(text)
    return _download(hub, identity, revision) if online else _cached(hub, identity, revision)


def _import_hub(name: str) -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as fault:
        raise ArtefactError(
            f"{name} is not a directory here, and Larvatus cannot look up names without huggingface_hub; for models "
            'of the hub: pip install "larvatus[hub]"'
        ) from fault


def _cached(hub: Any, name: str, revision: str | None) -> Path:
    try:
        return Path(hub.snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=list(FILES)))
    except Exception as fault:  # the library's errors have no common base
        there = _revisions(hub, name)
        if not there:
            raise ArtefactError(
                f"{name} is not a directory here, nor a model in the Hugging Face cache, and Larvatus downloads "
                f"nothing by name unless requested: larvatus convert {name} OUT --online --revision COMMIT (in Python: "
                f"load({name!r}, revision=COMMIT, online=True))"
            ) from fault
        if revision in there:
            raise ArtefactError(f"{name}@{revision} is incomplete in the cache: {_first_line(fault)}") from fault
        raise ArtefactError(
            f"{name} is in the Hugging Face cache, but not at {revision or 'main'}; give a revision: "
            f"{', '.join(f'{name}@{commit}' for commit in there)}"
        ) from fault


def _revisions(hub: Any, name: str) -> list[str]:
    """Commits of a model that are cached."""
    folder = Path(hub.constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _download(hub: Any, name: str, revision: str | None) -> Path:
    if revision is None or not COMMIT.fullmatch(revision):
        problem = "no revision is given" if revision is None else f"{revision!r} is not a commit"
        raise UsageError(
            f"{name}: models are downloaded at a commit (40 hexadecimal digits), since a branch or a tag can change, "
            f"and {problem}; {_current_commit(hub, name, revision or 'main')}"
        )
    try:
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except Exception as fault:
        raise ArtefactError(
            f"{name}@{revision} cannot be downloaded: {_first_line(fault)}; check the name, the revision and the "
            "network"
        ) from fault


def _current_commit(hub: Any, name: str, revision: str) -> str:
    """The commit that a branch or a tag has now, for people to pin; a failed request is reported, not raised."""
    try:
        commit = hub.HfApi().model_info(name, revision=revision).sha
    except Exception as fault:
        return f"the commit of {revision} could not be looked up ({_first_line(fault)})"
    return f"{revision} is now {commit}"


def _first_line(fault: Exception) -> str:
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    return lines[0].rstrip(".")
