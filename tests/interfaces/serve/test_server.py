"""The server: the same numbers as `Model` gives, whatever a text is read with; bad items fail alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

import larvatus as lv
from larvatus.inference.model import Model
from larvatus.interfaces.serve.app import build_app, openapi
from larvatus.interfaces.serve.batcher import Batcher
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.operations.operation import read_body
from larvatus.interfaces.serve.requests import OperationRequest
from larvatus.interfaces.serve.responses import QueueFull
from larvatus.interfaces.serve.served_models import ServedModels, encoder_hash
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings
from tests.interfaces.serve.gate import at_once, held, until
from tests.interfaces.serve.models import save_models
from tests.patience import WATCHDOG_S

TOLERANCE = 2e-5
"""Between numbers of about 1 to 20 (log-probabilities, vectors), in float32; nothing is rounded in answers."""
TEXTS = [
    "the river bank was wide .",
    "run",
    "please turn your homework in !",
    "a deep and wide river of the bank , " * 3,
]
LONG = "the river was deep and wide . " * 20


@pytest.fixture(scope="module")
def models(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    directories = save_models(tmp_path_factory.mktemp("served"), tiny_model, save_tiny)
    return {name: lv.load(directory, device="cpu") for name, directory in directories.items()}


@pytest.fixture(scope="module")
def client(models: dict[str, Model]) -> Iterator[TestClient]:
    app = build_app(list(models.values()), ServeSettings(threads=40, max_items=40, max_tokens=4_000, batch_tokens=512))
    with TestClient(app, base_url="http://127.0.0.1") as made:
        yield made


@pytest.fixture
def server(client: TestClient) -> Server:
    found: Server = client.app.state.server  # type: ignore[attr-defined]
    return found


@pytest.fixture
def ask(server: Server) -> Callable[[str, dict[str, Any]], Any]:
    def answer(name: str, body: dict[str, Any]) -> Any:
        given = server.answer_now(OPERATIONS[name], read_body(json.dumps(body).encode(), OPERATIONS[name].Body))
        return json.loads(json.dumps(given))

    return answer


def assert_near(ours: Any, theirs: Any, path: str = "") -> None:
    """The same structure, words and whole numbers; other numbers nearly."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), path
        for key in theirs:
            assert_near(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), path
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_near(a, b, f"{path}[{number}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=TOLERANCE, rel=TOLERANCE), path
    else:
        assert ours == theirs, path


def requests() -> list[tuple[str, dict[str, Any]]]:
    """32 of all kinds, ragged."""
    kinds: list[tuple[str, dict[str, Any]]] = []
    for number in range(4):
        text = TEXTS[number]
        kinds += [
            ("embed", {"texts": [text], "normalise": True}),
            ("embed", {"texts": [text, "the river"], "unit": "word", "layers": "last2", "model": "plain"}),
            ("fill", {"texts": f"the [MASK] of {text}"[:60], "top": 3}),
            ("classify", {"texts": [text, [text, "a bank"]]}),
            ("tag", {"texts": [text, ["the", "river"]]}),
            ("spans", {"texts": text}),
            ("answer", {"questions": [{"question": "the bank ?", "passage": text}]}),
            ("score", {"texts": [text]}),
        ]
    return kinds


def test_a_text_gets_the_same_numbers_alone_and_among_31_others_of_all_kinds(server: Server, ask: Any) -> None:
    asked = requests()
    assert len(asked) == 32
    alone = [ask(*each) for each in asked]
    batcher, encoder = server.batcher, next(iter(server.served.encoders.values()))
    before, parts = batcher.counts.passes, batcher.counts.parts
    with ThreadPoolExecutor(32) as pool:
        with held(batcher, encoder):
            futures = [pool.submit(ask, *each) for each in asked]
            until(lambda: batcher.waiting_batches >= 8)  # at least one call of each kind: equal requests share a call
        together = [future.result() for future in futures]
    assert_near(together, alone)
    joined = batcher.counts.passes - before - 1
    assert batcher.counts.parts - parts - 1 > 1.5 * joined  # passes were shared indeed


def test_answers_are_those_of_the_model_itself(ask: Any, models: dict[str, Model]) -> None:
    def results(name: str, **body: Any) -> list[dict[str, Any]]:
        answered: list[dict[str, Any]] = ask(name, body)["results"]
        for item in answered:
            assert item.pop("coverage")["tokens"] > 0
        return answered

    plain = models["plain"]
    fills = plain.fill(["the [MASK] ran", "the [MASK] of [MASK]"], top=4, words_only=True)
    texts = ["the [MASK] ran", "the [MASK] of [MASK]"]
    assert_near(results("fill", texts=texts, top=4, words_only=True), [each.to_dict() for each in fills])
    for settings in ({"unit": "token"}, {"unit": "word", "layers": "all"}, {"pool": "cls", "layers": [0.0, 1.0, 0.5]}):
        direct = plain.vectors(TEXTS, **{"unit": "sentence", **settings})
        assert_near(results("embed", texts=TEXTS, model="plain", **settings), [each.to_dict() for each in direct])
    scores = [each.to_dict() for each in plain.score(TEXTS[:2], method="word-l2r")]
    assert_near(results("score", texts=TEXTS[:2], method="word-l2r"), scores)
    pair = ("the river", "a bank")
    for name, given in {
        "classify": [*TEXTS, pair],
        "tag": [*TEXTS, ["the", "river"]],
        "spans": TEXTS,
    }.items():
        direct = [each.to_dict() for each in models[name].predict(given)]
        assert_near(results(name, texts=given), direct)
    questions = [{"question": "the bank ?", "passage": text} for text in TEXTS]
    direct = [each.to_dict() for each in models["answer"].predict([("the bank ?", text) for text in TEXTS], top=2)]
    assert_near(results("answer", questions=questions, top=2), direct)


def test_similar_and_attention_are_those_of_the_model(ask: Any, models: dict[str, Model]) -> None:
    marked = ["the *bank* of the river", "a *bank* was wide", "the *river*"]
    direct = models["plain"].similarities(marked, layers=1)
    answer = ask("similar", {"texts": marked, "layers": 1})
    assert_near(answer["cosines"], direct.matrix.tolist())
    assert answer["instances"] == direct.to_dict()["instances"]
    plain = ["the bank of the river", "a bank was wide", "the river"]
    spans = [[4, 8], [2, 6], [4, 9]]
    assert_near(ask("similar", {"texts": plain, "spans": spans, "layers": 1}), answer)
    attention = models["plain"].attention("the river was wide")
    seen = ask("attention", {"text": "the river was wide"})
    assert_near(seen["weights"], attention.weights.tolist())
    assert seen["tokens"] == list(attention.tokens)
    assert len(seen["types"]) == 4
    layer = ask("attention", {"text": "the river was wide", "layer": 2, "head": 1})
    assert_near(layer["weights"], attention.weights[1:2, :1].tolist())
    assert [(row["layer"], row["head"]) for row in layer["types"]] == [(2, 1)]


def test_senses_fall_into_clusters(ask: Any) -> None:
    texts = ["the *bank* of the river", "the *bank* of a river", "turn your *homework* in", "turn the *homework* in"]
    answer = ask("senses", {"texts": texts, "clusters": 2})
    assert [each["cluster"] for each in answer["instances"]] in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert [each["size"] for each in answer["clusters"]] == [2, 2]
    assert {tuple(pair["pair"]) for pair in answer["nearest"][:2]} == {(0, 1), (2, 3)}
    assert all(len(each["point"]) == 2 for each in answer["instances"])
    whole = ask("senses", {"texts": texts[:1]})
    assert [each["cluster"] for each in whole["instances"]] == [0]
    assert whole["nearest"] == []


def test_vectors_for_clients_of_openai_have_length_1_in_both_encodings(ask: Any, models: dict[str, Model]) -> None:
    plain = ask("embeddings", {"input": TEXTS, "model": "plain"})
    coded = ask("embeddings", {"input": TEXTS, "model": "plain", "encoding_format": "base64", "dimensions": 16})
    direct = models["plain"].embed(TEXTS, normalise=True)
    vectors = np.array([each["embedding"] for each in plain["data"]])
    np.testing.assert_allclose(vectors, direct, atol=TOLERANCE)
    decoded = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in coded["data"]]
    np.testing.assert_allclose(decoded, direct, atol=TOLERANCE)
    assert [each["index"] for each in plain["data"]] == [0, 1, 2, 3]
    assert plain["usage"]["prompt_tokens"] == sum(map(len, models["plain"].tokenizer.encode_fast(TEXTS)))


