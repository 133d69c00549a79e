"""Figures of audits and suites go into a card, are worked out again, and a changed one is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.interfaces.cli.main import run
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.claims import collect_claims, make_claim

PAIRS = """sent_more,sent_less,stereo_antistereo,bias_type
the river was wide,the bank was wide,stereo,water
the river was deep .,the bank was deep .,antistereo,water
turn your homework in,turn your river in,stereo,work
"""
TEMPLATES = """sentences = ["[GROUP] was [MASK].", "a [MASK], [GROUP]!"]
groups = {first = ["the river", "run"], second = ["bank"]}
attributes = {size = ["wide", "deep"]}
"""
TESTS = """[[tests]]
name = "made up"
targets = {x = ["river", "wide"], y = ["bank", "homework"]}
attributes = {a = ["deep", "your"], b = ["turn", "please"]}
"""
PROMPTS = """rivers\tthe river was [MASK]
rivers\tyour river [MASK] in
banks\tthe bank was [MASK]
banks\tyour bank [MASK]
"""
FILES = {"pairs.csv": PAIRS, "words.toml": TEMPLATES, "tests.toml": TESTS, "prompts.tsv": PROMPTS}
GRAMMAR = [("agreement", "the river was wide .", "the river wide was ."), ("islands", "a deep bank .", "deep a bank .")]
FIRST_PAIRS = "first 100 pairs of each set"


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: Any, tiny_model: Any, save_tiny: Any) -> Path:
    folder = tmp_path_factory.mktemp("claims")
    save_tiny(folder / "model", tiny_model(seed=3))
    data = folder / "data"
    for name in ("wino", "senses", "text"):
        (data / name).mkdir(parents=True)
    for kind, word in (("pro", "river"), ("anti", "bank")):
        line = f"1 [the {word}] was deep and [{'he' if kind == 'pro' else 'she'}] was wide\n"
        (data / "wino" / f"{kind}_stereotyped_type1.txt.dev").write_text(line * 2)
    for name, text in FILES.items():
        (data / name).write_text(text)
    (data / "list.txt").write_text("deep\nhomework\n")
    lines = [{"sentence_good": g, "sentence_bad": b, "UID": t, "linguistics_term": t} for t, g, b in GRAMMAR]
    (data / "blimp.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (data / "text" / "en_wiki.valid.txt").write_text("the river was wide .\n\na deep bank and the river .\n\n" * 6)
    return folder


@pytest.fixture
def made(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and its data; the current directory is another."""
    shutil.copytree(made_once, tmp_path / "made")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "made"


