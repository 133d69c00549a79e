"""Is this the same run? What decides a result is stored with the run, and compared field by field before it resumes.

    identity = RunIdentity({"recipe": recipe_table(recipe), "seed": 1, "corpus": corpus.fingerprint})
    identity.check(stored, lambda changes: ArtefactError(f"{out} holds another run: {changes}; choose another --out"))

An identity is plain data (what JSON can hold), such as `VERSION`, that of the installed package. What changes only how
a result is computed (device, workers) is not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

from larvatus.core.errors import LarvatusError

SHOWN = 8
"""Changed fields that a message names; the others are counted."""


class FieldChange(NamedTuple):
    """A field of an identity whose value has changed."""

    field: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.before!r} → {self.now!r}"


@dataclass(frozen=True)
class RunIdentity:
    """Everything that decides the result of a run: settings, seeds, fingerprints of data and models."""

    fields: Mapping[str, Any]

    def changes(self, stored: Mapping[str, Any]) -> list[FieldChange]:
        """The fields whose value is not the stored one.

        >>> RunIdentity({"seed": 2, "rate": 0.1}).changes({"seed": 1, "rate": 0.1})
        [FieldChange(field='seed', before=1, now=2)]
        """
        return changed_fields(dict(stored), dict(self.fields))

    def check(
        self,
        stored: Mapping[str, Any],
        refusal: Callable[[str], LarvatusError],
        *,
        describe: Callable[[FieldChange], str] = str,
        shown: int = SHOWN,
    ) -> None:
        """Raise `refusal(changes)` if the stored identity is that of another run."""
        changes = list(dict.fromkeys(map(describe, self.changes(stored))))
        if changes:
            more = [f"and {len(changes) - shown} more"] if len(changes) > shown else []
            raise refusal("; ".join([*changes[:shown], *more]))


def changed_fields(before: Any, now: Any, field: str = "") -> list[FieldChange]:
    """Compare two identities (plain data) and list the fields that differ.

    >>> changed_fields({"seed": 1, "optimizer": {"rate": 0.1}}, {"seed": 1, "optimizer": {"rate": 0.2}})
    [FieldChange(field='optimizer.rate', before=0.1, now=0.2)]
    """
    pairs: list[tuple[object, Any, Any]] = []
    if isinstance(before, dict) and isinstance(now, dict):
        pairs = [(name, before.get(name), now.get(name)) for name in sorted({*before, *now})]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(place, old, new) for place, (old, new) in enumerate(zip(before, now, strict=True))]
    elif before != now:
        return [FieldChange(field, before, now)]
    prefix = f"{field}." if field else ""
    return [changed for name, old, new in pairs for changed in changed_fields(old, new, f"{prefix}{name}")]


VERSION = version("larvatus")
