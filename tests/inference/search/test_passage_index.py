"""An index of passages, against vectors computed one by one: places, scores, updates, filters, the command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.inference.search import text_vectors
from larvatus.inference.search.generation import Generation
from larvatus.inference.search.nearest import first_of_largest, nearest_vectors
from larvatus.inference.search.storage import StoredVectors
from larvatus.interfaces.cli.main import run

SENTENCES = ["The bank of the river was deep.", "Please turn your homework in.", "A wide river, a deep river!"]
CUT = {"passage": 64, "overlap": 32}


@pytest.fixture(scope="module")
def model(tiny_directory):
    return lv.load(tiny_directory, device="cpu")


@pytest.fixture
def documents(tmp_path) -> Path:
    """Plain text with odd line ends, JSON lines, and a table."""
    folder = tmp_path / "docs"
    folder.mkdir()
    chosen = np.random.default_rng(0).integers(0, 3, (12, 4))
    text = "\n\n".join(" ".join(SENTENCES[n] for n in row) for row in chosen)
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbf\r\n" + text.replace("\n", "\r\n").encode())
    rows = [{"body": SENTENCES[n % 3] + f" Run {n}.", "year": 1990 + n % 3, "old": n < 3} for n in range(9)]
    (folder / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.table({"body": [SENTENCES[2], "山 river"], "year": [1991, None], "old": [True, False]})
    pq.write_table(table, folder / "c.parquet")
    return folder


@pytest.fixture
def make(model, documents, tmp_path):
    def index(*paths, out="index", **settings):
        settings = {"model": model, "metadata": ["year", "old"], "text": "body", **CUT, **settings}
        return lv.index_documents([*paths] or documents, out=tmp_path / out, **settings)

    return index


def passages_of(index):
    held = Generation.open(index.path)
    rows = held.passages.to_pylist()
    return [{"path": held.source_of(number).path, **row} for number, row in enumerate(rows)]


def cosines(model, query, texts):
    a, b = (model.embed(list(each), normalise=True).astype(np.float64) for each in ([query], texts))
    return (b @ a[0]).tolist()


def test_results_are_the_best_by_a_naive_loop_at_their_exact_places(make, model, documents):
    index = make(dtype="float32")
    rows = passages_of(index)
    scores = cosines(model, "the deep bank", [row["text"] for row in rows])
    expected = sorted(range(len(rows)), key=lambda number: (-round(scores[number], 6), number))
    found = index.search("the deep bank", top=len(rows))
    assert len(found) == found.searched == len(index) == len(rows) > 20
    assert_allclose([hit.score for hit in found], [scores[number] for number in expected], atol=1e-6)
    assert [hit.text for hit in found][:5] == [rows[number]["text"] for number in expected][:5]
    records = [json.loads(line) for line in (documents / "b.jsonl").read_text().splitlines()]
    plain = (documents / "a.txt").read_text(encoding="utf-8-sig")
    for hit in found:
        if hit.document.endswith(".txt"):
            assert plain[hit.start : hit.end] == hit.text
            assert plain.count("\n", 0, hit.start) + 1 == hit.line
            assert hit.metadata == {"year": None, "old": None}
        elif hit.document.endswith(".jsonl"):
            record = records[hit.line - 1]
            assert record["body"][hit.start : hit.end] == hit.text
            assert hit.metadata == {"year": str(record["year"]), "old": str(record["old"]).lower()}
    several = index.search(["the deep bank", "homework"], top=3)
    assert [hit.text for hit in several[0]] == [hit.text for hit in found][:3]
    assert several.to_dicts()[3]["item"] == 1
    frame = found.to_pandas()
    assert list(frame["rank"]) == list(range(1, len(rows) + 1))
    assert {"score", "document", "start", "end", "text", "metadata.year"} <= set(frame.columns)


def test_only_new_and_changed_text_is_read(make, model, documents, monkeypatch):
    read = []
    plain = text_vectors.unit_vectors
    monkeypatch.setattr(text_vectors, "unit_vectors", lambda model, texts: read.extend(texts) or plain(model, texts))
    first = make()
    assert sorted(read) == sorted({row["text"] for row in passages_of(first)})  # equal passages once
    generation = first.manifest.generation
    read.clear()
    assert make().manifest.generation == generation  # nothing to do
    with (documents / "b.jsonl").open("a") as file:
        file.write(json.dumps({"body": "the river run", "year": 2001, "old": False}) + "\n")
    (documents / "d.txt").write_text("Turn in a bank.")
    (documents / "a.txt").unlink()
    second = make()
    assert sorted(read) == ["Turn in a bank.", "the river run"]
    fresh = make(out="fresh")
    assert passages_of(second) == passages_of(fresh)
    kept, new = (Generation.open(index.path) for index in (second, fresh))
    assert_allclose(kept.vectors.decode(slice(None), "float16"), new.vectors.decode(slice(None), "float16"), atol=2e-3)
    assert [path.name for path in second.path.iterdir() if path.is_dir()] == [second.manifest.generation]
    assert not [path for path in second.path.parent.iterdir() if path.name.endswith(".parts")]
    read.clear()
    (documents / "d.txt").touch()
    assert make().manifest.generation == second.manifest.generation  # another time, the same bytes
    shorter = {row["text"] for row in passages_of(make(passage=33, overlap=0))}
    assert set(read) == shorter - {row["text"] for row in passages_of(fresh)} != set()


def test_an_edit_that_keeps_size_and_time_is_seen_right_after_a_build(make, documents):
    index = make()
    path = documents / "b.jsonl"
    state = path.stat()
    path.write_text(path.read_text().replace("river", "water", 1))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert any("water" in row["text"] for row in passages_of(make()))
    assert index.manifest.passages == len(index)


def test_an_open_index_outlives_a_new_build(make, documents):
    index = make()
    before = [index.search("deep river", top=4, bm25=bm25).to_dicts() for bm25 in (False, True)]
    (documents / "a.txt").write_text("Another text.")
    assert len(make()) < len(index)
    after = [index.search("deep river", top=4, bm25=bm25).to_dicts() for bm25 in (False, True)]
    assert after == before


def test_other_kinds_of_vectors_are_made_from_stored_ones(make, monkeypatch):
    make(dtype="float32")
    monkeypatch.setattr(text_vectors, "unit_vectors", None)  # the model is not asked
    for dtype in ("float16", "int8"):
        assert make(dtype=dtype).manifest.vectors.dtype == dtype
    with pytest.raises(TypeError):
        make(dtype="float32")  # which int8 cannot become


def test_filters_select_by_metadata_and_path(make):
    index = make()
    rows = passages_of(index)
    for where in ({"year": 1991}, {"year": ["1990", "1992"], "old": True}, {"year": None}):
        listed = {key: value if isinstance(value, list) else [value] for key, value in where.items()}
        wanted = {key: {None if v is None else str(v).lower() for v in values} for key, values in listed.items()}
        count = sum(all(row[f"metadata.{key}"] in values for key, values in wanted.items()) for row in rows)
        found = index.search("river", where=where, top=100)
        assert len(found) == found.searched == count > 0
        assert all(hit.metadata[key] in values for hit in found for key, values in wanted.items())
    jsonl = index.search("river", paths="*.jsonl", top=100)
    assert {Path(hit.document).name for hit in jsonl} == {"b.jsonl"}
    everything = index.search("river", top=1000)
    assert [hit.text for hit in everything if hit.document.endswith("jsonl")] == [hit.text for hit in jsonl]
    with pytest.raises(UsageError, match="no metadata column 'yaer'; did you mean year"):
        index.search("river", where={"yaer": 1})
    with pytest.raises(DataError, match=r"no passage of .* check --where and --path"):
        index.search("river", where={"year": 1800})


def test_one_document_equal_texts_and_empty_files(model, tmp_path):
    only = tmp_path / "one.txt"
    only.write_text("The river.")
    index = lv.index_documents(only, out=tmp_path / "one", model=model)
    assert [(hit.start, hit.end, hit.text) for hit in index.search("river")] == [(0, 10, "The river.")]
    folder = tmp_path / "equal"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_text("The river.")
    (folder / "empty.txt").write_text(" \n\n ")
    found = lv.index_documents(folder, out=tmp_path / "five", model=model).search("bank", top=3)
    assert [Path(hit.document).name for hit in found] == ["0.txt", "1.txt", "2.txt"]  # equal scores: in order
    assert len({hit.score for hit in found}) == 1
    with pytest.raises(DataError, match=r"hold no text to index .*1 blank"):
        lv.index_documents(folder / "empty.txt", out=tmp_path / "none", model=model)
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError, match="the query is empty"):
        index.search("  ")
    with pytest.raises(UsageError, match="search has no setting 'topp'"):
        index.search("a", topp=1)


def test_blocks_and_filters_do_not_change_what_is_found(monkeypatch):
    random = np.random.default_rng(1)
    x = random.normal(size=(300, 8)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[200:220] = x[100:120]  # equal ones
    stored = StoredVectors(StoredVectors.encode(x, ["float32"]), ["float32"], 8)
    queries = x[[3, 105]]
    for allowed in (None, random.random(300) < 0.05, random.random(300) < 0.6):
        inside = np.arange(300) if allowed is None else np.flatnonzero(allowed)
        exact = x[inside].astype(np.float64) @ queries.T.astype(np.float64)
        for numbers in (8 * 7, 8 * 300):
            monkeypatch.setattr("larvatus.inference.search.storage.NUMBERS", numbers)
            for place, found in enumerate(nearest_vectors(stored, queries, top=9, candidates=9, allowed=allowed)):
                order = np.lexsort((inside, -np.round(exact[:, place], 9)))[:9]
                assert found.rows.tolist() == inside[order].tolist()
                assert_allclose(found.scores, exact[order, place], atol=1e-6)
    assert first_of_largest(np.array([2.0, 1.0, 2.0, 2.0]), 2).tolist() == [0, 2]


def test_the_command(documents, tiny_directory, tmp_path, capsys):
    def larvatus(*words):
        with pytest.raises(SystemExit) as ended:
            run(["search", *map(str, words)])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return ended.value.code, said.out, said.err

    index = tmp_path / "index"
    options = ("--metadata", "year", "--text", "body", "--passage", 64, "--overlap", 32)
    code, said, complaint = larvatus("build", documents, "--out", index, "--model", tiny_directory, *options)
    assert (code, "files: 3 added" in said) == (0, True), complaint
    code, said, _ = larvatus("build", documents, "--out", index, *options, "--json")  # the model is that of the index
    assert (code, json.loads(said)["unchanged"], json.loads(said)["embedded"]) == (0, 3, 0)
    code, said, _ = larvatus("the river", "--index", index, "--top", 2, "--json")
    expected = lv.Index.open(index).search("the river", top=2)
    assert (code, json.loads(said)) == (0, json.loads(json.dumps(expected.to_dict())))
    code, said, _ = larvatus("the river", "--index", index, "--where", "year=1991", "--path", "*.jsonl")
    assert (code, "b.jsonl" in said, "a.txt" in said) == (0, True, False)
    out = tmp_path / "found.csv"
    assert larvatus("the river", "homework", "--index", index, "--top", 3, "--out", out)[0] == 0
    assert len(out.read_text().splitlines()) >= 7
    (documents / "b.jsonl").write_text('{"body": "new", "year": 1}\n')
    code, said, noted = larvatus("the river", "--index", index, "--where", "year=1991")
    assert (code, "b.jsonl has changed since it was indexed" in noted) == (0, True)
    assert larvatus("the river", "--index", index, "--where", "1991")[0] == 2
