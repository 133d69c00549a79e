"""A corpus becomes one file of vectors, in bounded memory; killed and resumed, it ends as the same file."""

from __future__ import annotations

import functools
import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors import safe_open

from larvatus.data.text.words import sentence_spans
from larvatus.inference.model import load
from larvatus.inference.vectors import bulk
from tests import warm

COLUMNS = ["document", "source", "line", "unit", "start", "end", "text", "vector"]


@pytest.fixture(scope="module")
def corpus(prose, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    documents = [" ".join(text.split())[:900] for text in prose[:6]]
    path.write_text("\n\n".join([*documents, "a \u0301 river."]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def larvatus(larvatus, monkeypatch):
    """With small parts."""
    monkeypatch.setattr(bulk, "CHARACTERS", 400)
    return functools.partial(larvatus, "embed")


def test_every_format_holds_the_same_words_with_their_places(larvatus, directory, corpus, tmp_path) -> None:
    for suffix in ("parquet", "arrow", "safetensors", "npy"):
        out = tmp_path / f"v.{suffix}"
        code, said, _ = larvatus(corpus, "--model", directory, "--unit", "word", "--layers", "last2", "--out", out)
        assert code == 0
        assert "7 documents" in said
        assert "1 words have none" in said
        assert not out.with_name(out.name + ".parts").exists()
    table = pq.read_table(tmp_path / "v.parquet")
    assert table.column_names == COLUMNS
    assert json.loads(table.schema.metadata[b"larvatus"])["layers"] == "last2"
    documents = corpus.read_text(encoding="utf-8").strip().split("\n\n")
    expected = load(directory).vectors(documents, unit="word", layers="last2")
    rows = table.drop_columns(["vector"]).to_pylist()
    assert rows == [
        {"document": n, "source": str(corpus), "line": 2 * n + 1, "unit": k, "start": a, "end": b, "text": word}
        for n, found in enumerate(expected)
        for k, ((a, b), word) in enumerate(zip(found.spans.tolist(), found.units, strict=True))
    ]
    matrix = np.concatenate([found.vectors for found in expected])
    vectors = table["vector"].to_pylist()
    assert [index for index, vector in enumerate(vectors) if vector is None] == np.flatnonzero(
        np.isnan(matrix[:, 0])
    ).tolist()
    plain = np.array([np.full(16, np.nan) if vector is None else vector for vector in vectors])
    assert_allclose(plain, matrix, atol=1e-5)
    with pa.memory_map(str(tmp_path / "v.arrow")) as file:
        assert pa.ipc.open_file(file).read_all().equals(table)
    assert np.array_equal(np.load(tmp_path / "v.npy"), plain.astype(np.float32), equal_nan=True)
    with safe_open(tmp_path / "v.safetensors", "numpy") as file:
        assert np.array_equal(file.get_tensor("vectors"), plain.astype(np.float32), equal_nan=True)
        for name in ("document", "line", "unit", "start", "end"):
            assert np.array_equal(file.get_tensor(name), table[name].to_numpy())
        names = json.loads(file.metadata()["sources"])
        assert [names[index] for index in file.get_tensor("source")] == table["source"].to_pylist()


def test_sentences_of_documents_are_read_one_by_one(larvatus, directory, corpus, tmp_path) -> None:
    out = tmp_path / "v.parquet"
    code, said, _ = larvatus(corpus, "--model", directory, "--out", out, "--dtype", "float16", "--normalise", "--json")
    assert code == 0
    summary = json.loads(said)
    table = pq.read_table(out)
    documents = corpus.read_text(encoding="utf-8").strip().split("\n\n")
    spans = [(n, *span) for n, text in enumerate(documents) for span in sentence_spans(text)]
    assert list(zip(*(table[name].to_pylist() for name in ("document", "start", "end")), strict=True)) == spans
    texts = [documents[n][start:end] for n, start, end in spans]
    assert table["text"].to_pylist() == texts
    assert table.schema.field("vector").type == pa.list_(pa.float16(), 16)
    expected = np.stack(load(directory).embed(texts, unit="sentence", normalise=True))
    assert_allclose(np.array(table["vector"].to_pylist(), dtype=np.float32), expected, atol=1e-3)
    assert (summary["stand"]["units"], summary["stand"]["documents"], summary["size"]) == (len(spans), 7, 16)


@pytest.mark.proof
def test_a_killed_run_resumed_ends_with_the_same_bytes(larvatus, directory, corpus, tmp_path) -> None:
    torch.set_num_threads(1)
    common = [corpus, "--model", directory, "--unit", "word"]
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    assert larvatus(*common, "--out", whole)[0] == 0
    steps = "12,13,4"  # each time further: what stands is not computed again
    command = [
        sys.executable,
        "-m",
        "tests.inference.vectors.killed_embed",
        steps,
        "embed",
        *common,
        "--out",
        killed,
        "--resume",
    ]
    ended = warm.run([str(part) for part in command], capture_output=True)
    assert ended.returncode == 0, ended.stderr
    stood = [int(line) for line in ended.stdout.split()]
    assert len(stood) == 3
    assert stood == sorted(stood)
    assert stood[0] >= 1
    code, _, complaint = larvatus(*common, "--out", killed)
    assert code == 5
    assert complaint.endswith("holds an unfinished run; continue with --resume, or remove it to start again")
    code, _, complaint = larvatus(*common, "--out", killed, "--resume", "--layers", "1")
    assert code == 5
    assert "begun with other settings (layers: 'last' → '1')" in complaint
    code, said, _ = larvatus(*common, "--out", killed, "--resume")
    assert code == 0
    assert "written before the interruption" in said
    assert killed.read_bytes() == whole.read_bytes()
    assert not Path(f"{killed}.parts").exists()


def test_memory_holds_a_block_not_the_corpus(larvatus, directory, corpus, tmp_path, monkeypatch) -> None:
    sizes = []
    real = bulk.embed_texts

    def watched(encoder, tokenizer, texts, options, **more):
        sizes.append(sum(map(len, texts)))
        return real(encoder, tokenizer, texts, options, **more)

    monkeypatch.setattr(bulk, "embed_texts", watched)
    assert larvatus(corpus, "--model", directory, "--out", tmp_path / "v.npy")[0] == 0
    longest = max(len(line) for line in corpus.read_text(encoding="utf-8").splitlines())
    assert len(sizes) > 5
    assert max(sizes) < 400 + longest


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--out", "v.csv"], 2, "names no known format; end it in .parquet, .arrow, .safetensors, .npy"),
        (["--out", "v.npy", "--layers", "all"], 2, "layers = all gives several; name one layer or a mix"),
        (["--out", "v.npy", "--layers", "9"], 2, "there is no layer 9"),
        (["--out", "v.npy", "--pool", "cls", "--unit", "word"], 2, "a word cannot be pooled by 'cls'"),
        (["--out", "there.npy"], 5, "is there already; choose another name, or replace it with --overwrite"),
        (["--out", "v.npy", "--unit", "span"], 4, "prose.txt:1: no word is marked in"),
    ],
)
def test_bad_requests_are_one_line(larvatus, directory, corpus, tmp_path, monkeypatch, more, code, said) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.npy").write_bytes(b"")
    got, _, complaint = larvatus(corpus, "--model", directory, *more)
    assert (got, said in complaint, "\n" in complaint) == (code, True, False), complaint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.npy"]


def test_bad_text_is_one_line_and_leaves_nothing(larvatus, directory, tmp_path) -> None:
    bad, blank = tmp_path / "bad.txt", tmp_path / "blank.txt"
    bad.write_bytes(b"fine\n\n\xff\n")
    blank.write_text(" \n\n")
    code, _, complaint = larvatus(bad, "--model", directory, "--out", tmp_path / "v.npy")
    assert code == 4
    assert "bad.txt:3: byte 0xff" in complaint
    code, _, complaint = larvatus(blank, "--model", directory, "--out", tmp_path / "v.npy")
    assert code == 4
    assert "no text to embed" in complaint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt", "blank.txt"]


def test_standard_input_is_embedded_and_cannot_be_resumed(larvatus, directory, tmp_path, monkeypatch) -> None:
    out = tmp_path / "v.npy"
    common = ["-", "--model", directory, "--unit", "document", "--out", out]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a river\n\nanother one\n")))
    assert larvatus(*common)[0] == 0
    assert_allclose(np.load(out), np.stack(load(directory).embed(["a river", "another one"])), atol=1e-5)
    out.unlink()
    code, _, complaint = larvatus(*common, "--resume")
    assert (code, "only local files and addresses can be resumed" in complaint) == (2, True)
