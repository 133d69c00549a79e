"""Clients get from a running server what the model itself gives: ours, the official one of OpenAI, curl, any."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from numpy.testing import assert_allclose

from larvatus.inference.model import Model, load
from larvatus.interfaces.client import Client, ServerError
from larvatus.models.heads import ClassificationConfig
from tests.interfaces.serve.running import Running
from tests.patience import WATCHDOG_S

if TYPE_CHECKING:  # the test that needs a library imports it: seconds of every process that collects tests
    from openai import OpenAI

KEY = "a key for tests, and for nothing else"
TEXTS = ["the river ran past the bank .", "please turn your homework in", "a town"]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, save_tiny: Any) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("served")
    head = (ClassificationConfig(labels=("no", "yes")),)
    save_tiny(folder / "mine", tiny_model(seed=3))
    save_tiny(folder / "judge", tiny_model(3, head), head)
    return folder / "mine", folder / "judge"


@pytest.fixture(scope="module")
def model(directories: tuple[Path, Path]) -> Model:
    return load(directories[0], device="cpu")


@pytest.fixture(scope="module")
def address(directories: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"{KEY}\n", encoding="utf-8")
    models = [load(directory, device="cpu") for directory in directories]
    with Running(models, max_tokens=20_000, max_top=20, key_file=str(keys)) as running:
        yield f"http://127.0.0.1:{running.port}"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address, key=KEY) as client:
        yield client


def test_our_client_gives_the_vectors_of_the_model(client: Client, model: Model) -> None:
    assert_allclose(client.embed(TEXTS), model.embed(TEXTS), atol=1e-5)
    assert_allclose(client.embed(TEXTS[0], normalise=True), model.embed(TEXTS[0], normalise=True), atol=1e-5)
    options: dict[str, Any] = {"unit": "word", "layers": "all"}
    for vectors, expected in zip(client.embed(TEXTS, **options), model.embed(TEXTS, **options), strict=True):
        assert_allclose(vectors, expected, atol=1e-5)


def test_our_client_gives_what_the_model_says(client: Client, model: Model, directories: tuple[Path, Path]) -> None:
    text = "the [MASK] was wide"
    fills = client.fill(text, top=3)["fills"]
    expected = model.fill(text, top=3)
    assert [fill["token"] for fill in fills] == [fill.token for fill in expected]  # type: ignore[union-attr]
    assert client.score(TEXTS[0])["total"] == pytest.approx(model.score(TEXTS[0]).total, abs=1e-4)
    marked = ["the *bank* of the river", "a *bank* in town", "the *town*"]
    assert_allclose(client.similar(marked)["cosines"], model.similarities(marked).matrix, atol=1e-5)
    assert len(client.senses(marked, clusters=2)["clusters"]) == 2
    assert_allclose(client.attention(TEXTS[2])["weights"], model.attention(TEXTS[2]).weights, atol=1e-5)
    judge = load(directories[1], device="cpu")
    assert [each["label"] for each in client.classify(TEXTS)] == [each.label for each in judge.predict(TEXTS)]  # type: ignore[union-attr]
    assert client.classify(("the river", "the town"))["label"] == judge.predict(("the river", "the town")).label  # type: ignore[union-attr]
    assert [each["name"] for each in client.models()] == ["mine", "judge"]


def test_what_the_server_refuses_is_its_line(client: Client, address: str) -> None:
    with pytest.raises(ServerError, match="there is no model 'law'") as raised:
        client.fill("the [MASK]", model="law")
    assert raised.value.status == 404
    with pytest.raises(ServerError, match="cannot tag") as raised:
        client.tag("the river", model="mine")
    assert raised.value.status == 422
    with Client(address) as stranger, pytest.raises(ServerError, match="a key is needed") as raised:
        stranger.models()
    assert raised.value.status == 401
    bad = client.classify(["the river", ""])
    assert ["error" in each for each in bad] == [False, True]


@pytest.fixture
def official(address: str) -> Iterator[OpenAI]:
    from openai import OpenAI

    with OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as official:
        yield official


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_the_client_of_openai_gets_embeddings(official: OpenAI, model: Model, form: Any) -> None:
    from openai import NotFoundError

    requested: dict[str, Any] = {} if form is None else {"encoding_format": form}
    answer = official.embeddings.create(model="mine", input=TEXTS, **requested)
    given: list[Any] = [each.embedding for each in answer.data]
    if form == "base64":  # requested by name, it is returned as it came
        given = [np.frombuffer(base64.b64decode(each), "<f4") for each in given]
    with pytest.raises(NotFoundError, match="there is no model"):
        official.embeddings.create(model="law", input="the river")
    assert_allclose(given, model.embed(TEXTS, normalise=True), atol=1e-5)
    assert answer.usage.prompt_tokens > 0
    assert [each.index for each in answer.data] == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 7, 16])
@pytest.mark.parametrize("form", ["float", None])
def test_the_client_of_openai_gets_the_first_dimensions(official: OpenAI, model: Model, form: Any, size: int) -> None:
    from openai import BadRequestError

    requested: dict[str, Any] = {} if form is None else {"encoding_format": form}  # without, it requests base64
    answer = official.embeddings.create(model="mine", input=TEXTS, dimensions=size, **requested)
    with pytest.raises(BadRequestError, match="dimensions is 17, and a vector of mine has 16"):
        official.embeddings.create(model="mine", input=TEXTS, dimensions=17)
    expected = []
    for vector in model.embed(TEXTS).astype(np.float64):
        length = sum(number**2 for number in vector[:size]) ** 0.5
        expected.append([number / length for number in vector[:size]])
    assert_allclose([each.embedding for each in answer.data], expected, atol=1e-5)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("form", ["float", "base64"])
def test_curl_gets_embeddings(address: str, model: Model, form: str) -> None:
    body = json.dumps({"input": TEXTS[0], "encoding_format": form})
    command = [
        "curl",
        "-sS",
        "--fail-with-body",
        f"{address}/v1/embeddings",
        "--json",
        body,
        "-H",
        f"Authorization: Bearer {KEY}",
    ]
    done = subprocess.run(command, capture_output=True, check=True, timeout=WATCHDOG_S)
    vector = json.loads(done.stdout)["data"][0]["embedding"]
    if form == "base64":
        vector = np.frombuffer(base64.b64decode(vector), "<f4")
    assert_allclose(vector, model.embed(TEXTS[0], normalise=True), atol=1e-5)


HEADERS = {"Authorization": f"Bearer {KEY}"}
UNHURRIED = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


def tried(address: str, mode: str, *, examples: int) -> set[str]:
    """Send what the description allows, or forbids, to every operation; their names."""
    import schemathesis
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_url(f"{address}/openapi.json", headers=HEADERS)
    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:

        @settings(max_examples=examples, phases=[Phase.explicit, Phase.generate], **UNHURRIED)
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=[not_a_server_error], headers=HEADERS)

        if mode == "positive" or operation.body:  # nothing can be wrong with a GET
            check()
    return {operation.path for operation in operations}


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_is_a_fault_of_the_server(address: str, mode: str) -> None:
    assert {"/v1/fill", "/v1/embeddings", "/v1/models", "/healthz"} <= tried(address, mode, examples=3)


@pytest.mark.proof
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_of_many_is_a_fault_of_the_server(address: str, mode: str) -> None:
    tried(address, mode, examples=60)