def test_models_with_equal_encoder_weights_share_it_and_its_passes(server: Server, ask: Any, models: Any) -> None:
    assert len(server.served.encoders) == 1
    assert len({id(model.model.encoder.word_vectors) for model in server.served.models.values()}) == 1
    assert models["tag"].encoder is not models["classify"].encoder  # what was loaded stays as it was
    batcher, encoder = server.batcher, next(iter(server.served.encoders.values()))
    before = batcher.counts.passes
    at_once(
        batcher,
        encoder,
        [lambda: ask("tag", {"texts": "the river"}), lambda: ask("classify", {"texts": "a wide bank"})],
    )
    assert batcher.counts.passes - before == 2  # the gate, and one for both


def test_other_weights_are_another_encoder(tiny_model: Any) -> None:
    one, same, other = (tiny_model(seed=seed).encoder for seed in (1, 1, 2))
    assert encoder_hash(one) == encoder_hash(same) != encoder_hash(other)


def test_int8_models_are_served_and_share_nothing(models: dict[str, Model], ask: Any) -> None:
    int8 = [lv.load(models[name].bundle.path, quantise="int8") for name in ("plain", "classify")]
    served = Server.of(int8, ServeSettings(threads=2))
    try:
        assert len(served.served.encoders) == 2
        body = read_body(b'{"texts": "the river"}', OPERATIONS["embed"].Body)
        direct = int8[0].vectors("the river", unit="sentence").to_dict()
        ours = json.loads(json.dumps(served.answer_now(OPERATIONS["embed"], body)))["results"][0]
        assert_near(ours["units"], direct["units"])
    finally:
        served.close()


