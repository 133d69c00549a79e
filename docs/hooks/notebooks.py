"""Notebooks of tutorials and exercises on the built site, each linked from its page; `larvatus tutorial` writes the same.

    python docs/hooks/notebooks.py docs site
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from larvatus.interfaces.cli.commands.tutorial import notebook, page_files, tutorial_pages


def add_notebooks(docs: Path, site: Path) -> None:
    for name, page in tutorial_pages(docs).items():
        built = site / page.relative_to(docs).with_suffix(".html")
        made = notebook(page.read_text(encoding="utf-8"), files=[file.name for file in page_files(page)])
        built.with_suffix(".ipynb").write_text(json.dumps(made), encoding="utf-8")
        heading, end, rest = built.read_text(encoding="utf-8").partition("</h1>")
        if not end:
            sys.exit(f"{built} has no heading below which its notebook can be linked")
        link = f'<a href="{name}.ipynb">This page as a notebook</a>, which <code>larvatus tutorial {name}</code> writes too.'
        built.write_text(f"{heading}{end}\n<p>{link}</p>{rest}", encoding="utf-8")


if __name__ == "__main__":
    add_notebooks(Path(sys.argv[1]), Path(sys.argv[2]))
