"""A model as the server offers it: its name, its operations, and what was loaded with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larvatus.inference.model import Model
from larvatus.inference.senses.tagger import SenseTagger
from larvatus.inference.vectors.standardise import Standardiser
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import int8_weights


@dataclass(frozen=True, eq=False)
class ServedModel:
    name: str
    model: Model
    can: tuple[str, ...]
    """Names of the operations that the model supports."""
    standardisers: Mapping[str, Standardiser]
    """Standardisers saved with the model, by name."""
    senses: SenseTagger | None = None
    """WordNet senses, if the server was started with sense vectors of this model."""

    @property
    def labels(self) -> list[str] | None:
        """Named labels of the head; None if it has none."""
        for config in self.model.bundle.objectives:
            if isinstance(config, HeadConfig) and config.names_labels:
                return list(config.labels)
        return None

    def describe(self) -> dict[str, Any]:
        """The entry of /v1/models."""
        model, path = self.model, Path(self.model.bundle.path)
        described: dict[str, Any] = {
            "name": self.name,
            "path_name": path.name,
            "can": list(self.can),
            "layers": model.encoder.depth,
            "heads": getattr(model.bundle.model, "heads", None),
            "width": model.encoder.width,
            "reach": model.encoder.reach,
            "parameters": sum(p.numel() for p in model.network.parameters()) + int8_weights(model.network),
            "standardisers": sorted(self.standardisers),
            "mask": model.tokenizer.special.mask if "fill" in self.can else None,
            "packaged": is_packaged(path),
            "card": (path / "README.md").is_file(),
        }
        return described if self.labels is None else {**described, "labels": self.labels}


def is_packaged(path: Path) -> bool:
    """Whether a directory is the English model that comes with Larvatus."""
    packaged = packaged_model()
    return packaged is not None and path.resolve() == packaged.resolve()
