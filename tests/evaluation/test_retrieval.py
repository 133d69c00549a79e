"""Retrieval collections in three formats, and scores against `pytrec_eval` (with its numbers where it is missing)."""

from __future__ import annotations

import json

import pytest

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.retrieval_sets import read_collection, read_judgements, read_texts
from larvatus.evaluation.retrieval import evaluate_retrieval, index_collection, score_ranking
from larvatus.inference.search.sources import PassageSettings

DOCUMENTS = {"d1": "The bank was deep.", "d2": "A wide river.", "d3": "Homework, please.", "d4": "The river bank. " * 9}
QUERIES = {"q1": "deep bank", "q2": "river", "q3": "unjudged"}
GRADES = {"q1": {"d1": 2.0, "d4": 1.0}, "q2": {"d2": 1.0}}
SMART = (
    ".I d1\n.T\nThe bank\n.A\nSomebody\n.W\nwas\n  deep.\n.X\n1\t5\t1\n.I d2\n.W\nA wide river.\n",
    " 1  28\t0\t0.000000\n",
)


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": id, "title": "", "text": text} for id, text in DOCUMENTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": i, "text": q}) + "\n" for i, q in QUERIES.items()))
    lines = [f"{query}\t{document}\t{grade:.0f}" for query, held in GRADES.items() for document, grade in held.items()]
    table = "\n".join(["query-id\tcorpus-id\tscore", *lines, "q1\td3\t0"])
    (folder / "qrels" / "test.tsv").write_text(table + "\n")
    return folder


def test_three_formats_say_the_same(beir, tmp_path):
    collection = read_collection(beir)
    assert (collection.documents, collection.queries, collection.judgements) == (DOCUMENTS, QUERIES, GRADES)
    assert collection.judged == ["q1", "q2"]
    for name, content in zip(("all", "rel"), SMART, strict=True):
        (tmp_path / name).write_text(content)
    assert read_texts(str(tmp_path / "all")) == {"d1": "The bank was deep.", "d2": "A wide river."}
    assert read_judgements(str(tmp_path / "rel")) == {"1": {"28": 1.0}}
    (tmp_path / "trec").write_text("q1 0 d1 2\nq1 0 d3 0\nq1 0 d4 1\nq2 0 d2 1\n")
    assert read_judgements(str(tmp_path / "trec")) == GRADES


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("corpus.jsonl", "", "is empty"),
        ("corpus.jsonl", '{"id": 1}\n', 'corpus.jsonl:1: no record {"_id"'),
        ("corpus.jsonl", '{"_id": 1, "text": "a"}\n{"_id": 1, "text": "b"}\n', "occurs twice"),
        ("qrels/test.tsv", "a b\n", "has no rows of 3 or 4 columns"),
        ("qrels/test.tsv", "q1 0 d1 1\nq1 0 d2 much\n", "'much' is no grade"),
        ("qrels/test.tsv", "q9 0 d1 1\n", "no judgement of one of its queries"),
    ],
)
def test_what_is_no_collection_is_named(beir, name, content, said):
    (beir / name).write_text(content)
    with pytest.raises(DataError) as caught:
        read_collection(beir)
    assert said in str(caught.value)


def test_a_collection_needs_all_its_files(beir):
    (beir / "queries.jsonl").unlink()
    with pytest.raises(DataError, match=r"holds no queries.jsonl"):
        read_collection(beir)
    with pytest.raises(UsageError, match="name a BEIR folder, or documents with --queries"):
        read_collection(beir / "corpus.jsonl")


RANKED = ["d3", "d1", "d7", "d4", "d9"]
RELEVANT = {"d1": 2.0, "d4": 1.0, "d8": 3.0}
GOLDEN = {"nDCG@10": 0.35543595, "MRR@10": 0.5, "recall@10": 2 / 3, "recall@100": 2 / 3, "MAP": 1 / 3}
"""pytrec_eval 0.5.11: ndcg_cut_10, recip_rank, recall_10, recall_100, map."""


def test_scores_are_those_of_trec_eval():
    assert score_ranking(RANKED, RELEVANT) == pytest.approx(GOLDEN, abs=1e-7)


def test_golden_scores_are_those_of_the_library():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    names = {"ndcg_cut.10": "nDCG@10", "recip_rank": "MRR@10", "recall.10,100": "", "map": "MAP"}
    judge = pytrec_eval.RelevanceEvaluator(
        {"q": {document: int(grade) for document, grade in RELEVANT.items()}}, set(names)
    )
    found = judge.evaluate({"q": {document: float(-place) for place, document in enumerate(RANKED)}})["q"]
    ours = {"ndcg_cut_10": "nDCG@10", "recip_rank": "MRR@10", "recall_10": "recall@10", "recall_100": "recall@100"}
    assert {name: found[key] for key, name in {**ours, "map": "MAP"}.items()} == pytest.approx(GOLDEN, abs=1e-7)


def test_an_index_is_evaluated_by_documents(beir, tiny_directory, tmp_path, larvatus):
    model = lv.load(tiny_directory, device="cpu")
    collection = read_collection(beir)
    cut = PassageSettings(passage=40, overlap=0)
    index = index_collection(model, collection, tmp_path / "made", passages=cut)
    assert len(index) > len(DOCUMENTS)  # a long document has several passages, and is ranked once
    result = evaluate_retrieval(index, collection, bm25=True)
    assert set(result.by_query) == {"q1", "q2"}
    for query, grades in GRADES.items():
        best = {}
        for hit in index.search(QUERIES[query], bm25=True, top=len(index)):
            best.setdefault(hit.metadata["id"], hit.score)
        expected = score_ranking(sorted(best, key=lambda id: -best[id]), grades)
        assert result.by_query[query] == pytest.approx(expected)
    score = result.scores["nDCG@10"]
    assert score.value == pytest.approx(sum(each["nDCG@10"] for each in result.by_query.values()) / 2)
    assert score.low <= score.value <= score.high
    code, said, complaint = larvatus(
        *("search", "evaluate", beir, "--model", tiny_directory, "--device", "cpu", "--bm25", "--json"),
        *("--passage", 40, "--overlap", 0),
    )
    assert code == 0, complaint
    assert json.loads(said)["scores"] == json.loads(json.dumps(result.to_dicts()))
    plain = lv.index_documents(beir / "corpus.jsonl", out=tmp_path / "plain", model=model)
    with pytest.raises(DataError, match="does not hold the ids of its documents"):
        evaluate_retrieval(plain, collection)


class ByLength:
    """A reranker that likes long passages, and remembers how many it read."""

    def __init__(self):
        self.read = []

    def score(self, query, passages):
        self.read.append(len(passages))
        return [float(len(passage)) for passage in passages]


def test_a_reranker_reads_the_candidates_and_no_more(beir, tmp_path, tiny_directory):
    collection = read_collection(beir)
    index = index_collection(lv.load(tiny_directory, device="cpu"), collection, tmp_path / "index")
    reranker = ByLength()
    result = evaluate_retrieval(index, collection, bm25=True, rerank=reranker, candidates=2)
    assert max(reranker.read) == 2
    assert result.by_query["q1"]["MRR@10"] == 1.0
    longest = evaluate_retrieval(index, collection, rerank=ByLength())  # all four, the longest first
    assert longest.by_query["q1"] == score_ranking(["d4", "d1", "d3", "d2"], GRADES["q1"])
