"""POST /v1/NAME for every operation: body in, `{"model": …, "results": […]}` out. GET /v1/models lists the models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.errors import LarvatusError
from larvatus.interfaces.serve.logs import error_location, logger
from larvatus.interfaces.serve.operations.operation import Operation, read_body
from larvatus.interfaces.serve.operations.registry import OPERATIONS
from larvatus.interfaces.serve.responses import error_response, json_response
from larvatus.interfaces.serve.server import Server


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
    described = {name: model.describe() for name, model in server.served.models.items()}

    async def models(request: Request) -> Response:
        for name, model in server.served.models.items():
            if name not in described:  # the studio has trained one more
                described[name] = model.describe()
        return json_response({"models": list(described.values())})

    app.add_route("/v1/models", models, methods=["GET"])
