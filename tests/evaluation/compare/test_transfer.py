"""One table over languages: its numbers are those of `evaluate` on each file alone, and names tell languages."""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.languages import language_of
from larvatus.evaluation.compare.languages import files_by_language, source_language
from larvatus.models.heads import ClassificationConfig
from tests.tasks.conftest import draw, sentences, texts
from tests.tasks.conftest import tagger as tagger  # the fixtures
from tests.tasks.conftest import tuned as tuned

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def larvatus(larvatus: Call) -> Call:
    return functools.partial(larvatus, "evaluate")


@pytest.fixture(scope="module")
def classifier(tuned: Any) -> Path:
    return Path(tuned(ClassificationConfig(labels=("no", "yes"), pool="mean", dense="none")).path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs as XNLI's, of 40, 30 and 20 examples; words as WikiANN's, with the language before each."""
    folder = tmp_path_factory.mktemp("labelled")
    for language, count in (("en", 40), ("de", 30), ("sw", 20)):
        examples = texts(draw(("no", "yes"), 40), pairs=True).examples[:count]
        rows = "".join(f"{each.text}\t{each.pair}\t{each.label}\n" for each in examples)
        (folder / f"dev-{language}.tsv.xz").write_bytes(lzma.compress(rows.encode()))
        (folder / "ner" / language).mkdir(parents=True)
        tagged = [
            "".join(f"{language}:{word}\t{tag}\n" for word, tag in zip(each.words, each.tags or (), strict=True))
            for each in sentences(30).examples[: count // 2]
        ]
        (folder / "ner" / language / "test.conll").write_text("\n".join(tagged))
    (folder / "other.tsv").write_text("".join(f"good {n}\tbad {n}\t{'yes' if n % 2 else 'no'}\n" for n in range(8)))
    return folder


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("xnli/dev-de.tsv.xz", "de"),
        ("pawsx/dev-zh.tsv.xz", "zh"),
        ("qa/tydiqa/tydiqa.goldp.sw.dev.json.xz", "sw"),
        ("qa/tydiqa/tydiqa.goldp.id.dev.json.xz", "id"),
        ("qa/xquad/xquad.tr.json.xz", "tr"),
        ("ner/wikiann/fr/test.conll.xz", "fr"),
        ("pos/ud/dev-eu.tsv.xz", "eu"),
        ("UD_German-GSD/de_gsd-ud-dev.conllu", "de"),
        ("dev-zh_TW.tsv", "zh-TW"),
        ("wikiann/ceb/test.conll", "ceb"),
        ("pos/ewt/dev.conllu.xz", None),
        ("glue/RTE/dev.tsv.xz", None),
        ("ner/wnut17/dev.conll.xz", None),
        ("mlqa/test-context-de-question-en.json", None),
    ],
)
def test_a_language_is_read_from_the_name_of_the_file_or_of_its_folder(name: str, language: str | None) -> None:
    assert language_of(name) == language


def test_the_table_has_the_numbers_of_each_file_evaluated_alone(larvatus: Call, classifier: Path, files: Path) -> None:
    words = [classifier, "--source", "en", "--samples", 50]
    names = [files / f"dev-{language}.tsv.xz" for language in ("de", "en", "sw")]
    code, out, err = larvatus(*words, "--transfer", *names, "--json")  # as the shell expands dev-*.tsv.xz
    assert (code, err) == (0, "")
    table = json.loads(out)
    assert json.loads(larvatus(*words, "--transfer", files / "dev-*.tsv.xz", "--json")[1]) == table
    assert [row["language"] for row in table["languages"]] == ["en", "de", "sw"]
    assert [row["examples"] for row in table["languages"]] == [40, 30, 20]
    for row in table["languages"]:
        alone = json.loads(larvatus(classifier, "--samples", 50, "--data", row["data"], "--json")[1])
        assert row["metrics"] == alone["metrics"]
        labels = [each["support"] for each in alone["classes"]]
        assert row["majority"] == max(labels) / sum(labels)
    source, *others = [row["metrics"]["accuracy"]["value"] for row in table["languages"]]
    assert table["zero_shot"] == pytest.approx(sum(others) / 2)
    assert table["gap"] == pytest.approx(source - sum(others) / 2)
    assert table["mean"] == pytest.approx((source + sum(others)) / 3)
    code, out, _ = larvatus(*words, "--transfer", files / "dev-*.tsv.xz")
    assert (code, "en (source)" in out, "zero-shot mean" in out, "majority" in out) == (0, True, True, True)


def test_from_python_as_from_the_command_and_from_examples_in_memory(classifier: Path, files: Path) -> None:
    given = {"en": str(files / "dev-en.tsv.xz"), "sw": [("good", "fine", "yes"), ("poor", "bad", "no")]}
    table = lv.transfer(classifier, given, source="en", samples=50, metric="macro-f1", device="cpu")
    alone = lv.evaluate(classifier, data=given["sw"], samples=50, device="cpu")
    assert table.scores["sw"] == alone.metrics["macro-f1"]
    assert table.gap == table.scores["en"].value - table.scores["sw"].value
    assert table.majority("en") is None  # of shares of right answers alone
    assert "en (source)" in table._repr_html_()


def test_a_tagger_is_held_by_entities_and_the_prefix_of_wikiann_is_reported(
    larvatus: Call, tagger: Path, files: Path
) -> None:
    words = [tagger, "--samples", 50, "--transfer", files / "ner" / "*" / "test.conll"]
    table = json.loads(larvatus(*words, "--json")[1])
    assert (table["metric"], table["source"], table["gap"], table["zero_shot"]) == ("entity-f1", None, None, None)
    assert {row["language"]: row["notes"][0] for row in table["languages"]} == {
        name: f"prefix {name}: stripped from every word" for name in ("de", "en", "sw")
    }
    out = larvatus(*words)[1]
    assert "name it: --source xx" in out
    assert "majority" not in out
    assert "no file of fr, so no gap" in larvatus(*words, "--source", "fr")[1]


def test_the_source_is_read_from_the_names_of_the_training_files() -> None:
    assert source_language({"train": {"source": "xnli/train-en.tsv"}}) == "en"
    assert source_language({"train": {"source": "a/en/train.conll, b/en/more.conll"}}) == "en"
    assert source_language({"train": {"source": "train-en.tsv, train-de.tsv"}}) is None
    assert source_language({"train": {"source": "pos/ewt/train.conllu"}}) is None
    assert source_language({}) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["other.tsv"], "does not have a language in its name; give it before the path, such as de=other.tsv"),
        (["dev-de-en.tsv"], "could be in de or en; give it before the path, such as en=dev-de-en.tsv"),
        (["dev-de.tsv", "de=other.tsv"], "de has two files, dev-de.tsv and other.tsv; give one for each language"),
        (["de="], "de= names no file; give its path: de=PATH"),
        ([], "no file was named"),
        ({"German": "dev.tsv"}, "'German' is no language code"),
    ],
)
def test_a_file_whose_language_cannot_be_told_is_one_line(given: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        files_by_language(given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pattern_that_nothing_is_called_is_one_line() -> None:
    with pytest.raises(DataError, match=r"no file is called absent-\*\.tsv; check the pattern"):
        files_by_language("absent-*.tsv")


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--transfer", "other.tsv"], 2, "does not have a language in its name"),
        (["--transfer", "de=absent.tsv"], 4, "absent.tsv"),
        (["--transfer", "de=other.tsv", "--data", "other.tsv"], 2, "--transfer cannot be combined"),
        (["--transfer", "de=other.tsv", "--metric", "acuracy"], 2, "did you mean accuracy?"),
        (["--transfer", "de=other.tsv", "--source", "English"], 2, "--source English is no language code"),
        (["--source", "en", "--data", "other.tsv"], 2, "name its files: --transfer FILE"),
        (["--transfer", "de=other.tsv", "--label", "2", "--strict"], 4, "which the model does not know"),
    ],
)
def test_what_cannot_be_is_one_line(
    larvatus: Call,
    classifier: Path,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(files)
    ended, _, err = larvatus(classifier, *more)
    assert (ended, said in err, "\n" in err) == (code, True, False), err
