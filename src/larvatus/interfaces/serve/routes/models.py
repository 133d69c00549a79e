"""GET /v1/models: which models there are, and what each can do."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from larvatus.interfaces.serve.responses import json_response
from larvatus.interfaces.serve.server import Server


def add_models(app: FastAPI, server: Server) -> None:
    described = {name: model.describe() for name, model in server.served.models.items()}

    async def models(request: Request) -> Response:
        for name, model in server.served.models.items():
            if name not in described:  # the studio has taught one more
                described[name] = model.describe()
        return json_response({"models": list(described.values())})

    app.add_route("/v1/models", models, methods=["GET"])
