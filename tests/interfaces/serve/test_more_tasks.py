"""The tasks that few servers have: choosing an ending, a prompt with words for labels, writing and coreference, each
behind its address, with the answers of the model itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import larvatus as lv
from larvatus.data.text.vocabularies import UnigramConfig, train_vocabulary
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.network import Network
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.objectives import DenoisingConfig
from tests.interfaces.serve.test_server import assert_near
from tests.tiny import save_model

QUICK: dict[str, Any] = {"epochs": 1, "batch": 8, "rate": 0.01, "device": "cpu"}
WET = [("the river was deep", "wet"), ("please turn your homework in", "dry")] * 8
CHOICES = [("the bank", ["turn in", "the river"], 1), ("a bank", ["the river", "please"], 0)] * 8
RESOLVED = [{"text": "the river was deep . your bank", "clusters": [[[0, 9], [21, 25]]]}] * 4
BODIES: dict[str, dict[str, Any]] = {
    "choose": {"questions": [{"context": "the bank", "endings": ["turn in", "the river", "please"]}]},
    "prompt": {"texts": ["the river was wide", "your homework"]},
    "write": {"texts": ["the river was deep", "please turn"]},
    "coref": {"texts": ["the river was deep . your bank", ["the", "river"]]},
}


def tiny_t5(out: Path) -> Path:
    tokenizer = train_vocabulary(
        [" ".join(text for text, _ in WET) + " wet dry"] * 4, UnigramConfig(size=260, frame="t5"), allow_smaller=True
    )
    config = EncoderDecoderConfig(layers=1, hidden=16, heads=2, max_positions=40, dropout=0.0)
    heads = [DenoisingConfig()]
    network = Network.build(config, heads, tokenizer.size, seed=1)
    save_model(out, network, tokenizer, heads)
    return out


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, save_tiny: Any) -> dict[str, lv.Model]:
    folder = tmp_path_factory.mktemp("tasks")
    plain = save_tiny(folder / "plain", tiny_model(seed=5))
    return {
        "choose": lv.finetune("choose", plain, train=CHOICES, dev=CHOICES[:2], out=folder / "choose", **QUICK),
        "prompt": lv.finetune(
            "prompt", plain, train=WET, dev=WET[:4], out=folder / "prompt", pattern="{text} was {blank} .",
            verbaliser={"wet": "river", "dry": "homework"}, **QUICK,
        ),
        "coref": lv.finetune("coref", plain, train=RESOLVED, dev=RESOLVED[:1], out=folder / "coref", **QUICK),
        "write": lv.finetune("write", tiny_t5(folder / "t5"), train=WET, dev=WET[:4], out=folder / "write", **QUICK),
    }  # fmt: skip


@pytest.fixture(scope="module")
def client(models: dict[str, lv.Model]) -> Iterator[TestClient]:
    app = build_app(list(models.values()), ServeSettings(threads=2))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def of_the_model(model: lv.Model, name: str) -> list[Any]:
    body = BODIES[name]
    items = body.get("texts") or [(each["context"], each["endings"]) for each in body["questions"]]
    return [answer.to_dict() for answer in model.predict(items)]


@pytest.mark.parametrize("name", BODIES)
def test_its_answers_are_those_of_the_model(client: TestClient, models: dict[str, lv.Model], name: str) -> None:
    answer = client.post(f"/v1/{name}", json=BODIES[name])
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert all(item["coverage"]["read"] == item["coverage"]["tokens"] > 0 for item in results)
    direct = of_the_model(models[name], name)
    assert_near([{key: item[key] for key in theirs} for item, theirs in zip(results, direct, strict=True)], direct)


def test_each_is_said_to_do_its_task_alone(client: TestClient) -> None:
    described = {model["name"]: set(model["can"]) for model in client.get("/v1/models").json()["models"]}
    assert {name: can & set(BODIES) for name, can in described.items()} == {name: {name} for name in BODIES}
    refused = client.post("/v1/choose", json={**BODIES["choose"], "model": "write"})
    assert refused.status_code == 422
    assert "larvatus finetune choose" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("endings", "said"), [(["the"], "two or more"), (["the", "the"], "are the same"), (["the", ""], "empty")]
)
def test_endings_of_which_none_can_be_chosen_fail_alone(client: TestClient, endings: list[str], said: str) -> None:
    questions = [*BODIES["choose"]["questions"], {"context": "the bank", "endings": endings}]
    good, bad = client.post("/v1/choose", json={"questions": questions}).json()["results"]
    assert "error" not in good
    assert said in bad["error"]["message"]
