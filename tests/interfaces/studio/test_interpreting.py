"""Layers, Why and Swap: routes give what Python gives, run one request at a time, and refuse what is too large."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import larvatus as lv
from larvatus.inference.interpret.attributions import METHODS
from larvatus.inference.interpret.tuned_lens import LENSES, LensDescription, TunedLens
from larvatus.interfaces.serve.responses import Cancelled, QueueFull
from larvatus.interfaces.serve.served_models import unbatched
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.studio import interpreting
from larvatus.interfaces.studio.app import build_studio
from larvatus.interfaces.studio.http import TOKEN, json_reply
from larvatus.interfaces.studio.interpreting import COMPLETE, MOST_WAITING, Turns
from larvatus.interfaces.studio.settings import Folders
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.objectives import MaskedLMConfig

TEXT = "the river [MASK] was wide and deep."
HEADS = {
    "fills": MaskedLMConfig(),
    "classes": ClassificationConfig(labels=("wet", "dry")),
    "tags": TaggingConfig(labels=("O", "B-LOC", "I-LOC"), scheme="BIO"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory, tiny_model, save_tiny):
    folder = tmp_path_factory.mktemp("interpreted")
    for name, head in HEADS.items():
        save_tiny(folder / name, tiny_model(seed=3, objectives=(head,)), (head,))
    fills = lv.load(folder / "fills", device="cpu")
    about = LensDescription(model=fills.fingerprint, corpus="text", positions=10)
    weights = 0.1 * torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(1))
    lens = TunedLens("law", about, weights, torch.zeros(2, 16))
    lens.save(LENSES.path(folder / "fills", "law"))
    models = {name: lv.load(folder / name, device="cpu") for name in HEADS}
    app = build_studio(list(models.values()), ServeSettings(), Folders(runs=folder / "runs"), device="cpu")
    with TestClient(app, base_url="http://127.0.0.1:8311") as client:
        yield SimpleNamespace(client=client, app=app, models=models)


@pytest.fixture
def post(served):
    def post(route: str, **body: Any) -> Any:
        return served.client.post(f"/studio/api/{route}", json=body, headers={TOKEN: served.app.state.studio_token})

    return post


@pytest.mark.parametrize("tuned", [None, "law"])
def test_layers_are_those_of_the_lens(served, post, tuned):
    answer = post("lens", text=TEXT, top=4, tuned=tuned).json()
    wanted = served.models["fills"].lens(TEXT, top=4, tuned=tuned).to_dict()
    assert answer["lenses"] == ["law"]
    assert answer["tuned"] == tuned
    (blank,), (same,) = answer["blanks"], wanted["blanks"]
    assert (blank["decided"], len(blank["layers"])) == (same["decided"], 3)
    for mine, theirs in zip(blank["layers"], same["layers"], strict=True):
        assert [word["token"] for word in mine["top"]] == [word["token"] for word in theirs["top"]]
        assert [mine["final"], mine["kl"]] == pytest.approx([theirs["final"], theirs["kl"]], abs=1e-5)
    assert [word["text"] for word in blank["context"]] == [word["text"] for word in same["context"]]


GIVEN = {
    "a fill": ({"text": TEXT, "target": "bank"}, TEXT, {"target": "bank"}),
    "the second blank": ({"text": "the [MASK] was [MASK]", "at": 2}, "the [MASK] was [MASK]", {"at": 2}),
    "a class": ({"text": "the river was wide", "model": "classes"}, "the river was wide", {}),
    "a pair": (
        {"text": "the river", "pair": "was wide", "target": "dry", "model": "classes", "baseline": "zero"},
        ("the river", "was wide"),
        {"target": "dry", "baseline": "zero"},
    ),
    "a tag": ({"text": "the river was wide", "at": 2, "model": "tags"}, "the river was wide", {"at": 2}),
}


@pytest.mark.parametrize("name", GIVEN)
def test_an_explanation_is_that_of_python_by_every_method(served, post, name):
    body, texts, options = GIVEN[name]
    answer = post("explain", **body).json()
    wanted = served.models[body.get("model", "fills")].explain(texts, methods=list(METHODS), **options)
    assert (answer["label"], answer["methods"]) == (wanted.label, list(METHODS))
    assert answer["probability"] == pytest.approx(wanted.probability, abs=1e-5)
    for mine, theirs in zip(answer["words"], wanted.words, strict=True):
        assert mine["text"] == theirs.text
        if wanted.steps == answer["steps"] == 32:
            assert mine["scores"] == pytest.approx(dict(theirs.scores), abs=1e-4)
    assert answer["complete"] == (abs(answer["gap"]) <= COMPLETE)
    rows = {row["method"]: row for row in answer["controls"]["rows"]}
    assert list(rows) == list(METHODS)
    assert rows["leave-one-out"]["agreement"] is None
    assert all(0 <= row["beaten"] <= 1 for row in rows.values())


def test_more_steps_close_the_gap_that_few_leave(post):
    gaps = [abs(post("explain", text=TEXT, steps=steps).json()["gap"]) for steps in (1, 128)]
    assert gaps[1] < gaps[0] / 10
    assert gaps[1] <= COMPLETE


def test_a_swap_is_the_patch_of_python_and_swapping_everything_gives_the_second_answer(served, post):
    pair = ("the river [MASK] was wide", "a river [MASK] was wide")
    answer = post("patch", first=pair[0], second=pair[1], answers=["bank", "homework"]).json()
    wanted = served.models["fills"].patch(*pair, answers=("bank", "homework"))
    assert answer["odds"] == pytest.approx(wanted.odds, abs=1e-4)
    assert answer["words"] == list(wanted.words)
    assert answer["first_layer"] == {"residual": 0, "attention": 1, "feedforward": 1}
    for site, effects in wanted.effects.items():
        for mine, theirs in zip(answer["effects"][site], effects.tolist(), strict=True):
            assert mine == pytest.approx(theirs, abs=1e-3)
    assert [row[-1] for row in answer["effects"]["residual"]] == pytest.approx([1.0, 1.0, 1.0], abs=1e-3)


REFUSED = [
    ("lens", {"text": "nothing is blank"}, "mark each blank"),
    ("lens", {"text": "[MASK] " + "river " * 40}, "window"),
    ("lens", {"text": "[MASK] " + "river " * 300}, "larvatus lens"),
    ("lens", {"text": TEXT, "tuned": "other"}, "no tuned lens 'other'"),
    ("lens", {"text": TEXT, "tuned": "law.safetensors"}, "no tuned lens"),
    ("lens", {"text": TEXT, "tuned": "../../fills/lens/law"}, "no tuned lens"),
    ("lens", {"text": TEXT, "top": 21}, "<= 20"),
    ("lens", {"text": TEXT, "model": "classes"}, "masked-lm"),
    ("lens", {"text": "x" * 10_001}, "length <= 10000"),
    ("explain", {"text": TEXT, "target": "homework homework"}, "not one token"),
    ("explain", {"text": TEXT, "at": 7}, "blanks 1 to 1"),
    ("explain", {"text": "the river", "target": "damp", "model": "classes"}, "no class 'damp'"),
    ("explain", {"text": TEXT, "steps": 1_025}, "<= 1024"),
    ("explain", {"text": TEXT, "baseline": "river"}, "river"),
    ("explain", {"text": "the [MASK]" + " deep" * 100}, "larvatus explain"),
    ("patch", {"first": "the [MASK]", "second": "the old [MASK]", "answers": ["river", "bank"]}, "word by word"),
    ("patch", {"first": TEXT, "second": TEXT, "answers": ["river", "bank"]}, "nothing to explain"),
    ("patch", {"first": TEXT, "second": TEXT, "answers": ["river"]}, "length 2"),
    ("patch", {"first": TEXT + " deep" * 80, "second": TEXT, "answers": ["river", "bank"]}, "larvatus patch"),
]


@pytest.mark.parametrize(("route", "body", "words"), REFUSED)
def test_what_cannot_be_done_is_one_line_with_the_way_out(post, route, body, words):
    answer = post(route, **body)
    assert answer.status_code == 422
    message = answer.json()["error"]["message"]
    assert words in message
    assert "\n" not in message
    assert "/tmp" not in message


def test_a_model_that_is_not_there_and_a_request_without_token_are_refused(served, post):
    assert post("lens", text=TEXT, model="other").status_code == 404
    assert served.client.post("/studio/api/lens", json={"text": TEXT}).status_code == 403


@pytest.mark.parametrize("route", ["lens", "explain"])
def test_half_a_character_is_refused(served, route):
    body = b'{"text": "the \\ud800 [MASK]"}'
    headers = {TOKEN: served.app.state.studio_token, "Content-Type": "application/json"}
    answer = served.client.post(f"/studio/api/{route}", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert "\n" not in answer.json()["error"]["message"]


def test_interpretations_do_not_use_the_batcher_and_leave_its_models_as_they_are(served):
    holder = served.app.state.server.served
    model = next(iter(holder.models.values())).model
    passes = holder.batcher.counts.passes
    plain = unbatched(model)
    plain.lens(TEXT)
    assert holder.batcher.counts.passes == passes
    model.lens(TEXT)
    assert holder.batcher.counts.passes > passes
    assert plain.network.encoder.word_vectors is model.network.encoder.word_vectors


def test_requests_run_one_at_a_time_and_not_for_clients_that_are_gone():
    running: list[int] = []
    most = 0
    lock = threading.Lock()

    def work() -> Any:
        nonlocal most
        with lock:
            running.append(1)
            most = max(most, len(running))
        time.sleep(0.02)
        with lock:
            running.pop()
        return json_reply({}).status_code

    class Client:
        def __init__(self, gone: bool) -> None:
            self.gone = gone

        async def is_disconnected(self) -> bool:
            return self.gone

    async def all_at_once() -> list[Any]:
        turns = Turns()
        clients = [Client(number == 2) for number in range(MOST_WAITING + 3)]
        return await asyncio.gather(*(turns.run(client, work) for client in clients), return_exceptions=True)

    answers = asyncio.run(all_at_once())
    assert most == 1
    assert isinstance(answers[2], Cancelled)
    refused = [answer for answer in answers if isinstance(answer, QueueFull)]
    assert len(refused) == 2
    assert sum(not isinstance(answer, Exception) for answer in answers) == len(answers) - 3


def test_models_of_8_bit_weights_are_explained_without_gradients(served, post, monkeypatch):
    monkeypatch.setattr(interpreting, "int8_weights", lambda network: 5)
    answer = post("explain", text=TEXT).json()
    assert answer["methods"] == ["leave-one-out", "attention-rollout"]
    assert (answer["gap"], answer["complete"]) == (None, None)
