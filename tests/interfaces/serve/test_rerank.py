"""/v1/rerank in the form of Cohere's and Jina's API: the answers of the model itself, limits and faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import larvatus as lv
from larvatus.interfaces.serve.app import build_app, openapi
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.heads.sequence_score import RerankingConfig
from tests.interfaces.serve.running import Running

QUERY = "where is the river"
PASSAGES = ["please turn in your homework", "the river is here", "the bank was wide and deep", "run"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, save_tiny: Any) -> lv.Model:
    config = RerankingConfig()
    directory: Path = tmp_path_factory.mktemp("served") / "ranker"
    return lv.load(save_tiny(directory, tiny_model(seed=5, objectives=(config,)), (config,)), device="cpu")


@pytest.fixture(scope="module")
def client(model: lv.Model) -> Iterator[TestClient]:
    app = build_app([model], ServeSettings(threads=2, max_items=8, max_tokens=400))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def test_results_are_those_of_the_model_best_first(client: TestClient, model: lv.Model) -> None:
    direct = model.rerank(QUERY, PASSAGES)
    assert len({round(row.score, 6) for row in direct}) == len(PASSAGES)
    answer = client.post("/v1/rerank", json={"query": QUERY, "documents": PASSAGES, "model": "ranker"})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["model"] == "ranker"
    assert body["usage"]["total_tokens"] == sum(row.coverage.tokens for row in direct)
    assert [sorted(result) for result in body["results"]] == [["index", "relevance_score"]] * len(PASSAGES)
    assert [result["index"] for result in body["results"]] == [row.index for row in direct]
    for result, row in zip(body["results"], direct, strict=True):
        assert result["relevance_score"] == pytest.approx(row.score, abs=1e-6)


def test_objects_top_n_and_returned_documents(client: TestClient, model: lv.Model) -> None:
    documents = [PASSAGES[0], *({"text": text, "title": "ignored"} for text in PASSAGES[1:])]
    body = {"query": QUERY, "documents": documents, "top_n": 2, "return_documents": True}
    results = client.post("/v1/rerank", json=body).json()["results"]
    assert [(result["index"], result["document"]) for result in results] == [
        (row.index, {"text": row.passage}) for row in model.rerank(QUERY, PASSAGES, top=2)
    ]
    more = client.post("/v1/rerank", json={**body, "top_n": 99}).json()["results"]
    assert len(more) == len(PASSAGES)


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"query": " "}, 400, "the query is empty"),
        ({"documents": []}, 400, "nothing in documents"),
        ({"documents": ["a", "\n"]}, 400, r"documents[1] is empty"),
        ({"documents": "the river"}, 422, "Expected `array`"),
        ({"documents": [{"title": "no text"}]}, 422, "text"),
        ({"top_n": 0}, 422, ">= 1"),
        ({"model": "another"}, 404, "another"),
        ({"documents": ["run"] * 9}, 422, "--max-items"),
        ({"documents": ["the river " * 200]}, 422, "--max-tokens"),
    ],
)
def test_faults_name_the_fix(client: TestClient, change: dict[str, Any], status: int, message: str) -> None:
    answer = client.post("/v1/rerank", json={"query": QUERY, "documents": PASSAGES, **change})
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True), answer.text


def test_a_model_of_another_kind_is_refused_and_openapi_describes_the_route(tiny_directory: Path) -> None:
    with TestClient(build_app([lv.load(tiny_directory)], ServeSettings()), base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/rerank", json={"query": QUERY, "documents": PASSAGES})
    assert answer.status_code == 422
    assert "larvatus finetune rerank" in answer.json()["error"]["message"]
    described = openapi()["paths"]["/v1/rerank"]["post"]
    assert described["summary"] == "Order documents by their relevance to a query."


def test_the_client_ranks_as_the_model_does(model: lv.Model) -> None:
    with Running([model]) as server, lv.Client(f"http://127.0.0.1:{server.port}") as client:
        ranked = client.rerank(QUERY, PASSAGES, top=3)
        assert [row["index"] for row in ranked] == [row.index for row in model.rerank(QUERY, PASSAGES, top=3)]
        with pytest.raises(lv.LarvatusError, match="query is empty"):
            client.rerank("", PASSAGES)
