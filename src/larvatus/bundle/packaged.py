"""The English model that comes with Larvatus: the folder `model/` of the package `larvatus_english`, if there is one.

    model_or_packaged(None)          # …/larvatus_english/model, or an error that says what to do

The package is found, never imported: it holds data alone.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from larvatus.errors import UsageError
from larvatus.regular_files import is_there

PACKAGE, FOLDER = "larvatus_english", "model"
NAME = "english"
"""What it is called where models have names: its folder would say nothing."""
HELP = "the packaged English model"


def packaged_model() -> Path | None:
    """Its directory; None in an installation without one."""
    spec = find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        directory = Path(location) / FOLDER
        if directory.is_dir() and is_there(directory / "config.json"):
            return directory
    return None


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
