"""The served models as the studio sees them: their directories, and how a newly trained one is served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from larvatus.core.errors import did_you_mean
from larvatus.inference.model import load
from larvatus.interfaces.serve.errors import NoSuchModel
from larvatus.interfaces.serve.served_models import ServedModels


class StudioModels(Protocol):
    def directory(self, name: str | None) -> Path:
        """Directory of a served model; None for the first. Raises if it is not served."""

    def publish(self, directory: Path) -> str:
        """Serve a model that was just trained, and return its name."""

    def paths(self) -> dict[str, str]:
        """Paths for `larvatus.load` in the folder where the studio was started, by name of the model."""


@dataclass(frozen=True)
class ServedStudioModels:
    """The models of a running server."""

    served: ServedModels
    device: str = "auto"

    def directory(self, name: str | None) -> Path:
        models = self.served.models
        if name is not None and name not in models:
            raise NoSuchModel(f"there is no model {name!r}{did_you_mean(name, models)}")
        return Path(next(iter(models.values()) if name is None else iter([models[name]])).model.bundle.path)

    def publish(self, directory: Path) -> str:
        return self.served.add(load(directory, device=self.device)).name

    def paths(self) -> dict[str, str]:
        return {name: str(served.model.bundle.path) for name, served in self.served.models.items()}
