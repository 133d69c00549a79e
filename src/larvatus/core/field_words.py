"""What the fields of a struct are for: the words that stand below each of them in the source.

field_words(FillBody)["joint"]          # 'Fill several blanks together; else each by itself alone.'
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Mapping
from functools import cache


def field_words(kind: type) -> dict[str, str]:
    """By name, those of base classes included; nothing where there is no source, as in a frozen program."""
    said: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        said |= _of_module(owner.__module__).get(owner.__name__, {})
    return said


@cache
def _of_module(name: str) -> Mapping[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, KeyError):
        return {}
    return {node.name: _of_class(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    said = {}
    for line, below in itertools.pairwise(node.body):
        words = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(words, str):
            said[line.target.id] = " ".join(words.split())
    return said
