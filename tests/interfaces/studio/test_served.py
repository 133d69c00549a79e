"""The whole studio around a real server: the page, every task, and a model that Learn has just made."""

from __future__ import annotations

import sys

import pytest
from starlette.testclient import TestClient

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.interfaces.cli.main import run
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.studio.app import build_studio
from larvatus.interfaces.studio.routes import StudioModels
from larvatus.interfaces.studio.settings import Folders, StudioSettings
from larvatus.models.bundle.model_names import PACKAGE

ROWS = [("the river was wide", "wet"), ("turn your homework in", "dry")] * 8


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_model, save_tiny):
    folder = tmp_path_factory.mktemp("whole")
    tiny = lv.load(save_tiny(folder / "tiny", tiny_model()), device="cpu")
    app = build_studio([tiny], ServeSettings(), Folders(runs=folder / "runs"), device="cpu")
    with TestClient(app, base_url="http://127.0.0.1:8311") as client:
        yield client, app, folder


def test_the_page_and_the_server_are_behind_one_address(whole):
    client, _, _ = whole
    page = client.get("/", follow_redirects=True)
    assert page.status_code == 200
    assert "Larvatus studio" in page.text
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == "no-cache"
    module = client.get("/studio/views/learn.js")
    assert module.headers["content-type"].startswith("text/javascript")
    filled = client.post("/v1/fill", json={"texts": ["the [MASK] was wide"], "top": 2}).json()
    assert len(filled["results"][0]["fills"]) == 2


def test_the_token_of_the_address_is_kept_when_the_root_leads_to_the_page(whole):
    assert whole[0].get("/?token=secret", follow_redirects=False).headers["location"] == "/studio/?token=secret"


def test_the_server_is_not_asked_under_a_foreign_name_either(whole):
    client, _, _ = whole
    assert client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403
    foreign = {"Origin": "http://evil.example"}
    assert client.post("/v1/fill", json={"texts": "the [MASK]"}, headers=foreign).status_code == 403


def test_what_was_learnt_is_served_at_once_and_only_by_the_studio(whole):
    client, app, folder = whole
    lv.finetune("classify", folder / "tiny", train=ROWS, out=folder / "rivers", epochs=1, device="cpu")
    assert client.post("/v1/classify", json={"texts": ["the river"]}).status_code == 422  # nobody can, so far
    shelf = StudioModels(app.state.server.served, "cpu")
    assert shelf.publish(folder / "rivers") == "rivers"
    listed = {model["name"]: model for model in client.get("/v1/models").json()["models"]}
    assert listed["rivers"]["labels"] == ["dry", "wet"]
    assert "classify" in listed["rivers"]["can"]
    answer = client.post("/v1/classify", json={"texts": ["the river was deep"]}).json()
    expected = lv.load(folder / "rivers", device="cpu").predict("the river was deep")
    assert answer["results"][0]["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    assert client.get("/healthz").status_code == 200
    assert client.get("/studio/api/card", params={"model": "rivers"}).json()["claims"]


def test_without_a_model_the_command_says_in_a_line_what_to_give(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(SystemExit) as ended:
        run(["studio", "--no-browser", "--port", "0"])
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1)
    assert said.startswith("larvatus: name a model directory: larvatus studio DIR.")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::", "example.org"])
def test_an_address_that_others_reach_is_refused_with_a_way(host):
    with pytest.raises(UsageError, match="ssh -L"):
        StudioSettings(host=host)
