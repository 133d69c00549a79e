"""Ablations over languages: which text a variant reads, what is held out for all, and results language by language."""

from __future__ import annotations

from pathlib import Path

import pytest

from larvatus.core.errors import RecipeError, UsageError
from larvatus.data.corpus import Corpus
from larvatus.data.text.languages import LanguagePath, first_languages
from larvatus.evaluation.compare.compare import Candidate, Comparison, compare
from larvatus.evaluation.compare.results import ComparisonResults, as_table
from larvatus.evaluation.compare.runs import read_ablation
from larvatus.models.recipes import read_recipe, recipe_table
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget
from tests.evaluation.compare.test_languages import SMALL, paragraphs


def test_variants_are_of_xlm_r_and_vary_one_thing() -> None:
    for name, part, field, values in (
        ("alpha", "mixture", "alpha", [1.0, 0.7, 0.3, 0.01]),
        ("languages", "mixture", "languages", [1, 2, 4, 8]),
        ("multilingual-vocabulary", "tokenizer", "size", [4_000, 8_000, 16_000, 32_000]),
    ):
        tables = [recipe_table(candidate.recipe) for candidate in read_ablation(name).candidates(size="tiny")]
        assert [table[part].pop(field) for table in tables] == values
        assert all(table == tables[0] for table in tables)
        assert tables[0]["name"] == "xlm-r"


def test_a_recipe_that_reads_all_languages_is_saved_as_before() -> None:
    assert recipe_table(read_recipe("xlm-r"))["mixture"] == {"alpha": 0.3}


def test_too_few_languages_and_none_are_one_line() -> None:
    given = [LanguagePath("sw", "a.txt"), LanguagePath("en", "b.txt"), LanguagePath("sw", "c.txt"), "d.txt"]
    assert first_languages(given, 2) == {"sw", "en"}
    with pytest.raises(UsageError, match=r"mixture.languages = 3, but 2 are named \(sw, en\); name as many"):
        first_languages(given, 3)
    with pytest.raises(UsageError, match="but none is named"):
        first_languages(["d.txt"], 1)
    with pytest.raises(RecipeError, match=r"mixture\.languages = 0 must lie between 1 and"):
        read_recipe("xlm-r", settings=["mixture.languages=0"])


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ComparisonResults]:
    """One language, and two, of the made-up ones."""
    folder = tmp_path_factory.mktemp("ablated")
    for number, (language, count) in enumerate({"low": 110, "big": 110}.items()):
        (folder / f"{language}.txt").write_text(paragraphs(language, count, 5 + number))
    candidates = tuple(
        Candidate(f"{count}", read_recipe("xlm-r", settings=[*SMALL, f"mixture.languages={count}"])) for count in (1, 2)
    )
    given = [LanguagePath(name, str(folder / f"{name}.txt")) for name in ("low", "big")]
    plan = Comparison(candidates=candidates, corpus=given, out=folder / "out", budget=Budget(steps=2))
    return folder / "out", compare(plan, Reporter())


@pytest.mark.proof
def test_the_first_languages_alone_are_read_for_as_many_steps(compared: tuple[Path, ComparisonResults]) -> None:
    out, results = compared
    corpora = [Corpus.open(path) for path in sorted(out.glob("texts/*/corpus/*")) if path.is_dir()]
    assert sorted(corpus.languages for corpus in corpora) == [("big", "low"), ("big", "low"), ("low",), ("low",)]
    assert {run.steps for run in results.runs} == {2}
    splits = {path.read_text() for path in out.glob("texts/*/corpus/split.json")}
    assert len(splits) == 1  # what is held out is the same for all


def test_results_are_shown_language_by_language(compared: tuple[Path, ComparisonResults]) -> None:
    _, results = compared
    few, all_of_them = results.runs
    assert (set(few.languages), set(all_of_them.languages)) == ({"low"}, {"big", "low"})
    for run in results.runs:
        score = run.word_nll
        assert score is not None
        assert set(score.languages) == {"big", "low"}
        assert sum(part.words for part in score.languages.values()) == score.words
        total = sum(part.loss * part.words for part in score.languages.values())
        assert total / score.words == pytest.approx(score.loss)
    rows = {row.name: row.values for row in results.rows()}
    assert rows["big: masked-lm loss"]["1"] is None
    low = rows["low: masked-lm loss"]["1"]
    assert low is not None
    assert low.mean == few.objectives["masked-lm"].loss
    assert rows["big: loss a word"]["1"] is not None
    notes = [cell.text for cell in as_table(results).notes]
    assert any("1 did not read big, whose words are among the same words masked for all" in note for note in notes)
    assert any("vocabularies differ" in note for note in notes)
