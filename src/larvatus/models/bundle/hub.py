"""Models of the Hugging Face hub by name: offline unless asked, at a pinned revision, never a pickle, never code.

    find_model("runs/law")                                     a directory here comes first
    find_model("english")                                      the packaged model (`packaged.py`)
    find_model("org/name")                                     the local cache, where `main` was when it was fetched
    find_model("org/name@COMMIT")                              the local cache, at that commit
    find_model("org/name", revision=COMMIT, online=True)       fetched, unless it is there already

A branch or a tag can have other contents tomorrow, so what is fetched is named by its commit. Needs the package
huggingface_hub: ``pip install "larvatus[hub]"``.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.models.bundle.packaged import model_path

FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "README.md")
"""What is fetched: weights, settings, vocabularies, the card. Pickles and Python files match none of these."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
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
    if not NAME.fullmatch(identity) or ".." in identity or "--" in identity or len(identity) > LONGEST:
        raise ArtefactError(
            f"{text} is not a directory here, and Larvatus fetches nothing by name unless asked; "
            "download the model first and give its directory"
        )
    if pinned and revision not in (None, pinned):
        raise UsageError(f"{text} names one revision, and {revision} is asked for too; say one of them")
    revision = revision or pinned or None
    if revision is not None and (not REFERENCE.fullmatch(revision) or ".." in revision):
        raise UsageError(f"{revision!r} is not a revision; give a commit, 40 hexadecimal digits")
    hub = _library(text)
    return _fetched(hub, identity, revision) if online else _cached(hub, identity, revision)


def _library(name: str) -> Any:
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


def _fetched(hub: Any, name: str, revision: str | None) -> Path:
    if revision is None or not COMMIT.fullmatch(revision):
        asked = "no revision is given" if revision is None else f"{revision!r} is none"
        raise UsageError(
            f"{name}: a model is fetched at a commit (40 hexadecimal digits), as a branch or a tag can change, and "
            f"{asked}; {_resolved(hub, name, revision or 'main')}"
        )
    try:
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except Exception as fault:
        raise ArtefactError(
            f"{name}@{revision} cannot be fetched: {_first_line(fault)}; check the name, the revision and the network"
        ) from fault


def _resolved(hub: Any, name: str, revision: str) -> str:
    """What a branch or a tag is at the moment, for people to pin; asking may fail, and is no reason to fail harder."""
    try:
        commit = hub.HfApi().model_info(name, revision=revision).sha
    except Exception as fault:
        return f"what {revision} is could not be asked ({_first_line(fault)})"
    return f"{revision} is now {commit}"


def _first_line(fault: Exception) -> str:
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    return lines[0].rstrip(".")
