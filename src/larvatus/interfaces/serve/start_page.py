"""The server's first page: what it is, its models, its routes, and a request to copy. `GET /`.

    curl http://127.0.0.1:8311/
    {"name": "Larvatus", "models": [{"name": "law", "can": ["fill", …]}], "example": {"path": "/v1/fill", …}, …}

A browser, which accepts text/html, gets a page without scripts; all other clients get the same as JSON. The example is
one that the first model answers as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.run_identity import VERSION
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.operations.predict import PREDICTIONS
from larvatus.interfaces.serve.responses import json_response
from larvatus.interfaces.serve.server import Server

ABOUT = (
    "Runs language models that read text in both directions: they fill blanks, turn text into vectors, classify, label "
    "words and answer questions. Requests and responses are JSON."
)
KEYED = "-H 'Authorization: Bearer KEY' "
"""Header of a request to a server with keys, in a command to copy."""
VARY = {"Vary": "Accept"}


def add_start_page(app: FastAPI, server: Server, openapi: Callable[[], dict[str, Any]]) -> None:
    """Add the route. `openapi` gives the description of all routes."""

    async def start(request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        described = describe_server(server, openapi()["paths"], base)
        if "text/html" in request.headers.get("accept", ""):
            return Response(start_page(described), headers=VARY, media_type="text/html")
        return json_response(described, headers=VARY)

    app.add_route("/", start, methods=["GET"], include_in_schema=False)


def curl_command(url: str, body: Any, *, keyed: bool = False) -> str:
    """A request as a command. An apostrophe in the body is written as an escape, since the shell would end there."""
    sent = json.dumps(body, ensure_ascii=False).replace("'", "\\u0027")
    return f"curl {url} {KEYED if keyed else ''}-H 'Content-Type: application/json' -d '{sent}'"


def describe_server(server: Server, paths: Mapping[str, Any], base: str) -> dict[str, Any]:
    """What the page shows, as JSON."""
    keyed = server.settings.key_file is not None
    return {
        "name": "Larvatus",
        "version": VERSION,
        "about": ABOUT,
        "needs_key": keyed,
        "models": [{"name": model.name, "can": list(model.can)} for model in server.served.models.values()],
        "routes": list(_routes(server, paths)),
        "example": _example(server, base, keyed=keyed),
        "documentation": f"{base}/docs",
        "openapi": f"{base}/openapi.json",
    }


def _routes(server: Server, paths: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All routes; an operation with the models that support it."""
    for path, methods in paths.items():
        for method, described in methods.items():
            route = {"method": method.upper(), "path": path, "summary": described["summary"]}
            if (name := described["operationId"]) in OPERATIONS:
                route["models"] = [model.name for model in server.served.models.values() if name in model.can]
            yield route


def _example(server: Server, base: str, *, keyed: bool) -> dict[str, Any] | None:
    """An example of what the first model is for: blanks, or its fine-tuned task; named where there are several."""
    first, *others = server.served.models.values()
    if not first.can:
        return None
    predicts = {operation.name for operation in PREDICTIONS}
    name = min(first.can, key=lambda name: name != "fill" and name not in predicts)
    body = {**next(iter(OPERATIONS[name].examples.values())), **({"model": first.name} if others else {})}
    path = f"/v1/{name}"
    return {"method": "POST", "path": path, "body": body, "curl": curl_command(base + path, body, keyed=keyed)}


def start_page(described: Mapping[str, Any]) -> str:
    """The page of a description."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Larvatus server</title>'
        f'<link rel="stylesheet" href="/docs.css"></head><body>\n{"".join(_parts(described))}\n</body></html>\n'
    )


def _parts(described: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h1>Larvatus server</h1><p>{escape(described['about'])}</p>"
    if described["needs_key"]:
        yield "<p>Requests need a key: <code>Authorization: Bearer KEY</code>.</p>"
    if described["example"] is not None:
        yield f"<h2>Try it</h2><pre>{escape(described['example']['curl'], quote=False)}</pre>"
    rows = [(f"<strong>{escape(m['name'])}</strong>", ", ".join(map(_link, m["can"]))) for m in described["models"]]
    yield f"<h2>Models</h2>{_table(('model', 'can'), rows)}"
    able = [route for route in described["routes"] if route.get("models") != []]
    others = [route for route in described["routes"] if route.get("models") == []]
    yield f"<h2>Routes</h2>{_table(('route', 'what it does', 'models'), map(_route, able))}"
    if others:
        summary = f"{len(others)} more, which none of these models supports"
        table = _table(("route", "what it does"), (_route(route)[:2] for route in others))
        yield f"<details><summary>{summary}</summary>{table}</details>"
    yield (
        '<p>Fields, examples and responses of every route: <a href="/docs">/docs</a>. For programs: '
        f'<a href="/openapi.json">openapi.json</a>. Larvatus {escape(described["version"])}.</p>'
    )


def _route(route: Mapping[str, Any]) -> tuple[str, ...]:
    path = f"<code>{route['method']} {escape(route['path'])}</code>"
    return (path, escape(route["summary"]), ", ".join(map(escape, route.get("models", ()))))


def _link(operation: str) -> str:
    return f'<a href="/docs#{escape(operation)}">{escape(operation)}</a>'


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
