"""English text of every Python installation: the language reference's topics and the standard library's docstrings.

About 2 MB in a fixed order, without a download and without importing a module (sources are parsed, never run). Each
topic and each module is a document; about one in twenty, chosen by the hash of its name, is held out for validation.

    for document in embedded_documents("train"): print(document.source, len(document.text))
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import itertools
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import regex

from larvatus.core.regular_files import walk
from larvatus.data.text.readers import Document

HELD_OUT = 0.05
_NOT_PROSE = ("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data", "encodings")

_ROLE = regex.compile(r":[\w:+-]+:`([^`]+)`")
_LINK = regex.compile(r"`([^`<]+?)\s*<[^>`]*>`_{0,2}")
_LITERAL = regex.compile(r"``([^`]+)``|`([^`]+)`_{0,2}|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^\s*][^*\n]*)\*(?![\w*])")
_DIRECTIVE = regex.compile(r"\s*\.\. .*|\s*:\w[\w ]*:.*")
_RULE = regex.compile(r"[\W_]*")
_WORD = regex.compile(r"[\"'(]?\p{L}[\p{L}'-]*[\"')]?[,.;:!?]?")
_ENDS = regex.compile(r"[.!?:][\"')\]]*")
_Holder = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def embedded_documents(part: Literal["train", "valid", "all"] = "all") -> Iterator[Document]:
    """The embedded documents of a part, in a fixed order."""
    for name, text in _KEPT:
        held_out = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") < HELD_OUT * 2**32
        if part == "all" or (part == "valid") == held_out:
            yield Document(text, f"python:{name}", 1, "en")


class _Kept:
    """Names and texts in their order, each made when it is first used: a few cost no parse of all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._made: list[tuple[str, str]] = []
        self._rest = _fresh()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for number in itertools.count():
            with self._lock:
                while len(self._made) <= number:
                    try:
                        self._made.append(next(self._rest))
                    except StopIteration:
                        return
                    except BaseException:  # a generator that a signal has ended would look as if all were made
                        self._begin()
                        raise
                made = self._made[number]
            yield made


def _fresh() -> Iterator[tuple[str, str]]:
    """Documents without the paragraphs of those before them."""
    seen: set[str] = set()
    for name, texts in _raw():
        paragraphs = dict.fromkeys(paragraph for text in texts for paragraph in prose(text))
        fresh = [paragraph for paragraph in paragraphs if paragraph not in seen]
        seen.update(fresh)
        if fresh:
            yield name, "\n\n".join(fresh)


def _raw() -> Iterator[tuple[str, list[str]]]:
    library = Path(sysconfig.get_paths()["stdlib"])
    for name, text in sorted(_topics(library / "pydoc_data").items()):
        yield f"topics/{name}", [text]
    for path in _modules(library):
        texts = _docstrings(path)
        if texts:
            yield path.relative_to(library).as_posix(), texts


def _modules(library: Path) -> list[Path]:
    """Folders that may contain documentation, in a fixed order; other folders, with most of the files, are not read."""
    paths = []
    for place, folders, names in walk(library):
        folders[:] = [name for name in folders if name not in _NOT_PROSE]
        paths += [Path(place, name) for name in names if name.endswith(".py")]
    return sorted(paths)


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
    return [text for node in _holders(tree) if (text := ast.get_docstring(node, clean=False))]


def _holders(node: ast.AST) -> Iterator[_Holder]:
    """What can hold a docstring, in the order of the source; only in statements, as expressions hold none."""
    if isinstance(node, _Holder):
        yield node
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        statements = getattr(node, block, ())
        for statement in statements if isinstance(statements, list) else ():
            yield from _holders(statement)


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


_KEPT = _Kept()
