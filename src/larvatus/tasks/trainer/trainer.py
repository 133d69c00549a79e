"""The fine-tuning loop: epochs over examples in an order of their own, scores on held-out ones, the best weights kept.

    fitted = fit(model, data, Fitting(config=…, seed=1, evaluate=…))
    fitted.best, fitted.history

The order of an epoch is f(seed, epoch), dropout f(seed, step, microbatch): a run that was stopped and goes on ends with
the same weights, and the microbatch (runtime, not science) changes nothing but dropout's draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import NumericsError
from larvatus.core.pretraining_targets import NextTokens, add_text_targets, text_target_kinds
from larvatus.core.rng import stream
from larvatus.core.signals import Stop
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import CausalLM, CausalLMConfig
from larvatus.tasks.features import ExampleBatches, Features
from larvatus.tasks.scoring import ScoringOptions, head_of, loss_of
from larvatus.tasks.trainer.auxiliary import AuxiliaryLoss
from larvatus.tasks.trainer.causal import task_and_lm_loss
from larvatus.tasks.trainer.config import TrainConfig
from larvatus.tasks.trainer.selection import Epoch, improves, is_better, resolve_patience
from larvatus.tasks.trainer.trainable import train_mode, trainable
from larvatus.tasks.validation import Scores
from larvatus.training.engine.loop import Clock, run_loop
from larvatus.training.engine.optimizer import build_optimizer, learning_rate
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.step import MicrobatchLoss, Update, autocast

LOOK_EVERY = 16
"""Steps between two looks at the losses: a GPU would wait at each."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """What the loop is told."""

    config: TrainConfig
    runtime: Runtime
    seed: int
    evaluate: Callable[[], Scores] | None = None
    """Scores the model as it stands, on held-out examples."""
    report: Callable[[Epoch], None] = lambda epoch: None
    """Called after each evaluation."""
    progress: Callable[[int, int, float, float], None] = lambda step, steps, loss, rate: None
    """Called now and then: step, steps, loss, examples a second."""
    stop: Stop = field(default_factory=Stop)
    """Whether a signal asked to stop."""
    warn: Callable[[str], None] = lambda line: None
    """Told where memory runs out."""
    pause: Callable[[], None] = lambda: None
    """Called now and then between two steps, where the state is whole and may be saved."""
    beside: AuxiliaryLoss | None = None
    """What is learnt beside the task from other texts."""
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that share each step."""


@dataclass
class TrainState:
    """A fine-tuning under way: what changes over time."""

    step: int = 0
    seconds: float = 0.0
    best: dict[str, Tensor] | None = None
    """Weights with the best score, of those that are trained."""
    best_epoch: Epoch | None = None
    history: list[Epoch] = field(default_factory=list)
    waited: int = 0
    """Evaluations in a row without a gain (`choosing.gains`)."""


class Microbatch(NamedTuple):
    """A microbatch of a step, and how it adds to the loss."""

    micro: TrainingBatch[Ints]
    share: Callable[[TrainingBatch[Ints]], MicrobatchLoss]


