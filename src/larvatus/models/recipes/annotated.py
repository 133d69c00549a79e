"""A recipe with every line explained: what a setting does, where the chapter has it, and what the recipe notes on it.

    print(annotated_recipe("bert"))                       # larvatus recipes show bert --annotated
    print(annotated_recipe("bert", size="tiny"))          # which lines --size and --set change, and from what

Explanations are the docstrings of the settings, and for parts those of their classes and modules, equations included.
Notes are the comments of the recipe's file; a line that it inherits has the note of the recipe it is built on. What is
printed is a recipe again, with the same values.

    >>> lines = annotated_recipe("xlm-r").splitlines()
    >>> lines[lines.index("alpha = 0.3") - 1]
    '# Here: q_i ∝ p_i^0.3 (eq. 11.7); 1 = as they come'
"""

from __future__ import annotations

import re
import sys
import textwrap
import tomllib
from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any

from larvatus.core.settings import field_docs
from larvatus.models.recipes.files import (
    Table,
    has_tables,
    read_recipe,
    recipe_source,
    recipe_table,
    setting_kinds,
    toml_value,
)

WIDTH = 110
PAGES = "docs/chapter/"
CHAPTER = {
    "tokenizer": "§11.1.1: subword vocabularies; attention.md",
    "tokenizer.characters": "the lectures: ELMo; families.md",
    "packing": "§11.2.3: training regimes; objectives.md",
    "packing.sentence-pairs": "§11.2.2: pairs of sentences, half of them real; objectives.md",
    "corruption": "§11.2: corrupting the input; masking.md",
    "corruption.tokens": "§11.2.1: masking words; masking.md",
    "corruption.spans": "§11.5.1: masking spans; objectives.md",
    "corruption.sampled": "footnote of §11.2.1: ELECTRA learns from all tokens; objectives.md",
    "corruption.sentinels": "the lectures: span corruption; families.md",
    "model": "§11.1.1: the architecture, equations 11.1 to 11.6, Fig. 11.3; attention.md",
    "model.causal-transformer": "Fig. 11.1a: left-to-right attention; families.md",
    "model.elmo": "the lectures: ELMo; families.md",
    "model.encoder-decoder": "older edition, §11.4.1: text-to-text models; families.md",
    "objectives.masked-lm": "§11.2.1: L_MLM; masking.md",
    "objectives.next-sentence": "§11.2.2: y = softmax(W_NSP h); objectives.md",
    "objectives.span-boundary": "§11.5.1: equations 11.17 to 11.20; objectives.md",
    "objectives.sentence-order": "§11.2.2: pairs of sentences; objectives.md",
    "objectives.replaced-tokens": "footnote of §11.2.1: ELECTRA learns from all tokens; objectives.md",
    "objectives.causal-lm": "the lectures: GPT; families.md",
    "objectives.forward-lm": "the lectures: ELMo; families.md",
    "objectives.backward-lm": "the lectures: ELMo; families.md",
    "objectives.denoising": "the lectures: span corruption; families.md",
    "mixture": "§11.2.3: sampling languages; objectives.md",
    "mixture.alpha": "equation 11.7; objectives.md",
    "schedule.steps": "§11.2.3: about 40 epochs for BERT; objectives.md",
    "phases": "§11.2.3: sequences of up to 512 tokens; objectives.md",
}
"""Where the chapter (newer edition unless another is named) has a part, a kind of part, or a setting."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_HEADER = re.compile(r"^\[+([\w.-]+)\]+\s*(?:#\s*(.*))?$")
_LINE = re.compile(rf"""^([\w.-]+)\s*=\s*((?:{_STRING}|'[^']*'|[^#"'])*?)\s*(?:#\s*(.*))?$""")
_CONTINUED = re.compile(r"^\s+#\s*(.*)$")

Notes = dict[str, str]
"""By the path of a setting, or of a part, such as `objectives.0.weight`."""


def annotated_recipe(name: str, *, size: str | None = None, settings: Sequence[str] = ()) -> str:
    """A recipe as TOML with comments above its lines.

    Args:
        name: A recipe's name, or a TOML file.
        size: As in `read_recipe`; lines that it changes are marked.
        settings: As in `read_recipe`.
    """
    table = recipe_table(read_recipe(name, size=size, settings=settings))
    stated = recipe_table(read_recipe(name))
    opening, notes = recipe_notes(name)
    sections = _sections(table, stated if size or settings else table, notes)
    return "\n\n".join([*(["\n".join(_comment(opening))] if opening else []), *sections]) + "\n"


# Notes: the comments of recipe files.


def recipe_notes(name: str) -> tuple[str, Notes]:
    """The comment that opens a recipe's file, and those on its lines, or on the lines that it inherits.

    A part of another type, and a list, replace those of the base with their notes.
    """
    text = recipe_source(name)
    table = tomllib.loads(text)
    opening, notes = _comments(text)
    base = table.get("base")
    if base is None:
        return opening, notes
    source = str(Path(name).parent / base) if base.endswith(".toml") else base
    under = recipe_table(read_recipe(source))
    replaced = tuple(f"{key}." for key, value in table.items() if _replaces(value, under.get(key)))
    inherited = {
        path: note
        for path, note in recipe_notes(source)[1].items()
        if not f"{path}.".startswith(replaced) and not _states(table, path)
    }
    return opening, inherited | notes


def _replaces(value: Any, old: Any) -> bool:
    if isinstance(value, list):
        return True
    return isinstance(value, dict) and isinstance(old, dict) and value.get("type", old.get("type")) != old.get("type")


def _states(table: Table, path: str) -> bool:
    """Whether a table sets the value at a path itself."""
    place: Any = table
    for key in path.split("."):
        if not isinstance(place, dict) or key not in place:
            return False
        place = place[key]
    return not isinstance(place, dict)


def _comments(text: str) -> tuple[str, Notes]:
    """The opening comment of a TOML file, and its notes: behind a line, continued on indented lines of their own."""
    lines = text.splitlines()
    count = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    opening = " ".join(line.lstrip("# ").rstrip() for line in lines[:count])
    notes: Notes = {}
    counts: dict[str, int] = {}
    part, last = "", ""
    for line in lines[count:]:
        if header := _HEADER.match(line):
            part = header[1]
            if line.startswith("[["):
                counts[part] = counts.get(part, -1) + 1
                part = f"{part}.{counts[part]}"
            last, note = part, header[2]
        elif setting := _LINE.match(line):
            last, note = f"{part}.{setting[1]}".lstrip("."), setting[3]
        elif (more := _CONTINUED.match(line)) and last in notes:
            notes[last] += f" {more[1]}"
            continue
        else:
            last, note = "", None
        if note and not part.startswith("sizes"):
            notes[last] = note
    return opening, notes


# The recipe: plain settings of a part, then its tables, as in `recipe_toml`.


def _sections(table: Table, stated: Any, notes: Notes, path: str = "", header: str = "") -> list[str]:
    kind = setting_kinds(path.rstrip("."), table)[0]
    docs = field_docs(kind)
    lines = [*_part_lines(kind, table, path, notes), header] if header else []
    for key, value in table.items():
        if value is None or has_tables(value):
            continue
        at = f"{path}{key}"
        comments = [*_comment(docs.get(key, "")), *_reference(CHAPTER.get(at))]
        if not isinstance(stated, dict) or stated.get(key) != value:
            comments += _comment(_stated(stated, key))
        elif at in notes:
            comments += _comment(_note(notes[at]))
        lines += [*([""] if comments else []), *comments, f"{key} = {toml_value(value)}"]
    sections = ["\n".join(lines).strip()]
    for key, value in table.items():
        below = stated.get(key) if isinstance(stated, dict) else None
        if isinstance(value, dict):
            sections += _sections(value, below, notes, f"{path}{key}.", f"[{path}{key}]")
        elif has_tables(value):
            for number, element in enumerate(value):
                same = below[number] if isinstance(below, list) and number < len(below) else None
                sections += _sections(element, same, notes, f"{path}{key}.{number}.", f"[[{path}{key}]]")
    return sections


def _stated(stated: Any, key: str) -> str:
    if not isinstance(stated, dict) or stated.get(key) is None:
        return "Set by --size or --set; the recipe has no value."
    return f"Set by --size or --set; the recipe has {toml_value(stated[key])}."


def _part_lines(kind: type, table: Table, path: str, notes: Notes) -> list[str]:
    """What a part is, its equations, where the chapter has it, and the recipe's note on it."""
    part = path.split(".")[0]
    module = cleandoc(sys.modules[kind.__module__].__doc__ or "").split("\n\n")
    lines = _comment(cleandoc(kind.__doc__).split("\n\n")[0] if kind.__doc__ and part != "model" else module[0])
    if part == "objectives":
        shown = next((block for block in module if block.startswith("    ")), "")
        lines += ["#", *(f"# {line}".rstrip() for line in shown.splitlines()), "#"] if shown else []
    chapter = CHAPTER.get(f"{part}.{table.get('type', 'transformer' if part == 'model' else '')}", CHAPTER.get(part))
    return [*lines, *_reference(chapter), *_comment(_note(notes.get(path.rstrip("."), "")))]


def _reference(chapter: str | None) -> list[str]:
    if chapter is None:
        return []
    what, _, page = chapter.rpartition("; ")
    return _comment(f"Chapter: {what} ({PAGES}{page})")


def _note(text: str) -> str:
    return f"Here: {text.strip('… ')}" if text else ""


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False)]