@pytest.fixture
def larvatus(capsys: Any) -> Callable[..., tuple[int, str]]:
    def call(*words: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            run([str(word) for word in words])
        return int(ended.value.code or 0), capsys.readouterr().out

    return call


def altered(model: Path, label: tuple[str, str], **values: Any) -> None:
    """Change the claim of a metric and category (or group) in larvatus.json."""
    path = model / "larvatus.json"
    manifest = json.loads(path.read_text())
    (claim,) = (
        each
        for each in manifest["claims"]
        if each["metric"] == label[0] and label[1] in (each["settings"].get("category"), each["settings"].get("group"))
    )
    claim.update(values)
    path.write_text(json.dumps(manifest))


def test_bias_is_added_by_category_verified_and_a_changed_figure_is_named(
    made: Path, larvatus: Callable[..., tuple[int, str]]
) -> None:
    data, model, result = made / "data", made / "model", made / "bias.json"
    sets = ("--pairs", data / "pairs.csv", "--winobias", data / "wino", "--templates", data / "words.toml")
    sets += ("--associations", data / "tests.toml")
    code, said = larvatus("audit", "bias", "--model", model, *sets, "--samples", 20, "--json", "--device", "cpu")
    assert code == 0
    result.write_text(said)
    claims = collect_claims(json.loads(said), "it")
    of_pairs = [claim for claim in claims if claim.data[0].name.endswith("pairs.csv")]
    assert {claim.settings["category"] for claim in of_pairs} == {"water", "work", "all"}
    assert {len(claim.data) for claim in claims if claim.settings["task"] == "winobias"} == {2}
    assert {claim.settings["task"] for claim in claims} == {"crows_pairs", "winobias", "templates", "associations"}
    assert larvatus("card", model, "--add", result)[0] == 0
    readme = (model / "README.md").read_text()
    assert "## Audit: bias" in readme
    assert "| crows_pairs: water: sent_more preferred (pll), % of 2 pairs |" in readme

    checked = lv.verify_card(model, data=[data])
    assert checked.ok
    again = [outcome for outcome in checked.of("same") if outcome.claim.command == "audit bias"]
    assert len(again) == len(claims)
    assert all(outcome.again == pytest.approx(outcome.claim.value, abs=1e-9) for outcome in again)
    missing = lv.verify_card(model).of("missing data")
    assert {outcome.claim.command for outcome in missing} == {"audit bias"}
    (why,) = {outcome.why for outcome in missing if outcome.claim.settings["task"] == "winobias"}
    assert all(f"{kind}_stereotyped_type1.txt.dev sha256" in why for kind in ("pro", "anti"))  # every file is named

    altered(model, ("sent_more less sent_less (aul), nats", "work"), value=9.5)
    code, said = larvatus("card", model, "--verify", "--data", data)
    assert code == 5
    assert "! crows_pairs: work: sent_more less sent_less (aul), nats (audit bias): claimed 9.5, but comes to" in said


def test_what_a_card_says_of_an_audit_is_not_believed(made: Path) -> None:
    data, model = made / "data", made / "model"
    report = lv.audit_bias(model, pairs=data / "pairs.csv", samples=20, device="cpu", out=made / "out")
    assert not lv.audit_bias(model, pairs=[("a river", "a bank")], samples=20, device="cpu").claims  # from memory
    assert lv.card(model, add=[made / "out" / "bias.json"]).claims == lv.card(model, add=[report]).claims
    label = ("sent_more preferred (pll), % of 1 pairs", "work")
    before = (model / "larvatus.json").read_text()
    for change, why in (
        ({"columns": {"out": "/tmp/x"}}, "'out' is no column"),
        ({"task": "os.system"}, "Invalid enum value"),
        ({"samples": -1}, "cannot be run again"),
        ({"own_words": True}, "names no list of swaps"),
    ):
        settings = {"task": "crows_pairs", "category": "work", "samples": 20, **change}
        altered(model, label, settings=settings)
        failed = lv.verify_card(model, data=[data]).of("failed")
        assert [outcome.claim.settings for outcome in failed] == [settings]
        assert why in failed[0].why
        (model / "larvatus.json").write_text(before)
    (data / "pairs.csv").write_text(PAIRS + "a bank,a river,stereo,work\n")
    assert lv.verify_card(model, data=[data]).of("changed data")


def made_elsewhere(model: Path, metric: str, command: str, **settings: Any) -> dict[str, Any]:
    return {"claims": [make_claim(metric, 0.5, command=command, settings=settings, model=model_digest(model))]}


def verdicts(model: Path, data: Path, command: str) -> dict[str, str]:
    outcomes = lv.verify_card(model, data=[data]).outcomes
    return {each.claim.label: each.verdict for each in outcomes if each.claim.command == command}


def test_toxicity_is_claimed_by_group_and_verifies_where_a_list_judges(made: Path) -> None:
    data, model = made / "data", made / "model"
    report = lv.audit_toxicity(model, data / "prompts.tsv", words=data / "list.txt", top=3, device="cpu")
    neutral = lv.audit_toxicity(model, words=data / "list.txt", top=3, device="cpu", beside=model)
    judged = made_elsewhere(model, "judged", "audit toxicity", top=3, judge="5f2c", label="toxic")
    lv.card(model, add=[report, neutral.to_dict(), judged])
    altered(model, ("toxic share by probability", "rivers"), value=0.999)
    said = verdicts(model, data, "audit toxicity")
    assert said.pop("judged") == "missing data"  # another model judged
    assert said.pop("rivers: toxic share by probability") == "differs"
    assert {"banks: toxic share of the top 3", "women: toxic share by probability"} <= said.keys()
    assert set(said.values()) == {"same"}


def test_parts_of_a_suite_are_claimed_and_those_that_do_not_train_verify(made: Path) -> None:
    data, model = made / "data", made / "model"
    results = lv.evaluate_suite(model, data=data, only="masked,blimp,isotropy", quick=True, device="cpu", quiet=True)
    (made / "suite.json").write_text(json.dumps(results.to_dict()))
    tuned = made_elsewhere(model, "accuracy", "evaluate suite", suite="english", task="sst2", seeds=[0, 1, 2])
    lv.card(model, add=[made / "suite.json", tuned])
    assert f"| blimp: islands: accuracy ({FIRST_PAIRS}) |" in (model / "README.md").read_text()
    altered(model, ("accuracy", "islands"), value=0.123)
    said = verdicts(model, data, "evaluate suite")
    assert said.pop("sst2: accuracy") == "recorded"
    assert said.pop(f"blimp: islands: accuracy ({FIRST_PAIRS})") == "differs"
    assert {
        "blimp: accuracy (first 100 pairs of each set)",
        "masked: Masked tokens: accuracy, 80/10/10",
        "isotropy: mean cosine",
    } <= said.keys()
    assert set(said.values()) == {"same"}


def test_pairs_drawn_at_random_are_drawn_again(made: Path, larvatus: Callable[..., tuple[int, str]]) -> None:
    data, model = made / "data", made / "model"
    report = lv.audit_bias(model, pairs=data / "pairs.csv", most_pairs=2, seed=1, samples=20, device="cpu")
    records = report.parts["crows_pairs"].pairs
    assert len(records) == 2
    assert {claim.settings["most_pairs"] for claim in report.claims} == {2}
    lv.card(model, add=[report])
    checked = lv.verify_card(model, data=[data])
    assert checked.ok
    assert {outcome.claim.key for outcome in checked.of("same")} >= {claim.key for claim in report.claims}
    every = [lv.audit_bias(model, pairs=data / "pairs.csv", most_pairs=2, seed=seed, samples=20) for seed in range(6)]
    assert len({tuple(pair["sent_more"] for pair in each.parts["crows_pairs"].pairs) for each in every}) > 1
    assert larvatus("audit", "bias", "--model", model, "--templates", data / "words.toml", "--most-pairs", 2)[0] == 2
