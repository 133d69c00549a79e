"""Text in several languages: paths that say theirs, and vocabularies in which small languages count for more."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError, UsageError
from larvatus.data.corpus.mixture import MixtureConfig, mixture
from larvatus.data.text import counting
from larvatus.data.text.documents import Document, ReadOptions
from larvatus.data.text.languages import (
    LanguageCounts,
    LanguagePath,
    read_languages,
    scale_counts,
    train_mixed_vocabulary,
)
from larvatus.data.text.vocabularies import UnigramConfig, WordPieceConfig, pipeline, train_vocabulary

SYLLABLES = {"big": ["ka", "lo", "mi", "ne", "pu", "ra"], "low": ["dji", "vbe", "gho", "xwa", "tsu"]}
XLM_R = MixtureConfig(alpha=0.3).repeats


def prose(language: str, sentences: int, seed: int = 0) -> str:
    """Sentences of words of a language's own syllables."""
    random, syllables = np.random.default_rng(seed), SYLLABLES[language]
    sizes = (random.integers(1, 5) for _ in range(400))
    words = ["".join(syllables[n] for n in random.integers(0, len(syllables), size).tolist()) for size in sizes]
    drawn = (random.zipf(1.3, (sentences, 6)) % len(words)).tolist()
    return " ".join(" ".join(words[i] for i in row).capitalize() + "." for row in drawn)


# — paths —


def test_a_path_says_its_language() -> None:
    assert LanguagePath.of("sw=a/b=c.txt") == LanguagePath("sw", "a/b=c.txt")
    assert str(LanguagePath.of("zh-Hant=x")) == "zh-Hant=x"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("sw", "--language sw names no text; give its path: --language sw=PATH"),
        ("sw=", "names no text"),
        ("=path", "'' is no language code"),
        ("s=path", "'s' is no language code; use one such as en"),
        ("../x=path", "is no language code"),
    ],
)
def test_what_names_no_language_or_no_text_is_refused(given: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        LanguagePath.of(given)
    assert says in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (
        ("en/a.txt", "One."),
        ("en/b.txt", "Two.\n\nThree."),
        ("sw.txt", "Moja."),
        ("x/blank.txt", "\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.pdf").write_text("x")
    records = [{"text": "Deux.", "lang": "fr"}, {"text": "Mbili.", "lang": None}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, records)))
    return tmp_path


def test_documents_carry_the_language_of_their_path_and_no_file_comes_twice(folder: Path) -> None:
    given = [
        *(LanguagePath("en", str(folder / name)) for name in ("en/a.txt", "en", "en/b.txt")),
        folder / "sw.txt",
        LanguagePath("sw", str(folder / "sw.txt")),
    ]
    assert [(d.text, d.language) for d in read_languages(given)] == [
        ("Moja.", None),
        ("One.", "en"),
        ("Two.", "en"),
        ("Three.", "en"),
        ("Moja.", "sw"),
    ]


def test_a_record_that_says_its_language_knows_better(folder: Path) -> None:
    found = read_languages([LanguagePath("sw", str(folder / "r.jsonl"))], options=ReadOptions(language_field="lang"))
    assert [(d.text, d.language) for d in found] == [("Deux.", "fr"), ("Mbili.", "sw")]


@pytest.mark.parametrize("name", ["x", "notes", "x/blank.txt", "absent"])
def test_a_language_without_text_is_refused_by_its_path(folder: Path, name: str) -> None:
    with pytest.raises(DataError, match=name):
        list(read_languages([LanguagePath("en", str(folder / "en")), LanguagePath("ee", str(folder / name))]))


# — counting —


@given(st.lists(st.integers(1, 50), max_size=40), st.floats(0.01, 20))
def test_scaled_counts_are_right_in_every_running_sum(counts: list[int], factor: float) -> None:
    words = [(f"w{i:03}", count) for i, count in enumerate(counts)]
    found = dict(scale_counts(words, factor))
    exact = have = 0.0
    for word, count in words:
        exact += factor * count
        have += found.get(word, 0)
        assert exact - 1 <= have <= exact + 1e-6


def test_words_count_as_often_as_eq_11_7_says() -> None:
    """Against a loop over the text; the words of the two languages differ, so each is seen by itself."""
    texts = {"big": prose("big", 900), "low": prose("low", 30)}
    counted = LanguageCounts(pipeline(WordPieceConfig(size=100)))
    for language, text in texts.items():
        for line in text.split(". "):
            counted.add(Document(line.rstrip(".") + ".", "x", language=language), "library")
    assert counted.sentences == {"big": 900, "low": 30}
    found = dict(counted.words(XLM_R))
    p, q = mixture(counted.sentences, 1), mixture(counted.sentences, 0.3)
    for language, text in texts.items():
        naive = Counter(text.lower().replace(".", " ").split())
        for word, count in naive.items():
            assert found.get(word, 0) == pytest.approx(count * q[language] / p[language], abs=1)
    assert found["."] == pytest.approx(930, abs=2)  # the sample is as large as the text


def test_memory_is_bounded_over_all_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PORTION", 500)
    monkeypatch.setattr(counting, "MOST_WORDS", 150)
    counted = LanguageCounts(pipeline(WordPieceConfig(size=100)))
    for language in ("big", "low"):
        for number in range(20):
            counted.add(Document(prose(language, 20, seed=number), "x", language=language), "library")
            assert sum(map(len, counted._tables.values())) <= 150
            assert counted._sizes.total() < 500
    assert {"big", "low"} <= set(counted._tables)
    assert len(counted.words(XLM_R)) <= 150


# — the vocabulary —


def fertility(tokenizer, text: str) -> float:
    found = tokenizer.encode(text)
    return len(found.ids) / len(found.word_spans)


def test_a_small_language_is_cut_less_finely_than_without_the_mixture() -> None:
    documents = [Document(prose("big", 3000), "x", language="big"), Document(prose("low", 40), "x", language="low")]
    config = UnigramConfig(size=160)
    plain, mixed = (train_mixed_vocabulary(documents, config, MixtureConfig(alpha=a).repeats) for a in (1.0, 0.3))
    assert plain.size == mixed.size
    assert fertility(mixed, prose("low", 40)) < 0.95 * fertility(plain, prose("low", 40))
    assert fertility(mixed, prose("big", 100)) < 1.2 * fertility(plain, prose("big", 100))
    again = train_mixed_vocabulary(documents, config, XLM_R)
    assert again.library.to_str() == mixed.library.to_str()


def test_one_language_gives_the_vocabulary_it_always_gave() -> None:
    text = prose("big", 500)
    config = UnigramConfig(size=100)
    plain = train_vocabulary([text], config).library.to_str()
    for repeats in (None, XLM_R):
        assert train_mixed_vocabulary([Document(text, "x")], config, repeats).library.to_str() == plain


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(DataError, match="document 2"):
        train_mixed_vocabulary([Document("a", "x"), Document("\ud800", "x")], WordPieceConfig(), XLM_R)
    with pytest.raises(DataError, match="no words"):
        train_mixed_vocabulary([], WordPieceConfig(), XLM_R)
