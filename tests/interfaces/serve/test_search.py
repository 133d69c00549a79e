"""/v1/search: passages as the library finds them, filters, limits, errors; indexes of other models; changed files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import ArtefactError
from larvatus.inference.model import Model
from larvatus.interfaces.client import Client, ServerError
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig
from larvatus.models.heads.sequence_score import RerankingConfig
from tests.interfaces.serve.models import save_models
from tests.interfaces.serve.running import Running

ROWS = [
    {"text": "The bank of the river was deep.", "year": 1999},
    {"text": "Please turn your homework in.", "year": 2000},
    {"text": "The town by the river.", "year": 2001},
    {"text": "A bank in town.", "year": 2000},
]
QUERY = "the river bank"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    (folder / "docs" / "more").mkdir(parents=True)
    (folder / "docs" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "docs" / "more" / "notes.md").write_text("A river ran past the town. The homework was turned in.")
    return folder


@pytest.fixture(scope="module")
def models(folder: Path, tiny_model: Any, save_tiny: Any) -> dict[str, Model]:
    saved = save_models(folder, tiny_model, save_tiny, "plain", "classify")
    heads = (RerankingConfig(),)
    saved["ranker"] = save_tiny(folder / "ranker", tiny_model(seed=5, objectives=heads), heads)
    return {name: lv.load(directory, device="cpu") for name, directory in saved.items()}


@pytest.fixture(scope="module")
def indexes(folder: Path, models: dict[str, Model]) -> dict[str, lv.Index]:
    """Two of the first model, one of absolute and one of relative paths, and one of the second model."""
    made = lambda out, paths, model, **more: lv.index_documents(paths, out=folder / out, model=models[model], **more)  # noqa: E731
    docs = folder / "docs"
    all_of_it = made("everything", [docs], "plain", passage=60, overlap=0, metadata=("year",))
    before = os.getcwd()
    os.chdir(folder)
    try:
        notes = made("notes", ["docs/more/notes.md"], "plain", bm25=False)
    finally:
        os.chdir(before)
    return {"everything": all_of_it, "notes": notes, "other": made("other", [docs], "classify")}


@pytest.fixture(scope="module")
def running(models: dict[str, Model], indexes: dict[str, lv.Index]) -> Iterator[Running]:
    paths = tuple(str(indexes[name].path) for name in ("everything", "notes", "other"))
    with Running(list(models.values()), index=paths, max_top=20, max_items=8) as server:
        yield server


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{running.port}") as client:
        yield client


def places(hits: list[dict[str, Any]]) -> list[tuple[str, int, int, str]]:
    return [(Path(hit["document"]).name, hit["start"], hit["end"], hit["text"]) for hit in hits]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"top": 2},
        {"hybrid": True},
        {"bm25": True},
        {"where": {"year": 2000}},
        {"where": {"year": [1999, 2001]}, "hybrid": True},
        {"where": {"year": None}},
        {"paths": "*.md"},
        {"paths": ["*rows*", "*.csv"], "top": 1},
    ],
)
def test_the_server_finds_what_the_library_finds(client: Client, indexes: Any, settings: dict[str, Any]) -> None:
    direct = indexes["everything"].search(QUERY, **settings)
    served = client.search(QUERY, **settings)
    assert places(served["hits"]) == places(direct.to_dicts())
    assert [hit["score"] for hit in served["hits"]] == pytest.approx([hit.score for hit in direct], abs=1e-3)
    assert served["searched"] == direct.searched
    assert served["index"] == "everything"


@pytest.mark.parametrize(
    "settings", [{"top": 2}, {"candidates": 3}, {"bm25": True}, {"where": {"year": 2000}}], ids=str
)
def test_a_served_model_reranks_as_the_library_does(
    client: Client, models: Any, indexes: Any, settings: dict[str, Any]
) -> None:
    direct = indexes["everything"].search(QUERY, rerank=models["ranker"], **settings)
    served = client.search(QUERY, rerank="ranker", **settings)
    assert places(served["hits"]) == places(direct.to_dicts())
    assert [hit["score"] for hit in served["hits"]] == pytest.approx([hit.score for hit in direct], abs=1e-4)
    by_model = models["ranker"].rerank(QUERY, [hit.text for hit in direct])
    assert [row.passage for row in by_model] == [hit["text"] for hit in served["hits"]]
    assert len(client.search([QUERY, "homework"], rerank="ranker", **settings)) == 2


def test_candidates_that_a_reranker_reads_count_as_tokens(models: Any, indexes: Any) -> None:
    """Five passages of some ten tokens, each with the query."""
    ranked = [models["plain"], models["ranker"]]
    server = Server.of(ranked, ServeSettings(index=(str(indexes["everything"].path),), max_tokens=40, batch_tokens=16))
    search = OPERATIONS["search"]
    try:
        assert server.answer_now(search, search.Body(query="river"))["results"][0]["hits"]
        assert server.answer_now(search, search.Body(query="river", rerank="ranker", candidates=1, top=1))["results"]
        with pytest.raises(lv.LarvatusError, match="tokens would be computed"):
            server.answer_now(search, search.Body(query="river", rerank="ranker"))
    finally:
        server.close()


def test_several_questions_to_a_named_index(client: Client, models: Any) -> None:
    several = client.search([QUERY, "homework"], index="notes", top=1)
    assert [each["query"] for each in several] == [QUERY, "homework"]
    assert {each["hits"][0]["document"] for each in several} == {"docs/more/notes.md"}  # as it was indexed
    assert client.search(QUERY, index="other")["searched"] == 5
    assert client.ask("search", query=QUERY, index="other")["model"] == "classify"
    assert client.ask("search", query=QUERY, model="classify")["results"][0]["index"] == "other"


def test_no_folder_of_the_machine_is_told(client: Client, folder: Path) -> None:
    served = client.search(QUERY, index="everything")
    assert {hit["document"] for hit in served["hits"]} == {"rows.jsonl", "more/notes.md"}
    assert str(folder) not in json.dumps([served, client.models()])


def test_models_list_their_indexes_and_only_they_search(client: Client, running: Running) -> None:
    entries = {entry["name"]: entry for entry in client.models()}
    assert [index["name"] for index in entries["plain"]["indexes"]] == ["everything", "notes"]
    assert entries["plain"]["indexes"][0] == {
        "name": "everything", "passages": 5, "documents": 5, "columns": ["year"], "hybrid": True,
    }  # fmt: skip
    assert not entries["plain"]["indexes"][1]["hybrid"]
    assert "search" in entries["classify"]["can"]
    description = running.get("/openapi.json").json["paths"]["/v1/search"]["post"]
    assert description["requestBody"]["content"]["application/json"]["examples"]
    assert 'route="/v1/search",status="200"' in running.get("/metrics").body.decode()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"query": ""}, 400, "there is nothing in query"),
        ({"query": [" ", "\n"]}, 400, "there is nothing in query"),
        ({"query": []}, 400, "there is nothing in query"),
        ({}, 422, "query"),
        ({"query": QUERY, "index": "everythin"}, 404, "did you mean everything"),
        ({"query": QUERY, "index": "other", "model": "plain"}, 422, "other is an index of classify"),
        ({"query": QUERY, "model": "law"}, 404, "there is no model 'law'"),
        ({"query": QUERY, "top": 21}, 422, "--max-top"),
        ({"query": QUERY, "top": 0}, 422, "top"),
        ({"query": [QUERY] * 9}, 422, "--max-items"),
        ({"query": QUERY, "where": {"yaer": 1}}, 422, "no metadata column 'yaer'; did you mean year"),
        ({"query": QUERY, "where": {"year": 1066}}, 422, "no passage of everything has these values or paths"),
        ({"query": QUERY, "paths": ["*"] * 65}, 422, "paths"),
        ({"query": QUERY, "hybrid": True, "bm25": True}, 422, "by words only"),
        ({"query": QUERY, "index": "notes", "hybrid": True}, 422, "has no words"),
        ({"query": "the river " * 20_000}, 422, "--max-tokens"),
        ({"query": QUERY, "rerank": "rankre"}, 404, "there is no model 'rankre'; did you mean ranker"),
        ({"query": QUERY, "rerank": "plain"}, 422, "plain cannot rerank: it is not fine-tuned for this task"),
        ({"query": QUERY, "rerank": "ranker", "candidates": 0}, 422, "candidates"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_a_line(running: Running, body: Any, status: int, says: str) -> None:
    reply = running.post("/v1/search", body)
    assert (reply.status, says in reply.error["message"]) == (status, True), reply.body


def test_one_empty_question_among_others_fails_alone(client: Client) -> None:
    given = client.search([QUERY, " "])
    assert given[0]["hits"]
    assert given[1]["error"]["message"] == "the text is empty; leave it out"


def test_passages_count_as_numbers_of_the_answer(models: Any, indexes: Any) -> None:
    settings = ServeSettings(
        index=(str(indexes["notes"].path),), max_numbers=500
    )  # 133 of a passage of 1,000 characters
    server = Server.of([models["plain"]], settings)
    search = OPERATIONS["search"]
    try:
        assert server.answer_now(search, search.Body(query=QUERY, top=3))["results"][0]["hits"]
        with pytest.raises(lv.LarvatusError, match="the answer would have 532 numbers"):
            server.answer_now(search, search.Body(query=QUERY, top=4))
    finally:
        server.close()


def test_a_server_without_an_index_says_how_to_give_one(models: Any) -> None:
    server = Server.of([models["plain"]], ServeSettings())
    try:
        with pytest.raises(lv.LarvatusError, match=r"plain cannot search: .*start it with --index DIR"):
            server.answer_now(OPERATIONS["search"], OPERATIONS["search"].Body(query=QUERY))
    finally:
        server.close()


def test_an_index_of_another_model_is_refused_when_the_server_starts(models: Any, indexes: Any) -> None:
    paths = (str(indexes["other"].path),)
    fingerprint = models["classify"].fingerprint[:8]
    with pytest.raises(ArtefactError, match=rf"classify \({fingerprint}…\), which is not served here: plain"):
        Server.of([models["plain"]], ServeSettings(index=paths))
    with pytest.raises(ArtefactError, match="is no index: there is no such folder"):
        Server.of([models["plain"]], ServeSettings(index=("nowhere",)))


def test_the_model_of_an_index_is_served_without_being_named(indexes: Any) -> None:
    paths = [indexes["other"].path, indexes["everything"].path]
    with lv.serve_models(index=paths, device="cpu") as address, Client(address) as client:
        assert [entry["name"] for entry in client.models()] == ["classify", "plain"]
        assert client.search(QUERY, index="everything")["hits"]


def test_a_file_that_changed_under_an_index_is_reported(models: Any, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(f"The bank of the river, {name}.")
    index = lv.index_documents(
        [tmp_path / f"{name}.txt" for name in "abc"], out=tmp_path / "index", model=models["plain"]
    )
    with lv.serve_models(models["plain"], index=[index.path]) as address, Client(address) as client:
        assert client.search(QUERY)["changed"] == []
        (tmp_path / "a.txt").write_text("Another text, and a longer one than before.")
        (tmp_path / "b.txt").unlink()
        os.utime(tmp_path / "c.txt", ns=(1, 1))  # touched, and the same
        served = client.search(QUERY)
        assert sorted(served["changed"]) == ["a.txt has changed", "b.txt is gone"]
        assert len(served["hits"]) == 3  # of the index, which is whole
        lv.index_documents([tmp_path / "a.txt"], out=index.path, model=models["plain"])
        assert len(client.search(QUERY)["hits"]) == 3  # the server keeps what it opened, until it is started again


def test_the_client_raises_what_the_server_refuses(client: Client) -> None:
    with pytest.raises(ServerError, match="there is no index 'x'") as refused:
        client.search(QUERY, index="x")
    assert refused.value.status == 404


def test_a_sentence_encoder_with_a_linear_layer_is_indexed_and_served(
    folder: Path, tiny_model: Any, save_tiny: Any
) -> None:
    head = (EmbeddingConfig(projections=(DenseProjection(size=8),), normalise=True),)
    model = lv.load(save_tiny(folder / "dense", tiny_model(3, head), head), device="cpu")
    index = lv.index_documents(folder / "docs", out=folder / "dense-index", model=model, passage=60, overlap=0)
    assert index.manifest.size == 8
    vectors = model.embed([QUERY, *(hit.text for hit in index.search(QUERY))], normalise=True)
    assert [hit.score for hit in index.search(QUERY)] == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=2e-3)
    with lv.serve_models(model, index=[index.path]) as address, Client(address) as client:
        assert places(client.search(QUERY)["hits"]) == places(index.search(QUERY).to_dicts())
        assert len(client.ask("embeddings", input=QUERY)["data"][0]["embedding"]) == 8
        with pytest.raises(ServerError, match="a vector of dense has 8"):
            client.ask("embeddings", input=QUERY, dimensions=16)
