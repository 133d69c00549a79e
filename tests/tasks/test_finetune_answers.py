"""Fine-tuning for answers: a tiny model learns to find a word, to say that it is not there, and keeps all that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Dataset, Place, QuestionExample
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads import QuestionAnswering, QuestionAnsweringConfig
from larvatus.models.network import Network
from larvatus.tasks.answers.answer import Decoding, answer, answer_questions, encode_questions
from larvatus.tasks.answers.evaluation import QuestionValidation
from larvatus.tasks.answers.passages import EmptyWindows
from larvatus.tasks.answers.task import AnswerOptions, question_validation
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.tag.tag import TagOptions
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.trainable import TrainableConfig
from tests.squad_scores import squad2_scores, squad_scores
from tests.tasks.tuning import finetune_answers
from tests.tiny import save_model

FILLER = ["the", "a", "of", "was", "and", "wide", "deep", "."]
QUICK = TrainConfig(epochs=8, batch=16, rate=1e-2)


def questions(count: int, *, seed: int, without: float = 0.0, words: int = 9) -> Dataset[QuestionExample]:
    """The answer is the bank or the river of the passage, with the word that follows it."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(count):
        text = draw.choice(FILLER, words).tolist()
        impossible = bool(draw.random() < without)
        where = int(draw.integers(0, words - 2))
        if not impossible:
            text[where] = str(draw.choice(["bank", "river"]))
        passage = " ".join(text)
        start = len(" ".join(text[:where])) + (where > 0)
        found = " ".join(text[where : where + 2])
        answers = () if impossible else ((found, start),)
        made.append(
            QuestionExample(str(number), "which ?", passage, answers, impossible, None, Place("train.json", number + 1))
        )
    return Dataset(tuple(made), "train.json")


@pytest.fixture(scope="module")
def bundle(
    tmp_path_factory: pytest.TempPathFactory, save_tiny: Callable[..., Path], tiny_model: Callable[..., Network]
) -> Bundle:
    model = tiny_model(dropout=0.0, attention_dropout=0.0)
    return load_bundle(save_tiny(tmp_path_factory.mktemp("answers") / "tiny", model))


def tuned(bundle: Bundle, without: float = 0.0, config: TrainConfig = QUICK, examples: int = 200) -> FineTuneResult:
    train, dev = (questions(count, seed=seed, without=without) for count, seed in ((examples, 1), (40, 2)))
    return finetune_answers(bundle, train, dev, FineTuneArguments(config=config), AnswerOptions())


@pytest.fixture(scope="module")
def learnt(bundle: Bundle) -> FineTuneResult:
    """All questions have an answer."""
    return tuned(bundle)


def test_a_model_learns_to_answer_and_keeps_it(tmp_path: Path, learnt: FineTuneResult) -> None:
    found = learnt
    assert found.metric == "f1"
    assert found.scores is not None
    assert found.scores.values["f1"] > 0.8  # a guess: 0.1
    assert found.scores.values["exact-match"] > 0.6
    assert isinstance(found.validation, QuestionValidation)
    texts = found.validation.predictions(found.bundle.network, ScoringOptions())
    golds = {one.id: one.golds for one in found.dev}
    own = squad_scores(golds, dict(zip(golds, texts, strict=True)))
    assert (own.f1, own.exact) == pytest.approx((found.scores.values["f1"], found.scores.values["exact-match"]))
    (config,) = found.bundle.objectives
    assert isinstance(config, QuestionAnsweringConfig)
    fit = found.calibration
    assert fit.fitted != 1.0
    assert config.temperature == (1.0 if fit.refused else fit.fitted)
    save_model(
        tmp_path / "saved",
        found.bundle.network,
        found.bundle.tokenizer,
        found.bundle.objectives,
        family=found.bundle.family,
    )
    again = load_bundle(tmp_path / "saved")
    assert again.objectives == found.bundle.objectives
    assert found.validation.predictions(again.network, ScoringOptions()) == texts
    pairs = [(one.question, one.passage) for one in found.dev]
    assert [given.text for given in answer_questions(again, pairs, scoring=ScoringOptions())] == texts
    with pytest.raises(DataError, match="question 2: its passage is empty"):
        answer_questions(again, [pairs[0], ("which ?", " ")], scoring=ScoringOptions())
    with pytest.raises(DataError, match="question 1: its text is empty"):
        answer_questions(again, [("", "the river")], scoring=ScoringOptions())
    with pytest.raises(UsageError, match="more than the model's 32"):
        answer_questions(again, pairs, scoring=ScoringOptions(), windows=WindowOptions.of(again, length=33))


def test_questions_without_an_answer_are_learnt_and_a_threshold_is_fitted(bundle: Bundle) -> None:
    found = tuned(bundle, without=0.4)
    assert found.metric == "best-f1"
    assert found.scores is not None
    values = found.scores.values
    assert values["best-f1"] > 0.85
    assert values["f1"] == pytest.approx(values["best-f1"])  # the threshold is the model's now
    (config,) = found.bundle.objectives
    head = head_of(found.bundle.network)
    assert isinstance(head, QuestionAnswering)
    assert isinstance(config, QuestionAnsweringConfig)
    assert config == head.config
    assert config.null
    assert config.threshold == values["best-threshold"] != 0.0
    asked = encode_questions(found.bundle, found.dev.examples, WindowOptions.of(found.bundle, length=QUICK.length))
    questions_ = [one.question for one in found.dev]
    answers = answer(found.bundle.network, questions_, asked, scoring=ScoringOptions())
    golds = {one.id: one.golds for one in found.dev}
    texts = {one.id: given.text for one, given in zip(found.dev, answers, strict=True)}
    assert squad2_scores(golds, texts).f1 == pytest.approx(values["f1"])
    right = [given for one, given in zip(found.dev, answers, strict=True) if one.impossible and not given.text]
    assert right
    assert all(given.start is None and given.null_score is not None for given in right)


