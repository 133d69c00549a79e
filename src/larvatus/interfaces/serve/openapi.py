"""What a server offers, as OpenAPI describes it: made of the operations and their structs, with examples.

openapi()["paths"]["/v1/fill"]["post"]["summary"]
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from larvatus.core.flags import field_docs
from larvatus.core.version import VERSION
from larvatus.interfaces.serve.operations.registry import OPERATIONS, AnyOperation

ERRORS = {
    "400": "Nothing to work on, or no JSON.",
    "401": "No key.",
    "403": "A wrong key, or a page of another site.",
    "404": "There is no such model.",
    "408": "The body did not arrive in time.",
    "413": "The body is larger than --max-body.",
    "415": "The body is no application/json.",
    "422": "Over a limit, of a wrong type, or not what the model can do.",
    "429": "Too many requests wait; Retry-After says when to ask again.",
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
        f"/v1/{operation.name}": {"post": _described(operation, schema)}
        for operation, schema in zip(OPERATIONS.values(), schemas, strict=True)
    }
    paths["/v1/models"] = {"get": _read("models", "Which models there are, and what each can do.")}
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


def _described(operation: AnyOperation, schema: dict[str, Any]) -> dict[str, Any]:
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
            "200": {"description": "An answer for each item.", "content": {"application/json": answer}},
            **_errors(),
        },
    }


def _read(name: str, summary: str, *, kind: str = "application/json") -> dict[str, Any]:
    schema = {"type": "object" if kind == "application/json" else "string"}
    answer = {"description": summary, "content": {kind: {"schema": schema}}}
    return {"operationId": name, "summary": summary, "responses": {"200": answer, **_errors()}}


def _errors() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}}
    return {status: {"description": said, "content": content} for status, said in ERRORS.items()}


def _error() -> dict[str, Any]:
    fields = {"type": {"type": "string"}, "message": {"type": "string"}}
    inner = {"type": "object", "properties": fields, "required": ["type", "message"]}
    return {"type": "object", "properties": {"error": inner}, "required": ["error"]}
