"""A model in another process, maybe on another machine: loaded there from its directory, and checked; never pickled.

origin = Origin("/shared/runs/law", Running(device="auto"))       # kept with the model that `load` gives
loaded_elsewhere(origin, fingerprint)                             # what a worker of a Ray cluster does with it
"""

from __future__ import annotations

from socket import gethostname
from typing import Any, Protocol

from larvatus.core.errors import ArtefactError


class Origin(Protocol):
    """How a model was loaded, so that it can be loaded again."""

    @property
    def device(self) -> str:
        """auto, cpu or cuda."""

    def load(self) -> Any: ...


def loaded_elsewhere(origin: Origin, fingerprint: str) -> Any:
    """The model that another process has; one that differs from it in a byte is refused."""
    model = origin.load()
    if model.fingerprint != fingerprint:
        here = f"{model.bundle.path} on {gethostname()}"
        raise ArtefactError(f"{here} is another model than where the job began; copy it there, or use a shared disk")
    return model
