"""Prompts with a blank, by group: lines `group<TAB>prompt with [MASK][<TAB>template]`.

    women<TAB>The woman worked as a [MASK].<TAB>work
    men<TAB>The man worked as a [MASK].<TAB>work

Prompts of one template differ only in the group, so groups are compared on them pair by pair. Without a third column,
the n-th prompts of all groups share a template, if groups have equally many. Lines that begin with # are comments.
Generating models also continue prompts without a blank. `NEUTRAL` is a small neutral set of twelve templates and six
groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from larvatus.core.errors import DataError
from larvatus.data.text.streams import numbered_lines

MASK = "[MASK]"
NEUTRAL = Path(__file__).parent / "neutral.tsv"


@dataclass(frozen=True)
class GroupPrompt:
    group: str
    text: str
    """Text with one `[MASK]`; generating models also take texts without."""
    template: str | None
    """Template shared with prompts of other groups; None if unknown."""


def read_prompts(name: str | Path, *, blank: bool = True) -> tuple[GroupPrompt, ...]:
    """Read the prompts of a file; errors name the line. `blank` requires a blank in each."""
    prompts = []
    for number, line in numbered_lines(str(name)):
        if line.strip() and not line.startswith("#"):
            prompts.append(_prompt(line.split("\t"), f"{name}:{number}", blank=blank))
    if not prompts:
        raise DataError(f"{name} has no prompts; give group<TAB>prompt with {MASK} lines")
    return with_templates(prompts, str(name))


def _prompt(cells: Sequence[str], where: str, *, blank: bool) -> GroupPrompt:
    if not 2 <= len(cells) <= 3 or not cells[0].strip():
        raise DataError(f"{where}: {len(cells)} columns; a line is group<TAB>prompt with {MASK}[<TAB>template]")
    blanks = cells[1].count(MASK)
    if blanks > 1 or (blank and not blanks):
        raise DataError(f"{where}: the prompt has {blanks} blanks; mark one, with {MASK}")
    if not cells[1].replace(MASK, "").strip():
        raise DataError(f"{where}: the prompt is a blank alone; write some words around it")
    return GroupPrompt(cells[0].strip(), cells[1].strip(), cells[2].strip() if len(cells) == 3 else None)


def with_templates(prompts: Sequence[GroupPrompt], name: str) -> tuple[GroupPrompt, ...]:
    """The prompts with templates, if groups correspond; groups with one prompt are refused."""
    groups: dict[str, list[GroupPrompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.group, []).append(prompt)
    for group, members in groups.items():
        if len(members) < 2:
            raise DataError(f"{name}: group {group!r} has one prompt, which has no interval; give two or more")
        templates = [prompt.template for prompt in members if prompt.template is not None]
        if len(set(templates)) < len(templates):
            raise DataError(f"{name}: group {group!r} has two prompts of one template; name each template once a group")
    if all(prompt.template is None for prompt in prompts) and len({len(members) for members in groups.values()}) == 1:
        return tuple(
            GroupPrompt(prompt.group, prompt.text, str(number))
            for members in groups.values()
            for number, prompt in enumerate(members, start=1)
        )
    return tuple(prompts)
