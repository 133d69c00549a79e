"""Maps of words: instances, projection, clusters and names, each against a plain or a foreign computation."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.documents import Document
from larvatus.data.text.words import segment_words
from larvatus.inference.maps import clusters as projecting
from larvatus.inference.maps import word_map as mapping
from larvatus.inference.maps.clusters import (
    by_size,
    cluster,
    context_words,
    log_odds,
    principal_components,
    project,
    typical_words,
)
from larvatus.inference.maps.instances import FindOptions, allot, find_instances
from larvatus.inference.maps.picture import map_page
from larvatus.inference.maps.word_map import MapOptions, instance_vectors, map_instances
from larvatus.inference.web_page import as_data
from tests.data.text.hostile import hostile_unicode
from tests.inference.conftest import Tiny

PROSE = (
    "The bank of the river was wide. Bankers came to the bank; the Bank's clerk said: bank-notes! A riverbank is none. "
    "Straße und Bank. 银行在河边。"
)


def found_in(text: str, *words: str, **options):
    return find_instances([Document(text, "made.txt", 7, "en")], words, FindOptions(**options))


def naive(text: str, word: str) -> int:
    """How often a word comes, by the words of the whole text."""
    units = [text[start:end].casefold() for start, end in segment_words(text).tolist()]
    parts = [word[start:end].casefold() for start, end in segment_words(word).tolist()]
    return sum(units[n : n + len(parts)] == parts for n in range(len(units)))


@pytest.mark.parametrize("word", ["bank", "Bank", "the", "STRASSE", "银行", "bank-notes", "the bank", "."])
def test_instances_are_whole_words_of_the_aligner_with_their_sentence(word: str) -> None:
    found = found_in(PROSE, word)
    assert found.total == len(found.instances) == naive(PROSE, word) > 0
    for one in found.instances:
        assert one.text in PROSE
        assert one.text[one.start : one.end].casefold() == word.casefold()
        assert (one.word, one.source, one.line, one.language) == (word, "made.txt", 7, "en")
    assert found.instances[0].text != PROSE


def test_case_counts_when_asked() -> None:
    assert [one.text[one.start : one.end] for one in found_in(PROSE, "bank", cased=True).instances] == ["bank"] * 3
    assert len(found_in(PROSE, "Bank", cased=True).instances) == 2


@given(text=hostile_unicode())
def test_every_word_of_hostile_text_is_found(text: str) -> None:
    units = [text[start:end] for start, end in segment_words(text).tolist()]
    for word in units[:3]:
        found = found_in(text, word, sentences="newline", limit=10_000)
        assert found.total >= 1
        for one in found.instances:
            assert [u.casefold() for u in (one.text[one.start : one.end],)] == [word.casefold()]


def test_a_sentence_of_unlikely_length_is_cut_again() -> None:
    long = "“ " + "He said that nothing was lost. " * 60 + "The bank was closed! And more was said. " * 2
    found = found_in(long, "bank")
    assert len(found.instances) == 2
    assert all(one.text == "The bank was closed!" for one in found.instances)


def test_a_sample_does_not_depend_on_how_the_corpus_is_cut_and_is_fair() -> None:
    lines = [f"The bank number {n} is here." for n in range(300)]
    whole = find_instances([Document("\n\n".join(lines), "a", 1)], ["bank"], FindOptions(limit=40, sentences="newline"))
    split = find_instances([Document(line, "a", 1) for line in lines], ["bank"], FindOptions(limit=40))
    assert (whole.total, len(whole.instances)) == (300, 40)
    assert [one.text for one in whole.instances] == [one.text for one in split.instances]
    assert [one.text for one in whole.instances] == sorted(
        (one.text for one in whole.instances), key=lambda text: int(text.split()[3])
    )
    other = find_instances([Document(line, "a", 1) for line in lines], ["bank"], FindOptions(limit=40, seed=1))
    assert [one.text for one in other.instances] != [one.text for one in split.instances]
    counts: Counter[str] = Counter()
    for seed in range(200):
        counts.update(
            one.text
            for one in found_in("\n".join(lines[:20]), "bank", limit=5, seed=seed, sentences="newline").instances
        )
    assert sum(counts.values()) == 1_000
    assert min(counts[line] for line in lines[:20]) > 25  # 50 each; five standard deviations are 31


@given(sizes=st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=6), limit=st.integers(1, 120))
def test_groups_share_the_limit_alike(sizes: dict[str, int], limit: int) -> None:
    shares = allot(sizes, limit)
    assert shares.keys() == sizes.keys()
    assert all(shares[name] <= sizes[name] for name in sizes)
    assert sum(shares.values()) == min(limit, sum(sizes.values()))
    cut = [shares[name] for name in sizes if shares[name] < sizes[name]]
    assert not cut or max(shares.values(), default=0) - min(cut) <= 1


def test_what_is_not_there_is_one_line() -> None:
    with pytest.raises(DataError, match="'bnak' is not among the words of the corpus; near it are bank"):
        found_in(PROSE, "bank", "bnak")
    with pytest.raises(DataError, match="'xyzzy' is not among the words of the corpus; check the spelling"):
        found_in(PROSE, "xyzzy")
    with pytest.raises(DataError, match="the corpus holds no text"):
        find_instances([], ["bank"], FindOptions())
    with pytest.raises(UsageError, match="'  ' is not a word"):
        found_in(PROSE, "  ")


def test_vectors_are_those_of_the_marked_word_in_its_sentence(wordpiece: Tiny) -> None:
    instances = found_in(PROSE, "bank", "the").instances
    vectors, _ = instance_vectors(wordpiece.encoder, wordpiece.tokenizer, instances, MapOptions(layers="last2"))
    for one, vector in zip(instances, vectors, strict=True):
        alone = wordpiece.vectors([one.text], spans=[[(one.start, one.end)]], unit="span", layers="last2")
        assert_allclose(vector, alone[0].vectors[0], atol=1e-5)


@given(seed=st.integers(0, 50), rows=st.integers(3, 30), columns=st.integers(1, 12))
def test_principal_components_equal_those_of_scikit_learn(seed: int, rows: int, columns: int) -> None:
    x = np.random.default_rng(seed).normal(size=(rows, columns)) * np.arange(1, columns + 1)
    count = min(2, columns)
    theirs = PCA(n_components=count, svd_solver="full").fit_transform(x)
    ours = principal_components(x, 2)
    assert ours.shape == (rows, 2)
    for n in range(count):
        sign = np.sign(ours[:, n] @ theirs[:, n])
        assert_allclose(ours[:, n] * sign, theirs[:, n], atol=1e-6)


def blobs(size: int = 30, apart: float = 8.0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    middles = draw.normal(size=(3, 16)) * apart
    kind = np.repeat([0, 1, 2], [2 * size, size, size // 2])
    return (middles[kind] + draw.normal(size=(len(kind), 16))).astype(np.float32), kind


@pytest.mark.proof
def test_umap_keeps_groups_together_and_gives_the_same_points_again() -> None:
    assert projecting.has_umap()  # a test dependency
    vectors, kind = blobs()
    one, two = (project(vectors, seed=4) for _ in range(2))
    assert (one.method, one.note) == ("umap", "")
    assert np.array_equal(one.points, two.points)
    apart = np.linalg.norm(one.points[:, None] - one.points[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    assert (kind[apart.argmin(1)] == kind).mean() > 0.98  # the nearest neighbour is of the same group


def test_without_umap_or_with_few_points_components_are_said_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _ = blobs()
    assert project(vectors, method="pca").note == ""
    few = project(vectors[:9])
    assert (few.method, few.note) == (
        "pca",
        "UMAP needs at least 10 instances, and there are 9",
    ) or not projecting.has_umap()
    monkeypatch.setattr(projecting, "has_umap", lambda: False)
    flat = project(vectors)
    assert flat.method == "pca"
    assert "UMAP is not installed" in flat.note
    assert "larvatus[maps]" in flat.note
    with pytest.raises(UsageError, match=r'pip install "larvatus\[maps\]"'):
        project(vectors, method="umap")
    monkeypatch.setattr(projecting, "has_umap", lambda: True)
    with pytest.raises(DataError, match="UMAP needs at least 10 instances, and there are 9; give more text"):
        project(vectors[:9], method="umap")
    with pytest.raises(DataError, match="a map needs at least 3 instances, and there are 2; give more text"):
        project(vectors[:2])


def test_equal_vectors_are_one_place_and_one_cluster() -> None:
    same = np.ones((12, 4), dtype=np.float32)
    assert np.ptp(project(same, method="pca").points) == 0
    assert cluster(same).tolist() == [0] * 12


def test_clusters_are_found_and_numbered_by_size() -> None:
    vectors, kind = blobs()
    assert cluster(vectors).tolist() == kind.tolist()
    assert cluster(vectors, limit=1).tolist() == [0] * len(kind)
    assert cluster(np.random.default_rng(0).normal(size=(200, 60)).astype(np.float32)).max() == 0  # there are none


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_numbers_by_size_keep_the_clusters(numbers: list[int]) -> None:
    found = by_size(np.array(numbers)).tolist()
    assert len(set(zip(numbers, found, strict=True))) == len(set(numbers)) == len(set(found))
    counts = [found.count(number) for number in range(len(set(found)))]
    assert counts == sorted(counts, reverse=True)


def test_log_odds_equal_the_formula_word_by_word() -> None:
    own, others = Counter(river=8, the=10, water=3), Counter(the=20, loan=9, water=1)
    found = log_odds(own, others)
    assert set(found) == set(own)
    n_i, n_j = 21, 30
    for word in own:
        y_i, y_j, alpha, alpha_0 = own[word], others[word], own[word] + others[word], 51
        omega_i = (y_i + alpha) / (n_i + alpha_0 - y_i - alpha)
        omega_j = (y_j + alpha) / (n_j + alpha_0 - y_j - alpha)
        z = (math.log(omega_i) - math.log(omega_j)) / math.sqrt(1 / (y_i + alpha) + 1 / (y_j + alpha))
        assert found[word] == pytest.approx(z)
    assert found["river"] > found["water"] > found["the"]


def test_clusters_are_named_by_what_is_typical_of_them() -> None:
    river = ["the bank of the river and its water", "water in the river by the bank", "a river with the water"] * 3
    money = ["the bank gave a loan of money", "money in the bank as a loan", "the money and the loan"] * 3
    contexts = [context_words(text, ["bank"]) for text in river + money]
    assert "bank" not in contexts[0]
    names = typical_words(contexts, np.array([0] * 9 + [1] * 9), top=2)
    assert [set(name.split(", ")) for name in names] == [{"river", "water"}, {"loan", "money"}]
    assert typical_words(contexts, np.zeros(18, np.int64)) == ["all"]
    assert typical_words([["one"], ["two"]], np.array([0, 1])) == ["cluster 1", "cluster 2"]


HOSTILE = (
    'The bank </script><script>window.broken = 1</script><img src=x onerror="window.broken = 2"> & "bank" 🙂 bank.'
)


@pytest.fixture(scope="module")
def result(wordpiece: Tiny):
    texts = [Document(text, "<b>a</b>.txt", n + 1, "en", "</script>") for n, text in enumerate([HOSTILE, PROSE])]
    found = find_instances(texts, ["bank"], FindOptions())
    return map_instances(wordpiece.encoder, wordpiece.tokenizer, found, MapOptions(method="pca"))


def test_a_map_converts_to_json_and_a_table(result) -> None:
    points = json.loads(json.dumps(result.to_dict("sense")))["points"]
    assert len(points) == len(result.instances) == result.total
    assert {point["text"][point["start"] : point["end"]].lower() for point in points} == {"bank"}
    assert {point["sense"] for point in points} == {"</script>"}
    rows = list(csv.DictReader(io.StringIO(result.to_csv("sense"))))
    assert [row["text"] for row in rows] == [point["text"] for point in points]
    assert_allclose([float(row["x"]) for row in rows], result.points[:, 0], atol=1e-5)


def test_no_text_can_leave_its_block_of_the_page(result) -> None:
    page = map_page(result, colour="sense", label="sense")
    assert page.count("<script") == page.count("</script>") == 2  # the data, and our own
    assert "<img" not in page
    assert "http" not in page.replace("http-equiv", "")  # nothing is asked for elsewhere
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["points"][0]["text"][0] == "The "
    assert HOSTILE in {"".join(point["text"]) for point in data["points"]}
    assert data["colour"] == "sense"
    with pytest.raises(UsageError, match="cannot be coloured by sens; did you mean sense"):
        map_page(result, colour="sens", label="sense")


@given(hostile_unicode())
def test_data_of_a_page_is_read_back_as_it_was(text: str) -> None:
    made = as_data({"text": text})
    assert "<" not in made
    assert json.loads(made) == {"text": text}


def test_without_scikit_learn_there_are_no_clusters_which_is_said(
    wordpiece: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "can_cluster", lambda: False)
    found = found_in(PROSE, "bank")
    result = map_instances(wordpiece.encoder, wordpiece.tokenizer, found, MapOptions(method="pca"))
    assert result.clusters is None
    assert any("scikit-learn is not installed" in note for note in result.notes)
    assert '"clusters":[]' in map_page(result)
    with pytest.raises(UsageError, match="cannot be coloured by cluster"):
        map_page(result, colour="cluster")
    with pytest.raises(UsageError, match="layers = all gives several"):
        map_instances(wordpiece.encoder, wordpiece.tokenizer, found, MapOptions(layers="all"))
