"""POST /v1/NAME of every operation: body in, `{"model": …, "results": […]}` out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.core.errors import LarvatusError
from larvatus.interfaces.serve.bodies import read_body
from larvatus.interfaces.serve.observed import place_of
from larvatus.interfaces.serve.operations.operation import Operation
from larvatus.interfaces.serve.operations.registry import OPERATIONS
from larvatus.interfaces.serve.responses import fault_response, json_response
from larvatus.interfaces.serve.server import Server

LOG = logging.getLogger("larvatus.serve")


def add_operations(app: FastAPI, server: Server) -> None:
    for operation in OPERATIONS.values():
        app.add_route(f"/v1/{operation.name}", endpoint(server, operation), methods=["POST"])


def endpoint(server: Server, operation: Operation) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[type-arg]
    """The function behind an address."""

    async def answer(request: Request) -> Response:
        try:
            body = read_body(await request.body(), operation.Body)
            return json_response(await server.answer(operation, body))
        except LarvatusError as fault:
            return fault_response(fault)
        except Exception as fault:  # nobody foresaw it: the log says where, never on which input
            LOG.error("%s in POST /v1/%s", place_of(fault), operation.name)
            return fault_response(fault)

    answer.__name__ = operation.name
    return answer
