"""The loop: microbatches, windows, early stopping, the best weights, what is not finite, several seeds."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import NumericsError
from larvatus.core.rng import stream
from larvatus.core.signals import Stop
from larvatus.data.labelled.records import Dataset, Place, TaggedExample, TextExample
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.tasks.classify.classify import LabelledTexts
from larvatus.tasks.classify.options import ClassifyOptions, classification_head
from larvatus.tasks.encoding.sequences import text_sequences, word_sequences
from larvatus.tasks.features import ExampleBatches
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.tag.tag import TaggedWords
from larvatus.tasks.trainer.checkpoint import CheckpointState, CheckpointStore, Epoch, improves, no_progress_warning
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.trainer import Trainer, epoch_order, evaluation_steps
from larvatus.tasks.validation import Scores
from larvatus.training.engine.checkpoint import Checkpoint, Provenance, read_snapshot
from larvatus.training.engine.settings import Runtime
from tests.tasks.aligned import align_texts
from tests.tasks.tuning import finetune_tags, finetune_texts

WORDS = ["the", "river", "bank", "was", "wide", "and", "deep", "runs", "turned", "homework", "please", ",", "!"]
EXAMPLES = 20
HEADS: dict[str, Any] = {
    "classes": ClassificationConfig(labels=("a", "b", "c"), dropout=0.0),
    "weighted": ClassificationConfig(labels=("a", "b", "c"), dropout=0.0, class_weights=(1.0, 5.0, 0.1)),
    "subwords": TaggingConfig(labels=("a", "b", "c"), dropout=0.0),
    "crf": TaggingConfig(labels=("a", "b", "c"), dropout=0.0, crf=True),
    "lstm": TaggingConfig(labels=("a", "b", "c"), dropout=0.0, lstm=5, pool="mean"),
}


@pytest.fixture(scope="module")
def parent(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Callable[..., Network],
    save_tiny: Callable[..., Path],
) -> Bundle:
    model = tiny_model(dropout=0.0, attention_dropout=0.0)
    return load_bundle(save_tiny(tmp_path_factory.mktemp("models") / "parent", model))


def sentences(count: int = EXAMPLES, most: int = 50) -> list[str]:
    draw = stream(1, "test sentences")
    return [" ".join(draw.choice(WORDS, size=draw.integers(1, most))) for _ in range(count)]


def examples(parent: Bundle, head: str) -> ExampleBatches:
    """Texts of up to 50 words for a model of 32 positions: many are windowed."""
    if isinstance(HEADS[head], ClassificationConfig):
        sequences = text_sequences(parent.tokenizer, sentences(), limit=32)
        assert (sequences.parts > 1).any()
        return LabelledTexts(sequences, stream(1, "labels").integers(0, 3, EXAMPLES))
    words = [text.split() for text in sentences()]
    sequences = word_sequences(parent.tokenizer, align_texts(parent.tokenizer, words), limit=32)
    return TaggedWords(sequences, stream(1, "labels").integers(0, 3, sum(map(len, words))))


def start(parent: Bundle, data: ExampleBatches, head: Any, *, microbatch: int = 10_000, **settings: Any) -> Trainer:
    ready, _ = attach_head(parent, head, seed=3)
    told = {name: settings.pop(name) for name in ("evaluate", "stop", "progress", "store") if name in settings}
    config = TrainConfig(**{"epochs": 2, "batch": 8, "rate": 1e-3, "evaluations": 1, **settings})
    evaluate, store = told.pop("evaluate", None), told.pop("store", None)
    args = FineTuneArguments(
        config=config, runtime=Runtime(microbatch=microbatch), callbacks=Callbacks(**told), store=store
    )
    validation: Any = None if evaluate is None else SimpleNamespace(scores=lambda model, scoring: evaluate())
    return Trainer(ready.network, data, args, seed=5, validation=validation)


def weights(training: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in training.trained.items()}


@pytest.mark.parametrize("head", HEADS)
def test_the_microbatch_changes_nothing(parent: Bundle, head: str) -> None:
    """Gradients of many small microbatches add up to those of one, windows and weighted classes included."""
    data = examples(parent, head)
    whole, parts = (
        start(parent, data, HEADS[head], microbatch=size, rate=1e-4, evaluations=3) for size in (10_000, 40)
    )
    for training in (whole, parts):
        training.run()
    assert [look.training_loss for look in parts.state.history] == pytest.approx(
        [look.training_loss for look in whole.state.history]
    )
    assert len(whole.state.history) == whole.steps == 6
    for name, tensor in weights(parts).items():
        assert_close(tensor, whole.trained[name], rtol=0, atol=1e-4, msg=name)  # the rate bounds what rounding can do


def test_memory_that_runs_out_halves_the_microbatch_and_the_checkpoint_remembers(
    parent: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, share = examples(parent, "classes"), Trainer._loss

    def limited(training: Trainer, micro: TrainingBatch[Any], *rest: Any) -> Any:
        if micro.tokens.size > 100:
            raise torch.OutOfMemoryError("out of memory")
        return share(training, micro, *rest)

    given = start(parent, data, HEADS["classes"], microbatch=80)
    given.run()
    monkeypatch.setattr(Trainer, "_loss", limited)
    short = start(parent, data, HEADS["classes"], microbatch=160)
    short.run()
    assert short.update.lowered == 80
    assert [look.training_loss for look in short.state.history] == [look.training_loss for look in given.state.history]
    assert all(torch.equal(tensor, given.trained[name]) for name, tensor in weights(short).items())
    short.args = dataclasses.replace(short.args, store=CheckpointStore(tmp_path, {}))
    path = short.save_checkpoint()
    state = Checkpoint(path, Provenance.here(Runtime()), msgspec.convert(read_snapshot(path).state, CheckpointState))
    store = CheckpointStore(tmp_path, {}, checkpoint=state)
    again = start(parent, data, HEADS["classes"], microbatch=160, store=store)
    again.restore()
    assert again.update.microbatch == 80


def test_a_long_text_counts_once(parent: Bundle) -> None:
    """The loss of a step: the mean over texts of the mean over their windows."""
    data = examples(parent, "classes")
    assert isinstance(data, LabelledTexts)
    training = start(parent, data, HEADS["classes"], epochs=1, batch=EXAMPLES)
    model = training.model.eval()
    (head,) = model.heads.values()
    losses = []
    for number in range(EXAMPLES):
        batch = data.sequences.inputs(data.sequences.of([number])).map(torch.from_numpy)
        scores = head.scores(model.encoder(batch.tokens), batch)
        own = -torch.log_softmax(scores.detach(), -1)[:, data.labels[number]]
        assert len(own) == data.sequences.parts[number]
        losses.append(float(own.mean()))
    assert training.run().history[0].training_loss == pytest.approx(statistics.fmean(losses), rel=1e-5)


def scripted(values: list[float]) -> Callable[[], Scores]:
    given = iter(values)
    return lambda: Scores(metric="made up", values={"made up": next(given)})


def test_training_ends_early_and_the_best_weights_are_kept(parent: Bundle) -> None:
    data = examples(parent, "classes")
    kept: list[dict[str, Tensor]] = []
    values = iter([0.1, 0.5, 0.4, 0.45, 0.9])

    def evaluate() -> Scores:
        kept.append(weights(training))
        return Scores(metric="made up", values={"made up": next(values)})

    training = start(parent, data, HEADS["classes"], epochs=5, patience=2, evaluate=evaluate)
    fit = training.run()
    assert len(fit.history) == 4
    assert fit.step == 4 * training.steps_per_epoch < training.steps
    assert fit.best_epoch is not None
    assert fit.best_epoch.epoch == 2.0
    moved = weights(training)
    training.keep_best()
    for name, tensor in weights(training).items():
        assert torch.equal(tensor, kept[1][name])
    assert any(not torch.equal(tensor, moved[name]) for name, tensor in weights(training).items())


@pytest.mark.parametrize(
    ("scored", "kept"),
    [
        ([(0.0, 3.0), (0.0, 2.0), (0.0, 1.0), (0.0, 1.5)], 3),  # few examples: F1 is still 0, the loss falls
        ([(0.0, 3.0), (0.1, 5.0), (0.0, 1.0)], 2),  # the metric decides before the loss does
        ([(0.5, 1.0), (0.5, 1.0), (0.5, 1.0)], 3),  # equal in both: the later
        ([(0.5, 1.0), (0.5, math.nan), (0.4, 0.1)], 1),  # a loss that is not defined is worse than any
        ([(math.nan, 2.0), (math.nan, 1.0)], 2),
    ],
)
def test_weights_with_equal_scores_are_told_apart_by_validation_loss_then_the_later_are_kept(
    parent: Bundle, scored: list[tuple[float, float]], kept: int
) -> None:
    given = iter(scored)

    def evaluate() -> Scores:
        value, loss = next(given)
        return Scores(metric="made up", values={"made up": value}, validation_loss=loss)

    training = start(parent, examples(parent, "classes"), HEADS["classes"], epochs=len(scored), evaluate=evaluate)
    fit = training.run()
    assert fit.best_epoch is not None
    assert fit.best_epoch.epoch == kept


def epochs_of(values: list[float], losses: list[float]) -> list[Epoch]:
    both = zip(values, losses, strict=True)
    scores = [Scores(metric="f1", values={"f1": value}, validation_loss=loss) for value, loss in both]
    return [Epoch(step=n, epoch=n, training_loss=0.0, scores=own) for n, own in enumerate(scores, start=1)]


def test_patience_runs_out_only_where_neither_score_nor_validation_loss_gains(parent: Bundle) -> None:
    data, losses = examples(parent, "classes"), iter([5.0, 4.0, 3.0, 2.0, 2.5, 2.5, 2.5, 2.5])

    def evaluate() -> Scores:
        return Scores(metric="f1", values={"f1": 0.0}, validation_loss=next(losses))

    fit = start(parent, data, HEADS["classes"], epochs=8, patience=2, evaluate=evaluate).run()
    assert [epoch.epoch for epoch in fit.history] == [1, 2, 3, 4, 5, 6]
    *past, last = epochs_of([0.0, 0.5, 0.4], [2.0, 3.0, 1.9])
    assert last.scores is not None
    assert improves(last.scores, past)
    assert not improves(last.scores, [*past, last])


def test_a_short_run_never_stops_early_unless_asked_and_a_long_one_waits_for_half_of_it(parent: Bundle) -> None:
    """Three epochs as large sets have them go to their end, however bad: nothing changes there by default."""
    evaluate = lambda: Scores(metric="f1", values={"f1": 0.5}, validation_loss=1.0)  # noqa: E731
    data = examples(parent, "classes")
    short = start(parent, data, HEADS["classes"], epochs=3, evaluations=2, evaluate=evaluate)
    assert short.run().step == short.steps
    long = start(parent, data, HEADS["classes"], epochs=20, evaluations=2, evaluate=evaluate)
    assert len(long.run().history) == 1 + 20  # half of 40, after the first, which gains
    whole = start(parent, data, HEADS["classes"], epochs=20, evaluations=2, patience=0, evaluate=evaluate)
    assert whole.run().step == whole.steps


def test_a_metric_that_never_moved_is_said(parent: Bundle) -> None:
    assert "f1 stayed 0 at all 3 evaluations" in str(no_progress_warning(epochs_of([0.0] * 3, [3.0, 2.0, 1.0])))
    assert no_progress_warning(epochs_of([0.0, 0.1], [2.0, 1.0])) is None
    assert no_progress_warning(epochs_of([1.0, 1.0], [2.0, 1.0])) is None  # it could not be better
    assert no_progress_warning(epochs_of([0.5], [2.0])) is None


def test_a_score_that_is_not_a_number_is_never_the_best(parent: Bundle) -> None:
    evaluate = scripted([float("nan"), 0.2, float("nan")])
    fit = start(parent, examples(parent, "classes"), HEADS["classes"], epochs=3, evaluate=evaluate).run()
    assert fit.best_epoch is not None
    assert fit.best_epoch.epoch == 2.0


def test_without_held_out_examples_patience_does_not_end_training(parent: Bundle) -> None:
    training = start(parent, examples(parent, "classes"), HEADS["classes"], epochs=4, patience=1)
    assert training.run().step == training.steps
    assert training.state.best is None


def test_evaluations_are_even_and_end_with_the_epoch() -> None:
    assert evaluation_steps(10, 1) == {10}
    assert evaluation_steps(10, 2) == {5, 10}
    assert evaluation_steps(2, 5) == {1, 2}
    assert evaluation_steps(2, 10**9) == {1, 2}  # at once


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stops_before_the_update(parent: Bundle, value: float) -> None:
    """The weights are those from before the bad step, though it is noticed later."""
    config = ClassificationConfig(labels=("value",), kind="regression", dropout=0.0)
    sequences = text_sequences(parent.tokenizer, sentences(), limit=32)
    labels = stream(1, "labels").normal(size=EXAMPLES).astype(np.float32)
    place = 3  # of the bad example in the first epoch; steps are of one example

    class AfterThree(Stop):
        @property
        def requested(self) -> bool:
            return good.state.step == place

    good = start(parent, LabelledTexts(sequences, labels.copy()), config, batch=1, stop=AfterThree())
    good.run()
    labels[epoch_order(5, 0, EXAMPLES)[place]] = value
    bad = start(parent, LabelledTexts(sequences, labels), config, batch=1)
    with pytest.raises(NumericsError, match=r"not finite by step 16, .* smaller --rate") as caught:
        bad.run()
    assert caught.value.exit_code == 6
    for name, tensor in weights(bad).items():
        assert torch.equal(tensor, good.trained[name]), name


def labelled(count: int, *, seed: int) -> Dataset[TextExample]:
    """Texts about a river or about homework."""
    draw = stream(seed, "test examples")
    made = []
    for number in range(count):
        topic = number % 2
        words = [*draw.choice(WORDS[3:9], size=draw.integers(1, 9)), ("river", "homework")[topic]]
        made.append(TextExample(" ".join(draw.permutation(words)), None, ("nature", "school")[topic], Place("made", 1)))
    return Dataset(tuple(made), "made", kind="multi-class")


def test_several_seeds(parent: Bundle) -> None:
    """Mean and deviation are over the seeds; the model kept is the best one with its best weights."""
    job = FineTuneArguments(config=TrainConfig(epochs=2, batch=8, rate=2e-3), seeds=(0, 1, 2))
    tuned = finetune_texts(parent, labelled(32, seed=1), labelled(24, seed=2), job)
    found = [run.best.scores.values for run in tuned.runs if run.best and run.best.scores]
    assert len(found) == 3
    for name, (mean, deviation) in tuned.spread.items():
        values = [one[name] for one in found]
        assert mean == pytest.approx(np.mean(values))
        assert deviation == pytest.approx(np.std(values, ddof=1))
    assert len({run.history[0].training_loss for run in tuned.runs}) == 3  # the seeds differ
    main = {run.seed: run.best.scores.main for run in tuned.runs if run.best and run.best.scores}
    assert main[tuned.kept] == max(main.values())
    assert tuned.validation is not None
    assert tuned.scores is not None
    assert tuned.validation.scores(tuned.bundle.network, ScoringOptions()).values == pytest.approx(tuned.scores.values)
    assert all((own.best.scores.main if own.best and own.best.scores else 0) == max(
        look.scores.main for look in own.history if look.scores) for own in tuned.runs)  # fmt: skip


def test_it_learns_to_classify_and_to_tag(parent: Bundle) -> None:
    config = TrainConfig(epochs=6, batch=8, rate=5e-3)
    tuned = finetune_texts(parent, labelled(160, seed=1), labelled(40, seed=2), FineTuneArguments(config=config))
    assert tuned.scores is not None
    assert tuned.scores.main > 0.95

    def tagged(seed: int) -> Dataset[TaggedExample]:
        found = [tuple(one.text.split()) for one in labelled(60, seed=seed)]
        tag = {"river": "B-LOC", "bank": "B-LOC"}
        made = [TaggedExample(own, tuple(tag.get(word, "O") for word in own), Place("made", 1)) for own in found]
        return Dataset(tuple(made), "made")

    words = finetune_tags(parent, tagged(1), tagged(2), FineTuneArguments(config=config))
    assert words.metric == "entity-f1"
    assert words.scores is not None
    assert words.scores.main > 0.95


def test_balanced_classes_and_labels() -> None:
    """n / (K n_k) for a class; of several labels as many noes as yeses in effect."""
    names = ["a"] * 6 + ["b"] * 3 + ["c"]
    place = Place("made", 1)
    classes = Dataset(tuple(TextExample("x", None, name, place) for name in names), "made", kind="multi-class")
    config = classification_head(classes, ClassifyOptions(balanced=True), natural={})
    assert config.class_weights == pytest.approx((10 / 18, 10 / 9, 10 / 3))
    several = [("a", "b"), ("a",), ("a",), ()]
    labels = Dataset(tuple(TextExample("x", None, own, place) for own in several), "made", kind="multi-label")
    config = classification_head(labels, ClassifyOptions(balanced=True), natural={})
    assert config.class_weights == pytest.approx((1 / 3, 3 / 1))
