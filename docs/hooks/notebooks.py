"""Notebooks of tutorials and exercises on the site, each linked from its page; `larvatus tutorial` writes the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from larvatus.interfaces.cli.commands.tutorial import notebook, page_files, tutorial_pages


def _notebooks(docs: Path) -> dict[str, str]:
    """Addresses of the pages that are notebooks too, and what each notebook holds."""
    pages = {page.relative_to(docs).as_posix(): page for page in tutorial_pages(docs).values()}
    return {
        address: json.dumps(notebook(page.read_text("utf-8"), files=[file.name for file in page_files(page)]))
        for address, page in pages.items()
    }


def on_files(files: Files, *, config: Any) -> Files:
    for address, content in _notebooks(Path(config.docs_dir).resolve()).items():
        files.append(File.generated(config, address.removesuffix(".md") + ".ipynb", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """A link to the notebook below the heading."""
    made = files.get_file_from_path(page.file.src_uri.removesuffix(".md") + ".ipynb")
    if made is None:
        return markdown
    title, _, rest = markdown.partition("\n")
    name = page.file.src_uri.rpartition("/")[2].removesuffix(".md")
    return f"{title}\n\n[This page as a notebook]({name}.ipynb), which `larvatus tutorial {name}` writes too.\n{rest}"