def test_each_model_can_do_what_its_heads_can(client: TestClient, models: dict[str, Model]) -> None:
    described = {model["name"]: model for model in client.get("/v1/models").json()["models"]}
    vectors = {"embed", "embeddings", "similar", "senses", "attention"}
    assert set(described["plain"]["can"]) == vectors | {"fill", "score"}
    for name in ("classify", "tag", "spans", "answer"):
        assert set(described[name]["can"]) == vectors | {name}
    assert described["classify"]["labels"] == ["dry", "wet"]
    assert "labels" not in described["plain"]
    plain = described["plain"]
    assert (plain["layers"], plain["heads"], plain["width"], plain["reach"]) == (2, 2, 16, 32)
    assert plain["parameters"] == sum(p.numel() for p in models["plain"].network.parameters())
    refused = client.post("/v1/fill", json={"texts": "the [MASK]", "model": "tag"})
    assert refused.status_code == 422
    assert "masked-lm" in refused.json()["error"]["message"]
    assert client.post("/v1/tag", json={"texts": "the", "model": "tga"}).status_code == 404


def test_bad_items_among_many_fail_alone(client: TestClient, ask: Any) -> None:
    texts = [*TEXTS, "", "no blank here", "the [MASK] ran"]
    given = client.post("/v1/fill", json={"texts": texts}).json()["results"]
    assert ["error" in item for item in given] == [True] * 6 + [False]
    assert given[4]["error"]["type"] == "BadRequest"
    assert "empty" in given[4]["error"]["message"]
    good = ask("tag", {"texts": TEXTS})["results"]
    mixed = ask("tag", {"texts": [TEXTS[0], "", *TEXTS[1:], ["a", " "]]})["results"]
    assert_near([mixed[0], *mixed[2:5]], good)
    assert "error" in mixed[1]
    assert "a word is empty" in mixed[5]["error"]["message"]
    whole = client.post("/v1/embeddings", json={"input": ["the river", ""]})
    assert whole.status_code == 400  # what clients of OpenAI expect is all or nothing


