"""Real English prose that every Python ships: the language reference's topics and the standard library's docstrings.

About 2 MB in a fixed order, without a download and without importing a module (sources are parsed, never run). Each
topic and each module is a document; about one in twenty, chosen by the hash of its name, is held out for validation.

    for document in embedded_documents("train"): print(document.source, len(document.text))
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import regex

from larvatus.text.readers import Document

HELD_OUT = 0.05
_NOT_PROSE = ("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data", "encodings")

_ROLE = regex.compile(r":[\w:+-]+:`([^`]+)`")
_LINK = regex.compile(r"`([^`<]+?)\s*<[^>`]*>`_{0,2}")
_LITERAL = regex.compile(r"``([^`]+)``|`([^`]+)`_{0,2}|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^\s*][^*\n]*)\*(?![\w*])")
_DIRECTIVE = regex.compile(r"\s*\.\. .*|\s*:\w[\w ]*:.*")
_RULE = regex.compile(r"[\W_]*")
_WORD = regex.compile(r"[\"'(]?\p{L}[\p{L}'-]*[\"')]?[,.;:!?]?")
_ENDS = regex.compile(r"[.!?:][\"')\]]*")


def embedded_documents(part: Literal["train", "valid", "all"] = "all") -> Iterator[Document]:
    """The embedded documents of a part, in a fixed order."""
    for name, text in _embedded():
        held_out = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") < HELD_OUT * 2**32
        if part == "all" or (part == "valid") == held_out:
            yield Document(text, f"python:{name}", 1, "en")


@cache
def _embedded() -> tuple[tuple[str, str], ...]:
    seen: set[str] = set()
    parts = []
    for name, texts in _raw():
        paragraphs = dict.fromkeys(paragraph for text in texts for paragraph in prose(text))
        fresh = [paragraph for paragraph in paragraphs if paragraph not in seen]
        seen.update(fresh)
        if fresh:
            parts.append((name, "\n\n".join(fresh)))
    return tuple(parts)


def _raw() -> Iterator[tuple[str, list[str]]]:
    library = Path(sysconfig.get_paths()["stdlib"])
    for name, text in sorted(_topics(library / "pydoc_data").items()):
        yield f"topics/{name}", [text]
    for path in sorted(library.rglob("*.py")):
        relative = path.relative_to(library)
        if not set(relative.parts) & set(_NOT_PROSE):
            texts = _docstrings(path)
            if texts:
                yield relative.as_posix(), texts


def _topics(folder: Path) -> dict[str, str]:
    """The one dictionary of literals in `pydoc_data/topics.py`, read without running it."""
    tree = ast.parse((folder / "topics.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            return topics
    return {}


def _docstrings(path: Path) -> list[str]:
    """Docstrings of a module, its classes and functions, in the order of the source."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old modules hold old escapes
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []  # bad by intent (lib2to3's fixtures), or another encoding
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, holders)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for node in nodes if (text := ast.get_docstring(node, clean=False))]


def prose(text: str) -> list[str]:
    """Paragraphs of running text: no code, tables, underlines or markup; the lines of each joined."""
    paragraphs = []
    for block in regex.split(r"\n[ \t]*\n", inspect.cleandoc(text)):
        lines = block.split("\n")
        if any(line.lstrip().startswith((">>>", "...")) for line in lines) or (
            lines[-1].endswith("::") and len(lines) == 1
        ):
            continue
        kept = [line for line in lines if not _RULE.fullmatch(line) and not _DIRECTIVE.fullmatch(line)]
        joined = _plain(" ".join(" ".join(kept).split()))
        if _is_prose(joined, block):
            paragraphs.append(joined)
    return paragraphs


def _plain(paragraph: str) -> str:
    """A paragraph without reStructuredText markup."""
    paragraph = _LINK.sub(r"\1", _ROLE.sub(r"\1", paragraph))
    paragraph = _LITERAL.sub(lambda match: next(group for group in match.groups() if group), paragraph)
    return paragraph.removesuffix(":") if paragraph.endswith("::") else paragraph


def _is_prose(paragraph: str, block: str) -> bool:
    """Enough words that are only words (more where no full stop ends it), and not laid out in columns or as code."""
    words = paragraph.split()
    plain = sum(1 for word in words if _WORD.fullmatch(word))
    ends = _ENDS.search(paragraph, pos=max(0, len(paragraph) - 3))
    if len(words) < 5 or plain < (0.6 if ends else 0.85) * len(words):
        return False
    lines = block.split("\n")
    columns = sum("   " in line.strip() or "|" in line for line in lines)
    code = sum(line.rstrip().endswith(("{", "}", ";", "(", "=", "\\")) or " = " in line for line in lines)
    return columns * 3 <= len(lines) and code * 3 <= len(lines)
