"""The first page, and requests as people first write them: one `text`, a field with a wrong name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import larvatus as lv
from larvatus.interfaces.serve.app import build_app, openapi
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.operations.operation import read_body, takes_text
from larvatus.interfaces.serve.responses import BadRequest, WrongBody
from larvatus.interfaces.serve.settings import ServeSettings
from tests.interfaces.serve.models import save_models

KEY = "a key of some length"
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def directories(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_models(tmp_path_factory.mktemp("served"), tiny_model, save_tiny, "plain", "classify")


@pytest.fixture(scope="module")
def client(directories: dict[str, Path]) -> Iterator[TestClient]:
    app = build_app([lv.load(path, device="cpu") for path in directories.values()], ServeSettings())
    with TestClient(app, base_url="http://127.0.0.1:8311") as made:
        yield made


def test_the_first_page_lists_models_and_routes_for_programs(client: TestClient) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["vary"]) == (200, "Accept")
    described = answer.json()
    models = {each["name"]: each["can"] for each in client.get("/v1/models").json()["models"]}
    assert {each["name"]: each["can"] for each in described["models"]} == models
    routes = {route["path"]: route for route in described["routes"]}
    assert set(routes) == set(openapi()["paths"])
    for name, able in models.items():
        assert {path for path, route in routes.items() if name in route.get("models", ())} == {f"/v1/{o}" for o in able}
    assert not described["needs_key"]


def test_the_example_of_the_first_page_is_answered_as_it_is(client: TestClient) -> None:
    example = client.get("/").json()["example"]
    words = shlex.split(example["curl"])
    assert words[:2] == ["curl", "http://127.0.0.1:8311/v1/fill"]
    body = json.loads(words[words.index("-d") + 1])
    assert body == example["body"]
    assert body["model"] == "plain"  # of two
    answer = client.post(example["path"], json=body).json()
    assert answer["model"] == "plain"
    assert len(answer["results"][0]["fills"]) == body["top"]


def test_a_fine_tuned_model_shows_its_task(directories: dict[str, Path]) -> None:
    with TestClient(build_app([lv.load(directories["classify"], device="cpu")]), base_url="http://127.0.0.1") as alone:
        example = alone.get("/").json()["example"]
        assert (example["path"], set(example["body"])) == ("/v1/classify", {"texts"})
        assert alone.post(example["path"], json=example["body"]).status_code == 200


def test_a_browser_gets_a_page_without_scripts_and_outside_addresses(client: TestClient) -> None:
    page = client.get("/", headers=HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert "curl http://127.0.0.1:8311/v1/fill" in page.text
    assert "<strong>classify</strong>" in page.text
    assert all(f"/v1/{name}" in page.text for name in OPERATIONS)
    assert "<script" not in page.text
    assert "http" not in page.text.replace("http://127.0.0.1:8311", "")
    documented = client.get("/docs").text
    for name in OPERATIONS:
        assert f'id="{name}"' in documented  # what the names of the table lead to
    assert client.head("/").status_code == 200


def test_a_model_cannot_put_markup_on_the_page(directories: dict[str, Path], tmp_path: Path) -> None:
    hostile = tmp_path / "<b onload=x>"
    directories["plain"].rename(hostile)
    try:
        with TestClient(build_app([lv.load(hostile, device="cpu")]), base_url="http://127.0.0.1") as alone:
            text = alone.get("/", headers=HTML).text
    finally:
        hostile.rename(directories["plain"])
    assert "<b onload" not in text
    assert "&lt;b onload=x&gt;" in text


def test_with_keys_the_first_page_needs_one_and_says_how(directories: dict[str, Path], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    app = build_app([lv.load(directories["plain"], device="cpu")], ServeSettings(key_file=str(keys)))
    with TestClient(app, base_url="http://127.0.0.1") as closed:
        assert closed.get("/", headers=HTML).status_code == 401
        described = closed.get("/", headers={"Authorization": f"Bearer {KEY}"}).json()
    assert described["needs_key"]
    assert "-H 'Authorization: Bearer KEY'" in described["example"]["curl"]


@pytest.mark.parametrize("name", [name for name, operation in OPERATIONS.items() if takes_text(operation.Body)])
def test_a_single_text_is_read_where_texts_are(name: str) -> None:
    kind = OPERATIONS[name].Body
    assert read_body(b'{"text": "the river"}', kind) == read_body(b'{"texts": "the river"}', kind)
    with pytest.raises(WrongBody, match="both text and texts"):
        read_body(b'{"text": "a", "texts": ["b"]}', kind)
    with pytest.raises(WrongBody, match=r"no field text; did you mean texts\?"):
        read_body(b'{"text": ["a", "b"]}', kind)
    schema = openapi()["components"]["schemas"][kind.__name__]
    assert schema["properties"]["text"]["type"] == "string"
    assert ("oneOf" in schema) == ("texts" not in schema.get("required", ()))


def test_a_text_is_answered_as_texts_are(client: TestClient) -> None:
    one, several = (client.post("/v1/fill", json={field: "the [MASK] ran", "top": 2}) for field in ("text", "texts"))
    assert one.status_code == 200
    assert one.json() == several.json()


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("fill", b'{"texts": "a", "tpo": 3}', "the body has no field tpo; did you mean top?"),
        ("attention", b'{"texts": "a"}', "the body has no field texts; did you mean text?"),
        ("answer", b'{"question": []}', "did you mean questions?"),
        ("answer", b'{"questions": [{"question": "a", "pasage": "b"}]}', "questions has no field pasage; did you mean"),
        ("choose", b'{"questions": [{"context": "a", "ending": ["b"]}]}', "questions has no field ending; did you"),
        ("classify", b'{"texts": "a", "zzzzzz": 1}', "no field zzzzzz; there are: merge, model, overlap, texts, trunc"),
        ("embed", b'{"texts": 3}', "Expected"),
        ("similar", b'{"text": "a"}', "no field text; did you mean texts?"),
    ],
)  # fmt: skip
def test_an_unknown_field_suggests_the_right_one(name: str, body: bytes, said: str) -> None:
    with pytest.raises(WrongBody) as refused:
        read_body(body, OPERATIONS[name].Body)
    assert said in str(refused.value)
    assert "/openapi.json" in str(refused.value)


def test_what_is_no_json_stays_so_behind_a_text() -> None:
    with pytest.raises(BadRequest, match="the body is not JSON"):
        read_body(b'{"text": "a", "top": "\\ud800"}', OPERATIONS["fill"].Body)