def test_long_texts_are_read_to_their_end_in_windows(ask: Any, models: dict[str, Model]) -> None:
    tokens = len(models["plain"].tokenizer.encode_fast([LONG])[0])
    assert tokens > 100  # a window has 32
    for name in ("classify", "tag", "spans"):
        item = ask(name, {"texts": LONG})["results"][0]
        assert item["coverage"]["tokens"] == item["coverage"]["read"] == tokens
        assert item["coverage"]["windows"] > 3
        first = ask(name, {"texts": LONG, "truncate": True})["results"][0]["coverage"]
        assert first["read"] < first["tokens"] == tokens
        assert first["windows"] == 1
    vectors = ask("embed", {"texts": LONG, "unit": "word"})["results"][0]
    assert vectors["coverage"]["windows"] > 3
    assert len(vectors["units"]) == len(LONG.split())
    passage = {"question": "the bank ?", "passage": LONG}
    assert ask("answer", {"questions": [passage]})["results"][0]["coverage"]["windows"] > 3


@pytest.mark.parametrize(
    ("name", "body", "status", "said"),
    [
        ("embed", {"texts": []}, 400, "nothing in texts"),
        ("embed", {"texts": ["", " "]}, 400, "nothing in texts"),
        ("answer", {"questions": []}, 400, "nothing in questions"),
        ("embed", {"texts": 3}, 422, "Expected"),
        ("embed", {"texts": "a", "layer": 1}, 422, "no field layer; did you mean layers?"),
        ("embed", {"texts": "a", "layers": 99}, 422, "no layer 99"),
        ("embed", {"texts": "a", "standardise": "/etc/passwd"}, 422, "no standardiser"),
        ("embed", {"texts": ["a"] * 41}, 422, "--max-items"),
        ("embed", {"texts": "the river " * 2_500}, 422, "--max-tokens"),
        ("score", {"texts": "the river " * 100}, 422, "--max-tokens"),
        ("fill", {"texts": "the [MASK]", "top": 10**9}, 422, "--max-top"),
        ("fill", {"texts": "the [MASK]", "top": 0}, 422, "top"),
        ("fill", {"texts": "the [MASK]", "beam": 10**6}, 422, "--max-top"),
        ("embeddings", {"input": "a", "dimensions": 17}, 400, "a vector of plain has 16; give at most that"),
        ("embeddings", {"input": "a", "dimensions": 0}, 422, "dimensions"),
        ("embeddings", {"input": [[1, 2]]}, 422, "Expected"),
        ("similar", {"texts": ["no mark", "the *bank*"]}, 422, "*"),
        ("similar", {"texts": ["the *bank*"]}, 422, "2 or more"),
        ("similar", {"texts": ["a", "b"], "spans": [[0, 1]]}, 422, "one for each"),
        ("attention", {"text": " "}, 400, "nothing in text"),
        ("attention", {"text": "the", "layer": 3}, 422, "no layer 3"),
        ("attention", {"text": "the river " * 40}, 422, "the model's window has 30; shorten it"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    client: TestClient, name: str, body: Any, status: int, said: str
) -> None:
    answer = client.post(f"/v1/{name}", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, set(error)) == (status, {"type", "message"}), error
    assert said in error["message"]
    assert "\n" not in error["message"]


NO_JSON = [b"", b"{", b'{"texts": NaN}', b'{"texts": "\xff"}', b'{"texts": "\\ud800"}', b"[" * 40 + b"]" * 40]


@pytest.mark.parametrize("raw", NO_JSON)
def test_what_is_no_json_is_400(client: TestClient, raw: bytes) -> None:
    answer = client.post("/v1/embed", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"type", "message"}


def test_brackets_within_texts_are_not_deep(ask: Any) -> None:
    assert len(ask("embed", {"texts": '[{"' * 60})["results"]) == 1


def test_a_full_queue_refuses_and_equal_requests_are_put_together(models: dict[str, Model]) -> None:
    served = Server.of([models["plain"]], ServeSettings(threads=4, queue=12))
    batcher = served.batcher
    encoder = next(iter(served.served.encoders.values()))
    try:
        subject, operation = served.served.choose("embed", None), OPERATIONS["embed"]
        options = operation.options(read_body(b'{"texts": "a"}', operation.Body))
        with held(batcher, encoder):
            tickets = [batcher.submit(OperationRequest(operation, subject, options, [TEXTS[n % 4]])) for n in range(12)]
            with pytest.raises(QueueFull):
                batcher.submit(OperationRequest(operation, subject, options, ["a"]))
            tickets[5].cancel()
            until(lambda: batcher.waiting_batches >= 1)  # at most two calls are under way, the others gather
            before = batcher.counts.parts
        results = [ticket.result(WATCHDOG_S)[0] for ticket in tickets if not ticket.cancelled()]
        assert len(results) == 11
        assert batcher.counts.parts - before <= 1 + 4
        direct = [
            each.to_dict()
            for each in models["plain"].vectors([TEXTS[n % 4] for n in range(12) if n != 5], unit="sentence")
        ]
        for ours, theirs in zip(results, direct, strict=True):
            assert_near(ours["units"], theirs["units"])  # type: ignore[index]
        until(lambda: batcher.requests == 0)
    finally:
        served.close()


def test_a_cancelled_request_is_not_computed(server: Server) -> None:
    batcher, encoder = server.batcher, next(iter(server.served.encoders.values()))
    operation = OPERATIONS["score"]
    options = operation.options(read_body(b'{"texts": "a"}', operation.Body))
    before = batcher.counts.tokens
    with held(batcher, encoder):
        ticket = server.batcher.submit(
            OperationRequest(operation, server.served.choose("score", None), options, [TEXTS[0]])
        )
        until(lambda: batcher.waiting_batches == 1)
        ticket.cancel()
    until(lambda: batcher.waiting_batches == 0)
    assert batcher.counts.tokens == before
    assert ticket.abandoned
    until(lambda: server.batcher.requests == 0)


def test_every_operation_is_described_with_examples_that_it_takes(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert described == json.loads(json.dumps(openapi()))
    for name, operation in OPERATIONS.items():
        post = described["paths"][f"/v1/{name}"]["post"]
        examples = post["requestBody"]["content"]["application/json"]["examples"]
        assert examples
        for example in examples.values():
            body = read_body(json.dumps(example["value"]).encode(), operation.Body)
            assert operation.items(body)
        reference = post["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        fields = described["components"]["schemas"][reference]["properties"]
        assert all(field.get("description") for field in fields.values()), (name, fields)


def test_the_page_of_the_documentation_needs_no_network(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in OPERATIONS:
        assert f"/v1/{name}" in page.text
    assert "http://" not in page.text.replace("http://127.0.0.1", "")
    assert "https://" not in page.text
    assert "<script" not in page.text
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")


def test_names_of_directories_that_are_alike_are_told_apart(models: dict[str, Model]) -> None:
    served = ServedModels.of(
        [models["plain"], models["plain"]], ServeSettings(), Batcher(threads=1, queue=1, budget=64)
    )
    assert list(served.models) == ["plain", "plain-2"]
    assert Path(models["plain"].bundle.path).name == "plain"
