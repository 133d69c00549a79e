"""What all ranks find out together: that they train the same before the first step, and whose a fault of all is.

    agree(ranks, {**programs(), "seed": 1, "recipe": recipe_table(recipe)})
    agree(ranks, {"corpus": corpus.fingerprint, "step": 400})

    larvatus: rank 3 on node07 differs from rank 0 on node06: seed: 1 → 2; start all ranks with …            (exit 2)

    raise blamed(fault, ranks, mine=True)      # where all ranks have the fault: rank 3 on node07: step 12: loss nan; …

Ranks that differ would add up gradients of different things, or wait for each other for ever.
"""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from larvatus.core.errors import LarvatusError, UsageError
from larvatus.core.version import VERSION
from larvatus.training.engine.checkpoint import changed_fields
from larvatus.training.engine.distribution import Ranks

SHOWN = 4
"""Of the fields that a rank has otherwise."""
LONGEST = 80
"""Characters of a value that are shown."""


def programs() -> dict[str, str]:
    """What runs here: versions, and a checksum of the code itself, which may be edited without a new version."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), "larvatus": VERSION, "code": _code()}


@functools.cache
def _code() -> str:
    digest = hashlib.sha256()
    folder = Path(__file__).parents[2]
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def agree(ranks: Ranks, told: Mapping[str, Any]) -> None:
    """Refuse to go on where any rank says something else than rank 0; what is told is plain data."""
    if ranks.count == 1:
        return
    first = ranks.share(lambda: (platform.node(), dict(told)))
    differs = [_shown(change.field, change.before, change.now) for change in changed_fields(first[1], dict(told))]
    answers = ranks.gather((platform.node(), differs))
    others = [(rank, host, fields) for rank, (host, fields) in enumerate(answers) if fields]
    if others:
        rank, host, fields = others[0]
        more = f"; and {len(fields) - SHOWN} more" if len(fields) > SHOWN else ""
        besides = f" (and {len(others) - 1} more ranks)" if len(others) > 1 else ""
        fault = UsageError(
            f"rank {rank} on {host}{besides} differs from rank 0 on {first[0]}: {'; '.join(fields[:SHOWN])}{more}; "
            "start all ranks with the same command, text and versions"
        )
        fault.of_all = True
        raise fault


def blamed(fault: LarvatusError, ranks: Ranks, *, mine: bool) -> LarvatusError:
    """A fault that all ranks have at once, with the names of those that say it is theirs; all must call this."""
    if ranks.count > 1:
        answers = ranks.gather((platform.node(), mine))
        guilty = [f"rank {rank} on {host}" for rank, (host, says_so) in enumerate(answers) if says_so]
        if 0 < len(guilty) < ranks.count:
            fault.args = (f"{', '.join(guilty[:SHOWN])}{' …' if len(guilty) > SHOWN else ''}: {fault}",)
        fault.of_all = True
    return fault


def _shown(field: str, before: object, now: object) -> str:
    values = [value if len(value) <= LONGEST else f"{value[:LONGEST]}…" for value in (repr(before), repr(now))]
    return f"{field}: {' → '.join(values)}"
