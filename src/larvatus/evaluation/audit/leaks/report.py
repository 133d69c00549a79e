"""All that an audit of leaks found: what was asked for, and nothing else.

report = larvatus.audit_leaks("runs/mine", members="in.jsonl", held_out="out.jsonl")
report.membership.attacks["loss"].area.value
print(report)
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
    """What a model gives away of its training text."""

    model: str
    reference: str | None = None
    exposure: Exposures | None = None
    """Of planted canaries."""
    membership: Membership | None = None
    """Of documents."""
    restoration: Restoration | None = None
    """Of masked names and numbers."""
    extraction: Extraction | None = None
    """Documents that models that write reproduce."""
    notes: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    """The figures as a model card takes them over: with data, settings and versions."""

    def _parts(self) -> dict[str, Exposures | Membership | Restoration | Extraction]:
        parts = {
            "exposure": self.exposure,
            "membership": self.membership,
            "restoration": self.restoration,
            "extraction": self.extraction,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def shown(self) -> list[Table]:
        """Tables for people."""
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
