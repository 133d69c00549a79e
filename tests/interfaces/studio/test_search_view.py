"""The Search view's routes: files in, an index in the background, questions, marks; what cannot be indexed."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import larvatus as lv
from larvatus.inference.search import build
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.interfaces.studio.app import build_studio
from larvatus.interfaces.studio.http import TOKEN
from larvatus.interfaces.studio.settings import Folders
from tests.faults.test_exhausted import limited
from tests.patience import WATCHDOG_S

NOTES = "A river ran past the town. The bank of the river was deep."
ROWS = '{"body": "Please turn your homework in.", "year": 1999}\n{"body": "A bank in town.", "year": 2000}\n'


class Searching:
    def __init__(self, client: TestClient, token: str) -> None:
        self.client, self.token = client, {TOKEN: token}

    def post(self, path: str, body: Any = None) -> Any:
        path = path if path.startswith("/") else f"/studio/api/search/{path}"
        return self.client.post(path, json=body or {}, headers=self.token)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.client.get("/studio/api/search").json()
        return state

    def ended(self) -> dict[str, Any]:
        until = time.monotonic() + WATCHDOG_S
        while (state := self.state())["busy"]:
            assert time.monotonic() < until
            time.sleep(0.01)
        return state

    def collection(self, *files: tuple[str, str], name: str = "My notes") -> str:
        collection = str(self.post("new", {"name": name}).json()["collection"])
        for file, text in files:
            answer = self.post("file", {"collection": collection, "name": file, "text": text})
            assert answer.status_code == 200, answer.text
        return collection


@pytest.fixture
def opened(tmp_path: Path, tiny_directory: Path) -> Iterator[Callable[..., Searching]]:
    """A function that opens a studio over the same folder of runs."""
    clients = []

    def studio(*models: Path) -> Searching:
        loaded = [lv.load(path, device="cpu") for path in models or (tiny_directory,)]
        app = build_studio(loaded, ServeSettings(), Folders(runs=tmp_path / "runs"))
        client = TestClient(app, base_url="http://127.0.0.1:8311")
        client.__enter__()
        clients.append(client)
        return Searching(client, app.state.studio_token)

    yield studio
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def studio(opened: Callable[..., Searching]) -> Searching:
    return opened()


def test_dropped_files_become_an_index_that_is_searched(studio: Searching, tmp_path: Path) -> None:
    table = "title,body\nOne,a wide river\n"
    given = (("notes.md", NOTES), ("rows.jsonl", ROWS), ("notes.md", "Another file of this name."), ("t[1].csv", table))
    name = studio.collection(*given)
    assert studio.post("build", {"collection": name, "column": "body"}).status_code == 202
    state = studio.ended()
    assert (name, state["phase"], state["error"]) == ("my-notes", "ready", "")
    assert (state["passages"], state["documents"], state["vectors"]) == (5, 5, 5)
    (model,) = studio.client.get("/v1/models").json()["models"]
    assert [index["name"] for index in model["indexes"]] == ["my-notes"]
    answer = studio.post("/v1/search", {"query": "the river", "index": name, "hybrid": True}).json()["results"][0]
    assert {hit["document"] for hit in answer["hits"]} == {"notes.md", "notes-2.md", "rows.jsonl", "t_1_.csv"}
    assert str(tmp_path) not in str(answer)


def test_marks_name_the_words_that_match_and_place_the_passages(studio: Searching) -> None:
    name = studio.collection(("a.txt", NOTES), ("b.txt", "Please turn your homework in."))
    studio.post("build", {"collection": name})
    assert studio.ended()["phase"] == "ready"
    given = {"index": name, "query": "the river bank ?", "passages": [NOTES, "Please turn your homework in."]}
    answer = studio.post("marks", given).json()
    assert answer["query_words"] == ["the", "river", "bank"]
    assert len(answer["points"]) == 3
    for word in answer["passages"][0]:
        assert NOTES[word["start"] : word["end"]].strip(".") in NOTES.split() or word["end"] - word["start"] > 0
        assert word["query"] in (0, 1, 2)
    best = max(answer["passages"][0], key=lambda word: word["strength"])
    assert NOTES[best["start"] : best["end"]] == answer["query_words"][best["query"]]
    assert studio.post("marks", {**given, "passages": [NOTES]}).json()["points"] == []
    assert studio.post("marks", {**given, "passages": []}).json()["passages"] == []


def test_a_second_collection_has_a_name_of_its_own_and_an_earlier_studio_is_continued(
    opened: Callable[..., Searching], tmp_path: Path, tiny_model: Any, save_tiny: Any
) -> None:
    first = opened()
    assert first.post("build", {"collection": first.collection(("a.txt", NOTES))}).status_code == 202
    assert first.ended()["phase"] == "ready"
    assert first.collection(("a.txt", NOTES)) == "my-notes-2"
    assert first.collection(("a.txt", NOTES)) == "my-notes-2"  # never built: used again
    later = opened()
    assert later.state()["unavailable"] == {}
    assert later.post("/v1/search", {"query": "river", "index": "my-notes"}).status_code == 200
    other = opened(save_tiny(tmp_path / "other", tiny_model(seed=9)))
    assert "which is not served here: other" in other.state()["unavailable"]["my-notes"]
    assert other.post("/v1/search", {"query": "river", "index": "my-notes"}).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("file", {"name": "a.txt", "text": " \n"}, 422, "a.txt is empty; leave it out"),
        ("file", {"name": "a.pdf", "text": "x"}, 422, "give a file that ends in .txt, .md"),
        ("file", {"name": "a.txt", "text": "x" * 2_000_001}, 422, "larvatus search build takes larger ones"),
        ("file", {"collection": "../runs", "name": "a.txt", "text": "x"}, 422, "there is no collection"),
        ("file", {"collection": "nowhere", "name": "a.txt", "text": "x"}, 422, "there is no collection"),
        ("build", {}, 422, "the collection has no file; drop some first"),
        ("build", {"model": "law"}, 404, "there is no model 'law'"),
        ("stop", None, 422, "no index is being built"),
        ("marks", {"index": "law", "query": "a", "passages": []}, 404, "there is no index 'law'"),
        ("marks", {"index": "law", "query": "a", "passages": ["a"] * 51}, 422, "passages"),
    ],
)
def test_what_cannot_be_indexed_is_refused_in_a_line(
    studio: Searching, path: str, body: Any, status: int, says: str
) -> None:
    collection = studio.collection()
    given = {"collection": collection, **body} if path in ("file", "build") else body
    answer = studio.post(path, given)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]
    token, studio.token = studio.token, {}
    assert studio.post(path, given).status_code == 403
    studio.token = token


def test_a_table_without_the_named_column_fails_with_its_name(studio: Searching) -> None:
    name = studio.collection(("rows.jsonl", ROWS))
    studio.post("build", {"collection": name, "column": "txet"})
    state = studio.ended()
    assert state["phase"] == "failed"
    assert "txet" in state["error"]
    studio.post("build", {"collection": name, "column": "body"})
    assert studio.ended()["phase"] == "ready"


def test_a_full_disk_is_shown_and_the_build_continues(studio: Searching, monkeypatch: pytest.MonkeyPatch) -> None:
    name = studio.collection(("long.txt", "\n".join(f"{NOTES} {number}" for number in range(400))))
    monkeypatch.setattr(build, "CHARACTERS", 4_000)
    with limited(resource.RLIMIT_FSIZE, 9_000):
        studio.post("build", {"collection": name})
        state = studio.ended()
    assert state["phase"] == "failed"
    assert "ulimit -f" in state["error"]
    assert studio.post("/v1/search", {"query": "river", "index": name}).status_code == 404
    studio.post("build", {"collection": name})
    assert studio.ended()["phase"] == "ready"
    assert studio.post("/v1/search", {"query": "river", "index": name}).status_code == 200


def test_a_build_is_stopped_and_resumed_and_another_waits(studio: Searching, monkeypatch: pytest.MonkeyPatch) -> None:
    name = studio.collection(("long.txt", "\n".join(f"{NOTES} {number}" for number in range(100))))
    monkeypatch.setattr(build, "CHARACTERS", 1_000)
    plain, answers, read = build.encode_passages, [], []

    def stopping(model: Any, texts: Any, kinds: Any) -> Any:
        read.extend(texts)
        if len(answers) == 0 and len(read) > 1:
            answers.append(studio.post("new", {"name": "x"}))
            answers.append(studio.post("stop"))
        return plain(model, texts, kinds)

    monkeypatch.setattr(build, "encode_passages", stopping)
    studio.post("build", {"collection": name})
    assert studio.ended()["phase"] == "stopped"
    assert (answers[0].status_code, answers[1].status_code) == (409, 200)
    studio.post("build", {"collection": name})
    assert studio.ended()["phase"] == "ready"
    assert len(read) == len(set(read))  # what was read before the stop is not read again
