"""BM25, fusion, quantised vectors, graphs and reranking, each against a naive loop or a library of others."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import larvatus as lv
from larvatus.core.errors import ArtefactError, NumericsError, UsageError
from larvatus.inference.search import lexical
from larvatus.inference.search import storage as quantised
from larvatus.inference.search.lexical import K1, B, LexicalIndex, words_of, write_lexical
from larvatus.inference.search.nearest import Matches, VectorGraph, fuse, nearest_vectors, write_graph
from larvatus.inference.search.storage import StoredVectors, VectorFormat, half_products, sign_bits, to_int8
from larvatus.models.heads.sequence_score import RerankingConfig

TEXTS = [
    "The bank of the river was deep.",
    "the bank lent money; the Bank closed",
    "",
    "A wide river, a deep river!",
    "山を見た bank",
    "Homework.",
]


def naive_bm25(texts, query):
    """The equation, term by term."""
    listed = [words_of(text) for text in texts]
    mean = sum(map(len, listed)) / len(listed)
    scores = []
    for words in listed:
        score = 0.0
        for word in words_of(query):
            n = sum(word in other for other in listed)
            if n:
                tf = words.count(word)
                idf = math.log(1 + (len(listed) - n + 0.5) / (n + 0.5))
                score += idf * tf / (tf + K1 * (1 - B + B * len(words) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("block", [3, lexical.BLOCK])
@pytest.mark.parametrize("query", ["the deep bank", "bank bank river", "山", "nothing here", "Homework!"])
def test_bm25_is_the_equation(tmp_path, monkeypatch, block, query):
    monkeypatch.setattr(lexical, "BLOCK", block)
    write_lexical(tmp_path, iter(TEXTS))
    index = LexicalIndex.open(tmp_path, len(TEXTS))
    expected = naive_bm25(TEXTS, query)
    assert_allclose(index.scores(query), expected, rtol=1e-6)
    found = index.search(query, top=3)
    order = [row for row in np.lexsort((range(len(TEXTS)), -np.array(expected))) if expected[row] > 0][:3]
    assert found.rows.tolist() == order
    allowed = np.array([False, True, True, True, True, False])
    assert found.rows.tolist() == order
    assert set(index.search(query, top=9, allowed=allowed).rows.tolist()) == {
        r for r in range(6) if expected[r] and allowed[r]
    }


def test_bm25_equals_the_library_bm25s(tmp_path):
    bm25s = pytest.importorskip("bm25s")
    write_lexical(tmp_path, iter(TEXTS))
    peer = bm25s.BM25(method="lucene", k1=K1, b=B)
    peer.index([words_of(text) for text in TEXTS], show_progress=False)
    for query in ("the deep bank", "river"):
        assert_allclose(
            LexicalIndex.open(tmp_path, len(TEXTS)).scores(query), peer.get_scores(words_of(query)), rtol=1e-5
        )


def test_words_that_do_not_fit_their_postings_are_refused(tmp_path):
    write_lexical(tmp_path, iter(TEXTS))
    (tmp_path / lexical.WORDS).write_text("one\n")
    with pytest.raises(ArtefactError, match=r"postings.starts.npy"):
        LexicalIndex.open(tmp_path, len(TEXTS))


@given(st.lists(st.lists(st.integers(0, 12), unique=True, max_size=8), min_size=1, max_size=3))
def test_fusion_is_the_sum_of_reciprocal_ranks(rankings):
    sums: Counter[int] = Counter()
    for rows in rankings:
        for rank, row in enumerate(rows, start=1):
            sums[row] += 1 / (60 + rank)
    expected = sorted(sums, key=lambda row: (-round(sums[row], 12), row))
    given_rankings = [Matches(np.array(rows, dtype=np.int64), np.zeros(len(rows))) for rows in rankings]
    found = fuse(given_rankings, top=20)
    assert_allclose(found.scores, [sums[row] for row in expected])
    assert sorted(found.rows.tolist()) == sorted(expected)


def vectors(count=400, size=70, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_int8_is_off_by_half_a_step_and_bits_are_signs():
    x = np.concatenate([vectors(), np.zeros((1, 70), np.float32)])
    codes, scales = to_int8(x)
    assert np.abs(codes).max() == 127
    assert (np.abs(codes * scales[:, None].astype(np.float64) - x) <= scales[:, None] / 2 * 1.001).all()
    bits = sign_bits(x)
    assert bits.shape == (401, 2)
    unpacked = np.unpackbits(bits.view(np.uint8), axis=1)[:, :70]
    assert_array_equal(unpacked, (x > 0).astype(np.uint8))
    stored = StoredVectors(StoredVectors.encode(x, ["binary"]), ["binary"], 70)
    agreement = ((x[:5, None] > 0) == (x[None] > 0)).mean(axis=2) * 2 - 1
    assert_allclose(stored.scores(slice(None), x[:5]), agreement, atol=1e-6)


@pytest.mark.parametrize(
    ("kinds", "recall", "error"),
    [
        (("float16",), 1.0, 1e-3),
        (("int8",), 0.9, 3e-3),
        (("int8", "float16"), 1.0, 1e-3),
        (("binary", "int8"), 0.9, 3e-3),
    ],
)
def test_quantised_search_finds_nearly_what_exact_search_finds(kinds, recall, error):
    x = vectors(2_000)
    queries = vectors(8, seed=1)
    exact = x.astype(np.float64) @ queries.T.astype(np.float64)
    stored = StoredVectors(StoredVectors.encode(x, kinds), kinds, 70)
    found = nearest_vectors(stored, queries, top=10, candidates=400)
    hits = [len(set(each.rows) & set(np.argsort(-exact[:, q])[:10])) for q, each in enumerate(found)]
    assert sum(hits) / 80 >= recall
    for q, each in enumerate(found):
        assert_allclose(each.scores, exact[each.rows, q], atol=error)


@pytest.mark.parametrize("size", [1, 70, 384])
def test_products_of_half_precision_are_those_of_float64(size):
    pytest.importorskip("numkong")
    x, queries = vectors(60, size).astype(np.float16), vectors(7, size, seed=3)
    exact = queries.astype(np.float64) @ x.astype(np.float64).T
    assert_allclose(half_products(x, queries), exact, rtol=0, atol=3e-7)
    rounded = queries.astype(np.float16).astype(np.float64) @ x.astype(np.float64).T
    assert np.abs(rounded - exact).max() > 1e-5 or size == 1, "a query that is only rounded would pass too"


def test_half_precision_is_searched_alike_with_and_without_the_library(monkeypatch):
    pytest.importorskip("numkong")
    monkeypatch.setattr(quantised, "FEWER_BITS", 70 * 96)
    x = np.concatenate([vectors(), vectors()[:50]])  # the last 50 equal the first
    stored, queries = StoredVectors(StoredVectors.encode(x, ["float16"]), ["float16"], 70), vectors(70, seed=1)
    exact = queries.astype(np.float64) @ x.astype(np.float16).astype(np.float64).T
    for allowed in (None, np.arange(450) % 3 > 0, np.arange(450) % 16 == 0):
        by_library = nearest_vectors(stored, queries, top=9, candidates=9, allowed=allowed)
        with monkeypatch.context() as without:
            without.setattr(quantised, "has_half_products", lambda: False)
            by_torch = nearest_vectors(stored, queries, top=9, candidates=9, allowed=allowed)
        for scores, fast, slow in zip(exact, by_library, by_torch, strict=True):
            assert_array_equal(fast.rows, slow.rows)
            assert_array_equal(fast.scores, slow.scores)
            kept = np.arange(450) if allowed is None else np.flatnonzero(allowed)
            best = kept[np.lexsort((kept, -scores[kept].round(12)))][:9]
            assert_array_equal(fast.rows, best)


def test_formats_that_make_no_sense_are_refused():
    assert VectorFormat(dtype="binary").kinds == ("binary", "int8")
    assert VectorFormat(dtype="binary", rescore="none").kinds == ("binary",)
    assert VectorFormat(dtype="int8", rescore="float16").kinds == ("int8", "float16")
    with pytest.raises(UsageError, match="--rescore is for int8 and binary"):
        VectorFormat(dtype="float16", rescore="int8")
    with pytest.raises(UsageError, match="cannot be rescored with themselves"):
        VectorFormat(dtype="int8", rescore="int8")


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_a_graph_finds_nearly_all_neighbours(tmp_path, kind):
    pytest.importorskip("usearch")
    x, queries = vectors(1_000), vectors(10, seed=2)
    stored = StoredVectors(StoredVectors.encode(x, [kind]), [kind], 70)
    write_graph(tmp_path, stored, threads=1)
    found = VectorGraph.open(tmp_path, stored).search(queries, top=10, candidates=100)
    exact = nearest_vectors(stored, queries, top=10, candidates=10)
    same = [len(set(a.rows) & set(b.rows)) for a, b in zip(found, exact, strict=True)]
    assert sum(same) >= 95
    for near, best in zip(found, exact, strict=True):
        shared = np.isin(near.rows, best.rows)
        assert_allclose(near.scores[shared], best.scores[np.isin(best.rows, near.rows)], atol=1e-6)
    (tmp_path / "graph.usearch").write_bytes(b"no graph")
    with pytest.raises(ArtefactError, match=r"graph.usearch cannot be read"):
        VectorGraph.open(tmp_path, stored)


def test_one_thread_always_builds_the_same_graph(tmp_path):
    pytest.importorskip("usearch")
    stored = StoredVectors(StoredVectors.encode(vectors(), ["float16"]), ["float16"], 70)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_graph(tmp_path / name, stored, threads=1)
    first, second = ((tmp_path / name / "graph.usearch").read_bytes() for name in ("first", "second"))
    assert first == second


@pytest.fixture(scope="module")
def index(tmp_path_factory, tiny_directory):
    folder = tmp_path_factory.mktemp("search")
    rows = [{"text": f"The bank was deep. Number {n}."} for n in range(30)] + [{"text": "Homework, please: xylophone."}]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = lv.load(tiny_directory, device="cpu")
    return lv.index_documents(folder / "rows.jsonl", out=folder / "index", model=model, dtype="binary")


def test_hybrid_search_fuses_meaning_and_words(index):
    by_words = index.search("xylophone number 7", bm25=True, top=3)
    assert [hit.line for hit in by_words][:2] == [31, 8]
    depth = {"candidates": 31, "top": 31}
    rankings = [[hit.line for hit in index.search("xylophone number 7", bm25=bm25, **depth)] for bm25 in (False, True)]
    sums = Counter(dict.fromkeys(range(1, 32), 0.0))
    for ranking in rankings:
        for rank, line in enumerate(ranking, start=1):
            sums[line] += 1 / (60 + rank)
    fused = index.search("xylophone number 7", hybrid=True, **depth)
    assert [hit.line for hit in fused] == sorted(sums, key=lambda line: (-round(sums[line], 12), line))
    assert_allclose([hit.score for hit in fused], sorted(sums.values(), reverse=True))
    assert not index.search("zzz", bm25=True).hits
    with pytest.raises(UsageError, match="--bm25 ranks by words only"):
        index.search("a", bm25=True, hybrid=True)


class ByNumber:
    """A reranker that likes large numbers."""

    def score(self, query, passages):
        return [float("".join(c for c in passage if c.isdigit()) or -1) for passage in passages]


class Broken(ByNumber):
    def score(self, query, passages):
        return [math.nan] * len(passages)


def test_a_reranker_orders_the_candidates(index, tiny_directory):
    hits = index.search("deep bank", rerank=ByNumber(), top=3)
    assert [hit.score for hit in hits] == [29.0, 28.0, 27.0]
    few = index.search("deep bank", rerank=ByNumber(), top=2, candidates=5)
    first = index.search("deep bank", top=5)
    assert {hit.line for hit in few} <= {hit.line for hit in first}
    with pytest.raises(NumericsError, match="reranker is not finite"):
        index.search("deep bank", rerank=Broken())
    with pytest.raises(UsageError, match="is a model for no task, and reranking needs one for rerank"):
        index.search("deep bank", rerank=tiny_directory)


def test_a_reranking_model_orders_the_candidates_as_it_ranks_them(index, tmp_path, tiny_model, save_tiny):
    config = RerankingConfig()
    directory = save_tiny(tmp_path / "ranker", tiny_model(seed=5, objectives=(config,)), (config,))
    first = index.search("deep bank", bm25=True, top=9)
    hits = index.search("deep bank", bm25=True, rerank=directory, top=4, candidates=9)
    ranked = lv.load(directory, device="cpu").rerank("deep bank", [hit.text for hit in first])
    assert_allclose([hit.score for hit in hits], [row.score for row in ranked][:4], atol=1e-6)
    assert {hit.line for hit in hits} <= {hit.line for hit in first}


def test_what_an_index_lacks_is_named(index, tmp_path):
    documents = Path(index.path).parent / "rows.jsonl"
    plain = lv.index_documents(documents, out=tmp_path / "plain", model=index.model, bm25=False)
    with pytest.raises(UsageError, match="has no words for --hybrid and --bm25"):
        plain.search("bank", hybrid=True)
    pytest.importorskip("usearch")
    with pytest.raises(UsageError, match="--hnsw is for float32, float16 and int8"):
        lv.index_documents(documents, out=tmp_path / "graph", model=index.model, dtype="binary", hnsw=True)
    graph = lv.index_documents(documents, out=tmp_path / "plain", model=index.model, hnsw=True)
    near, exact = (graph.search("bank number", top=5, exact=exact) for exact in (False, True))
    assert_allclose([hit.score for hit in near], [hit.score for hit in exact], atol=1e-6)
