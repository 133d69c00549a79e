"""Every audit resamples the unit that was sampled, and its report, table, JSON, claims and card say which."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import larvatus as lv
from larvatus.evaluation.audit.bias.report import Resampling
from larvatus.evaluation.audit.bias.stereoset import StereoExample, by_category
from larvatus.evaluation.audit.bias.winobias import read_winobias, score_winobias
from larvatus.evaluation.audit.intervals import resampled
from larvatus.metrics.intervals import bootstrap, mean_of_sums, mean_rows

JOBS = {"he": ["river", "bank", "homework"], "she": ["run", "deep", "turn"]}
WORDS = {
    "sentences": ["[GROUP] was [MASK].", "a [MASK], [GROUP]!"],
    "groups": {"first": ["the river", "run"], "second": ["bank"]},
    "attributes": {"size": ["wide", "deep"], "one": ["your"]},
}
TESTS = {"tests": [{"name": "t", "targets": {"x": ["river", "wide"], "y": ["bank", "run"]},
                    "attributes": {"a": ["deep", "your"], "b": ["turn", "please"]}}]}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any, tiny_model: Any, save_tiny: Any) -> lv.Model:
    return lv.load(save_tiny(tmp_path_factory.mktemp("units") / "tiny", tiny_model(seed=3)), device="cpu")


def winobias(folder: Path) -> Path:
    """Three occupations of each stereotype, in sentences with and without capitals and articles."""
    folder.mkdir()
    lines: dict[str, list[str]] = {"pro": [], "anti": []}
    for pronoun, jobs in JOBS.items():
        for job in jobs:
            for shape in ("[The {}] was wide and [{}] was .", "wide, [the {}] , [{}]", "your [{}] and [{}]"):
                for kind, said in (("pro", pronoun), ("anti", "she" if pronoun == "he" else "he")):
                    lines[kind].append(f"{len(lines[kind]) + 1} {shape.format(job, said)}\n")
    for kind, rows in lines.items():
        (folder / f"{kind}_stereotyped_type1.txt.dev").write_text("".join(rows))
    return folder


class ByOccupation:
    """A reader whose log-odds depend on the occupation only: its sentences say the same thing three times."""

    def slots(self, slots: Any, **_: Any) -> list[Any]:
        levels = {job: level for jobs in JOBS.values() for level, job in enumerate(jobs)}
        totals = []
        for at, slot in enumerate(slots):
            job = next(job for job in levels if job in slot.text.lower())
            totals.append(float(levels[job]) if at % 2 == 0 and not slot.hidden else 0.0)
        return [type("Score", (), {"total": total})() for total in totals]  # fmt: skip


def test_winobias_resamples_occupations_within_stereotypes(tmp_path: Path) -> None:
    blanks = read_winobias(winobias(tmp_path / "wino"))
    assert {blank.occupation for blank in blanks} == {job for jobs in JOBS.values() for job in jobs}
    result = score_winobias(ByOccupation(), blanks, Resampling(400), source="made up")  # type: ignore[arg-type]
    score = result.scores["all"]
    assert (score.sentences, score.occupations, result.scores["type1, male"].occupations) == (18, 6, 3)
    assert score.log_odds.value == pytest.approx(1.0)  # levels 0, 1, 2 of each stereotype
    by_row = bootstrap(mean_rows(np.tile(np.repeat([0.0, 1.0, 2.0], 3), 2)), mean_of_sums, samples=400)
    assert score.log_odds.high - score.log_odds.low > 1.4 * (by_row.high - by_row.low)
    assert result.unit == "occupations, separately for each stereotype"


def test_templates_resample_sentences_and_words_and_one_of_either_is_fixed(model: lv.Model) -> None:
    result = lv.audit_bias(model, templates=WORDS, samples=50).parts["templates"]
    assert [each.unit for each in result.differences] == [
        "sentences × attribute words",
        "sentences; one attribute word, fixed",
    ]
    one = {**WORDS, "sentences": WORDS["sentences"][:1], "attributes": {"size": ["wide", "deep"]}}
    (alone,) = lv.audit_bias(model, templates=one, samples=50).parts["templates"].differences
    assert alone.unit == "attribute words; one sentence, fixed"
    assert alone.difference.low <= alone.difference.value <= alone.difference.high


def test_stereoset_resamples_target_terms() -> None:
    """Each term prefers one side in all its examples: there are four draws, not forty."""
    examples = [StereoExample("intrasentence", f"term {at // 10}", "kind", "a BLANK", ("a", "b", "c"), "here")
                for at in range(40)]  # fmt: skip
    sides = np.repeat([1.0, 1.0, 1.0, 0.0], 10)
    scores = by_category(examples, np.stack([sides, 1 - sides, np.full(40, -1.0)], axis=1), Resampling(500))
    assert scores["overall"].ss.value == pytest.approx(75.0)
    assert scores["overall"].ss.high - scores["overall"].ss.low >= 75.0


def test_every_audit_says_what_it_resampled_in_table_json_claims_and_card(model: lv.Model, tmp_path: Path) -> None:
    pairs = "sent_more,sent_less,stereo_antistereo,bias_type\na river,a bank,stereo,x\nrun,wide,stereo,x\n"
    prompts = "a\tthe [MASK]\na\tyour [MASK]\nb\ta [MASK]\nb\trun [MASK]\n"
    text = {"pairs.csv": pairs, "list.txt": "deep\nwide\n", "prompts.tsv": prompts}
    for name, contents in text.items():
        (tmp_path / name).write_text(contents)
    sets: dict[str, Any] = {"pairs": tmp_path / "pairs.csv", "winobias": winobias(tmp_path / "wino"),
                            "templates": WORDS, "associations": TESTS}  # fmt: skip
    bias = lv.audit_bias(model, **sets, samples=20)
    said = bias.to_dict()
    for name, part in bias.parts.items():
        assert part.unit
        assert said["units"][name] == said["parts"][name]["unit"] == part.unit
    for unit in ("sentence pairs", "occupations, separately for each stereotype", "sentences × attribute words",
                 "target words, separately for each set"):  # fmt: skip
        assert resampled(unit) in str(bias)
    toxicity = lv.audit_toxicity(model, tmp_path / "prompts.tsv", words=tmp_path / "list.txt", top=3)
    assert toxicity.to_dict()["units"] == {"groups": "prompts", "differences": "templates that both groups have"}
    assert resampled("prompts") in str(toxicity)
    assert {claim.unit for claim in (*bias.claims, *toxicity.claims) if claim.low is not None} == {
        "sentence pairs", "occupations, separately for each stereotype", "prompts", "templates that both groups have",
    }  # fmt: skip
    copied = shutil.copytree(model.bundle.path, tmp_path / "model")
    lv.card(copied, add=[bias, toxicity])
    readme = (copied / "README.md").read_text()
    assert "| | | 95% interval | resampled | measured on |" in readme
    assert "| occupations, separately for each stereotype |" in readme

    manifest = json.loads((copied / "larvatus.json").read_text())
    for claim in manifest["claims"]:
        if claim.get("unit", "").startswith("occupations"):
            claim["unit"] = "sentences"
    (copied / "larvatus.json").write_text(json.dumps(manifest))
    differ = lv.verify_card(copied, data=[tmp_path, tmp_path / "wino"]).of("differs")
    assert {outcome.claim.settings["task"] for outcome in differ} == {"winobias"}
    assert "claimed an interval over sentences, but occupations, separately" in differ[0].why