def test_the_temperature_gives_right_spans_their_share(learnt: FineTuneResult, monkeypatch: pytest.MonkeyPatch) -> None:
    found = learnt
    assert isinstance(found.validation, QuestionValidation)
    model = found.bundle.network
    head = head_of(model)
    best = found.calibration.fitted  # used or not: that is for the other half of the questions to say

    def surprise(temperature: float) -> float:
        monkeypatch.setattr(head, "config", QuestionAnsweringConfig(temperature=temperature))
        asked = found.validation.asked  # type: ignore[union-attr]
        given = answer(
            model, [one.question for one in found.dev], asked, scoring=ScoringOptions(), decoding=Decoding(top=400)
        )
        losses = []
        for one, own in zip(found.dev, given, strict=True):
            text, start = one.answers[0]
            (share,) = [s.score for s in own.others if (s.start, s.end) == (start, start + len(text))]
            losses.append(-np.log(share))
        return float(np.mean(losses))

    at = surprise(best)
    assert at <= surprise(best * 1.3) + 1e-6
    assert at <= surprise(best / 1.3) + 1e-6


@pytest.mark.parametrize("word", ["head", "last1", "lora4"])
def test_each_choice_of_what_is_trained_runs(bundle: Bundle, word: str) -> None:
    config = TrainConfig(epochs=3, batch=16, rate=1e-2, trained=TrainableConfig.read(word))
    found = tuned(bundle, config=config, examples=64)
    losses = [epoch.training_loss for epoch in found.runs[0].history]
    assert losses[-1] < losses[0]


def test_a_mix_of_layers_learns_too(bundle: Bundle) -> None:
    config = TrainConfig(epochs=3, batch=16, rate=1e-2, trained=TrainableConfig.read("head"))
    job = FineTuneArguments(config=config, options=AnswerOptions(mix=True))
    found = finetune_answers(bundle, questions(48, seed=1), questions(8, seed=2), job)
    losses = [epoch.training_loss for epoch in found.runs[0].history]
    assert losses[-1] < losses[0]


def test_long_passages_are_learnt_in_windows(bundle: Bundle) -> None:
    said: list[str] = []
    train, dev = questions(24, seed=1, words=60), questions(12, seed=2, words=60)
    job = FineTuneArguments(config=TrainConfig(epochs=1, batch=8), callbacks=Callbacks(say=said.append))
    found = finetune_answers(bundle, train, dev, job, AnswerOptions(empty=EmptyWindows(most=1), overlap=4))
    assert found.windows[0] == 24
    assert any("24 questions in" in line for line in said)
    assert any("hold the answer" in line for line in said)
    cut = FineTuneArguments(config=TrainConfig(epochs=1, batch=8, truncate=True), callbacks=Callbacks(say=said.append))
    finetune_answers(bundle, train, dev, cut)
    assert any("answers are in no window" in line for line in said)


def test_bad_data_and_options_are_one_clear_line(bundle: Bundle) -> None:
    train, dev = questions(12, seed=1), questions(4, seed=2)
    hidden = dataclasses.replace(train, examples=(dataclasses.replace(train.examples[0], answers=()),))
    with pytest.raises(DataError, match=r"train.json:1: its answer is not given, so it cannot be trained on"):
        finetune_answers(bundle, hidden, dev, FineTuneArguments())
    with pytest.raises(DataError, match=r"train.json:1: its answer is not given, so it cannot be scored"):
        finetune_answers(bundle, train, hidden, FineTuneArguments())
    none = questions(12, seed=1, without=1.0)
    with pytest.raises(DataError, match="not one question has an answer"):
        finetune_answers(bundle, none, dev, FineTuneArguments())
    with pytest.raises(DataError, match="which a model that always answers cannot learn"):
        finetune_answers(
            bundle, questions(12, seed=1, without=0.5), dev, FineTuneArguments(), AnswerOptions(null=False)
        )
    with pytest.raises(DataError, match="it has no answer, and the model always gives one"):
        question_validation(bundle, none, WindowOptions.of(bundle), AnswerOptions(), null=False)
    with pytest.raises(UsageError, match="takes AnswerOptions, not TagOptions"):
        finetune_answers(bundle, train, dev, FineTuneArguments(options=TagOptions(crf=True)))
    with pytest.raises(UsageError, match="--metric accuracy does not score this task"):
        finetune_answers(bundle, train, dev, FineTuneArguments(metric="accuracy"))
    with pytest.raises(UsageError, match="--length 64 is more than the model's 32 positions"):
        finetune_answers(bundle, train, dev, FineTuneArguments(config=TrainConfig(length=64)))
    with pytest.raises(UsageError, match="longest = 0 must lie between 1"):
        finetune_answers(bundle, train, dev, FineTuneArguments(), AnswerOptions(longest=0))
