"""A studio around a tiny model, without the server's own routes: what only needs the page's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from larvatus.interfaces.serve.responses import NoSuchModel
from larvatus.interfaces.studio.app import add_studio
from larvatus.interfaces.studio.http import TOKEN
from larvatus.interfaces.studio.settings import Folders


class Shelf:
    """Models by name, and what was put beside them."""

    def __init__(self, models: dict[str, Path]) -> None:
        self.models = dict(models)

    def directory(self, name: str | None) -> Path:
        if name is not None and name not in self.models:
            raise NoSuchModel(f"there is no model {name!r} here")
        return next(iter(self.models.values())) if name is None else self.models[name]

    def publish(self, directory: Path) -> str:
        self.models[directory.name] = directory
        return directory.name

    def paths(self) -> dict[str, str]:
        return {name: str(directory) for name, directory in self.models.items()}


class Studio:
    def __init__(self, client: TestClient, app: Any, shelf: Shelf, runs: Path) -> None:
        self.client, self.app, self.shelf, self.runs = client, app, shelf, runs
        self.token = {TOKEN: app.state.studio_token}

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.post(f"/studio/api{path}", json=body or {}, headers={**self.token, **headers})

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/studio/api{path}", params=query)


@pytest.fixture(scope="module")
def studio(tmp_path_factory, tiny_model, save_tiny) -> Iterator[Studio]:
    folder = tmp_path_factory.mktemp("studio")
    shelf = Shelf({"tiny": save_tiny(folder / "tiny", tiny_model())})
    app = add_studio(Starlette(), shelf, Folders(runs=folder / "runs"))
    with TestClient(app, base_url="http://127.0.0.1:8311") as client:
        yield Studio(client, app, shelf, folder / "runs")