class Trainer:
    """A model, its optimizer and its examples; `run` trains, `fit` says how far it has come."""

    def __init__(
        self, model: Network, data: ExampleBatches, fitting: Fitting, features: Features | None = None
    ) -> None:
        self.model, self.data, self.fitting, self.features = model, data, fitting, features
        self.head = head_of(model)
        config = fitting.config
        weight = 0.0 if config.lm_weight is msgspec.UNSET else config.lm_weight
        self.words = CausalLM(CausalLMConfig(weight=weight)) if weight else None
        """What is learnt beside the task of left-to-right models; it has no weights of its own."""
        groups = trainable(model, config.trained, decay=config.decay, seed=fitting.seed)
        self.optimizer = build_optimizer(model, config.optimizer, groups)
        self.update = Update(
            self.optimizer,
            [parameter for group in groups for parameter in group["params"]],
            runtime=fitting.runtime,
            ranks=fitting.ranks,
            clip=config.clip,
            seed=fitting.seed,
            warn=fitting.warn,
        )
        self.each = -(-len(data) // config.batch)
        self.steps = self.each * (config.epochs or 1)
        self.places = evaluation_steps(self.each, config.evaluations)
        self.patience = resolve_patience(config.patience, evaluations=len(self.places) * (config.epochs or 1))
        self.fit = TrainState()
        self.clock = Clock()
        self.losses: list[float] = []
        """Of the steps since the last evaluation, as far as they were read."""
        self._unread: list[Tensor] = []
        self._chosen = np.empty(0, np.int64)
        self._order: tuple[int, Ints] | None = None

    @property
    def trained(self) -> dict[str, Tensor]:
        """The weights that training changes, by name."""
        return {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

    @property
    def finished(self) -> bool:
        """Whether all steps are made and evaluated, or it no longer gets better."""
        return not self.evaluation_due and (self.fit.step >= self.steps or 0 < self.patience <= self.fit.waited)

    @property
    def evaluation_due(self) -> bool:
        """After the step, or still, where a signal came in the middle of it."""
        return self._evaluates_here() and (not self.fit.history or self.fit.history[-1].step < self.fit.step)

    def _evaluates_here(self) -> bool:
        """Whether an evaluation belongs after the last step."""
        return self.fit.step > 0 and (self.fit.step - 1) % self.each + 1 in self.places

    @property
    def save_due(self) -> bool:
        return self._evaluates_here() or self.fit.step % LOOK_EVERY == 0

    def save(self) -> None:
        self.fitting.pause()

    def run(self) -> TrainState:
        """Train until finished, or until asked to stop."""
        self.clock = Clock(self.fit.seconds)
        run_loop(self, stop=self.fitting.stop, ranks=self.fitting.ranks)
        self.fit.seconds = self.clock.seconds
        return self.fit

    def keep_best(self) -> None:
        """Put the best weights back into the model."""
        if self.fit.best is not None:
            parameters = dict(self.model.named_parameters())
            with torch.no_grad():
                for name, tensor in self.fit.best.items():
                    parameters[name].copy_(tensor)

    def fetch(self) -> bool:
        """Which examples the next step reads: each epoch is a permutation of all."""
        epoch, place = divmod(self.fit.step, self.each)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, epoch_order(self.fitting.seed, epoch, len(self.data))
        batch = self.fitting.config.batch
        self._chosen = self._order[1][place * batch : (place + 1) * batch]
        return True

    def step(self) -> None:
        config, step = self.fitting.config, self.fit.step
        train_mode(self.model)
        batch = self.data.batch(self._chosen)
        size = max(self.head.size(batch), 1e-9)
        if self.words is not None:
            batch = add_text_targets(batch, text_target_kinds([self.words]))
        words = batch.targets[NextTokens].count if self.words is not None else 0
        numbers = self.update(
            lambda budget: self._parts(batch, size, words, step, budget=budget),
            lambda part: part.share(part.micro),
            step=step,
            rate=learning_rate(config.schedule, config.peak, step=step, steps=self.steps),
            figures=1,
        )
        self._unread.append(numbers[0])
        self.fit.step += 1
        if self.fit.step % LOOK_EVERY == 0 or self.fit.step == 1:
            self.read()
        self.fit.seconds = self.clock.seconds

    def _share(self, micro: TrainingBatch[Ints], size: float, words: int) -> MicrobatchLoss:
        """What a microbatch adds to the mean loss of a step of that size; through the encoder, or from features.

        Where the language model learns too, of a step with so many `words` to predict. What is told is the task's loss.
        """
        tensors, limit = on_device(micro, self.fitting.runtime.device), int(micro.tokens.lengths.max())
        beside = None
        with autocast(self.fitting.runtime):
            if self.features is not None:
                loss = self.features.loss(self.head, self._chosen, tensors)
            elif self.words is not None:
                loss, beside = task_and_lm_loss(self.model, tensors, self.head, self.words, limit=limit)
            else:
                loss = loss_of(self.model, tensors, self.head, limit=limit)
        mean = loss.total / size
        total = mean if beside is None else mean + beside.total * (beside.weight / max(words, 1))
        if self.fitting.beside is not None:
            total = total * (1 - self.fitting.beside.share)
        return MicrobatchLoss(loss=total, figures=mean.detach().float()[None])

    def _parts(
        self, batch: TrainingBatch[Ints], size: float, words: int, step: int, *, budget: int
    ) -> list[Microbatch]:
        """The microbatches of a step, of so many tokens at most; vectors that were computed before take little room."""
        whole = self.features is not None
        micros = [batch] if whole else batch.split(budget, self.fitting.ranks.count)
        parts = [Microbatch(micro, lambda part: self._share(part, size, words)) for micro in micros]
        if self.fitting.beside is not None:
            parts += self._beside(self.fitting.beside, step, budget)
        return parts

    def _beside(self, beside: AuxiliaryLoss, step: int, budget: int) -> list[Microbatch]:
        """The microbatches of what is learnt beside the task; of their loss nothing is told."""
        batch = beside.batch(step, seed=self.fitting.seed)
        scale = beside.share / max(beside.count(batch), 1)

        def share(micro: TrainingBatch[Ints]) -> MicrobatchLoss:
            tensors = on_device(micro, self.fitting.runtime.device)
            with autocast(self.fitting.runtime):
                loss = beside.loss(self.model, tensors, limit=int(micro.tokens.lengths.max()))
            return MicrobatchLoss(loss=loss.total * scale, figures=torch.zeros(1, device=self.fitting.runtime.device))

        return [Microbatch(micro, share) for micro in batch.split(budget, self.fitting.ranks.count)]

    def read(self) -> None:
        """Read the losses of the last steps, refuse what is not finite, and show how far it is."""
        if self.update.unsound:
            raise NumericsError(
                f"the loss was not finite by step {self.fit.step:,}, and the weights were left as they were; "
                "try a smaller --rate, or --precision fp32"
            )
        if not self._unread:
            return
        self.losses += torch.stack(self._unread).tolist()
        self._unread.clear()
        done = self.fit.step * self.fitting.config.batch
        self.fitting.progress(self.fit.step, self.steps, self.losses[-1], done / max(self.clock.seconds, 1e-9))

    def evaluate(self) -> Scores | None:
        """By the main rank, for all: what is kept, and when to stop, must not differ."""
        return self.fitting.ranks.share(self.fitting.evaluate) if self.fitting.evaluate is not None else None

    def record(self, scores: Scores | None) -> None:
        """Keep the best weights, count the evaluations without a gain, and say what came of it."""
        self.fit.seconds = self.clock.seconds
        epoch = Epoch(
            step=self.fit.step,
            epoch=self.fit.step / self.each,
            training_loss=sum(self.losses) / len(self.losses),
            scores=scores,
            seconds=round(self.fit.seconds, 3),
        )
        before = self.fit.best_epoch.scores if self.fit.best_epoch is not None else None
        if scores is not None:
            self.fit.waited = 0 if improves(scores, self.fit.history) else self.fit.waited + 1
            if is_better(scores, before):
                self.fit.best = {name: tensor.cpu().clone() for name, tensor in self.trained.items()}
                self.fit.best_epoch = epoch
        self.losses.clear()
        self.fit.history.append(epoch)
        self.fitting.report(epoch)


def epoch_order(seed: int, epoch: int, examples: int) -> Ints:
    """A permutation of the examples for each epoch."""
    return stream(seed, "finetune order", epoch).permutation(examples)


def evaluation_steps(each: int, evaluations: int) -> frozenset[int]:
    """After which steps of an epoch to evaluate: evenly, always at its end, at most after each."""
    evaluations = min(evaluations, each)
    return frozenset(max(1, round(each * (n + 1) / evaluations)) for n in range(evaluations))


def scoring_options(runtime: Runtime) -> ScoringOptions:
    return ScoringOptions(device=runtime.device, precision=runtime.precision)
