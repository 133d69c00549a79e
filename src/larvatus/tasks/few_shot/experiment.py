"""Methods side by side on one test set, each with the same samples of few examples.

    run_experiment(few_shot, FewShotSettings(k=16, draws=5, methods=("zero", "tune", "pet")), train=train, test=test)

E test examples, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import UsageError
from larvatus.data.labelled.records import Dataset, TextExample, in_order
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.tasks.classify.classify import class_scores, classifier_of, encode_texts, label_array, unknown_texts
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.resampling import resampled_classes
from larvatus.tasks.few_shot.pet import distil, train_ensemble
from larvatus.tasks.few_shot.results import FewShotSettings, PromptRow, PromptTable
from larvatus.tasks.few_shot.training import FewShot, check_classes, sample_examples, unlabelled_rest
from larvatus.tasks.prompt.prompted import check_trains, prompt_config, prompt_scores, score_prompt, with_demonstrations
from larvatus.tasks.trainer.config import scoring_options

METRIC = "accuracy"
SAMPLES = 1_000
"""Bootstrap samples."""


def run_experiment(
    few_shot: FewShot,
    few: FewShotSettings,
    *,
    test: Dataset[TextExample],
    train: Dataset[TextExample] | None = None,
    unlabelled: Dataset[TextExample] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> PromptTable:
    """The table; `say` is called with each row. Unlabelled texts of PET are by default those of `train` that were not
    sampled."""
    trial = _Experiment(few_shot, few, test, train, unlabelled)
    rows = []
    for row in trial.rows():
        method, score, interval, pattern = row.cells
        say(f"{method} {pattern}: {score}, {interval}")
        rows.append(row)
    return PromptTable(
        model=str(few_shot.bundle.path),
        data=test.source,
        metric=METRIC,
        examples=len(test),
        k=few.k,
        total=few.total,
        draws=few.draws,
        seed=few.seed,
        rows=tuple(rows),
        notes=tuple(dict.fromkeys(trial.notes)),
    )


@dataclass
class _Experiment:
    few_shot: FewShot
    few: FewShotSettings
    test: Dataset[TextExample]
    train: Dataset[TextExample] | None
    unlabelled: Dataset[TextExample] | None
    notes: list[str] = field(default_factory=list)
    """Notes for people; more are added while methods run."""

    def __post_init__(self) -> None:
        check_classes(self.test)
        self.labels = in_order(set(self.few_shot.words))
        self.configs = {pattern: self._config(pattern) for pattern in self.few_shot.patterns}
        config = next(iter(self.configs.values()))
        unknown_texts(self.test.examples, config).check(strict=True)
        self.gold: Ints = np.asarray(label_array(self.test.examples, config), np.int64)
        self.scoring = scoring_options(self.few_shot.runtime)
        if self.few_shot.training.mlm_share and "pet" not in self.few.chosen:
            raise UsageError("--mlm-weight is of PET's patterns: give --method pet, or leave it out")
        trains = {"tune", "pet"} & set(self.few.chosen)
        if trains:
            check_trains(self.few_shot.bundle)
        if (trains or self.few.baseline or "context" in self.few.chosen) and self.train is None:
            raise UsageError("few examples are sampled from labelled ones: give --train FILE, or --k 0")
        self.draws = self._draws()  # before anything is trained: a class may have too few

    def _config(self, pattern: str) -> VerbaliserConfig:
        pair = self.test.examples[0].pair is not None
        words = self.few_shot.words
        return prompt_config(self.few_shot.bundle, pattern=pattern, words=words, labels=self.labels, pair=pair)

    def rows(self) -> Iterator[PromptRow]:
        chosen = self.few.chosen
        for pattern, config in self.configs.items():
            if "zero" in chosen:
                yield self._of_test("zero", pattern, self._asked(config))
            if "calibrated" in chosen:
                yield self._of_test("calibrated", pattern, self._asked(config, calibrate=True))
        draws = self.draws
        for pattern in self.configs:
            if "context" in chosen:
                yield self._of_draws("context", pattern, [self._context(pattern, each) for each in draws])
            if {"context", "calibrated"} <= set(chosen):
                scores = [self._context(pattern, each, calibrate=True) for each in draws]
                yield self._of_draws("context, calibrated", pattern, scores)
            if "tune" in chosen:
                scores = [self._tuned(pattern, each, number) for number, each in enumerate(draws)]
                yield self._of_draws("tune", pattern, scores)
        if "pet" in chosen:
            scores = [self._pet(each, number) for number, each in enumerate(draws)]
            yield self._of_draws("pet", f"{len(self.configs)} patterns", scores)
        if self.few.baseline:
            scores = [self._finetuned(each, number) for number, each in enumerate(draws)]
            yield self._of_draws("finetune", "", scores)

    def _draws(self) -> list[Dataset[TextExample]]:
        few = self.few
        if self.train is None or not few.k:
            return []
        return [sample_examples(self.train, few.k, seed=few.seed, number=n, total=few.total) for n in range(few.draws)]

    # ---- scores of the test examples, [E, K], by each method

    def _asked(self, config: VerbaliserConfig, *, calibrate: bool = False) -> Floats:
        asked = score_prompt(
            self.few_shot.bundle,
            config,
            self.test.examples,
            neutral=self.few.neutral if calibrate else (),
            length=self.few_shot.training.length,
            scoring=self.scoring,
        )
        if line := asked.prompts.describe():
            self.notes.append(f"{config.pattern}: {line}")
        return asked.scores

    def _context(self, pattern: str, few: Dataset[TextExample], *, calibrate: bool = False) -> Floats:
        shown = tuple((example.text, example.pair, str(example.label)) for example in few.examples)
        return self._asked(with_demonstrations(self.configs[pattern], shown), calibrate=calibrate)

    def _tuned(self, pattern: str, few: Dataset[TextExample], number: int) -> Floats:
        tuned = self.few_shot.tune(pattern, few, seed=self.few.seed + number).bundle
        limit = WindowOptions.of(tuned, length=self.few_shot.training.length).limit
        return prompt_scores(tuned, self.test.examples, limit=limit, scoring=self.scoring)

    def _pet(self, few: Dataset[TextExample], number: int) -> Floats:
        assert self.train is not None
        seed, training = self.few.seed + number, self.few_shot.training
        texts = self.unlabelled
        if texts is None:
            texts = unlabelled_rest(self.train, few, training.unlabelled_most, seed=self.few.seed, number=number)
        if not len(texts):
            raise UsageError("pet needs unlabelled texts, and all examples are sampled; give --unlabelled FILE")
        soft = train_ensemble(self.few_shot, few, texts, seed=seed).labels(training.temperature)
        args = self.few_shot.arguments(len(texts), seed, options=None, steps=training.distil_steps)
        return self._classified(distil(self.few_shot, few, texts, soft, args).bundle)

    def _finetuned(self, few: Dataset[TextExample], number: int) -> Floats:
        return self._classified(self.few_shot.finetune(few, seed=self.few.seed + number).bundle)

    def _classified(self, bundle: Bundle) -> Floats:
        windows = WindowOptions.of(bundle, length=self.few_shot.training.length)
        sequences = encode_texts(bundle, self.test.examples, classifier_of(bundle.network).config, windows)
        return class_scores(bundle.network, sequences, self.scoring)

    # ---- scores of the methods

    def _of_test(self, method: str, pattern: str, scores_EK: Floats) -> PromptRow:
        answers = np.asarray(scores_EK.argmax(1), np.int64)
        rows = resampled_classes(
            self.gold, answers, kind="multi-class", classes=len(self.labels), binary=len(self.labels) == 2
        )
        return PromptRow.of_test(method, pattern, rows[METRIC].interval(samples=SAMPLES, seed=self.few.seed))

    def _of_draws(self, method: str, pattern: str, scores: list[Floats]) -> PromptRow:
        values = [float((each.argmax(1) == self.gold).mean()) for each in scores]
        return PromptRow.of_draws(method, pattern, values)
