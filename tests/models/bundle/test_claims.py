"""Figures of a card are claims: rendered, added, worked out again; what is wrong is said in one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import ArtefactError, DataError, LarvatusError, UsageError
from larvatus.evaluation.cards.verify import DataFinder, MissingData
from larvatus.models.bundle.card import BEGIN, END, figures_section, render_figures, with_figures, without_marks
from larvatus.models.bundle.claims import (
    COMMANDS,
    Claim,
    Data,
    PowerDraw,
    collect_claims,
    device_power,
    make_claim,
    merge_claims,
)
from larvatus.models.bundle.directory import load_bundle
from tests import made_up

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def tuned_once(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    train = made_up.classes(folder / "train.jsonl")
    lv.finetune("classify", tiny_directory, train=str(train), out=folder / "model", epochs=1, device="cpu")
    return folder


@pytest.fixture
def tuned(tuned_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fine-tuned model of one's own, and its training data in `data/`; the current directory is another."""
    shutil.copytree(tuned_once / "model", tmp_path / "model")
    (tmp_path / "data").mkdir()
    shutil.copy(tuned_once / "train.jsonl", tmp_path / "data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def edited(directory: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    path = directory / "larvatus.json"
    manifest = json.loads(path.read_text())
    change(manifest["claims"])
    path.write_text(json.dumps(manifest))


def set_claim(metric: str, /, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(claims: list[dict[str, Any]]) -> None:
        next(claim for claim in claims if claim["metric"] == metric).update(values)

    return change


# -------------------------------------------------------------------------------- working out again


def test_a_fine_tuned_model_verifies_exactly_and_a_changed_value_is_shown(tuned: Path, larvatus: Call) -> None:
    checked = lv.verify_card(tuned / "model", data=[tuned / "data"])
    assert checked.ok
    again = {outcome.claim.metric: outcome.again for outcome in checked.of("same")}
    assert {"parameters", "accuracy", "energy, kWh"} <= again.keys()
    assert all(outcome.again == pytest.approx(outcome.claim.value, abs=1e-12) for outcome in checked.of("same"))
    assert "steps" in {outcome.claim.metric for outcome in checked.of("recorded")}

    edited(tuned / "model", set_claim("accuracy", value=0.987))
    code, said, err = larvatus("card", tuned / "model", "--verify", "--data", tuned / "data")
    assert code == 5
    assert f"! accuracy (evaluate): claimed 0.987, but comes to {again['accuracy']}" in said
    assert "! README.md does not show what larvatus.json holds" in said
    assert "2 of its figures cannot be confirmed" in err


def test_86_the_tolerance_is_the_verifiers_and_the_value_shown_is_the_one_worked_out(
    tuned: Path, larvatus: Call
) -> None:
    edited(tuned / "model", set_claim("parameters", value=99_000_000_000, tolerance=1e15))
    edited(tuned / "model", set_claim("accuracy", value=0.987, tolerance=1.0, machine="NVIDIA H200"))
    edited(tuned / "model", set_claim("energy, kWh", value=0.5, tolerance=1.0))
    checked = lv.verify_card(tuned / "model", data=[tuned / "data"])
    assert {outcome.claim.metric for outcome in checked.of("differs")} == {"parameters", "accuracy", "energy, kWh"}
    (size,) = (outcome for outcome in checked.outcomes if outcome.claim.metric == "parameters")
    counted = sum(parameter.numel() for parameter in lv.load(tuned / "model").network.parameters())
    assert (size.again, size.tolerance) == (counted, 0)
    code, said, _ = larvatus("card", tuned / "model", "--verify", "--data", tuned / "data")
    assert code == 5
    assert f"! parameters (model): claimed 99000000000, but comes to {counted} (tolerance 0)" in said
    hidden = next(outcome for outcome in checked.of("same") if outcome.claim.metric == "hidden")
    assert f"  hidden (model): claimed {hidden.claim.value}, recomputed {hidden.again}\n" in said


def test_86_figures_that_only_look_recorded_and_intervals_that_nothing_gives_are_not_confirmed(tuned: Path) -> None:
    edited(tuned / "model", lambda claims: claims.append(claims[0] | {"metric": "accuracy", "command": "pretrain"}))
    edited(tuned / "model", lambda claims: claims.append(claims[0] | {"metric": "accuracy", "command": "finetune"}))
    edited(tuned / "model", set_claim("hidden", low=0.0, high=1.0))
    edited(tuned / "model", set_claim("CO₂ equivalent, kg", estimate="nothing"))
    wrong = [outcome.line for outcome in lv.verify_card(tuned / "model", data=[tuned / "data"]).outcomes
             if outcome.verdict in ("failed", "differs")]  # fmt: skip
    assert len(wrong) == 4
    for said in (
        "pretrain records none of this name",
        "finetune records none of this name",
        "hidden (model): claimed an interval, 0.0 to 1.0, but has none",
        "claimed by another formula",
    ):
        assert any(said in line for line in wrong)


def test_86_a_result_must_say_of_which_weights_it_is(tuned: Path) -> None:
    digest = lv.card(tuned / "model").claims[0].model
    unsigned = make_claim("accuracy", 0.9, command="evaluate")
    with pytest.raises(DataError, match="does not name its model"):
        lv.card(tuned / "model", add=[{"claims": [unsigned]}])
    lv.card(tuned / "model", add=[{"claims": [make_claim("accuracy", 0.9, command="evaluate", model=digest)]}])


def test_data_that_are_missing_are_named_and_those_that_changed_are_said(tuned: Path, larvatus: Call) -> None:
    code, said, _ = larvatus("card", tuned / "model", "--verify")
    claim = next(c for c in lv.card(tuned / "model").claims if c.metric == "accuracy")
    assert code == 0
    assert (
        f"? not verified: needs 4 held out of {claim.data[0].files[0]} sha256 {claim.data[0].sha256}: accuracy" in said
    )
    (tuned / "data" / "train.jsonl").write_text('{"text": "wide", "label": "wet"}\n{"text": "a", "label": "dry"}\n')
    code, said, _ = larvatus("card", tuned / "model", "--verify", "--data", tuned / "data")
    assert code == 5
    assert "train.jsonl is not what was measured on: sha256" in said


def test_pretraining_claims_are_worked_out_again_to_the_last_digit(
    run_small: Any, prepared: Any, tmp_path: Path
) -> None:
    run_small("run", steps=2)
    checked = lv.verify_card(tmp_path / "run", data=[prepared.valid.parent])
    assert checked.ok
    same = {outcome.claim.label: outcome for outcome in checked.of("same")}
    assert same["length 48: masked-lm loss"].again == same["length 48: masked-lm loss"].claim.value
    assert {"length 32: next-sentence accuracy", "documents", "layers", "CO₂ equivalent, kg"} <= same.keys()
    assert not checked.of("missing data")


# ------------------------------------------------------------------------------ rendering, adding


def test_text_of_ones_own_is_kept_around_the_figures(tuned: Path) -> None:
    path = tuned / "model" / "README.md"
    path.write_text(path.read_text().replace("## Limitations", "My own words.\n\n## Limitations"))
    with pytest.raises(ArtefactError, match=r"README.md does not match .* larvatus card"):
        lv.verify_card(tuned / "model")
    assert lv.card(tuned / "model").changed
    assert "My own words." in path.read_text()
    assert load_bundle(tuned / "model").claims  # vouched for again
    assert lv.verify_card(tuned / "model").ok
    assert not lv.card(tuned / "model").changed


def test_what_evaluate_writes_is_added_and_works_out_again(tuned: Path, tiny_directory: Path, larvatus: Call) -> None:
    data, result = made_up.classes(tuned / "data" / "test.jsonl", 12, seed=5), tuned / "result.json"
    _, said, _ = larvatus("evaluate", tuned / "model", "--data", data, "--json", "--device", "cpu")
    result.write_text(said)
    assert larvatus("card", tuned / "model", "--add", result)[0] == 0
    assert larvatus("card", tuned / "model", "--add", result)[1].endswith("claims, unchanged\n")
    claim = next(c for c in lv.card(tuned / "model").claims if c.metric == "accuracy" and c.low is not None)
    assert (claim.data[0].name, claim.seed) == (str(data), 0)
    assert f"| accuracy | {claim.value:.4f} | {claim.low:.4g} to {claim.high:.4g} |" in (
        (tuned / "model" / "README.md").read_text()
    )
    checked = lv.verify_card(tuned / "model", data=[tuned / "data"])
    assert checked.ok
    assert not checked.of("missing data")
    copied = shutil.copytree(tiny_directory, tuned / "other")
    with pytest.raises(DataError, match="belongs to another model than"):
        lv.card(copied, add=[result])


def test_text_that_was_evaluated_is_added_too_and_an_old_directory_gets_a_card(
    tiny_directory: Path, tmp_path: Path, larvatus: Call
) -> None:
    """The directory has no claims and a card without marks, as those of Larvatus 0.1."""
    model, text = shutil.copytree(tiny_directory, tmp_path / "old"), tmp_path / "held_out.txt"
    (model / "README.md").write_text("# tiny\n\nBy hand.\n\n## Limitations\n\n- Small.\n")
    path = model / "larvatus.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"recipe": None}))
    text.write_text("The river was wide and deep.\n\nTurn your homework in, please.\n\n" * 8)
    assert [claim.metric for claim in lv.card(model).claims][:2] == ["layers", "hidden"]
    said = (model / "README.md").read_text()
    assert said.startswith("# tiny\n\nBy hand.\n\n" + BEGIN)
    assert said.endswith(END + "\n\n## Limitations\n\n- Small.\n")
    scores = lv.evaluate(model, corpus=str(text), tokens=200, device="cpu")
    assert str(scores).splitlines()[0].split()[:4] == ["language", "tokens", "hidden", "loss"]
    assert str(scores).splitlines()[-1].split()[0] == "all"
    assert "masked-lm loss" in {claim.metric for claim in lv.card(model, add=[scores]).claims}
    checked = lv.verify_card(model, data=[tmp_path])
    assert checked.ok
    assert "masked-lm loss" in {outcome.claim.metric for outcome in checked.of("same")}


def test_figures_are_a_function_of_claims_and_cannot_break_out_of_their_marks() -> None:
    nasty = make_claim(f"loss | {END}\n# not mine", 0.5, command="pretrain")
    text = with_figures("# mine\n\n## Limitations\n", [nasty])
    assert text.count(END) == 1
    assert "\n# not mine" not in text
    assert figures_section(with_figures(text, ())) == render_figures(())
    assert BEGIN not in without_marks(text)
    spread = [
        make_claim("f1", 0.5, command="evaluate"),
        make_claim("f1", 0.4, command="finetune", settings={"statistic": "mean of seeds"}),
        make_claim("f1", 0.1, command="finetune", settings={"statistic": "deviation"}),
    ]
    assert "| f1 | 0.5000 | 0.4000 | 0.1000 |" in render_figures(spread)
    assert len(merge_claims(spread, [make_claim("f1", 0.6, command="evaluate")])) == 3


def test_energy_is_watts_by_time_and_co2_by_intensity(tuned: Path) -> None:
    draw = PowerDraw(watts=700, devices=8, seconds=3_600, overhead=1.5, intensity=100)
    assert (draw.kwh, draw.kg) == (pytest.approx(8.4), pytest.approx(0.84))
    assert [device_power(name, threads=2)[0] for name in ("NVIDIA H200", "NVIDIA A100-PCIE-40GB", "what", "")] == [
        700,
        250,
        200,
        24,
    ]
    claims = {claim.metric: claim for claim in lv.card(tuned / "model", watts=100, intensity=20).claims}
    energy, kg = claims["energy, kWh"], claims["CO₂ equivalent, kg"]
    assert energy.value == pytest.approx(100 * energy.settings["seconds"] / 3.6e6)
    assert kg.value == pytest.approx(float(energy.value) * 0.02)
    assert "watts × devices × seconds" in kg.estimate
    assert "Estimates, not measured." in (tuned / "model" / "README.md").read_text()


def test_converted_figures_go_with_the_weights_and_those_of_a_saved_copy_do_not(tuned: Path) -> None:
    lv.convert(tuned / "model", tuned / "as-larvatus", to="larvatus")
    assert lv.verify_card(tuned / "as-larvatus", data=[tuned / "data"]).ok
    copied = lv.load(tuned / "model", device="cpu").save(tuned / "copy")
    assert not load_bundle(copied).claims
    assert BEGIN not in (copied / "README.md").read_text()


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda claims: claims.append({}), "is none: Object missing required field"),
        (lambda claims: claims[0].pop("metric"), "claim 1 is none: Object missing required field `metric`"),
        (lambda claims: claims[0].update(command="os.system"), "'os.system' is no command that measures"),
        (lambda claims: claims[0].update(value=True), "claim 1 is none"),
        (lambda claims: claims[0].update(value=10**400), "a whole number of more than 18 digits"),
        (lambda claims: claims[0].update(low=10**400, high=10**401), "claim 1 is none"),
        (lambda claims: claims[0].update(value="x" * 501), "more than 500 characters"),
        (lambda claims: claims[0].update(settings={"note": "\ud800"}), "surrogates not allowed"),
        (lambda claims: claims[0].update(settings={"statistic": []}), "statistic is no word or whole number"),
        (lambda claims: claims[0].update(low=0.5), "an interval has two ends"),
        (lambda claims: claims[0].update(colour="red"), "unknown field `colour`"),
    ],
)
def test_claims_of_the_wrong_shape_are_one_line_and_the_model_still_loads(
    change: Any, said: str, tuned: Path, larvatus: Call
) -> None:
    edited(tuned / "model", change)
    code, _, err = larvatus("card", tuned / "model", "--verify")
    assert code == 5
    assert said in err
    assert load_bundle(tuned / "model").network


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_claim("accuracy", metric="acuracy"), "evaluate gives none of this name; did you mean accuracy?"),
        (set_claim("accuracy", settings={"options": {"samples": "many"}}), "settings: Expected `int`"),
        (set_claim("accuracy", data=[]), "names no data"),
        (set_claim("energy, kWh", settings={"watts": -1, "seconds": 1}), "watts = -1"),
        (set_claim("accuracy", settings={"columns": {"text": "nowhere"}}), "cannot be run again"),
        (set_claim("accuracy", settings={"options": {"samples": 10**400}}), "cannot be run again"),
        (set_claim("energy, kWh", settings={"watts": 10**400, "seconds": 1}), "cannot be run again"),
        (set_claim("energy, kWh", settings={"watts": 1, "seconds": 1, "devices": 10**400}), "cannot be run again"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_confirmed_says_why(change: Any, said: str, tuned: Path) -> None:
    edited(tuned / "model", change)
    checked = lv.verify_card(tuned / "model", data=[tuned / "data"])
    assert not checked.ok
    assert any(said in outcome.line for outcome in checked.outcomes)


def test_what_is_no_model_or_no_result_is_refused(tuned: Path, larvatus: Call) -> None:
    for name, contents in {
        "list.json": "[1]",
        "shape.json": '{"claims": 3}',
        "cut.json": "{",
        "text.json": "\0",
    }.items():
        (tuned / name).write_text(contents)
        code, _, err = larvatus("card", tuned / "model", "--add", tuned / name)
        assert (code, err.count("\n")) == (4, 0)
        assert name in err
    assert "holds no model (no larvatus.json)" in larvatus("card", tuned / "data")[2]
    assert "is not a directory" in larvatus("card", tuned / "absent")[2]
    assert larvatus("card", tuned / "model", "--verify", "--add", "x")[0] == 2
    assert "does not exist" in larvatus("card", tuned / "model", "--verify", "--data", tuned / "absent")[2]
    os.remove(tuned / "model" / "model.safetensors")
    assert "model.safetensors is missing" in larvatus("card", tuned / "model")[2]


def test_nothing_that_a_card_names_is_read_from_outside_of_what_was_given(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("x")
    shelf = DataFinder([tmp_path / "in"])
    for name in (str(tmp_path / "secret"), "../secret", "a/../../secret", "", "\0", "..", ".", "./"):
        with pytest.raises(MissingData):
            shelf.paths(Data(name=name, sha256="0" * 64))


def test_a_claim_without_a_checksum_is_refused_as_such(tuned: Path) -> None:
    for metric in ("accuracy", "steps", "layers"):
        edited(tuned / "model", set_claim(metric, model=""))
    checked = lv.verify_card(tuned / "model", data=[tuned / "data"])
    assert {outcome.claim.metric for outcome in checked.of("unsigned")} == {"accuracy", "steps", "layers"}
    assert all("names no weights" in outcome.line for outcome in checked.of("unsigned"))
    assert not checked.ok


def test_claims_of_other_weights_are_refused_before_they_are_run(tuned: Path) -> None:
    for metric in ("accuracy", "steps", "layers"):
        edited(tuned / "model", set_claim(metric, model="0" * 64))
    checked = lv.verify_card(tuned / "model", data=[tuned / "data"])
    assert {outcome.claim.metric for outcome in checked.of("other weights")} == {"accuracy", "steps", "layers"}
    assert all("belongs to other weights: 000000000000…" in outcome.line for outcome in checked.of("other weights"))


def test_a_second_claim_of_a_figure_is_refused(tuned: Path, larvatus: Call) -> None:
    """It once passed where it stood before the true one, and 0.99 was shown."""
    edited(tuned / "model", lambda claims: claims.insert(0, claims[0] | {"value": 0.99}))
    for words in (("--verify",), ()):
        code, _, err = larvatus("card", tuned / "model", *words)
        assert code == 5
        assert "claims 1 and 2 are both of layers (model); remove the wrong one" in err


def test_unknown_columns_of_a_claim_are_refused(tuned: Path) -> None:
    edited(tuned / "model", set_claim("accuracy", settings={"columns": {"colour": "red"}}))
    (failed,) = lv.verify_card(tuned / "model", data=[tuned / "data"]).of("failed")
    assert "'colour' is no column" in failed.line


def test_data_that_are_a_pipe_are_missing_and_not_waited_for(tuned: Path) -> None:
    os.mkfifo(tuned / "data" / "pipe")
    for kind in ("file", "files", "examples", "corpus"):
        with pytest.raises(MissingData):
            DataFinder([tuned / "data"]).paths(Data(name="pipe", sha256="0" * 64, kind=kind))
    with pytest.raises(UsageError, match="pipe is neither a file nor a directory"):
        lv.verify_card(tuned / "model", data=[tuned / "data" / "pipe"])


def test_claims_are_collected_wherever_a_result_carries_them() -> None:
    claim = {"metric": "effect", "value": 0.3, "low": 0.1, "high": 0.5, "command": "audit bias"}
    assert collect_claims({"rows": [{"x": 1, "claims": [claim]}], "claims": []}, "x.json") == (Claim(**claim),)
    with pytest.raises(DataError, match=r"x.json holds no claims"):
        collect_claims({"accuracy": 1}, "x.json")
    assert all(isinstance(title, str) for title in COMMANDS.values())
    with pytest.raises(LarvatusError, match="no figure"):
        make_claim("x", float("nan"), command="model")
