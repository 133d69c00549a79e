"""GET /v1/models: which models there are, and what each can do."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.serve.responses import json_response
from larvatus.serve.server import Server


def add_models(app: FastAPI, server: Server) -> None:
    described = {"models": [model.describe() for model in server.served.models.values()]}

    async def models(request: Request) -> Response:
        return json_response(described)

    app.add_route("/v1/models", models, methods=["GET"])
