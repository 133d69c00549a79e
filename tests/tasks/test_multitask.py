"""Several tasks on one encoder: what a step holds, its loss, what is held out, saved, predicted and refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

import larvatus as lv
from larvatus.core.errors import LarvatusError
from larvatus.inference.model import Model
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.bundle.onnx_file import write_onnx
from larvatus.models.nn.device import on_device
from larvatus.tasks.examples import read_examples, split_validation
from larvatus.tasks.inputs import InputPlace
from larvatus.tasks.multitask.arguments import MultiTaskOptions
from larvatus.tasks.multitask.data import TaskBatches, TaskDatasets
from larvatus.tasks.registry import get_task, with_task
from larvatus.tasks.scoring import loss_of
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune
from larvatus.tasks.trainer.step_parts import step_parts
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.tasks.trainer.trainer import Trainer
from tests import made_up as made
from tests.made_up import Call

TEXTS = ["the river was wide", "a bank", "turn your homework in please", "river bank of the river"]
SETTINGS: dict[str, Any] = {"epochs": 12, "batch": 8, "rate": 0.006, "evaluations": 1, "device": "cpu", "quiet": True}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("joint")
    return {
        "tag": made.tags(folder / "tags.conll", 60),
        "classify": made.classes(folder / "classes.jsonl", 30),
        "answer": made.asked(folder / "questions.json", 6),
    }


@pytest.fixture(scope="module")
def joint(files: dict[str, Path], tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Tags and spans of one file, classes of another."""
    return lv.finetune(
        "tag",
        tiny_directory,
        train=files["tag"],
        others={"spans": None, "classify": {"train": files["classify"], "pool": "mean", "weight": 2}},
        out=tmp_path_factory.mktemp("tuned") / "joint",
        **SETTINGS,
    )


