"""A model's card for the page: its text, and its claims as rows.

card_of(Path("runs/law"))["claims"][0]["figure"]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.core import files
from larvatus.core.regular_files import is_there, read_text
from larvatus.models.bundle.claims import Claim
from larvatus.models.bundle.directory import CARD, LONGEST_CARD
from larvatus.models.bundle.figures import claim_section, format_claim
from larvatus.models.bundle.manifest import read_manifest
from larvatus.models.bundle.rewriting import card_state


def card_of(directory: Path) -> dict[str, Any]:
    """Of a model that Larvatus wrote, or the README.md of another; `text` is empty where there is none."""
    root = files.standing(directory)
    if read_manifest(root) is None:
        text = read_text(root / CARD, most=LONGEST_CARD) if is_there(root / CARD) else ""
        return {"text": text, "claims": [], "edited": False, "ours": False}
    state = card_state(directory)
    return {
        "text": state.text,
        "claims": [_row(claim) for claim in state.claims],
        "edited": state.edited,
        "ours": True,
    }


def _row(claim: Claim) -> dict[str, Any]:
    return {
        "section": claim_section(claim),
        "figure": claim.label,
        "value": format_claim(claim),
        "low": claim.low,
        "high": claim.high,
        "data": [{"name": data.name, "sha256": data.sha256} for data in claim.data],
        "command": claim.command,
        "estimate": claim.estimate,
        "date": claim.date,
        "machine": claim.machine,
    }
