"""Few examples: draws that no order changes, PET as published, methods side by side, runs that are resumed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import larvatus as lv
from larvatus.core.errors import DataError, LarvatusError, UsageError
from larvatus.data.labelled.records import Dataset
from larvatus.interfaces.cli.main import run
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.few_shot import pet as pet_run
from larvatus.tasks.few_shot.pet import PatternEnsemble, PatternScores
from larvatus.tasks.few_shot.results import FewShotSettings
from larvatus.tasks.few_shot.training import sample_examples, unlabelled_rest
from tests.made_up import WORDS, classes
from tests.tasks.few_shot.conftest import BAD, GOOD, review, reviews
from tests.tasks.test_run import assert_bit_equal, signal_at

VERBALISER = {"wet": "river", "dry": "homework"}
PATTERNS = ("{text} was {blank} .", "null")
QUICK: dict[str, Any] = {"steps": 6, "distil_steps": 8, "batch": 8, "rate": 0.01, "device": "cpu", "length": 24}
AS_FLAGS = ("--steps", 6, "--distil-steps", 14, "--batch", 8, "--rate", 0.01, "--device", "cpu", "--length", 24)
WORDS_AS_FLAGS = ("--verbaliser", "wet=river", "--verbaliser", "dry=homework")
PATTERNS_AS_FLAGS = ("--pattern", PATTERNS[0], "--pattern", PATTERNS[1])


@settings(max_examples=20)
@given(order=st.permutations(range(40)), k=st.integers(1, 8), number=st.integers(0, 3))
def test_draws_do_not_depend_on_the_order_of_the_file_and_nest(order: list[int], k: int, number: int) -> None:
    data = reviews(40, 1)
    mixed = Dataset(tuple(data.examples[n] for n in order), data.source, kind=data.kind)
    first, again = (sample_examples(each, k, seed=3, number=number) for each in (data, mixed))
    assert [example.text for example in first] == [example.text for example in again]
    assert first.labels() == {"neg": k, "pos": k}
    larger = {example.text for example in sample_examples(data, k + 1, seed=3, number=number)}
    assert {example.text for example in first} <= larger
    assert [example.label for example in first][:2] == ["neg", "pos"]  # the first few show all labels
    rest = unlabelled_rest(data, first, 10, seed=3, number=number)
    assert len(rest) == 10
    assert not {example.text for example in rest} & {example.text for example in first}
    assert {example.label for example in rest} == {None}


def test_draws_differ_and_too_many_are_refused() -> None:
    data = reviews(40, 1)
    assert len({tuple(example.text for example in sample_examples(data, 4, seed=0, number=n)) for n in range(5)}) == 5
    assert sample_examples(data, 5, seed=0, number=0, total=True).labels() == {"neg": 3, "pos": 2}
    with pytest.raises(DataError, match="21 examples of 'neg' are to be drawn, but there are 20"):
        sample_examples(data, 21, seed=0, number=0)
    with pytest.raises(UsageError, match="do not show each of 2 classes"):
        sample_examples(data, 1, seed=0, number=0, total=True)


def test_soft_labels_are_those_of_the_paper() -> None:
    """1/Z Σ w(p) s_p, then softmax at T = 2; naive, in float64."""
    random = np.random.default_rng(1)
    scores = random.normal(size=(3, 5, 4)).astype(np.float32)
    weights = [0.2, 0.9, 0.0]
    soft = PatternEnsemble(tuple(PatternScores("", w, s) for w, s in zip(weights, scores, strict=True))).labels(2.0)
    for u in range(5):
        mean = [sum(w * float(s[u, k]) for w, s in zip(weights, scores, strict=True)) / 1.1 for k in range(4)]
        e = [np.exp(m / 2) for m in mean]
        np.testing.assert_allclose(soft[u], np.array(e) / sum(e), rtol=1e-5)
    nothing = PatternEnsemble(tuple(PatternScores("", 0.0, s) for s in scores))
    np.testing.assert_allclose(nothing.scores, scores.mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"methods": ("tun",)}, "did you mean tune?"),
        ({"k": 0, "methods": ("pet",)}, "need examples"),
        ({"k": 0, "baseline": "finetune"}, "needs examples"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as fault:
        FewShotSettings(**settings)
    assert said in str(fault.value)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return classes(tmp_path / "train.jsonl", count=60)


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    return classes(tmp_path / "test.jsonl", count=30, seed=5)


def test_methods_side_by_side_and_again_the_same(tiny: Bundle, train: Path, test_file: Path) -> None:
    methods = ("zero", "calibrated", "context", "tune", "pet")
    settings = {"k": 4, "draws": 2, "unlabelled_most": 20, **QUICK, "steps": 2, "distil_steps": 3}
    asked: dict[str, Any] = {"words": VERBALISER, "data": test_file, "train": train, **settings}
    table = lv.prompt(tiny.path, patterns=PATTERNS, methods=methods, baseline="finetune", **asked)
    again = lv.prompt(tiny.path, patterns=PATTERNS[1], methods=("tune",), **asked)
    assert again.row("tune") == table.row("tune", PATTERNS[1])
    first = table.to_dict()
    assert json.loads(json.dumps(first, allow_nan=False))["rows"][0]["method"] == "zero"
    names = [row["method"] for row in first["rows"]]
    assert names.count("tune") == names.count("zero") == 2
    assert names[-2:] == ["pet", "finetune"]
    for row in table.rows:
        assert len(row.values) == (1 if row.over == "test examples" else 2)
        assert min(row.values) <= row.mean <= max(row.values)
    text = str(table)
    assert "accuracy (%) on 30 texts" in text
    assert "4 examples a class, 2 draws" in text


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["prompt", *map(str, words)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return ended.value.code, said.out, said.err  # type: ignore[return-value]


def test_texts_are_classified_as_the_model_does_in_python(tiny: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    model = lv.load(tiny.path, device="cpu")
    settings: dict[str, Any] = {"pattern": PATTERNS[0], "calibrate": True}
    answers = model.prompt(["the river", "your homework"], VERBALISER, **settings)
    alone = model.prompt("the river", VERBALISER, **settings)
    assert alone.probabilities == pytest.approx(answers[0].probabilities, abs=1e-5)
    flags = (
        "--model",
        tiny.path,
        *WORDS_AS_FLAGS,
        "--pattern",
        PATTERNS[0],
        "--calibrate",
        "--device",
        "cpu",
        "--json",
    )
    code, out, err = command(capsys, "the river", "your homework", *flags)
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [answer.to_dict() for answer in answers]
    shown = model.prompt("the river", VERBALISER, examples=[("a bank", "wet"), ("please", "dry")])
    assert shown.probabilities != model.prompt("the river", VERBALISER).probabilities
    with pytest.raises(UsageError, match="has no word; did you mean wet"):
        model.prompt("the river", VERBALISER, examples=[("a bank", "wett")])
    with pytest.raises(DataError, match="is a pair, but the pattern has"):
        model.prompt(("the river", "a bank"), VERBALISER, pattern=PATTERNS[0])
    assert model.prompt(("the river", "a bank"), VERBALISER).pair == "a bank"  # null, of pairs


def test_bad_commands_are_refused_in_a_line(
    tiny: Bundle, train: Path, test_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ("--model", tiny.path, *WORDS_AS_FLAGS, "--device", "cpu")
    for words, said in [
        ((), "prompt takes one of TEXT"),
        (("a", "--data", test_file), "prompt takes one of TEXT"),
        (("a", *PATTERNS_AS_FLAGS), "one pattern"),
        (("--data", test_file), "give --train FILE, or --k 0"),
        (("--data", test_file, "--train", train, "--k", 100), "give a smaller --k"),
        (("--out", tmp_path / "o"), "give --train FILE"),
        (("--out", tmp_path / "o", "--train", train, "--k", 0), "give --unlabelled FILE"),
        (("a", "--pattern", "{text}"), "has no {blank}"),
    ]:
        code, _, err = command(capsys, *plain, *words)
        assert code in (2, 4), (words, err)
        assert said in err
        assert len(err.strip().splitlines()) == 1


PET = (*PATTERNS_AS_FLAGS, *WORDS_AS_FLAGS, "--k", 4, *AS_FLAGS, "--seed", 1)


@pytest.mark.parametrize("when", ["in the ensemble", "in the classifier"])
def test_pet_saves_a_classifier_and_goes_on_to_the_same_bits(
    tiny: Bundle,
    train: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    flags = ("--model", tiny.path, "--train", train, *PET)
    if when == "in the ensemble":  # where unlabelled texts are learnt from beside the examples
        flags += ("--mlm-weight", 0.1)
    assert command(capsys, *flags, "--out", tmp_path / "whole")[0] == 0
    plain = pet_run.write_checksummed

    def stop_after(path: Path, value: dict[str, Any]) -> None:
        plain(path, value)
        if len(value["members"]) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        if when == "in the ensemble":
            patched.setattr(pet_run, "write_checksummed", stop_after)
        else:
            signal_at(patched, 1)
        code, _, err = command(capsys, *flags, "--out", tmp_path / "parts")
    assert code == 75, err
    assert "--resume" in err
    changed = [word if word != 0.01 else 0.02 for word in flags]
    code, _, err = command(capsys, *changed, "--out", tmp_path / "parts", "--resume")
    assert (code, "was begun with" in err) == (5, True)
    assert command(capsys, *flags, "--out", tmp_path / "parts", "--resume")[0] == 0
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")
    assert not (tmp_path / "parts" / "checkpoints").exists()
    model = lv.load(tmp_path / "parts", device="cpu")
    assert [type(head).__name__ for head in model.network.heads.values()] == ["Classification"]
    assert model.predict("the river").label in VERBALISER
    assert 0 <= lv.evaluate(model, data=train, samples=20).metrics["accuracy"].value <= 1


def test_a_tuned_prompt_is_saved_evaluated_and_predicts(tiny: Bundle, train: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"batch": 8, "rate": 0.01, "device": "cpu"}
    rows = [json.loads(line) for line in train.read_text().splitlines()]
    for name, wet, epochs in (("one", "river", 12), ("several", "river bank", 2)):
        prompt: dict[str, Any] = {"pattern": PATTERNS[0], "verbaliser": {"wet": (wet,), "dry": ("homework",)}}
        tuned = lv.finetune("prompt", tiny.path, train=train, out=tmp_path / name, epochs=epochs, **prompt, **settings)
        accuracy = lv.evaluate(tuned, data=train, samples=20).metrics["accuracy"].value
        answers = tuned.predict([row["text"] for row in rows])
        assert accuracy > 0.8 or name == "several"
        assert accuracy == np.mean([answer.label == row["label"] for answer, row in zip(answers, rows, strict=True)])
        long = tuned.predict(" ".join(WORDS * 5))
        assert long.coverage.read < long.coverage.tokens
    again = lv.finetune("prompt", tuned, train=train, epochs=1, device="cpu", rate=1e-6, **prompt)
    assert [answer.label for answer in again.predict([row["text"] for row in rows])] == [a.label for a in answers]


def test_biases_alone_learn(tiny: Bundle, train: Path) -> None:
    prompt: dict[str, Any] = {"pattern": "null", "verbaliser": {label: (word,) for label, word in VERBALISER.items()}}
    for task, options in (("classify", {}), ("prompt", prompt)):
        tuned = lv.finetune(task, tiny.path, train=train, trained="bias", epochs=1, device="cpu", **options)
        before, after = tiny.network.encoder.state_dict(), tuned.network.encoder.state_dict()
        changed = {name for name, tensor in after.items() if not torch.equal(tensor.cpu(), before[name])}
        assert changed
        assert all(name.endswith("bias") for name in changed)


def test_a_model_without_biases_says_what_to_train(
    tiny_model: Callable[..., Any], save_tiny: Callable[..., Path], train: Path, tmp_path: Path
) -> None:
    bare = load_bundle(save_tiny(tmp_path / "bare", tiny_model(biases=False)))
    with pytest.raises(LarvatusError, match="no biases to train"):
        lv.finetune("classify", bare.path, train=train, trained="bias", epochs=1, device="cpu")


@pytest.mark.proof
def test_pet_is_above_fine_tuning_where_the_words_are_known(tmp_path: Path) -> None:
    """A positive control: a model that has read reviews with their verdicts, and few of them labelled."""
    from larvatus.core.rng import stream

    random = stream(7, "test verdicts")
    lines = []
    for number in range(3_000):
        words, verdict = (GOOD, "great") if number % 2 else (BAD, "terrible")
        lines.append(f"{review(random, words)} . it was {verdict} . \n\n")
    corpus = tmp_path / "reviews.txt"
    corpus.write_text("".join(lines), encoding="utf-8")
    small = (
        "model.layers=2",
        "model.hidden=64",
        "model.heads=2",
        "tokenizer.size=370",
        "batch=32",
        "phases.0.length=32",
        "packing.type=documents",
    )
    model = lv.pretrain(
        "roberta", corpus=corpus, out=tmp_path / "model", size="tiny", steps=300, settings=small, device="cpu"
    )
    table = lv.prompt(
        model,
        words={"pos": "great", "neg": "terrible"},
        patterns=("{text} . it was {blank} .", "null"),
        data=reviews(200, 2),
        train=reviews(1_000, 3),
        k=2,
        draws=2,
        methods=("zero", "tune", "pet"),
        baseline="finetune",
        steps=40,
        distil_steps=100,
        unlabelled_most=300,
    )

    assert table.row("pet").mean > table.row("finetune").mean + 0.02  # 0.25 and 0.22 seen, with two seeds
    assert table.row("tune", "{text} . it was {blank} .").mean > 0.9
