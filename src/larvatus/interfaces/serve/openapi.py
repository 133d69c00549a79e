"""GET /openapi.json, built from the operations and their structs, and GET /docs, the same as a page without scripts.

openapi()["paths"]["/v1/fill"]["post"]["summary"]
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.settings import field_docs
from larvatus.core.version import VERSION
from larvatus.interfaces.serve.operations.registry import OPERATIONS, AnyOperation
from larvatus.interfaces.serve.responses import json_response

ERRORS = {
    "400": "An empty request, or a body that is not JSON.",
    "401": "No key.",
    "403": "A wrong key, or a page of another site.",
    "404": "There is no such model or index.",
    "408": "The body did not arrive in time.",
    "413": "The body is larger than --max-body.",
    "415": "The body is not application/json.",
    "422": "Over a limit, of a wrong type, or not supported by the model.",
    "429": "Too many requests wait; Retry-After has the seconds until a retry.",
    "503": "The server is shutting down, or took too long.",
}
_REFERENCE = "#/components/schemas/{name}"


@cache
def openapi() -> dict[str, Any]:
    """The whole description (OpenAPI 3.1)."""
    bodies = {operation.name: operation.Body for operation in OPERATIONS.values()}
    schemas, components = msgspec.json.schema_components(bodies.values(), ref_template=_REFERENCE)
    for kind in bodies.values():
        _describe_fields(components[kind.__name__], kind)
    paths: dict[str, Any] = {
        f"/v1/{operation.name}": {"post": _operation(operation, schema)}
        for operation, schema in zip(OPERATIONS.values(), schemas, strict=True)
    }
    paths["/v1/models"] = {"get": _read("models", "Models and the operations that each supports.")}
    paths["/healthz"] = {"get": _read("health", "Whether a forward pass of every encoder works.")}
    paths["/metrics"] = {"get": _read("metrics", "Counters for Prometheus.", kind="text/plain")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Larvatus", "version": VERSION, "description": "Every task of an encoder."},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _error()}},
    }


def _describe_fields(schema: dict[str, Any], kind: type) -> None:
    for name, words in field_docs(kind).items():
        if name in schema["properties"]:
            schema["properties"][name].setdefault("description", words)


def _operation(operation: AnyOperation, schema: dict[str, Any]) -> dict[str, Any]:
    examples = {name: {"value": dict(value)} for name, value in operation.examples.items()}
    content = {"application/json": {"schema": schema, "examples": examples}}
    answer: dict[str, Any] = {"schema": {"type": "object"}}
    if operation.answer_example:
        answer["example"] = dict(operation.answer_example)
    return {
        "operationId": operation.name,
        "summary": operation.title,
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": {"description": "A result for each item.", "content": {"application/json": answer}},
            **_errors(),
        },
    }


def _read(name: str, summary: str, *, kind: str = "application/json") -> dict[str, Any]:
    schema = {"type": "object" if kind == "application/json" else "string"}
    answer = {"description": summary, "content": {kind: {"schema": schema}}}
    return {"operationId": name, "summary": summary, "responses": {"200": answer, **_errors()}}


def _errors() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}}
    return {status: {"description": words, "content": content} for status, words in ERRORS.items()}


def _error() -> dict[str, Any]:
    fields = {"type": {"type": "string"}, "message": {"type": "string"}}
    inner = {"type": "object", "properties": fields, "required": ["type", "message"]}
    return {"type": "object", "properties": {"error": inner}, "required": ["error"]}


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
    async def description(request: Request) -> Response:
        return json_response(openapi())

    async def documentation(request: Request) -> Response:
        return Response(page(str(request.base_url).rstrip("/")), media_type="text/html")

    async def style(request: Request) -> Response:
        return Response(STYLE, media_type="text/css")

    app.openapi = openapi  # type: ignore[method-assign]
    app.add_route("/openapi.json", description, methods=["GET"])
    app.add_route("/docs", documentation, methods=["GET"])
    app.add_route("/docs.css", style, methods=["GET"])


@cache
def _sections(base: str) -> str:
    description = openapi()
    return "\n".join(
        _section(base, path, method, described, description["components"]["schemas"])
        for path, methods in description["paths"].items()
        for method, described in methods.items()
    )


def page(base: str) -> str:
    """All routes, each with its fields and examples."""
    words = escape(openapi()["info"]["description"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Larvatus: routes</title>'
        '<link rel="stylesheet" href="/docs.css"></head><body><h1>Larvatus</h1>\n'
        f'<p>{words} For programs: <a href="/openapi.json">openapi.json</a>.</p>\n{_sections(base)}\n</body></html>\n'
    )


def _section(base: str, path: str, method: str, described: dict[str, Any], schemas: dict[str, Any]) -> str:
    parts = [f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(described['summary'])}</p>"]
    body = described.get("requestBody", {}).get("content", {}).get("application/json")
    if body is None:
        return parts[0] + f"<pre>curl {escape(base + path)}</pre>"
    parts.append(_fields(schemas[body["schema"]["$ref"].rsplit("/", 1)[1]]))
    for name, example in body["examples"].items():
        sent = json.dumps(example["value"], ensure_ascii=False).replace("'", "\\u0027")
        command = f"curl {base + path} -H 'Content-Type: application/json' -d '{sent}'"
        parts.append(f"<p>{escape(name)}:</p><pre>{escape(command, quote=False)}</pre>")
    answer = described["responses"]["200"]["content"]["application/json"].get("example")
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
