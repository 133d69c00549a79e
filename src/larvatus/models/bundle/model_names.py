"""Models of the Hugging Face hub by name: offline unless asked, at a pinned revision, never a pickle, never code.

    find_model("runs/law")                                     a directory here comes first
    find_model("english")                                      the packaged model (`packaged.py`)
    find_model("org/name")                                     the local cache, where `main` was when it was fetched
    find_model("org/name@COMMIT")                              the local cache, at that commit
    find_model("org/name", revision=COMMIT, online=True)       fetched, unless it is there already

A branch or a tag can have other contents tomorrow, so what is fetched is named by its commit. Needs the package
huggingface_hub: ``pip install "larvatus[hub]"``.

The English model that comes with Larvatus: the folder `model/` of the package `larvatus_english`, if there is one.

    model_or_packaged(None)          # …/larvatus_english/model, or an error that says what to do
    model_path("english")            # the same: wherever a model directory is taken, this is its name
    model_path("./english")          # a directory of that name here

The package is found, never imported: it holds data alone.
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
"""Its name, wherever a model directory is taken and where models have names."""
MODEL_FILES = ("config.json", "larvatus.json", "tokenizer.json")
"""A directory here that has one of them is a model of the user's."""
HELP = "the packaged English model"


def packaged_model() -> Path | None:
    """Its directory; None in an installation without one."""
    spec = find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        directory = Path(location) / FOLDER
        if directory.is_dir() and is_there(directory / "config.json"):
            return directory
    return None


def model_path(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The directory of the packaged model where that is named, else what was given.

    Neither a model directory called `english` here nor the packaged model hides the other: where both could be meant,
    the name is refused. A `Path` is always a directory.
    """
    if name != NAME or not isinstance(name, str):
        return name
    is_model_here = any((Path(NAME) / file).is_file() for file in MODEL_FILES)
    directory = packaged_model()
    if directory is None:
        if os.path.exists(NAME):
            return name
        raise UsageError(
            f"this installation has no model {NAME!r} (package {PACKAGE}), and no directory of that name is here; "
            "pip install a wheel of larvatus that carries it, or name a directory"
        )
    if is_model_here:
        raise UsageError(
            f"{NAME} is the packaged model, and a model directory here too; write ./{NAME} for the directory, or "
            "rename it to use the packaged one"
        )
    return directory


def model_or_packaged(name: str | None = None) -> str:
    """The model that was named, or the packaged one; refused in one line where there is none."""
    if name is not None:
        return name
    directory = packaged_model()
    if directory is None:
        raise UsageError(
            "no model is named, and this installation has no English one (package larvatus_english); name yours "
            "(--model DIR, load(DIR)), or pip install a wheel of larvatus that carries it"
        )
    return str(directory)


FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "README.md")
"""What is fetched: weights, settings, vocabularies, the card. Pickles and Python files match none of these."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
LONGEST = 96  # characters of a name, the hub's own limit
COMMIT = re.compile(r"[0-9a-f]{40}")
REFERENCE = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)


def find_model(name: str | os.PathLike[str], *, revision: str | None = None, online: bool = False) -> Path:
    """The directory of a model: itself where it is one, or else that of a hub model in the local cache.

    `online` fetches what the cache does not have; `revision` must then be a commit.
    """
    text = os.fspath(model_path(name))
    if os.path.exists(text):  # unlike Path's, it takes any text for a name
        if revision is not None or online:
            raise UsageError(f"{text} is here already; leave out revision and online, which are for models of the hub")
        return Path(text)
    identity, _, pinned = text.partition("@")
    if not HUB_NAME.fullmatch(identity) or ".." in identity or "--" in identity or len(identity) > LONGEST:
        raise ArtefactError(
            f"{text} is not a directory here, and Larvatus fetches nothing by name unless asked; "
            "download the model first and give its directory"
        )
    if pinned and revision not in (None, pinned):
        raise UsageError(f"{text} names one revision, and {revision} is asked for too; say one of them")
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
            f"{name} is not a directory here, and Larvatus fetches nothing by name without huggingface_hub; "
            'for models of the hub: pip install "larvatus[hub]"'
        ) from fault


def _cached(hub: Any, name: str, revision: str | None) -> Path:
    try:
        return Path(hub.snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=list(FILES)))
    except Exception as fault:  # the library's errors have no base of their own
        there = _revisions(hub, name)
        if not there:
            raise ArtefactError(
                f"{name} is not a directory here, nor a model in the Hugging Face cache, and Larvatus fetches nothing "
                f"by name unless asked: larvatus convert {name} OUT --online --revision COMMIT (in Python: "
                f"load({name!r}, revision=COMMIT, online=True))"
            ) from fault
        if revision in there:
            raise ArtefactError(f"{name}@{revision} is not whole in the cache: {_first_line(fault)}") from fault
        raise ArtefactError(
            f"{name} is in the Hugging Face cache, but not at {revision or 'main'}; say which revision: "
            f"{', '.join(f'{name}@{commit}' for commit in there)}"
        ) from fault


def _revisions(hub: Any, name: str) -> list[str]:
    """Commits of a model that are in the cache."""
    folder = Path(hub.constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _download(hub: Any, name: str, revision: str | None) -> Path:
    if revision is None or not COMMIT.fullmatch(revision):
        asked = "no revision is given" if revision is None else f"{revision!r} is none"
        raise UsageError(
            f"{name}: a model is fetched at a commit (40 hexadecimal digits), as a branch or a tag can change, and "
            f"{asked}; {_current_commit(hub, name, revision or 'main')}"
        )
    try:
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except Exception as fault:
        raise ArtefactError(
            f"{name}@{revision} cannot be fetched: {_first_line(fault)}; check the name, the revision and the network"
        ) from fault


def _current_commit(hub: Any, name: str, revision: str) -> str:
    """What a branch or a tag is at the moment, for people to pin; asking may fail, and is no reason to fail harder."""
    try:
        commit = hub.HfApi().model_info(name, revision=revision).sha
    except Exception as fault:
        return f"what {revision} is could not be asked ({_first_line(fault)})"
    return f"{revision} is now {commit}"


def _first_line(fault: Exception) -> str:
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    return lines[0].rstrip(".")
