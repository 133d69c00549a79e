"""The FastAPI application of a server: its routes, and their description.

    app = build_app([load("runs/law")], ServeSettings())      # uvicorn or a test runs it
    app.state.server.close()                    # ends its threads; uvicorn does this at the end of the lifespan

`POST /v1/NAME` runs an operation: body in, `{"model": …, "results": […]}` out. `GET /v1/models` lists the models. `GET
/openapi.json` is built from the operations and their structs, and `GET /docs` is the same as a page without scripts.
`GET /` says what the server is (`start_page.py`).

`GET /healthz` reports whether a forward pass of every encoder works, through the same queue as every request. The
server is red from a failed pass until one succeeds. A check of a red server reports the failure even if its own pass
succeeds, so that the next reader sees it; that pass turns the server green. Checks at the same time share a pass:
anyone may send them without a key, and they must cost little.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from html import escape
from typing import Any

import msgspec
import torch
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import LarvatusError
from larvatus.core.run_identity import VERSION
from larvatus.core.settings import field_docs
from larvatus.inference.model import Model
from larvatus.interfaces.serve.middleware.stack import add_middleware
from larvatus.interfaces.serve.operations import OPERATIONS, AnyOperation
from larvatus.interfaces.serve.operations.operation import Operation, read_body, takes_text
from larvatus.interfaces.serve.responses import (
    error_location,
    error_response,
    handle_http_exception,
    handle_larvatus_error,
    json_response,
    logger,
)
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.serve.start_page import add_start_page, curl_command
from larvatus.models.nn.device import on_device

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


def _describe_fields(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    for name, words in field_docs(kind).items():
        if name in schema["properties"]:
            schema["properties"][name].setdefault("description", words)
    if takes_text(kind) and "texts" in schema.get("required", ()):
        schema["properties"]["text"] = {"type": "string", "description": "One text, in place of texts."}
        schema["required"] = [name for name in schema["required"] if name != "texts"]
        schema["oneOf"] = [{"required": ["texts"]}, {"required": ["text"]}]


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
pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0.6rem; border: 1px solid; }
.wide { overflow-x: auto; }
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
    heading = f'<h2 id="{escape(described["operationId"])}"><code>{method.upper()} {escape(path)}</code></h2>'
    parts = [f"{heading}<p>{escape(described['summary'])}</p>"]
    body = described.get("requestBody", {}).get("content", {}).get("application/json")
    if body is None:
        return parts[0] + f"<pre>curl {escape(base + path)}</pre>"
    parts.append(_fields(schemas[body["schema"]["$ref"].rsplit("/", 1)[1]]))
    for name, example in body["examples"].items():
        command = curl_command(base + path, example["value"])
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
    if {"required": [name]} in schema.get("oneOf", ()):
        return "one of these is needed"
    return "" if field.get("default") is None else f"by default {json.dumps(field['default'])}"


# The application.

TITLE = "Larvatus"


def build_app(models: Sequence[Model], settings: ServeSettings | None = None, *, start_page: bool = True) -> FastAPI:
    """An application with every operation of the models below /v1/; `app.state.server` is its `Server`.

    `start_page`: whether GET / describes the server; the studio has its own page there.
    """
    server = Server.of(models, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(title=TITLE, version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.server = server
    app.add_exception_handler(LarvatusError, handle_larvatus_error)
    app.add_exception_handler(HTTPException, handle_http_exception)
    add_models(app, server)
    add_operations(app, server)
    add_health(app, server)
    add_documentation(app)
    if start_page:
        add_start_page(app, server, openapi)
    add_middleware(app, server)
    return app


def add_operations(app: FastAPI, server: Server) -> None:
    for operation in OPERATIONS.values():
        app.add_route(f"/v1/{operation.name}", endpoint(server, operation), methods=["POST"])


def endpoint(server: Server, operation: Operation) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[type-arg]
    """The function of a route."""

    async def answer(request: Request) -> Response:
        try:
            body = read_body(await request.body(), operation.Body)
            return json_response(await server.answer(operation, body))
        except LarvatusError as fault:
            return error_response(fault)
        except Exception as fault:  # unexpected: the log says where, never on which input
            logger.error("%s in POST /v1/%s", error_location(fault), operation.name)
            return error_response(fault)

    answer.__name__ = operation.name
    return answer


def add_models(app: FastAPI, server: Server) -> None:
    described = {name: (model, model.describe()) for name, model in server.served.models.items()}

    async def models(request: Request) -> Response:
        for name, model in server.served.models.items():
            if name not in described or described[name][0] is not model:  # the studio trained it, or built its index
                described[name] = (model, model.describe())
        return json_response({"models": [entry for _, entry in described.values()]})

    app.add_route("/v1/models", models, methods=["GET"])


FRESH_S = 0.5
"""Seconds for which the result of a successful pass is reused."""


class Health:
    """Checks the last pass, and runs one."""

    def __init__(
        self, probe: Callable[[], Awaitable[None]], *, is_red: Callable[[], bool], seconds: float = 10.0
    ) -> None:
        """`probe` runs a pass through the batcher; it must succeed within `seconds`."""
        self._probe = probe
        self._seconds = seconds
        self._running: asyncio.Task[None] | None = None
        self._succeeded = float("-inf")
        self.is_red = is_red

    async def check(self) -> bool:
        """Whether the last pass succeeded, and one succeeds now."""
        if self.is_red():
            await self._succeeds()
            return False
        return time.monotonic() - self._succeeded < FRESH_S or await self._succeeds()

    async def _succeeds(self) -> bool:
        """Whether a pass succeeds; simultaneous checks share it."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._pass())
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(self._running)
        except Exception as fault:  # whatever it was, the pass did not succeed
            logger.error("%s in the pass of a health check", error_location(fault))
            return False
        return True

    async def _pass(self) -> None:
        await self._probe()
        self._succeeded = time.monotonic()


def add_health(app: FastAPI, server: Server) -> None:
    checked = Health(
        lambda: asyncio.to_thread(run_all, server),
        is_red=lambda: server.batcher.last_error is not None,
        seconds=server.settings.timeout,
    )

    async def health(request: Request) -> Response:
        well = await checked.check()
        return json_response({"status": "ok" if well else "failing"}, 200 if well else 503)

    app.add_route("/healthz", health, methods=["GET"])


def run_all(server: Server) -> None:
    """Run a pass of two tokens with each encoder. Raises if one fails, or gives numbers that are not finite."""
    for encoder in server.served.encoders.values():
        states = server.batcher.forward(encoder, on_device(TokenBatch.of([[0, 0]]), encoder.device))
        assert isinstance(states, torch.Tensor), "no layers are requested"
        if not bool(torch.isfinite(states).all()):
            raise ArithmeticError("the encoder's states are not finite")
