"""GET /openapi.json, and GET /docs: a page of it made here, without scripts, that needs no network."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.interfaces.serve.openapi import openapi
from larvatus.interfaces.serve.responses import json_response

STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { margin-top: 2.5rem; border-top: 1px solid; padding-top: 1rem; font-size: 1.2rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9rem; }
pre { overflow-x: auto; padding: 0.6rem; border: 1px solid; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; }
"""


def add_documentation(app: FastAPI) -> None:
    async def described(request: Request) -> Response:
        return json_response(openapi())

    async def shown(request: Request) -> Response:
        return Response(page(str(request.base_url).rstrip("/")), media_type="text/html")

    async def style(request: Request) -> Response:
        return Response(STYLE, media_type="text/css")

    app.openapi = openapi  # type: ignore[method-assign]
    app.add_route("/openapi.json", described, methods=["GET"])
    app.add_route("/docs", shown, methods=["GET"])
    app.add_route("/docs.css", style, methods=["GET"])


@cache
def _sections(base: str) -> str:
    description = openapi()
    return "\n".join(
        _section(base, path, method, said, description["components"]["schemas"])
        for path, methods in description["paths"].items()
        for method, said in methods.items()
    )


def page(base: str) -> str:
    """All addresses, each with its fields and examples."""
    said = escape(openapi()["info"]["description"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Larvatus: addresses</title>'
        '<link rel="stylesheet" href="/docs.css"></head><body><h1>Larvatus</h1>\n'
        f'<p>{said} For programs: <a href="/openapi.json">openapi.json</a>.</p>\n{_sections(base)}\n</body></html>\n'
    )


def _section(base: str, path: str, method: str, said: dict[str, Any], schemas: dict[str, Any]) -> str:
    parts = [f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(said['summary'])}</p>"]
    body = said.get("requestBody", {}).get("content", {}).get("application/json")
    if body is None:
        return parts[0] + f"<pre>curl {escape(base + path)}</pre>"
    parts.append(_fields(schemas[body["schema"]["$ref"].rsplit("/", 1)[1]]))
    for name, example in body["examples"].items():
        sent = json.dumps(example["value"], ensure_ascii=False).replace("'", "\\u0027")
        command = f"curl {base + path} -H 'Content-Type: application/json' -d '{sent}'"
        parts.append(f"<p>{escape(name)}:</p><pre>{escape(command, quote=False)}</pre>")
    answer = said["responses"]["200"]["content"]["application/json"].get("example")
    if answer:
        parts.append(
            f"<p>answer:</p><pre>{escape(json.dumps(answer, indent=2, ensure_ascii=False), quote=False)}</pre>"
        )
    return "\n".join(parts)


def _fields(schema: dict[str, Any]) -> str:
    rows = [
        f"<tr><th scope='row'><code>{escape(name)}</code></th><td>{escape(field.get('description', ''))}</td>"
        f"<td>{escape(_default(name, field, schema))}</td></tr>"
        for name, field in schema["properties"].items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _default(name: str, field: dict[str, Any], schema: dict[str, Any]) -> str:
    if name in schema.get("required", ()):
        return "needed"
    return "" if field.get("default") is None else f"by default {json.dumps(field['default'])}"
