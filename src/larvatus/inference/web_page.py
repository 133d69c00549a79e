"""Self-contained web pages: body, style, script and data in one HTML file that needs no network.

    html = whole_page("bank", body=…, script=…, data={"points": […]})

Text of users is data, never markup: it is in blocks of a type that browsers do not run, with every `<` escaped, and
scripts put it on the page as text. A content security policy allows one script and one style by their hashes; nothing
else can run or load, whatever a sentence contains.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any


def asset(package: str, name: str) -> str:
    """A file in the `assets` folder of a package."""
    return (resources.files(package) / "assets" / name).read_text(encoding="utf-8")


def build_page(
    title: str, *, body: str, script: str, data: Mapping[str, Any], blobs: Mapping[str, bytes] | None = None
) -> str:
    """`body` and `script` are our own; `data` becomes JSON, each of `blobs` base64 in a block with its name as id."""
    style = asset("larvatus.inference", "page.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'"
    blocks = [
        f'<script type="application/octet-stream" id="{html.escape(name)}">{base64.b64encode(blob).decode()}</script>'
        for name, blob in (blobs or {}).items()
    ]
    return "\n".join(
        [
            page_start(title, policy=policy, style=style),
            body,
            f'<script type="application/json" id="data">{as_data(data)}</script>',
            *blocks,
            f"<script>{script}</script>",
            PAGE_END,
        ]
    )


def page_start(title: str, *, policy: str, style: str) -> str:
    """Everything before the body of a page."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
        ]
    )


PAGE_END = "</body>\n</html>\n"


def as_data(value: Any) -> str:
    """JSON that is safe inside a script element: without `<`, nothing in it can end the element.

    >>> as_data(["</script>"])
    '["\\\\u003c/script>"]'
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
