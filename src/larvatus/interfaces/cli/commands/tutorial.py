"""`larvatus tutorial`: pages of the documentation as notebooks, each with the files that it reads.

    larvatus tutorial                      # the names
    larvatus tutorial entities             # writes entities.ipynb and entities.conll

    notebook(Path("docs/tutorials/entities.md").read_text())      # the same as a value, in the format of Jupyter

A ```python block becomes a code cell, and a ```text block right after it becomes its output. A block of `larvatus`
commands becomes a code cell too if each command ends by itself; everything else is text. Solutions that a page folds
(`???` or `<details>`) stay folded in Jupyter. The format is nbformat 4.5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.files import new_file, write_text
from larvatus.core.outputs import check_outputs
from larvatus.core.run_identity import VERSION
from larvatus.core.tables import Table
from larvatus.interfaces.cli.options import Overwrite
from larvatus.interfaces.cli.output import hint, show_part

PACKAGED = Path(__file__).parents[3] / "pages"
"""Pages of an installed package, which the wheel copies from `docs/`."""
CLONE = Path(__file__).parents[5] / "docs"
PLACES = {"tutorials": "Tutorials", "chapter/exercises": "Exercises on the chapter"}
"""Folders of pages."""
ENDLESS = ("serve", "studio")
"""Commands that run until Ctrl-C, which would block a notebook."""

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_FOLD = re.compile(r'^(?:\?\?\?|!!!)\+? *(\w+)? *(?:"([^"]*)")? *$')
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)[^)\s]*\)")
_HTML_FOLD = re.compile(r"^</?details[^>]*>\s*$|^<summary>(.*?)</summary>\s*$", re.MULTILINE)


def tutorial(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Tutorial to write; without one, all are listed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Notebook to write; NAME.ipynb by default.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """List the tutorials, or write one as a notebook with the files that it reads."""
    pages = tutorial_pages()
    if name is None:
        if out is not None:
            raise UsageError("name the tutorial to write; larvatus tutorial lists them")
        for folder, title in PLACES.items():
            rows = [(each, _title(page)) for each, page in pages.items() if page.parent == _pages() / folder]
            if rows:
                show_part(Console(highlight=False), Table(("name", title.lower()), rows, left=2))
        hint("\nnext: larvatus tutorial NAME writes a notebook")
        return
    if name not in pages:
        raise UsageError(f"there is no tutorial {name!r}{did_you_mean(name, pages)}")
    page = pages[name]
    target = Path(f"{name}.ipynb") if out is None else out
    files = {target.parent / file.name: file for file in page_files(page)}
    check_outputs(target, *files, overwrite=overwrite, inputs=[page, *files.values()])
    for copy, file in files.items():
        with new_file(copy) as aside:
            aside.write_bytes(file.read_bytes())
    made = notebook(page.read_text(encoding="utf-8"), files=[file.name for file in files])
    write_text(target, json.dumps(made, ensure_ascii=False, indent=1) + "\n")
    print(f"saved {', '.join(map(str, [target, *files]))}")
    hint(f"next: jupyter lab {target}   (pip install jupyterlab, if it is missing)")


def tutorial_pages(docs: Path | None = None) -> dict[str, Path]:
    """Pages by name, in their order; those of a folder of documentation, or else the packaged ones."""
    pages = [page for folder in PLACES for page in sorted(((docs or _pages()) / folder).glob("*.md"))]
    return {page.stem: page for page in pages if page.stem not in ("index", "README")}


def page_files(page: Path) -> list[Path]:
    """Files that a page reads: those of the folder with its name."""
    folder = page.with_suffix("")
    return sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []


def _pages() -> Path:
    """Root of the pages: in the installed package, or else in the clone."""
    return PACKAGED if PACKAGED.is_dir() else CLONE


def _title(page: Path) -> str:
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ").strip()


# A page as a notebook.


class PageBlock(NamedTuple):
    """A stretch of text, or a fenced block, of a page."""

    kind: str
    """Language of the fence; empty for text."""
    source: str
    folded: bool


def notebook(text: str, *, files: list[str] | None = None) -> dict[str, Any]:
    """A page as a notebook.

    >>> page = "# Sums\\n\\nAdd two numbers.\\n\\n```python\\nprint(1 + 1)\\n```\\n\\n```text\\n2\\n```\\n"
    >>> [cell["cell_type"] for cell in notebook(page)["cells"]]
    ['markdown', 'markdown', 'code']
    """
    cells: list[dict[str, Any]] = []
    after_code = False
    for block in page_blocks(text):
        if block.kind == "text" and after_code:
            cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": _lines(block.source)}]
            after_code = False
        elif code := _code(block):
            cells.append(_code_cell(code, folded=block.folded))
            after_code = True
        elif block.kind:
            cells.append(_text_cell(f"```{block.kind}\n{block.source}```"))
            after_code = False
        elif block.source.strip():
            cells.append(_text_cell(_without_links(block.source.strip())))
            after_code = False
    cells.insert(1, _text_cell(_note(text, files or [])))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:03d}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    language = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": language},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def page_blocks(text: str) -> Iterator[PageBlock]:
    """Text and fenced blocks of a page in their order; what a page folds is unfolded and marked."""
    for part, folded in _folds(text):
        at = 0
        for fence in _FENCE.finditer(part):
            yield PageBlock("", part[at : fence.start()], folded)
            yield PageBlock(fence[1] or "text", fence[2], folded)
            at = fence.end()
        yield PageBlock("", part[at:], folded)


def _folds(text: str) -> Iterator[tuple[str, bool]]:
    """Parts of a page, and whether each is folded: bodies of `???` and of `<details>`."""
    lines = text.splitlines(keepends=True)
    part: list[str] = []
    at = 0
    while at < len(lines):
        opened = _FOLD.match(lines[at])
        html = lines[at].lstrip().startswith("<details")
        if not (opened or html):
            part.append(lines[at])
            at += 1
            continue
        yield "".join(part), False
        part, at, start = [], at + 1, at
        if opened:
            while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
                at += 1
            body = "".join(line[4:] if line.strip() else line for line in lines[start + 1 : at])
            yield f"**{opened[2] or (opened[1] or 'note').capitalize()}**\n\n{body}", lines[start].startswith("???")
        else:
            while at < len(lines) and "</details>" not in lines[at]:
                at += 1
            at += 1
            body = _HTML_FOLD.sub(lambda line: f"**{line[1]}**\n" if line[1] else "", "".join(lines[start:at]))
            yield body, True
    yield "".join(part), False


def _code(block: PageBlock) -> str:
    """Code of a cell; empty for a block that stays text."""
    if block.kind == "python":
        return block.source.rstrip("\n")
    if block.kind not in ("sh", "bash", "console"):
        return ""
    prompt = "$ " if block.kind == "console" else ""
    commands = [
        line.removeprefix(prompt) for line in block.source.splitlines() if line.startswith(prompt) and line.strip()
    ]
    runs = [command.split() for command in commands]
    if all(words[0] == "larvatus" and words[1:2] and words[1] not in ENDLESS for words in runs):
        return "\n".join(f"!{command}" for command in commands)
    return ""


def _note(text: str, files: list[str]) -> str:
    reads = f" It reads {', '.join(f'`{name}`' for name in files)}, which must be in the same folder." if files else ""
    shortened = " Outputs with `...` are shortened until you run their cells." if "..." in text else ""
    return f"*A page of the documentation of Larvatus {VERSION} as a notebook.{reads}{shortened}*"


def _without_links(text: str) -> str:
    """Text whose links to other pages, and pictures of other folders, are their words only."""
    return _LINK.sub(lambda link: f"*{link[2]}*" if link[1] else link[2], text)


def _text_cell(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(source)}


def _code_cell(source: str, *, folded: bool) -> dict[str, Any]:
    metadata = {"jupyter": {"source_hidden": True}} if folded else {}
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [], "source": _lines(source)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