class Rows:
    """Examples without content, by their number."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def batches(**sizes: int) -> TaskBatches:
    return TaskBatches({task: Rows(size) for task, size in sizes.items()}, {})  # type: ignore[misc]


@pytest.mark.parametrize("sizes", [{"a": 100, "b": 25}, {"a": 3, "b": 70, "c": 1}, {"a": 5, "b": 5}])
def test_every_step_has_every_task_and_an_epoch_is_a_pass_over_the_largest(sizes: dict[str, int]) -> None:
    data = batches(**sizes)
    seen = {task: Counter[int]() for task in sizes}
    for epoch in range(6):
        steps = data.epoch_batches(7, epoch, 8)
        assert len(steps) == -(-max(sizes.values()) // 8) == data.steps(8)
        for step in steps:
            parts = dict(data.split(step))
            assert all(len(part) for part in parts.values())
            for task, part in parts.items():
                seen[task].update(part.tolist())
        for task, size in sizes.items():  # by permutations: no example is a pass ahead of another
            assert max(seen[task].values()) - min(seen[task][n] for n in range(size)) <= 1
            if size == max(sizes.values()):
                assert set(seen[task].values()) == {epoch + 1}
    same = [step.tolist() for step in data.epoch_batches(7, 5, 8)]
    assert [step.tolist() for step in batches(**sizes).epoch_batches(7, 5, 8)] == same
    assert [step.tolist() for step in data.epoch_batches(8, 5, 8)] != same


def test_the_share_of_a_task_grows_with_the_root_of_its_size() -> None:
    assert batches(a=3200, b=800, c=1).quotas(32) == {"a": 3200, "b": 1600, "c": 100}


def prepared(directory: Path, files: dict[str, Path], **more: Any) -> tuple[Any, FineTuneArguments, Any]:
    names = ["tag", "classify"]
    train = TaskDatasets.of({name: read_examples(name, files[name]) for name in names})
    options = MultiTaskOptions(weights={"classify": 0.25})
    args = FineTuneArguments(config=TrainConfig(epochs=1, batch=8, rate=0.01, **more), options=options)
    bundle = load_bundle(directory)
    return bundle, args, get_task("tag+classify").prepare(bundle, train, None, args)


@pytest.mark.parametrize("budget", [20, 10_000])
def test_a_step_is_the_weighted_sum_of_the_mean_losses_of_its_tasks(
    tiny_directory: Path, files: dict[str, Path], budget: int
) -> None:
    bundle, args, data = prepared(tiny_directory, files)
    tuned, _ = attach_head(bundle, *data.head.values(), seed=0)
    network = tuned.network.double().eval()
    chosen = data.encoded.epoch_batches(0, 0, 8)[0]
    trainer = Trainer(network, data.encoded, args, seed=0)
    micros = trainer._microbatches([*step_parts(network, data.encoded, chosen, None)], 0, 0, budget=budget)
    ours = sum(micro.loss(micro.batch).loss for micro in micros)
    expected = torch.zeros(())
    for (task, examples), weight in zip(data.encoded.split(chosen), (1.0, 0.25), strict=True):
        (head,) = (head for head in network.heads.values() if head.config == data.head[task])
        loss = loss_of(network, on_device(data.encoded.parts[task].batch(examples), "cpu"), head)
        expected = expected + weight * loss.total / loss.count
    torch.testing.assert_close(ours, expected, check_dtype=False)
    assert (len(micros) > 2) == (budget == 20)


@pytest.mark.parametrize("trained", ["head", "lora", "last1"])
def test_heads_learn_with_what_is_trained_of_the_encoder(
    tiny_directory: Path, files: dict[str, Path], trained: str
) -> None:
    bundle, args, data = prepared(tiny_directory, files, trained=TrainableConfig.read(trained))
    result: FineTuneResult = finetune("tag+classify", bundle, data.train, None, args)
    before, after = bundle.network.encoder.state_dict(), result.bundle.network.encoder.state_dict()
    changed = any(not torch.equal(before[name], after[name]) for name in before)
    assert changed == (trained != "head")
    losses = [epoch.training_loss for epoch in result.runs[0].history]
    assert losses[-1] < losses[0]


def test_all_tasks_are_learned(joint: Any, files: dict[str, Path]) -> None:
    assert joint.metric == "mean"
    mains = [joint.scores[name] for name in ("tag.entity-f1", "spans.span-f1", "classify.accuracy")]
    assert joint.scores["mean"] == pytest.approx(np.mean(mains))
    data = {"tag": files["tag"], "spans": files["tag"], "classify": files["classify"]}
    scores = [each.evaluation for each in lv.evaluate(joint, data=data, samples=2, device="cpu")]
    values = [each.metrics[name].value for each, name in zip(scores, ("entity-f1", "span-f1", "macro-f1"), strict=True)]
    assert min(values) > 0.4, values  # of no entities, no spans and one class: 0, 0, 0.4
    assert values[2] > 0.5


def numbers(value: Any) -> Any:
    """Numbers rounded: batches of other sizes may differ in the last digits."""
    if isinstance(value, dict):
        return {name: numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [numbers(each) for each in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


def test_each_head_predicts_in_one_pass_what_it_predicts_by_itself(joint: Model) -> None:
    long = " ".join(TEXTS * 6)  # of several windows
    together = joint.predict([*TEXTS, long])
    for task in ("tag", "spans", "classify"):
        apart = joint.for_task(task).predict([*TEXTS, long])
        chosen = joint.predict([*TEXTS, long], task=task)
        for ours, theirs, named in zip(together, apart, chosen, strict=True):
            assert ours[task].to_dict() == numbers(theirs.to_dict())
            assert named.to_dict() == numbers(theirs.to_dict())


def test_the_encoder_reads_each_text_once_for_all_heads(joint: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    encoder = joint.network.encoder
    plain = encoder.forward

    def counted(batch: Any, **options: Any) -> Any:
        read.extend(batch.lengths.tolist())
        return plain(batch, **options)

    monkeypatch.setattr(encoder, "forward", counted)
    joint.predict([*TEXTS, TEXTS[0]])
    assert sorted(read) == sorted(len(joint.tokenizer.encode(text).ids) + 2 for text in TEXTS)
    read.clear()
    joint.for_task("tag").predict(TEXTS)
    assert len(read) == len(TEXTS)


def test_an_input_is_for_the_tasks_that_can_read_it(joint: Model) -> None:
    words, pair = ("the", "river", "was"), ("the river", "a bank")
    assert [*joint.predict(words).by_task] == ["tag", "spans"]  # type: ignore[union-attr]
    assert [*joint.predict([["the", "river"]])[0].by_task] == ["tag", "spans"]
    assert [*joint.predict(pair).by_task] == ["classify"]  # type: ignore[union-attr]
    task, place = get_task("tag+answer+choose"), InputPlace("text", 1)
    assert [*task.example("a river", place).by_task] == ["tag"]
    assert [*task.example(("a river ?", "the river"), place).by_task] == ["answer"]
    assert [*task.example(("a river", ["was wide", "turn"]), place).by_task] == ["choose"]
    with pytest.raises(LarvatusError, match="text 1"):
        get_task("tag+spans").example(7, place)  # type: ignore[arg-type]


def test_words_and_questions_share_an_encoder(tiny_directory: Path, files: dict[str, Path]) -> None:
    train = TaskDatasets.of({name: read_examples(name, files[name]) for name in ("tag", "answer")})
    config = TrainConfig(epochs=1, batch=8)
    args = FineTuneArguments(config=config, hold_out=False)
    model = Model(finetune("tag+answer", load_bundle(tiny_directory), train, None, args).bundle, torch.device("cpu"))
    answer = model.predict(("in the river ?", "the river was wide"))["answer"]  # type: ignore[index]
    assert answer.to_dict()["question"] == "in the river ?"


def test_tasks_of_one_file_hold_out_the_same_sentences(files: dict[str, Path]) -> None:
    train = TaskDatasets.of({name: read_examples(name, files["tag"]) for name in ("tag", "spans")})
    lines: list[str] = []
    args = FineTuneArguments(callbacks=Callbacks(say=lines.append))
    kept, held_out = split_validation(train, None, args)
    places = [{example.place for example in part.examples} for part in held_out.parts.values()]  # type: ignore[union-attr]
    assert places[0] == places[1]
    assert len(places[0]) == 6
    assert [len(part) for part in kept.parts.values()] == [54, 54]  # type: ignore[attr-defined]
    assert [line.partition(":")[0] for line in lines] == ["tag", "spans"]


def test_it_is_saved_as_one_directory_with_a_card_of_all_tasks(joint: Model, files: dict[str, Path]) -> None:
    path = joint.bundle.path
    bundle = load_bundle(path)
    assert [str(config.__struct_config__.tag) for config in bundle.objectives] == ["tagging", "spans", "classification"]
    assert [config.weight for config in bundle.objectives] == [1, 4, 2]  # type: ignore[union-attr]
    assert len(with_task(bundle, "spans").network.objectives) == 1
    card = (path / "README.md").read_text()
    assert "An encoder that tags words, finds spans of words, nested ones too and classifies texts" in card
    for line in (
        "## Labels in training: classify",
        "| tag: entity-f1 |",
        "| spans: span-f1 |",
        "| tasks | tag, spans, classify |",
    ):
        assert line in card


def test_one_of_its_heads_is_saved_as_a_model_of_transformers(joint: Model, tmp_path: Path) -> None:
    tagger = lv.load(joint.for_task("tag").save(tmp_path / "tagger"), device="cpu")
    assert json.loads((tmp_path / "tagger" / "config.json").read_text())["architectures"] == [
        "BertForTokenClassification"
    ]
    assert [each.to_dict() for each in tagger.predict(TEXTS)] == numbers(
        [each.to_dict() for each in joint.predict(TEXTS, task="tag")]
    )
    with pytest.raises(LarvatusError, match="the model has tagging, spans, classification; save a model of one task"):
        write_onnx(joint.network, tmp_path / "model.onnx", output="logits")


def test_its_figures_are_measured_again(joint: Model, larvatus: Call, files: dict[str, Path]) -> None:
    code, out, err = larvatus("card", joint.bundle.path, "--verify", "--data", files["tag"].parent)
    assert (code, err) == (0, "")
    assert ", 0 not verified because data are missing, 0 wrong" in out
    assert "spans: span-f1" in out


def test_evaluate_measures_one_task_or_all(joint: Model, files: dict[str, Path], larvatus: Call) -> None:
    settings: Any = {"samples": 20, "device": "cpu"}
    data = {name: files[name] for name in ("tag", "classify")}
    each = lv.evaluate(joint, data=data, **settings)
    assert [scores.name for scores in each] == ["tag", "classify"]  # type: ignore[attr-defined]
    one = lv.evaluate(joint, data=files["tag"], task="tag", **settings)  # type: ignore[call-overload]
    apart = lv.evaluate(joint.for_task("tag"), data=files["tag"], **settings)
    assert one.metrics == apart.metrics == each[0].evaluation.metrics  # type: ignore[index]
    both = [f"--data={name}={path}" for name, path in data.items()]
    code, out, _ = larvatus("evaluate", joint.bundle.path, *both, "--samples", 20, "--json")
    assert code == 0
    assert [record["task"] for record in json.loads(out)["tasks"]] == ["tag", "classify"]
    code, out, _ = larvatus("predict", joint.bundle.path, "a river", "--task", "classify", "--json")
    assert (code, json.loads(out)["text"]) == (0, "a river")


@pytest.fixture(scope="module")
def client(joint: Model) -> Iterator[TestClient]:
    with TestClient(build_app([joint], ServeSettings()), base_url="http://127.0.0.1") as made_client:
        yield made_client


def test_the_server_has_each_task_and_all_of_them(joint: Model, client: TestClient) -> None:
    assert {"tag", "spans", "classify", "predict"} <= {*client.get("/v1/models").json()["models"][0]["can"]}
    results = client.post("/v1/predict", json={"texts": TEXTS}).json()["results"]
    for task in ("tag", "spans", "classify"):
        alone = client.post(f"/v1/{task}", json={"texts": TEXTS}).json()["results"]
        assert [result[task] for result in results] == numbers(alone)


REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "a task twice": (("--with", "tag"), "one is given twice: tag, tag"),
    "vectors": (("--with", "embed"), "embed cannot share an encoder with other tasks"),
    "no such task": (("--with", "spams"), "there is no task 'spams' to fine-tune for; did you mean spans?"),
    "a metric of none": (
        ("--with", "spans", "--metric", "accuracy"),
        "is mean, or one of a task, such as tag.accuracy",
    ),
    "a metric of another": (("--with", "spans", "--metric", "classify.f1"), "classify is none of the tasks"),
    "a curve": (("--with", "spans", "--curve", "10"), "a learning curve is of one task"),
    "a weight": (("--with", "spans", "--set", "spans.weight=no"), "the weight of a task"),
    "a setting": (("--with", "spans", "--set", "spans.crf=true"), "crf belongs to finetune tag"),
    "held out of nothing": (("--with", "spans", "--with-dev", "spans"), "--with spans=FILE"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_trained_together_is_refused_in_a_line(
    finetune: Callable[..., Any], files: dict[str, Path], tmp_path: Path, what: str
) -> None:
    more, message = REFUSED[what]
    code, _, err = finetune("tag", "--train", files["tag"], "--out", tmp_path / "out", *more)
    assert code == 2
    assert message in err


def test_a_task_that_the_model_lacks_is_refused(joint: Model) -> None:
    with pytest.raises(LarvatusError, match="was not fine-tuned for the task 'answer'"):
        joint.predict("a river", task="answer")
    with pytest.raises(LarvatusError, match="was not fine-tuned for the task 'answer'"):
        joint.for_task("answer")
