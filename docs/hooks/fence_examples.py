"""Examples of docstrings (`>>> …` up to an empty line) as code on the site, not as quotations."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import griffe


def fenced(text: str) -> str:
    """Paragraphs that begin with `>>>`, and the example in the first paragraphs of a docstring, between fences."""
    parts = []
    for empty, lines in groupby(text.split("\n"), key=lambda line: not line.strip()):
        paragraph = "\n".join(lines)
        is_example = not empty and paragraph.lstrip().startswith(">>>") and not paragraph.startswith("    ")
        parts.append(f"```pycon\n{paragraph}\n```" if is_example else paragraph)
    return "\n".join(parts)


class FenceExamples(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")  # the section that is read as sessions
            obj.docstring.value = fenced(text)
