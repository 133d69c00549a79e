"""`larvatus finetune` from a file to a directory that Larvatus and `transformers` both load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.data.labelled.tagged import read_tagged
from larvatus.data.labelled.texts import read_texts
from larvatus.tasks.encoding.sequences import Sequences, text_sequences, word_sequences
from larvatus.tasks.registry import parse_file_options
from larvatus.tasks.scoring import ScoringOptions, score_sequences
from larvatus.tasks.trainer.run import sample_share
from larvatus.training.engine.reporter import RemainingTime
from tests import made_up as made
from tests.made_up import QUICK, Call
from tests.tasks.aligned import align_texts

KINDS: dict[str, Callable[..., Path]] = {
    "multi-class": made.classes,
    "pairs": made.pairs,
    "regression": made.numbers,
    "multi-label": made.sets,
}


def logits_of(theirs: Any, sequences: Sequences) -> Any:
    """Of their model, for the one sequence."""
    tokens = sequences.inputs(np.array([0])).tokens
    inputs = {"input_ids": tokens.ids, "token_type_ids": tokens.segments}
    with torch.inference_mode():
        return theirs(**{name: torch.from_numpy(own).long()[None] for name, own in inputs.items()}).logits.numpy()


def history(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "finetuning.json").read_text())
    return found


def lineage(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "larvatus.json").read_text())["lineage"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_is_saved_for_us_and_for_transformers(finetune: Call, tmp_path: Path, kind: str) -> None:
    train, dev = KINDS[kind](tmp_path / "train.jsonl"), KINDS[kind](tmp_path / "dev.jsonl", 16, seed=1)
    code, out, err = finetune("classify", "--train", train, "--dev", dev, "--out", tmp_path / "out", *QUICK)
    assert (code, err) == (0, "")
    assert f"{train}: 40 examples" in out
    assert f"saved {tmp_path / 'out'}" in out

    model = lv.load(tmp_path / "out")
    one: Any = ("the river", "a bank") if kind == "pairs" else "the river bank"
    answer: Any = model.predict(one)
    sequences = text_sequences(model.tokenizer, [one], limit=32)
    ours = score_sequences(model.network, sequences, ScoringOptions())
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    np.testing.assert_allclose(logits_of(theirs, sequences)[0], ours[0], atol=1e-5)
    if kind == "regression":
        assert answer.value == pytest.approx(float(ours[0, 0]), abs=1e-5)
    if kind == "multi-class":
        assert theirs.config.id2label[int(ours.argmax())] == answer.label

    card = (tmp_path / "out" / "README.md").read_text()
    assert "40 examples of" in card
    assert "16 examples of" in card
    own = lineage(tmp_path / "out")
    assert own["train"]["sha256"] in card
    assert own["dev"]["examples"] == 16
    assert own["seeds"] == [0]
    assert f"| {own['metric']} | {own['scores'][own['metric']]:.4f} |" in card
    assert "deviation" not in card  # of one seed there is none
    assert ("calibrat" in card) == (kind != "regression")
    (config,) = model.bundle.objectives
    assert ("divide them by" in card) == (getattr(config, "temperature", 1.0) != 1.0)
    assert ("have a temperature of" in card) != ("have no temperature: " in card or kind == "regression")
    for label in theirs.config.id2label.values():
        assert kind == "regression" or f"| {label} |" in card
    (run,) = history(tmp_path / "out")["runs"]
    assert len(run["history"]) == 4  # two evaluations in each of two epochs
    assert not (tmp_path / "out" / "checkpoints").exists()


@pytest.mark.parametrize(
    "options",
    [("--crf",), ("--trained", "lora"), ("--trained", "head", "--lstm", 8), ("--mix",), ("--trained", "last1")]
)  # fmt: skip
def test_a_tagger_is_saved(finetune: Call, tmp_path: Path, options: tuple[object, ...]) -> None:
    train, dev = made.tags(tmp_path / "train.conll"), made.tags(tmp_path / "dev.conll", 16, seed=1)
    code, out, err = finetune("tag", "--train", train, "--dev", dev, "--out", tmp_path / "out", *QUICK, *options)
    assert (code, err) == (0, "")
    assert "entities: LOC " in out
    words = ["the", "river", "bank", "was"]
    model = lv.load(tmp_path / "out")
    (answer,) = model.predict([words])
    assert len(answer.tags) == 4  # type: ignore[union-attr]
    plain = "No architecture of `transformers`" not in (tmp_path / "out" / "README.md").read_text()
    assert plain == (not {"--lstm", "--mix"} & {*options})
    if plain:
        found = align_texts(model.tokenizer, [words])
        sequences = word_sequences(model.tokenizer, found, limit=32)
        ours = score_sequences(model.network, sequences, ScoringOptions())
        theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
        np.testing.assert_allclose(logits_of(theirs, sequences)[0, 1:-1], ours, atol=1e-5)
    assert ("without the CRF" in (tmp_path / "out" / "README.md").read_text()) == ("--crf" in options)
    assert (tmp_path / "out" / "crf.safetensors").exists() == ("--crf" in options)


def test_several_seeds_give_mean_and_deviation_and_the_best_is_kept(finetune: Call, tmp_path: Path) -> None:
    train, out = made.classes(tmp_path / "train.jsonl", 60), tmp_path / "out"
    code, said, err = finetune("classify", "--train", train, "--out", out, *QUICK, "--seeds", 3, "--seed", 5)
    assert (code, err) == (0, "")
    assert "no held-out examples were given: 6 of 60 examples are held out at random, stratified by label" in said
    own, found = lineage(out), history(out)
    assert own["seeds"] == [5, 6, 7]
    scores = [run["best"]["scores"]["values"][own["metric"]] for run in found["runs"]]
    assert found["kept"] == own["kept"] == 5 + int(np.argmax(scores))
    expected = f"| {max(scores):.4f} | {np.mean(scores):.4f} | {np.std(scores, ddof=1):.4f} |"
    assert f"| {own['metric']} {expected}" in (out / "README.md").read_text()
    assert "mean of seeds" in said


def test_both_losses_are_told_under_their_names(finetune: Call, tmp_path: Path) -> None:
    """The validation loss is not that of training, which was shown beside held-out scores as `loss`."""
    train, out = made.classes(tmp_path / "train.jsonl", 60), tmp_path / "out"
    code, said, _ = finetune("classify", "--train", train, "--out", out, *QUICK)
    assert code == 0
    (run,) = history(out)["runs"]
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == len(run["history"])
    for row, look in zip(rows, run["history"], strict=True):
        assert row["training_loss"] == pytest.approx(look["training_loss"])
        assert row["validation_loss"] == pytest.approx(look["scores"]["validation_loss"])
        assert row["training_loss"] != row["validation_loss"]
        assert "loss" not in row
    first = run["history"][0]
    told = (
        f"training loss {first['training_loss']:.4f} · validation loss {first['scores']['validation_loss']:.4f} · acc"
    )
    assert told in said


def test_a_run_that_has_finished_stops_and_says_how_to_go_on(finetune: Call, tmp_path: Path) -> None:
    train, out = made.classes(tmp_path / "train.jsonl", 60), tmp_path / "out"
    command = ("classify", "--train", train, "--out", out, *QUICK, "--epochs", 40, "--rate", 0.02)
    code, said, _ = finetune(*command, "--patience", 3)
    assert code == 0
    (run,) = history(out)["runs"]
    assert run["steps"] < 40 * 7
    line = f"stopped at step {run['steps']:,} of 280: the last 3 evaluations brought neither a better score nor a lower"
    assert f"{line} validation loss (--patience 0 trains to the end)" in said


def test_examples_of_a_group_are_held_out_together(finetune: Call, tiny_directory: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in made.classes(tmp_path / "x", 60).read_text().splitlines()]
    grouped = [row | {"text": f"{row['text']} {n}", "author": n // 6} for n, row in enumerate(rows)]
    train, out = made.write_rows(tmp_path / "train.jsonl", grouped), tmp_path / "out"
    code, said, err = finetune("classify", "--train", train, "--out", out, *QUICK, "--group", "author")
    assert (code, err) == (0, "")
    assert "6 of 60 examples are held out at random, stratified by label, whole groups at a time" in said
    code, _, err = finetune("classify", "--train", train, "--out", out, *QUICK, "--group", "author", "--no-dev")
    assert (code, "--group sets what is held out together" in err) == (2, True)
    lv.finetune("classify", tiny_directory, train=train, group="author", epochs=1, device="cpu")
    with pytest.raises(UsageError, match="give no dev"):
        lv.finetune("classify", tiny_directory, train=train, dev=train, group="author")


def test_time_left_is_by_the_clock_and_begins_anew_with_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 40.0, 100.0, 200.0, 230.0])
    monkeypatch.setattr("larvatus.training.engine.reporter.time.monotonic", lambda: next(clock))
    pace = RemainingTime()
    assert [pace.left(step, 100) for step in (1, 11, 31, 1, 11)] == ["", "4 min left", "3 min left", "", "4 min left"]


def test_a_curve_has_a_point_for_each_share_and_its_parts_nest(finetune: Call, tmp_path: Path) -> None:
    train, out = made.classes(tmp_path / "train.jsonl", 50), tmp_path / "out"
    code, said, err = finetune("classify", "--train", train, "--out", out, *QUICK, "--curve", "20,50%")
    assert (code, err) == (0, "")
    points = json.loads((out / "curve.json").read_text())
    assert [point["examples"] for point in points] == [9, 22, 45]  # of what the held-out tenth leaves
    assert said.count("held out at random") == 1  # all points have the same held-out examples
    assert points[-1]["mean"] == lineage(out)["scores"][points[-1]["metric"]]
    data = read_texts([str(train)])
    small, large = ({one.place for one in sample_share(data, share)} for share in (0.1, 0.5))
    assert small < large


def test_parts_and_held_out_tenths_leave_every_label_to_learn_from(finetune: Call, tmp_path: Path) -> None:
    rare = [{"text": "turn in your homework", "label": f"rare {n}"} for n in range(12)]
    plain = [json.loads(line) for line in made.classes(tmp_path / "x", 28).read_text().splitlines()]
    train = made.write_rows(tmp_path / "train.jsonl", [*rare, *plain])
    assert len(sample_share(read_texts([str(train)]), 0.05).labels()) == 14
    assert finetune("classify", "--train", train, "--out", tmp_path / "out", *QUICK)[0] == 0
    assert lineage(tmp_path / "out")["dev"]["examples"] == 4
    conll = made.tags(tmp_path / "t.conll")
    assert sample_share(read_tagged([str(conll)]), 0.05).labels().keys() == {"O", "B-LOC", "I-LOC"}


def test_without_held_out_examples_the_last_weights_are_kept(finetune: Call, tmp_path: Path) -> None:
    train, out = made.classes(tmp_path / "train.jsonl"), tmp_path / "out"
    code, said, err = finetune("classify", "--train", train, "--out", out, *QUICK, "--no-dev")
    assert (code, err) == (0, "")
    assert "held out" not in said
    card = (out / "README.md").read_text()
    assert "Nothing was measured" in card
    assert "not calibrated" in card
    assert lineage(out)["scores"] == {}
    assert lineage(out)["train"]["examples"] == 40


def test_a_model_with_another_head_gets_a_new_one_and_with_the_same_labels_keeps_its_own(
    finetune: Call,
    tmp_path: Path,
) -> None:
    train, other = made.classes(tmp_path / "train.jsonl"), made.pairs(tmp_path / "other.jsonl")
    assert "a new classifier" in finetune("classify", "--train", train, "--out", tmp_path / "a", *QUICK)[1]
    said = finetune("classify", "--train", other, "--out", tmp_path / "b", *QUICK, model=tmp_path / "a")[1]
    assert "a new classifier in place of the model's own for 2 other labels" in said
    assert lv.load(tmp_path / "b").bundle.objectives[0].labels == ("longer", "not")  # type: ignore[union-attr]
    said = finetune("classify", "--train", train, "--out", tmp_path / "c", *QUICK, model=tmp_path / "a")[1]
    assert "the model's own, which has the same labels" in said
    assert lineage(tmp_path / "c")["parent_lineage"]["kept"] == 0


def test_a_task_of_glue_by_name_is_resumed_where_others_are_done(finetune: Call, tmp_path: Path) -> None:
    for name in ("SST-2", "RTE"):
        (tmp_path / name).mkdir()
    for split, seed in (("train", 0), ("dev", 1)):
        rows = made.sentences(24, seed)
        lines = [f"{' '.join(w)}\t{int('river' in w)}\n" for w in rows]
        (tmp_path / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
        lines = [
            f"{n}\t{' '.join(w)}\tthe river\t{'' if 'river' in w else 'not_'}entailment\n" for n, w in enumerate(rows)
        ]
        (tmp_path / "RTE" / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + "".join(lines))
    command = ("--glue", tmp_path, "--out", tmp_path / "out", *QUICK)
    assert finetune("classify", "--task", "sst2", *command[:3], tmp_path / "out" / "sst2", *QUICK)[0] == 0
    code, said, err = finetune("classify", "--task", "sst2,rte", *command, "--resume")
    assert (code, err) == (0, "")
    assert "is done already" in said
    assert "this model (dev)" in said
    assert "BERT" in said
    assert (tmp_path / "out" / "rte" / "config.json").is_file()


def test_from_python_with_the_settings_of_the_command(tiny_directory: Path, finetune: Call, tmp_path: Path) -> None:
    train = made.tags(tmp_path / "train.conll")
    settings: dict[str, Any] = {"epochs": 2, "batch": 8, "rate": 0.01, "device": "cpu", "crf": True, "trained": "lora"}
    model = lv.finetune("tag", tiny_directory, train=train, out=tmp_path / "out", **settings)
    assert len(model("the river bank").tags) == 3  # type: ignore[union-attr]
    again = lv.finetune("tag", lv.load(tiny_directory), train=read_tagged([str(train)]), **settings)
    assert finetune("tag", "--train", train, "--out", tmp_path / "cli", *QUICK, "--crf", "--trained", "lora")[0] == 0
    from_cli = lv.load(tmp_path / "cli").network.own_state()
    for name, tensor in model.network.own_state().items():
        assert torch.equal(tensor, again.network.own_state()[name])
        assert torch.equal(tensor, from_cli[name])


@pytest.mark.parametrize(
    ("task", "settings", "says"),
    [
        ("tag", {"epoch": 3}, "did you mean epochs?"),
        ("tagg", {}, "did you mean tag?"),
        ("tag", {"epochs": "three"}, "epochs"),
        ("tag", {"seeds": "ab"}, "int"),
        ("tag", {"trained": 3}, "str"),
        ("tag", {"rate": 0.0}, "above 0"),
        ("tag", {"layer_decay": 2.0}, "at most 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_python(
    tiny_directory: Path,
    tmp_path: Path,
    task: Any,
    settings: dict[str, Any],
    says: str,
) -> None:
    with pytest.raises(UsageError, match=says):
        lv.finetune(task, tiny_directory, train=made.tags(tmp_path / "train.conll"), device="cpu", **settings)


@pytest.mark.parametrize("reading", [{"header": False}, {"quoting": True}])
def test_how_tables_are_read_is_refused_where_words_are_read(reading: dict[str, Any]) -> None:
    for task in ("tag", "spans"):
        with pytest.raises(UsageError, match="are for texts"):
            parse_file_options(task, reading)
