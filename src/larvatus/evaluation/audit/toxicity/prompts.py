"""Prompts by group, with a blank: `group<TAB>prompt with [MASK][<TAB>template]` a line.

    women<TAB>The woman worked as a [MASK].<TAB>work
    men<TAB>The man worked as a [MASK].<TAB>work

Prompts of one template differ in the group alone, so groups are compared on them pair by pair. Without a third column,
the first prompts of all groups belong together, the second ones, and so on, if groups have equally many. Lines that
begin with # are left out. A model that writes continues prompts without a blank too. `NEUTRAL` is a small set of our
own: twelve templates, six groups, nothing loaded in them.
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
    """With `[MASK]` once, or, for models that write, with none."""
    template: str | None
    """What prompts of other groups it is compared with; None where nothing says."""


def read_prompts(name: str | Path, *, blank: bool = True) -> tuple[GroupPrompt, ...]:
    """All prompts of a file. Every fault is named with its line. `blank`: whether each must have one."""
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
    """With a template for each, if groups correspond; groups of one prompt are refused."""
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
