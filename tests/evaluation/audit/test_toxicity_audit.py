"""audit toxicity: shares against counts by hand, groups and models compared pair by pair, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import larvatus as lv
from larvatus.evaluation.audit.toxicity.judges import WordListJudge
from larvatus.evaluation.audit.toxicity.measure import NEUTRAL, ToxicityOptions, read_prompts, toxicity
from larvatus.interfaces.cli.main import run

PROMPTS = """# a comment
rivers\tthe river was [MASK] and wide\tfirst
rivers\tyour river [MASK] in\tsecond
banks\tthe bank was [MASK] and wide\tfirst
banks\tyour bank [MASK] in\tsecond
"""
LISTED = ("deep", "homework", "turn")


@pytest.fixture(scope="module")
def tried(tmp_path_factory, tiny_model, save_tiny) -> Path:
    """A folder with two models, prompts, a list of words and text."""
    folder = tmp_path_factory.mktemp("toxicity")
    for number, name in enumerate(("before", "after")):
        save_tiny(folder / name, tiny_model(seed=number))
    (folder / "prompts.tsv").write_text(PROMPTS)
    (folder / "list.txt").write_text("\n".join(("# mine", *LISTED, "unheard-of")))
    (folder / "text.txt").write_text("\n\n".join(f"the river was wide and the bank of the river {w}" for w in LISTED))
    (folder / "pairs.tsv").write_text("the bank was wide\tthe river was wide\nthe bank was deep\tthe river was deep\n")
    return folder


def test_shares_are_those_counted_by_hand_and_groups_differ_template_by_template(tried):
    model = lv.load(tried / "before", device="cpu")
    report = toxicity(
        model, read_prompts(tried / "prompts.tsv"), WordListJudge.read(tried / "list.txt"), ToxicityOptions(top=5)
    )
    plain, weighted = [], []
    for line in PROMPTS.splitlines()[1:]:
        fills = model.fill(line.split("\t")[1], top=5, words_only=True)
        listed = [fill.token in LISTED for fill in fills]
        plain.append(sum(listed) / 5)
        weighted.append(sum(f.probability for f, yes in zip(fills, listed, strict=True) if yes))
        weighted[-1] /= sum(fill.probability for fill in fills)
    assert np.allclose(report.plain, plain)
    assert np.allclose(report.weighted, weighted)
    assert any(plain)
    assert report.groups["rivers"].weighted.value == pytest.approx(np.mean(weighted[:2]))
    less = report.differences["banks"]
    assert less.difference == pytest.approx(np.mean(np.subtract(weighted[2:], weighted[:2])))
    assert less.low <= less.difference <= less.high
    assert list(report.differences) == ["banks"]
    assert any("3 of 4 listed words" in note for note in report.notes)


def test_a_classifier_judges_the_filled_prompts(tried):
    examples = [("the river was deep", "toxic"), ("the river was wide", "fine")] * 8
    judge = lv.finetune("classify", tried / "before", train=examples, epochs=1, device="cpu", out=tried / "judge")
    report = lv.audit_toxicity(tried / "before", tried / "prompts.tsv", judge=str(tried / "judge"), top=2, device="cpu")
    fills = lv.load(tried / "before", device="cpu").fill("the river was [MASK] and wide", top=2, words_only=True)
    scores = [judge.predict(fill.text).probabilities["toxic"] for fill in fills]
    assert report.plain[0] == pytest.approx(np.mean(scores), abs=1e-5)


def code_of(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    return int(ended.value.code or 0)


def test_before_and_after_stand_side_by_side(tried, capsys, tmp_path):
    given = ("--prompts", tried / "prompts.tsv", "--words", tried / "list.txt", "--corpus", tried / "text.txt")
    two = ("--model", tried / "before", "--beside", tried / "after", "--pairs", tried / "pairs.tsv", "--quiet")
    assert code_of("audit", "toxicity", *two, *given, "--top", 5, "--out", tmp_path / "both.json") == 0
    shown = capsys.readouterr().out
    assert "loss of held-out text" in shown
    told = json.loads((tmp_path / "both.json").read_text())
    names = [change["what"] for change in told["changes"]]
    assert len(names) == 5  # two groups, both together, pairs, loss
    for change in told["changes"]:
        assert change["after"] - change["before"] == pytest.approx(change["difference"])
        assert change["low"] <= change["difference"] + 1e-9
        assert change["difference"] <= change["high"] + 1e-9
    same = lv.audit_toxicity(
        tried / "before", tried / "prompts.tsv", words=str(tried / "list.txt"), beside=tried / "before", device="cpu"
    )
    assert all(change.difference == 0 for change in same.changes)


def test_the_neutral_set_is_paired(tried):
    prompts = read_prompts(NEUTRAL)
    groups = {prompt.group for prompt in prompts}
    assert len(prompts) == 12 * len(groups)
    assert {prompt.template for prompt in prompts if prompt.group == "people"} == {p.template for p in prompts}


def test_what_cannot_be_judged_is_one_line(tried, capsys, tmp_path, tiny_model, save_tiny):
    def said(code: int, *words: object) -> str:
        assert code_of("audit", "toxicity", *words) == code
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1
        return lines[0]

    def prompts(text: str) -> tuple[str, Path]:
        (tmp_path / "prompts.tsv").write_text(text)
        return "--prompts", tmp_path / "prompts.tsv"

    begun = ("--model", tried / "before", "--words", tried / "list.txt")
    assert "give a judge" in said(2, *begun[:2])
    assert "give a judge" in said(2, *begun, "--judge", tried / "before")
    assert "1 columns" in said(4, *begun, *prompts("the river was [MASK]\n"))
    assert "has 0 blanks" in said(4, *begun, *prompts("rivers\tthe river\n"))
    assert "has 2 blanks" in said(4, *begun, *prompts("rivers\t[MASK] the [MASK]\n"))
    assert "has one prompt" in said(4, *begun, *prompts("rivers\tthe [MASK]\nbanks\ta [MASK]\nbanks\tthe [MASK]\n"))
    assert "two prompts of one template" in said(4, *begun, *prompts("a\tthe [MASK]\tx\na\ta [MASK]\tx\n"))
    assert "has no prompts" in said(4, *begun, *prompts("# nothing\n"))
    assert "lists no words" in said(4, *begun[:2], "--words", _written(tmp_path / "empty.txt", "# none\n"))
    assert "are for two models" in said(2, *begun, "--corpus", tried / "text.txt")
    assert "has no head to predict with" in said(5, *begun[:2], "--judge", tried / "after")
    headless = save_tiny(tmp_path / "headless", tiny_model(objectives=()), ())
    assert "no masked-lm head to fill blanks" in said(5, "--model", headless, *begun[2:])


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
