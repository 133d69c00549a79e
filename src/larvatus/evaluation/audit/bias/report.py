"""The report of a bias audit: results by name, printable and as dictionaries.

report.parts["crows_pairs"].scores["pll"].by_category["gender"].metric
print(report)
report.saved(Path("audit/"))             # bias.json, and a file for each part
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from larvatus.core.outputs import write_output
from larvatus.core.tables import ReportPart, render_text
from larvatus.core.version import VERSION
from larvatus.evaluation.audit.bias.limits import GENERAL
from larvatus.metrics.figures import Figure
from larvatus.models.bundle.claims import Claim, claim_dicts

REPORT = "bias.json"


class BiasPart(Protocol):
    """The result of one set."""

    @property
    def unit(self) -> str:
        """Unit of resampling."""

    def figures(self) -> Iterator[Figure]: ...

    def to_dict(self) -> dict[str, Any]: ...

    def shown(self) -> Iterator[ReportPart]: ...


@dataclass(frozen=True)
class BiasReport:
    """A bias audit: one part per given set, and the limits of all of them.

    Example:
        >>> report = lv.audit_bias(model, pairs=[("the river was wide", "the bank was wide")], samples=20)
        >>> list(report.parts), report.parts["crows_pairs"].scores["aul"].overall.pairs
        (['crows_pairs'], 1)
    """

    model: str
    fingerprint: str
    """Fingerprint of weights, settings and vocabulary."""
    settings: Mapping[str, Any]
    data: Mapping[str, str]
    """SHA-256 of the files of each part; data in memory have none."""
    parts: Mapping[str, Any]
    """The requested parts: `crows_pairs`, `stereoset`, `winobias`, `templates`, `associations`, `swaps`."""
    limits: tuple[str, ...] = GENERAL
    claims: tuple[Claim, ...] = ()
    """Claims for the model card, with data, settings and versions."""

    @property
    def head(self) -> dict[str, Any]:
        """Model, data, settings and version of the audit."""
        return {
            "larvatus": VERSION,
            "model": self.model,
            "fingerprint": self.fingerprint,
            "settings": dict(self.settings),
            "data": dict(self.data),
            "units": {name: part.unit for name, part in self.parts.items()},
            "limits": list(self.limits),
        }

    def to_dict(self) -> dict[str, Any]:
        parts = {name: part.to_dict() for name, part in self.parts.items()}
        return {**self.head, "parts": parts, "claims": claim_dicts(self.claims)}

    def shown(self) -> Iterator[ReportPart]:
        """Lines and tables of the printed report."""
        yield f"bias audit of {self.model}"
        for part in self.parts.values():
            yield ""
            yield from part.shown()
        yield ""
        yield from (f"note: {limit}" for limit in self.limits)

    def saved(self, directory: str | Path) -> BiasReport:
        """Write `bias.json` (model, data, list of parts) and a JSON file for each part.

        Args:
            directory: Created if it does not exist; existing files are replaced.

        Returns:
            The report itself.
        """
        out = Path(directory)
        out.mkdir(parents=True, exist_ok=True)
        for name, part in self.parts.items():
            write_output(out / f"{name}.json", as_json(part.to_dict()))
        names = [f"{name}.json" for name in self.parts]
        write_output(out / REPORT, as_json({**self.head, "parts": names, "claims": claim_dicts(self.claims)}))
        return self

    def __str__(self) -> str:
        return render_text(self.shown())


def as_json(value: Any) -> str:
    """Indented JSON; NaN, as in the interval of one example, becomes null."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
