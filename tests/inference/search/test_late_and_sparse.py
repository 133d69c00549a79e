"""Indexes of token vectors and sparse vectors, against scores computed one by one: results, updates, damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import larvatus as lv
from larvatus.core.errors import ArtefactError, NumericsError, UsageError
from larvatus.data.labelled.retrieval_sets import read_collection
from larvatus.evaluation.retrieval import evaluate_retrieval, index_collection
from larvatus.inference.search import late_index, sparse_index, text_vectors
from larvatus.inference.search.generation import Generation
from larvatus.inference.search.late_index import decode_tokens, encode_tokens
from larvatus.inference.search.storage import RECORDS, RaggedRecords, token_record, write_records
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig, LateInteractionConfig
from larvatus.models.heads.sparse import SparseConfig

HEADS = {"late": LateInteractionConfig(size=8), "sparse": SparseConfig()}
WORDS = ["the", "a", "river", "bank", "was", "wide", "deep", "and", "turn", "your", "homework", "in", "please"]
QUERY = "the deep bank"


@pytest.fixture(scope="module", params=HEADS)
def model(request, tiny_directory, save_tiny, tmp_path_factory):
    made, _ = attach_head(load_bundle(tiny_directory), HEADS[request.param], seed=1)
    return lv.load(
        save_tiny(tmp_path_factory.mktemp(request.param) / "model", made.network, made.objectives), device="cpu"
    )


@pytest.fixture
def documents(tmp_path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        lines = [" ".join(random.choice(WORDS, size=random.integers(3, 9))) + f" {n}." for n in range(12)]
        rows = [{"text": line, "year": n % 3} for n, line in enumerate(lines)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def make(model, documents, tmp_path):
    def index(out="index", **settings):
        return lv.index_documents(documents, out=tmp_path / out, model=model, metadata=["year"], **settings)

    return index


def naive_scores(model, query, texts):
    """From what the model predicts for each text."""
    asked, given = model.predict(query), model.predict(texts)
    if hasattr(asked, "weights"):
        return [sum(w * d.weights.get(token, 0.0) for token, w in asked.weights.items()) for d in given]
    return [sum(max(float(i @ j) for j in d.vectors.astype(np.float64)) for i in asked.vectors) for d in given]


def texts_of(index):
    return Generation.open(index.path).passages["text"].to_pylist()


def test_results_are_the_best_by_a_naive_loop(make, model):
    index = make()
    texts = texts_of(index)
    assert len(texts) == len(index) == 24
    scores = dict(zip(texts, naive_scores(model, QUERY, texts), strict=True))
    found = index.search(QUERY, top=24)
    assert len(found) > 20
    close = {"atol": 0.05} if index.manifest.kind == "late" else {"rtol": 1e-5}  # eight bits for each number
    assert_allclose([hit.score for hit in found], [scores[hit.text] for hit in found], **close)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert found[0].text in sorted(texts, key=scores.__getitem__)[-3:]
    several = index.search([QUERY, "homework"], top=4)
    assert [hit.text for hit in several[0]] == [hit.text for hit in found][:4]
    assert index.manifest.kind in repr(index)
    assert {hit.metadata["year"] for hit in index.search(QUERY, where={"year": 1})} == {"1"}
    assert len(index.search(QUERY, hybrid=True, top=5)) == 5
    assert lv.Index.open(index.path, model=model).search(QUERY)[0].text == found[0].text


def test_small_blocks_change_nothing(make, monkeypatch):
    found = make().search([QUERY, "a river", "run"], top=7)
    for name, value in (("TOKENS", 5), ("PRODUCTS", 30)):
        monkeypatch.setattr(late_index, name, value)
    monkeypatch.setattr(sparse_index, "BLOCK", 7)
    again = make("again").search([QUERY, "a river", "run"], top=7)
    for one, other in zip(found, again, strict=True):
        assert [hit.text for hit in one] == [hit.text for hit in other]
        assert_allclose([hit.score for hit in one], [hit.score for hit in other], rtol=1e-5)


def test_a_large_collection_compares_candidates(make, monkeypatch):
    index = make()
    if index.manifest.kind == "sparse":
        pytest.skip("postings have no candidates")
    whole = index.search(QUERY, top=24)
    monkeypatch.setattr(late_index, "EXACT", 0)
    monkeypatch.setattr(late_index, "LEAST_CANDIDATES", 1)
    assert [hit.text for hit in index.search(QUERY, top=24)] == [hit.text for hit in whole]
    some = index.search(QUERY, top=6, candidates=6)
    assert len(some) == 6
    scores = {hit.text: hit.score for hit in whole}
    assert [hit.score for hit in some] == pytest.approx([scores[hit.text] for hit in some])  # the same MaxSim
    exact = index.search(QUERY, top=6, candidates=6, exact=True)
    assert [hit.text for hit in exact] == [hit.text for hit in whole][:6]
    assert {hit.metadata["year"] for hit in index.search(QUERY, top=3, where={"year": 2})} == {"2"}


def test_only_new_text_is_read_and_a_build_that_breaks_off_resumes(make, documents, monkeypatch, tmp_path):
    first = make()
    before = first.search(QUERY, top=20)
    path = documents / "b.jsonl"
    path.write_text(path.read_text() + json.dumps({"text": "a wide bank", "year": 9}) + "\n")
    read = []
    plain = text_vectors.encode_passages
    name = "larvatus.inference.search.build.encode_passages"

    def noted(model, texts, kinds):
        read.extend(texts)
        return plain(model, texts, kinds)

    with monkeypatch.context() as patch:
        patch.setattr(name, lambda *given: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises((OSError, ArtefactError)):
            make()
    assert [hit.text for hit in lv.Index.open(first.path).search(QUERY, top=20)] == [hit.text for hit in before]
    monkeypatch.setattr(name, noted)
    second = make()
    assert read == ["a wide bank"]
    fresh = make("fresh")
    for file in (RECORDS, "records.starts.npy"):
        folders = [index.path / index.manifest.generation for index in (second, fresh)]
        assert (folders[0] / file).read_bytes() == (folders[1] / file).read_bytes()
    assert [hit.text for hit in second.search(QUERY, top=25)] == [hit.text for hit in fresh.search(QUERY, top=25)]


def test_damaged_files_and_other_models_are_named(make, tiny_directory):
    index = make()
    folder = index.path / index.manifest.generation
    with pytest.raises(ArtefactError, match="was built with the model"):
        lv.Index.open(index.path, model=lv.load(tiny_directory))
    records = (folder / RECORDS).read_bytes()
    (folder / RECORDS).write_bytes(records[:-1] + bytes([records[-1] ^ 1]))
    with pytest.raises(ArtefactError, match=RECORDS):
        lv.Index.open(index.path)
    (folder / RECORDS).write_bytes(records[:-1])
    with pytest.raises(ArtefactError, match=RECORDS):
        lv.Index.open(index.path, verify=False)


def test_texts_without_tokens_and_numbers_that_are_none(make, model, documents, monkeypatch):
    (documents / "c.txt").write_text("\x7f")
    index = make()
    assert "\x7f" not in [hit.text for hit in index.search(QUERY, top=3)]
    plain = text_vectors.compared_texts

    def damaged(*given):
        texts = plain(*given)
        (texts.weights_N if hasattr(texts, "weights_N") else texts.vectors_NK)[0] = np.nan
        return texts

    monkeypatch.setattr(text_vectors, "compared_texts", damaged)
    with pytest.raises(NumericsError, match="is not finite; check the weights"):
        make("other")


def test_a_graph_is_for_vectors(make, model):
    if model.predict("run").__class__.__name__ == "TokenVectorText":
        pytest.skip("mean vectors have one")
    with pytest.raises(UsageError, match="needs no graph; leave out --hnsw"):
        make(hnsw=True)


def test_retrieval_is_evaluated_with_them(model, tmp_path):
    (tmp_path / "docs.jsonl").write_text(
        "".join(json.dumps({"_id": n, "title": "", "text": text}) + "\n" for n, text in enumerate(["the river", "run"]))
    )
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "the river"}) + "\n")
    (tmp_path / "qrels").write_text("q 0 0 1\n")
    collection = read_collection(
        str(tmp_path / "docs.jsonl"), queries=str(tmp_path / "queries.jsonl"), judgements=str(tmp_path / "qrels")
    )
    index = index_collection(model, collection, tmp_path / "index")
    assert evaluate_retrieval(index, collection).scores["MRR@10"].value in (0.5, 1.0)


def test_vectors_of_a_linear_layer_are_indexed_in_their_size(tiny_directory, save_tiny, documents, tmp_path):
    config = EmbeddingConfig(projections=(DenseProjection(size=6),), normalise=True)
    made, _ = attach_head(load_bundle(tiny_directory), config, seed=1)
    projected = lv.load(save_tiny(tmp_path / "model", made.network, made.objectives), device="cpu")
    index = lv.index_documents(documents, out=tmp_path / "index", model=projected, dtype="float32")
    assert index.manifest.size == 6
    hit = index.search(QUERY, top=1)[0]
    assert hit.score == pytest.approx(float(projected.embed(QUERY) @ projected.embed(hit.text)), abs=1e-5)


def test_stored_tokens_are_off_by_half_a_step(tmp_path):
    x = np.random.default_rng(0).normal(size=(7, 8)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    write_records(tmp_path, [[encode_tokens(x[:3]), encode_tokens(x[:0])], [encode_tokens(x[3:])]], 12)
    kept = RaggedRecords.open(tmp_path, token_record(8), 3)
    assert [run.counts.tolist() for run in kept.blocks(4)] == [[3, 0], [4]]
    steps = np.abs(x).max(1, keepdims=True) / 127
    assert (np.abs(decode_tokens(kept.records) - x) <= steps / 2 + 1e-6).all()
    assert_allclose(
        decode_tokens(kept.of(np.array([2, 0])).records), decode_tokens(kept.records)[[3, 4, 5, 6, 0, 1, 2]]
    )
    with pytest.raises(ArtefactError, match="does not fit the passages"):
        RaggedRecords.open(tmp_path, token_record(8), 4)
