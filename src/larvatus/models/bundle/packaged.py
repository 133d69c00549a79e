"""The English model that comes with Larvatus: the folder `model/` of the package `larvatus_english`, if there is one.

    model_or_packaged(None)          # …/larvatus_english/model, or an error that says what to do
    model_path("english")            # the same: wherever a model directory is taken, this is its name
    model_path("./english")          # a directory of that name here

The package is found, never imported: it holds data alone.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from larvatus.core.errors import UsageError
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
