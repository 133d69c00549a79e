"""Multiple choice: scores, loss and groups against naive ones, and a rule that is learnt through the commands."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import larvatus as lv
from larvatus.core.errors import DataError
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.rng import stream
from larvatus.core.targets import ChoiceTargets
from larvatus.data.labelled.records import Dataset, Place
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads.sequence_score import MultipleChoiceConfig
from larvatus.models.nn.device import on_device
from larvatus.tasks.choose.encode import (
    ABSENT,
    ChoiceValidation,
    Chosen,
    EncodedChoices,
    encode_choices,
    ending_scores,
    evaluate_choices,
)
from larvatus.tasks.choose.reader import ChoiceExample
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.comparison import compare_evaluations
from larvatus.tasks.scoring import ScoringOptions, head_of, loss_of
from tests.made_up import Call, sentences, write_rows
from tests.models.bundle.theirs import their_directory
from tests.tasks.conftest import PLAIN, random_text
from tests.tasks.test_run import check_resumed
from tests.tasks.test_same_as_transformers import EXAMPLES, SMALL, both, padded

PLACE = Place("test.jsonl", 1)
QUICK = ("--epochs", 4, "--batch", 8, "--rate", 0.01, "--device", "cpu")


@pytest.fixture(scope="module")
def chooser(tuned: Callable[..., Bundle]) -> Bundle:
    return tuned(MultipleChoiceConfig())


def examples(count: int, *, longest: int = 8, seed: int = 1) -> list[ChoiceExample]:
    """Of two to five endings, in random words; some are longer than a window of 16 tokens."""
    random = stream(seed, "test choices")
    text = functools.partial(random_text, random, longest)

    made = []
    for number in range(count):
        endings = tuple(f"{text()} {PLAIN[place]} {text()}" for place in range(random.integers(2, 6)))
        made.append(ChoiceExample(text(), endings, int(random.integers(len(endings))), Place("test.jsonl", number)))
    return made


def encoded(bundle: Bundle, rows: list[ChoiceExample], *, limit: int = 16, truncate: bool = False) -> EncodedChoices:
    return encode_choices(bundle, rows, WindowOptions(limit=limit, truncate=truncate))


@settings(max_examples=15)
@given(seed=st.integers(0, 50), tokens=st.integers(20, 400))
def test_scores_follow_their_endings_and_no_batch_changes_them(chooser: Bundle, seed: int, tokens: int) -> None:
    rows = examples(4, seed=seed)
    order = [stream(seed, "order", number).permutation(len(row.endings)) for number, row in enumerate(rows)]
    shuffled = [
        ChoiceExample(row.context, tuple(row.endings[at] for at in places), None, row.place)
        for row, places in zip(rows, order, strict=True)
    ]
    plain = ending_scores(chooser.network, encoded(chooser, rows), ScoringOptions())
    other = ending_scores(chooser.network, encoded(chooser, shuffled), ScoringOptions(tokens=tokens))
    for row, scores, moved, places in zip(rows, plain, other, order, strict=True):
        np.testing.assert_allclose(scores[places], moved[: len(row.endings)], atol=1e-5)
        assert (scores[len(row.endings) :] == np.float32(ABSENT)).all()
        alone = ending_scores(chooser.network, encoded(chooser, [row]), ScoringOptions())
        np.testing.assert_allclose(alone[0], scores[: len(row.endings)], atol=1e-5)


@given(seed=st.integers(0, 100), budget=st.integers(1, 300))
def test_no_microbatch_cuts_an_example_apart(chooser: Bundle, seed: int, budget: int) -> None:
    data = encoded(chooser, examples(6, seed=seed))
    chosen = stream(seed, "chosen").permutation(len(data))
    batch = data.batch(chosen)
    for parts in (list(batch.cuts(budget)), list(batch.split(budget))):
        targets = [part.targets[ChoiceTargets] for part in parts]
        assert np.concatenate([target.labels for target in targets]).tolist() == data.labels[chosen].tolist()
        for part, target in zip(parts, targets, strict=True):
            assert target.windows.sum() == part.tokens.count == part.tokens.groups.sum()
            assert target.endings.sum() == len(target.windows)
            assert len(part.tokens.groups) == len(target.labels)
        joined = type(batch).join(parts)
        assert (joined.tokens.ids == batch.tokens.ids).all()
        assert (joined.targets[ChoiceTargets].windows == batch.targets[ChoiceTargets].windows).all()


def test_the_loss_is_that_of_a_naive_loop(tuned: Callable[..., Bundle]) -> None:
    bundle = tuned(MultipleChoiceConfig(pool="mean", dropout=0.0), seed=2)
    network = bundle.network.double()
    rows = examples(7)
    data = encoded(bundle, rows)
    assert data.sequences.parts.max() > 1
    data.labels[3] = IGNORE
    batch = data.batch(np.arange(len(rows)))
    head = head_of(network)
    loss = loss_of(network, on_device(batch, "cpu"), head)
    z_ND = network.encoder(on_device(batch, "cpu").tokens)
    windows = iter(
        [head.classifier(torch.tanh(head.dense(z.mean(0)))) for z in z_ND.split(batch.tokens.lengths.tolist())]
    )
    parts = iter(data.sequences.parts.tolist())
    total = 0.0
    for row, label in zip(rows, data.labels.tolist(), strict=True):
        scores = torch.stack([torch.stack([next(windows) for _ in range(next(parts))]).mean() for _ in row.endings])
        if label != IGNORE:
            total = total - torch.log_softmax(scores, 0)[label]
    torch.testing.assert_close(loss.total, total, rtol=1e-10, atol=1e-10)
    assert (float(loss.count), head.size(batch)) == (6.0, 6.0)


def test_held_out_scores_and_evaluation_agree(chooser: Bundle) -> None:
    data = Dataset(tuple(examples(40)), "test.jsonl")
    held = ChoiceValidation(encode_choices(chooser, data.examples, WindowOptions.of(chooser)))
    scores = held.scores(chooser.network, ScoringOptions())
    frozen = held.read_once(chooser.network, ScoringOptions()).scores(chooser.network, ScoringOptions())
    evaluation = evaluate_choices(chooser, data)
    assert scores.values == frozen.values == {"accuracy": evaluation.metrics["accuracy"].value}
    assert scores.validation_loss == pytest.approx(evaluation.calibration.nll, abs=1e-5)
    assert sum(row.examples for row in evaluation.by_endings.values()) == 40
    np.testing.assert_allclose(evaluation.probabilities.sum(1), 1, atol=1e-5)
    comparison = compare_evaluations(evaluation, evaluation, samples=50, seed=0)
    assert json.dumps([evaluation.to_dict(), comparison.to_dict()], allow_nan=False)
    assert "accuracy" in evaluation._repr_html_()
    cut = encoded(chooser, list(data.examples), limit=10, truncate=True)
    assert sum(row.read for row in cut.coverage) < sum(row.tokens for row in cut.coverage)


def choices(path: Path, count: int, seed: int) -> Path:
    """The right ending is the one about a river."""
    random = stream(seed, "test rule")
    rows = []
    for number, words in enumerate(sentences(count, seed)):
        wrong = ["a deep homework", "turn in", "please", "was wide"][: int(random.integers(1, 5))]
        place = int(random.integers(len(wrong) + 1))
        endings = [*wrong[:place], "the river", *wrong[place:]]
        rows.append({"id": f"e{number}", "context": " ".join(words), "endings": endings, "label": place})
    return write_rows(path, rows)


def test_a_rule_is_learnt_through_the_commands(
    finetune: Call, larvatus: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, dev = choices(tmp_path / "train.jsonl", 64, 0), choices(tmp_path / "dev.jsonl", 32, 1)
    place = tmp_path / "out"
    code, out, err = finetune("choose", "--train", train, "--dev", dev, "--out", place, *QUICK)
    assert (code, err) == (0, "")
    assert "read as: context = context, endings = endings, label = label (2 to 5 endings)" in out
    assert "head: a score for each ending; a new classifier, dense from the model" in out
    code, out, _ = larvatus("evaluate", place, "--data", dev, "--against", place, "--json", "--device", "cpu")
    said = json.loads(out)
    assert said["metrics"]["accuracy"]["value"] > 0.9
    assert [row["endings"] for row in said["by_endings"]] == [2, 3, 4, 5]
    card = (place / "README.md").read_text()
    assert "AutoModelForMultipleChoice" in card
    assert "chooses the right of several endings" in card

    code, out, _ = larvatus("predict", place, "--file", dev, "--json", "--device", "cpu")
    answers = [json.loads(line) for line in out.splitlines()]
    wanted = [json.loads(line) for line in dev.read_text().splitlines()]
    assert np.mean([a["choice"] == w["label"] for a, w in zip(answers, wanted, strict=True)]) > 0.9
    assert (answers[0]["id"], answers[0]["line"]) == ("e0", 1)
    given = json.dumps({"context": "the bank", "endings": ["turn in", "the river"]})
    code, out, _ = larvatus("predict", place, given, "--device", "cpu")
    assert (code, out.startswith("1 ")) == (0, True)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    assert larvatus("predict", place, "-", "--device", "cpu")[1] == out
    for wrong in ("the bank", '{"context": "a", "endings": ["b"]}'):
        code, _, err = larvatus("predict", place, wrong, "--device", "cpu")
        assert (code, "Traceback" in err) == (4, False)
    code, out, err = larvatus("data", "check", train, "--dev", dev, "--for", "choose")
    assert code == 0, err
    assert larvatus("data", "check", train, "--dev", dev) == (code, out, err)  # known by its columns
    broken = write_rows(tmp_path / "broken.jsonl", [{"context": "a", "endings": ["the", "of"], "label": 2}])
    code, _, err = finetune("choose", "--train", broken, "--out", tmp_path / "other")
    assert (code, f"{broken}:1: the label is 2, but of endings there are 2" in err) == (4, True)


def test_python_does_what_the_commands_do(tiny_directory: Path) -> None:
    rows = [("the bank", ["turn in", "the river"], 1), ("a bank", ["the river", "please"], 0)] * 12
    model = lv.finetune("choose", tiny_directory, train=rows, dev=rows, epochs=3, rate=0.01, batch=8, device="cpu")
    assert lv.evaluate(model, data=rows, samples=50).metrics["accuracy"].value == 1
    chosen: Any = model.predict([("the bank", ["turn in", "the river", "please"])])[0]
    assert isinstance(chosen, Chosen)
    assert (chosen.choice, chosen.ending) == (1, "the river")
    assert sum(chosen.probabilities.values()) == pytest.approx(1)
    assert "the river" in chosen._repr_html_()
    assert model.predict(("the bank", ["turn in", "the river", "please"])).to_dict() == chosen.to_dict()
    with pytest.raises(DataError, match="endings 0 and 1 are the same"):
        model.predict(("the bank", ["the", "the"]))


def test_training_is_that_of_transformers_step_by_step(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    directory, model = their_directory(tmp_path, tiny_tokenizer, "BertForMultipleChoice", **SMALL)
    random = stream(5, "test steps")
    texts = sentences(4 * EXAMPLES)
    rows = [
        ChoiceExample(" ".join(texts[at]), tuple(map(" ".join, texts[at + 1 : at + 4])), int(random.integers(3)), PLACE)
        for at in range(0, len(texts), 4)
    ]
    data = encode_choices(load_bundle(directory), rows, WindowOptions(limit=64))

    def loss_of(chosen: np.ndarray) -> torch.Tensor:
        inputs = padded(data.sequences, data.pairs_of(chosen), tiny_tokenizer.padding_id)
        together = {name: value.view(len(chosen), 3, -1) for name, value in inputs.items()}
        loss: torch.Tensor = model(**together, labels=torch.from_numpy(data.labels[chosen])).loss
        return loss

    both(directory, model, data, loss_of, head={"dropout": 0.0}, precision=torch.float64)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("choose", "--train", choices(tmp_path / "train.jsonl", 40, 0), "--group", "id", *QUICK)
    check_resumed(finetune, *command, at=3, folder=tmp_path, monkeypatch=monkeypatch)
