"""A model card as the studio shows it: a summary, then the sections of its text, then its claims.

    shown = card_of(Path("runs/law"))
    shown["summary"]["figures"]               # up to five, with intervals where they have one
    [section["title"] for section in shown["sections"]]

A card may have hundreds of figures. The summary takes the first of each data set or task, results before audits, those
with an interval before the others; limits are those that the text states. Figures of the text that are claims are left
to the table of claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from larvatus.core import files
from larvatus.core.regular_files import is_there, read_text
from larvatus.models.bundle.card import claim_section, figures_section, format_claim
from larvatus.models.bundle.claims import COMMANDS, Claim
from larvatus.models.bundle.directory import CARD
from larvatus.models.bundle.manifest import read_manifest
from larvatus.models.bundle.partial_updates import LONGEST_CARD, card_state

HEADLINES = 5
RESULTS = ("held-out text", "before and after", "evaluate", "evaluate text", "evaluate suite")
"""Commands whose figures say how good a model is."""
AUDITS = ("audit bias", "audit leaks", "audit toxicity")
FACTS = {
    "parameters": "parameters", "layers": "layers", "hidden": "hidden size", "vocabulary": "vocabulary",
    "max_positions": "longest input, tokens", "tokens": "tokens read in training", "examples": "training examples",
}  # fmt: skip
"""Metrics of a model's size and training that the summary shows, and their names for people."""
LIMITS = re.compile(r"limit|not fit|not for|caveat|bias, risks", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"\s*---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_FENCE = re.compile(r"\s*(```|~~~)")


def card_of(directory: Path) -> dict[str, Any]:
    """The card of a model that Larvatus wrote, or the README.md of another; `text` is empty if there is none."""
    root = files.standing(directory)
    if read_manifest(root) is None:
        text = read_text(root / CARD, most=LONGEST_CARD) if is_there(root / CARD) else ""
        return {"text": text, "claims": [], "edited": False, "ours": False, **arrange(text, ())}
    state = card_state(directory)
    return {
        "text": state.text,
        "claims": [_row(claim) for claim in sorted(state.claims, key=_section_order)],
        "edited": state.edited,
        "ours": True,
        **arrange(state.text, state.claims),
    }


def arrange(text: str, claims: Sequence[Claim]) -> dict[str, Any]:
    """The summary of a card, its other sections, and its front matter."""
    front, body = _front_matter(text)
    if claims and (rendered := figures_section(body)) is not None:
        body = body.replace(rendered, "")
    opening, *parts = split_sections(body)
    about, _, rest = opening.text.strip().partition("\n\n")
    limits = next((part for part in parts if LIMITS.search(part.title)), None)
    others = [Section("Introduction", rest), *(part for part in parts if part is not limits)]
    return {
        "summary": {
            "title": opening.title,
            "about": about,
            "facts": list(_facts(claims)),
            "figures": [_row(claim) for claim in headlines(claims)],
            "limits": "" if limits is None else limits.text.strip(),
        },
        "sections": [{"title": part.title, "text": part.text.strip()} for part in others if part.text.strip()],
        "front_matter": front,
    }


class Section(NamedTuple):
    title: str
    text: str


def split_sections(text: str) -> list[Section]:
    """The part up to the first heading of the second level, with the title of the card, then one for each of these.

    >>> split_sections("# Law\\n\\nAn encoder.\\n\\n## Limits\\n\\nMany.\\n")
    [Section(title='Law', text='\\n\\nAn encoder.\\n\\n'), Section(title='Limits', text='\\n\\nMany.\\n')]
    """
    sections, fenced = [("", [""])], False
    for line in text.splitlines(keepends=True):
        fenced ^= _FENCE.match(line) is not None
        if not fenced and line.startswith("## "):
            sections.append((_title(line), ["\n"]))
        elif not fenced and line.startswith("# ") and len(sections) == 1 and not sections[0][0]:
            sections[0] = (_title(line), ["\n"])
        else:
            sections[-1][1].append(line)
    return [Section(title, "".join(lines)) for title, lines in sections]


def headlines(claims: Sequence[Claim], most: int = HEADLINES) -> list[Claim]:
    """Figures for the summary: the first of each task or data set, then the second of each, and so on."""
    chosen: list[Claim] = []
    for commands in (RESULTS, AUDITS):
        for with_interval in (True, False):
            groups: dict[Any, list[Claim]] = {}
            for claim in claims:
                if claim.command in commands and (claim.low is not None) == with_interval:
                    task = claim.settings.get("task") or claim.data
                    groups.setdefault((claim_section(claim), task), []).append(claim)
            rounds = zip_longest(*groups.values())
            chosen += [claim for each in rounds for claim in each if claim is not None]
            if chosen and (with_interval or len(chosen) >= most):
                return chosen[:most]
    return chosen[:most]


def _facts(claims: Sequence[Claim]) -> Iterator[dict[str, str]]:
    values = {
        claim.metric: format_claim(claim) for claim in claims if claim.command in ("model", "pretrain", "finetune")
    }
    yield from ({"name": FACTS[name], "value": values[name]} for name in FACTS if name in values)


def _front_matter(text: str) -> tuple[str, str]:
    match = _FRONT_MATTER.match(text)
    return ("", text) if match is None else (match[1], text[match.end() :])


def _title(line: str) -> str:
    return line.lstrip("#").strip().rstrip("#").strip()


def _section_order(claim: Claim) -> int:
    """Claims are in the order of the card's sections, whenever they were added."""
    return list(dict.fromkeys([*COMMANDS.values(), claim_section(claim)])).index(claim_section(claim))


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
