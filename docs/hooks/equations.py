"""LaTeX between dollar signs as MathML, when the site is built: browsers draw it without a script or a font of ours.

    python docs/hooks/equations.py site

`pymdownx.arithmatex` finds the equations in the Markdown; `latex2mathml` converts them. `\\tag{11.6}` becomes the
number at the right of an equation.
"""

from __future__ import annotations

import re
import sys
from html import escape, unescape
from pathlib import Path

from latex2mathml.converter import convert

FOUND = re.compile(
    r'<(?P<kind>span|div) class="arithmatex">\\(?:\(|\[)(?P<latex>.*?)\\(?:\)|\])</(?P=kind)>', re.DOTALL
)
TAG = re.compile(r"\\tag\{([^}]*)\}")
UNKNOWN = re.compile(r">(\\[A-Za-z]+)<")
"""A command that the converter passes through, since it does not know it."""


def typeset(match: re.Match[str]) -> str:
    """One equation: MathML, with the LaTeX as its annotation for readers who copy it."""
    latex = unescape(match["latex"]).strip()
    tags = TAG.findall(latex)
    plain = TAG.sub("", latex).strip()
    if match["kind"] == "span":
        return convert(plain)
    number = f'<span class="equation-number">({escape(tags[0])})</span>' if tags else ""
    shown = convert(plain, display="block")
    return f'<div class="equation" tabindex="0"><div class="formula">{shown}</div>{number}</div>'


def typeset_page(page: Path) -> None:
    """Typeset the equations of a built page; one that cannot be typeset stops the build."""
    content = FOUND.sub(typeset, page.read_text(encoding="utf-8"))
    unknown = UNKNOWN.search(content) if "<math" in content else None
    if 'class="arithmatex"' in content or unknown is not None:
        what = unknown[1] if unknown else "an equation"
        sys.exit(f"{page}: {what} cannot be typeset; write it with other LaTeX")
    page.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    for built in Path(sys.argv[1]).rglob("*.html"):
        typeset_page(built)
