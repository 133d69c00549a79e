"""`larvatus compare` and `larvatus ablate`: what they print, and one line for what cannot be."""

import json

import pytest

from larvatus.core.errors import RecipeError, UsageError
from larvatus.evaluation.compare.runs import ablation_names, read_ablation
from larvatus.interfaces.cli.commands import compare
from larvatus.models.recipes import recipe_table
from tests.evaluation.conftest import BERT, SMALL


def settings(*more):
    return [word for setting in (*SMALL, *more) for word in ("--set", setting)]


@pytest.fixture
def given(texts, tmp_path):
    return ["--corpus", texts / "train.txt", "--valid", texts / "valid.txt", "--out", tmp_path / "out"]


def test_a_comparison_prints_json_for_programs_and_draws_a_plot(larvatus, given, tmp_path):
    words = ["compare", "bert", *settings(*BERT), *given, "--steps", 2, "--seeds", "1,2"]
    code, out, err = larvatus(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [run["seed"] for run in found["runs"]] == [1, 2]
    loss = next(row for row in found["rows"] if row["name"] == "masked-lm loss")["values"]["bert"]
    assert loss["deviation"] > 0
    assert "compare.png" in err
    assert (tmp_path / "out" / "compare.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = larvatus(*words, "--resume")  # all of it is there: only shown
    assert code == 0, err
    assert f"{loss['mean']:.3f} ± {loss['deviation']:.3f}" in out
    code, _, err = larvatus(*words)
    assert code == 5
    assert err.endswith("already holds a comparison; continue with --resume, or choose another --out")
    code, _, err = larvatus("compare", "bert", *settings(*BERT), *given, "--steps", 3, "--seeds", "1,2", "--resume")
    assert code == 5
    assert "holds another comparison: budget.steps: 2 → 3; resume with the same" in err


def test_without_matplotlib_it_says_what_to_install(larvatus, given, monkeypatch):
    monkeypatch.setattr(compare, "has_matplotlib", lambda: False)
    code, out, _ = larvatus(
        "compare", "modern", *settings("model.global_every=1", "model.local_attention=0"), *given, "--steps", 1
    )
    assert code == 0
    assert "no plot was drawn: it needs matplotlib, pip install 'larvatus[plots]'" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["brt,roberta", "--steps", 1], 3, "there is no recipe 'brt'; did you mean bert?"),
        (["bert,roberta,bert", "--steps", 1], 2, "bert is compared with itself; name each once"),
        ([",", "--steps", 1], 2, "nothing to compare; name recipes, such as bert,roberta"),
        (["bert", "--tokens", 9, "--minutes", 1], 2, "give one of --steps, --minutes, --epochs and --tokens"),
        (["bert", "--tokens", -9], 2, "--tokens = -9 must lie between 1"),
        (["bert"], 2, "a comparison needs the same budget for all: --tokens, --epochs, --minutes or --steps"),
        (["bert", "--steps", 1, "--seeds", "1,x"], 2, "--seeds needs whole numbers with commas between"),
        (["bert", "--steps", 1, "--seeds", "1,1"], 2, "--seeds needs different numbers"),
        (
            ["bert,roberta", "--steps", 1, "--set", "objectives.next-sentence.weight=2"],
            3,
            "roberta: --set objectives.next-sentence.weight: there is no element next-sentence",
        ),
        (["bert,roberta", "--steps", 1, "--set", "model.layer=2"], 3, "bert: model.layer is not a setting; did you"),
        (["bert,roberta", "--steps", 1, "--set", "robert:batch=2"], 2, "'robert' is not compared here; did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(larvatus, given, tmp_path, words, code, said):
    found, _, err = larvatus("compare", *words, *given)
    assert found == code
    assert "\n" not in err
    assert said in err
    assert not (tmp_path / "out").exists()


def test_a_recipe_that_cannot_use_the_text_is_named_before_anything_is_trained(larvatus, given, tmp_path):
    code, _, err = larvatus("compare", "bert,roberta", *settings(*BERT, "roberta:batch=999999"), *given, "--steps", 1)
    assert code == 4
    assert "larvatus: roberta: the text has" in err
    assert "(--set roberta:batch=…)" in err
    assert not (tmp_path / "out" / "bert").exists()
    code, _, err = larvatus(*("compare", "bert", *settings(*BERT), *given[:-1], tmp_path / "other", "--tokens", 100))
    assert code == 2
    assert "one step of bert holds 538 tokens, more than --tokens 100" in err


def test_a_directory_with_something_else_is_not_touched(larvatus, given, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("important")
    code, _, err = larvatus("compare", "bert", *settings(*BERT), *given, "--steps", 1)
    assert code == 5
    assert "holds something else (thesis.tex); choose another --out" in err


# — ablations —


@pytest.mark.parametrize("name", ablation_names())
def test_every_ablation_is_made_of_valid_recipes_that_differ(name):
    ablation = read_ablation(name)
    found = ablation.candidates(size="tiny")
    tables = [recipe_table(candidate.recipe) for candidate in found]
    made = [(table, each.share, each.tuning) for table, each in zip(tables, found, strict=True)]
    assert len(found) >= 2
    assert len({candidate.folder for candidate in found}) == len(found)
    assert all(a != b for k, a in enumerate(made) for b in made[:k])
    assert len({(table["model"]["hidden"]) for table in tables}) == 1 or name == "sizes"
    if name != "multilingual-vocabulary":  # which varies it; all others share vocabulary and shards
        assert len({json.dumps(table["tokenizer"]) for table in tables}) == 1
    assert ablation.paper
    assert ablation.finding


def test_ablations_are_listed_with_paper_and_finding(larvatus):
    code, out, _ = larvatus("ablate")
    assert code == 0
    for name in ablation_names():
        assert name in out
        assert read_ablation(name).paper in out
    assert {ablation["name"] for ablation in json.loads(larvatus("ablate", "--json")[1])} == set(ablation_names())


def test_an_ablation_runs_and_its_variants_share_one_vocabulary(larvatus, given, tmp_path):
    code, out, err = larvatus("ablate", "next-sentence", *settings("phases.1.length=48"), *given, "--steps", 4)
    assert code == 0, err
    said = out[: out.index("the same budget for all")].splitlines()  # what comes before the table
    assert [line[:7] for line in said if line] == ["learnin", *(f"{number} of 4 " for number in range(1, 5))]
    assert "4 steps, " in said[1]
    assert "masked-lm loss" in said[1]
    assert len(list((tmp_path / "out" / "texts").iterdir())) == 1
    assert "pairs + next sentence" in out
    assert "published (Devlin et al. 2019" in out
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [sorted(run["objectives"]) for run in result["runs"]] == [["masked-lm", "next-sentence"]] + [
        ["masked-lm"]
    ] * 3


def test_an_ablation_that_cannot_be_is_one_line(larvatus, given):
    assert larvatus("ablate", "next-sentnce")[0::2] == (
        2,
        "larvatus: there is no ablation 'next-sentnce'; did you mean next-sentence?",
    )
    code, _, err = larvatus("ablate", "masking")
    assert code == 2
    assert "needs text and an output: --corpus my_texts/ --out runs/masking" in err
    with pytest.raises(UsageError, match="--set makes the variants 15% and 20% the same"):
        read_ablation("masking-rate").candidates(settings=["corruption.rate=0.3"])
    with pytest.raises(RecipeError, match="'brt'; did you mean bert"):
        read_ablation("masking").candidates(recipe="brt")
