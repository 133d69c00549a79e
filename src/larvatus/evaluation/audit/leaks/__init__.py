"""Leaks of training text: planted secrets, membership, names and numbers, verbatim text; the report of an audit.

    report = larvatus.audit_leaks("runs/mine", members="in.jsonl", held_out="out.jsonl")
    report.membership.attacks["loss"].area.value
    print(report)

`larvatus audit leaks --model runs/mine --canaries runs/mine/corpus --members in.jsonl --held-out out.jsonl` does the
same. The report has the requested parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from larvatus.core.tables import Table
from larvatus.evaluation.audit.leaks.exposure import Exposures
from larvatus.evaluation.audit.leaks.extraction import Extraction
from larvatus.evaluation.audit.leaks.membership import Membership
from larvatus.evaluation.audit.leaks.restoration import Restoration
from larvatus.models.bundle.claims import Claim, claim_dicts

LIMITS = (
    "a low figure says that these attacks found nothing, not that there is nothing to find: stronger ones exist, and "
    "only differentially private training bounds them all"
)


@dataclass(frozen=True)
class LeakReport:
    """Leaks of training text that an audit of a model found."""

    model: str
    reference: str | None = None
    exposure: Exposures | None = None
    """Exposure of planted canaries."""
    membership: Membership | None = None
    """Membership of documents."""
    restoration: Restoration | None = None
    """Restoration of masked names and numbers."""
    extraction: Extraction | None = None
    """Documents that generating models write verbatim."""
    notes: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    """Claims for the model card, with data, settings and versions."""

    def _parts(self) -> dict[str, Exposures | Membership | Restoration | Extraction]:
        parts = {
            "exposure": self.exposure,
            "membership": self.membership,
            "restoration": self.restoration,
            "extraction": self.extraction,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def shown(self) -> list[Table]:
        """Tables of the printed report."""
        return [part.shown() for part in self._parts().values()]

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "reference": self.reference,
            **{name: part.to_dict() for name, part in self._parts().items()},
            "notes": [*self.notes, LIMITS],
            "claims": claim_dicts(self.claims),
        }

    def __str__(self) -> str:
        tables = [str(table) for table in self.shown()]
        return "\n\n".join([*tables, "\n".join(f"note: {note}" for note in (*self.notes, LIMITS))])
