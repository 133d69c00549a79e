"""Evaluation of vectors: each kind against scikit-learn, scipy and loops, its refusals, and the command."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, v_measure_score

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.retrieval_sets import RetrievalCollection
from larvatus.evaluation.retrieval import score_ranking
from larvatus.evaluation.vectors.evaluate import VectorRequest, evaluate_vectors
from larvatus.evaluation.vectors.measures import VectorTable, embed_distinct, rank_by_vectors, sample_shots, tf_idf

WORDS = ["river", "bank", "town", "water", "deep", "wide", "money", "loan", "rate", "credit", "house", "street"]
TOPICS = {"water": WORDS[:6], "money": WORDS[5:]}


class Bag:
    """A fake model: sums of random vectors of words, with an offset as real encoders have."""

    def __init__(self):
        random = np.random.default_rng(0)
        self.words = {word: random.normal(size=8) for word in WORDS}
        self.calls: list[str] = []

    def embed(self, texts):
        self.calls += texts
        return np.array(
            [3.0 + sum((self.words.get(w, np.zeros(8)) for w in text.split()), np.zeros(8)) for text in texts]
        )


def sentences(count, seed=0):
    """Texts with a topic each."""
    random = np.random.default_rng(seed)
    labels = [("water", "money")[number % 2] for number in range(count)]
    return [(" ".join(random.choice(TOPICS[label], 3)) + f" {seed}x{n}", label) for n, label in enumerate(labels)]


def pairs(count, seed=1):
    texts = [text for text, _ in sentences(2 * count, seed)]
    return list(zip(texts[:count], texts[count:], strict=True))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosines(rows):
    model = Bag()
    return (unit(model.embed([a for a, *_ in rows])) * unit(model.embed([b for _, b, *_ in rows]))).sum(1)


def run(**request):
    return evaluate_vectors(Bag(), VectorRequest(samples=50, **request))


def test_each_distinct_text_is_embedded_once():
    model = Bag()
    vectors = embed_distinct(model, ["river bank", "town", "river bank"])
    assert sorted(model.calls) == ["river bank", "town"]
    assert np.linalg.norm(vectors.of(["town", "town"]), axis=1) == pytest.approx(1.0)
    assert vectors.cosines(["town"], ["river bank"])[0] == pytest.approx(cosines([("town", "river bank")])[0])


def test_similarity_has_the_correlations_of_scipy():
    rows = [(a, b, float(score)) for (a, b), score in zip(pairs(40), np.random.default_rng(2).random(40), strict=True)]
    result = run(kind="sts", data=rows, baselines=True)
    scores = [score for *_, score in rows]
    assert result.metrics["spearman"].value == pytest.approx(spearmanr(cosines(rows), scores).statistic, abs=1e-6)
    assert result.metrics["pearson"].value == pytest.approx(pearsonr(cosines(rows), scores).statistic, abs=1e-6)
    assert all(low.low <= low.value <= low.high for low in result.metrics.values())
    assert set(result.systems) == {"model", "TF-IDF"}
    assert (result.unit, "40 pairs" in result.how) == ("pairs", True)


def test_rows_that_were_skipped_are_counted():
    rows = [*((a, b, f"{n}.5") for n, (a, b) in enumerate(pairs(5))), ("river", "bank", "")]
    with pytest.raises(DataError, match="the label is empty"):
        run(kind="sts", data=rows)
    assert "1 row skipped" in run(kind="sts", data=rows, errors="skip").how


def test_pairs_have_the_average_precision_of_scikit_learn():
    rows = [(a, b, "1" if number % 3 else "0") for number, (a, b) in enumerate(pairs(30))]
    result = run(kind="pairs", data=rows)
    matches = [label == "1" for *_, label in rows]
    expected = average_precision_score(matches, cosines(rows))
    assert result.metrics["average precision"].value == pytest.approx(expected, abs=1e-6)
    assert result.metrics["best accuracy"].value >= 2 / 3


def test_classification_is_logistic_regression_of_each_draw():
    train, test = sentences(40), sentences(30, seed=5)
    result = run(kind="classification", data=test, train=train, shots=4, draws=3)
    model, right = Bag(), []
    for seed in range(3):
        chosen = sample_shots([label for _, label in train], shots=4, seed=seed)
        x = unit(model.embed([train[place][0] for place in chosen]))
        y = [train[place][1] for place in chosen]
        assert sorted(y) == ["money"] * 4 + ["water"] * 4
        centre = x.mean(0)
        length = np.sqrt(((x - centre) ** 2).sum(1).mean())
        fitted = LogisticRegression(C=1.0, max_iter=1_000).fit((x - centre) / length, y)
        answers = fitted.predict((unit(model.embed([text for text, _ in test])) - centre) / length)
        right.append(np.mean(answers == np.array([label for _, label in test])))
    accuracy = result.metrics["accuracy"]
    assert accuracy.value == pytest.approx(np.mean(right))
    assert accuracy.low < accuracy.value < accuracy.high
    assert "3 draws (seeds 0 to 2)" in result.how
    more = run(kind="classification", data=test, train=[*train, test[0]], shots=4, draws=3)
    assert "1 test texts also occur in the training file" in more.how


def test_clustering_is_v_measure_of_k_means():
    documents = sentences(60)
    result = run(kind="clustering", data=documents, draws=3, baselines=True)
    vectors = unit(Bag().embed(sorted([text for text, _ in documents], key=len, reverse=True))).astype(np.float32)
    places = {text: row for row, text in enumerate(sorted([text for text, _ in documents], key=len, reverse=True))}
    vectors = vectors[[places[text] for text, _ in documents]]
    expected = [
        v_measure_score(
            [label for _, label in documents],
            MiniBatchKMeans(n_clusters=2, batch_size=512, n_init="auto", random_state=seed).fit_predict(vectors),
        )
        for seed in range(3)
    ]
    assert result.metrics["v-measure"].value == pytest.approx(np.mean(expected), abs=1e-3)
    assert "3 seeds (0 to 2)" in result.how


def collection():
    documents = {f"d{number}": text for number, (text, _) in enumerate(sentences(20))}
    queries = {"q1": "river bank", "q2": "loan credit", "q3": "nothing judged"}
    return RetrievalCollection(documents, queries, {"q1": {"d0": 2.0, "d4": 1.0}, "q2": {"d1": 1.0}})


def test_retrieval_ranks_all_documents_by_cosine():
    made = collection()
    result = run(kind="retrieval", data=made, baselines=True)
    expected = []
    for query in ("q1", "q2"):
        scores = {id: float(cosines([(made.queries[query], text)])[0]) for id, text in made.documents.items()}
        expected.append(score_ranking(sorted(scores, key=lambda id: -scores[id]), made.judgements[query]))
    for name, score in result.metrics.items():
        assert score.value == pytest.approx(np.mean([each[name] for each in expected]))
    assert set(result.systems) == {"model", "TF-IDF", "BM25"}
    assert result.unit == "queries"


def test_tied_documents_are_ordered_as_trec_eval_orders_them():
    made = RetrievalCollection({"a": "x", "c": "x", "b": "x"}, {"q": "y"}, {"q": {"a": 1.0}})
    same = VectorTable({"x": 0, "y": 1}, np.ones((2, 1), np.float32))
    assert rank_by_vectors(same, made) == {"q": ["c", "b", "a"]}
    assert rank_by_vectors(same, made, depth=2) == {"q": ["c", "b"]}


def test_sparse_and_dense_vectors_give_the_same_similarities():
    texts = [text for text, _ in sentences(8)]
    sparse = tf_idf(texts)
    dense = VectorTable(sparse.rows, sparse.matrix.toarray())
    assert np.stack(list(sparse.similarities(texts[:3], texts))) == pytest.approx(
        np.stack(list(dense.similarities(texts[:3], texts)))
    )
    assert sparse.cosines(texts[:4], texts[4:]) == pytest.approx(dense.cosines(texts[:4], texts[4:]))


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        ({"kind": "sts", "data": [("a", "b", 1.0), ("c", "d", 1.0)]}, DataError, "with different scores"),
        ({"kind": "sts", "data": [("a", 1.5), ("c", 2.0)]}, UsageError, "pairs need two"),
        ({"kind": "pairs", "data": [("a", "b", "x"), ("c", "d", "y")]}, DataError, "labels of pairs are x, y"),
        ({"kind": "classification", "data": [("a", "x")]}, UsageError, "give train"),
        ({"kind": "clustering", "data": [("a", "x")], "train": [("a", "x")]}, UsageError, "train is of classification"),
        ({"kind": "clustering", "data": [("a", "x"), ("b", "x")]}, DataError, "two labels or more"),
        ({"kind": "sts", "data": [("a", "b", 0.5)], "queries": "q"}, UsageError, "are of retrieval, not of sts"),
        ({"kind": "retrieval", "data": ["a", "b"]}, UsageError, "one BEIR folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(request_, error, said):
    with pytest.raises(error, match=re.escape(said)):
        run(**request_)


def test_a_class_of_few_examples_and_an_unknown_class_are_named():
    few = [("a", "x"), ("b", "x"), ("c", "y")]
    with pytest.raises(DataError, match="class 'y' has 1 training examples, fewer than shots: 2"):
        run(kind="classification", data=few, train=few, shots=2, draws=2)
    with pytest.raises(DataError, match="no class 'z'"):
        run(kind="classification", data=[("a", "z")], train=few, shots=1, draws=2)


def test_vectors_that_are_not_finite_name_their_text():
    class Broken:
        def embed(self, texts):
            return np.array([[np.nan if text == "bad" else 1.0] for text in texts])

    with pytest.raises(DataError, match="the vector of 'bad' is not finite"):
        embed_distinct(Broken(), ["good", "bad"])


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(UsageError, match=re.escape('pip install "larvatus[maps]"')):
        run(kind="clustering", data=sentences(10), draws=2)


def test_the_python_function_and_the_command_say_the_same(tiny_directory, tmp_path, larvatus):
    file = tmp_path / "sts.tsv"
    rows = [(a, b, f"{number / 7:.3f}") for number, (a, b) in enumerate(pairs(12))]
    file.write_text("sentence1\tsentence2\tscore\n" + "".join("\t".join(row) + "\n" for row in rows))
    result = lv.evaluate(tiny_directory, data=file, vectors="sts", baselines=True, samples=50, device="cpu")
    given = ("evaluate", tiny_directory, "--vectors", "sts", "--data", file, "--baselines", "--samples", 50)
    out = tmp_path / "scores.csv"
    code, said, complaint = larvatus(*given, "--device", "cpu", "--json", "--out", out)
    assert code == 0, complaint
    assert json.loads(said) == json.loads(json.dumps(result.to_dict()))
    assert out.read_text().splitlines()[0] == "system,metric,value,low,high"
    code, said, _ = larvatus(*given, "--device", "cpu")
    assert "TF-IDF" in said
    assert "intervals over pairs" in said
    assert str(result).splitlines()[1].split() == ["system", "metric", "score", "95%", "interval"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--shots", 3), "--shots is for vectors"),
        (("--vectors", "sts"), "--data FILE"),
        (("--vectors", "sts", "--data", "x.tsv", "--against", "y"), "--vectors cannot be combined"),
    ],
)
def test_options_of_vectors_are_refused_where_they_mean_nothing(tiny_directory, larvatus, more, said):
    code, _, complaint = larvatus("evaluate", tiny_directory, *more)
    assert code == 2
    assert said in complaint
