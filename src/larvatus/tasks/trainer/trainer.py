"""The trainer of one task, or of several on one encoder, on one seed: epochs, validation, the best weights kept.

    trainer = Trainer(model, data, args, seed=1, validation=validation)
    run = trainer.train()                 # the model now has the weights of run.best

The order of an epoch is f(seed, epoch), dropout f(seed, step, microbatch). So a run that was stopped and resumed ends
with the same weights, and the size of a microbatch changes nothing but the dropout masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import NumericsError, Preempted
from larvatus.core.pretraining_targets import NextTokens, add_text_targets, text_target_kinds
from larvatus.core.rng import stream
from larvatus.models.bundle.weights import read_tensors
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import CausalLM, CausalLMConfig
from larvatus.tasks.features import ExampleBatches, PlannedBatches, epoch_steps
from larvatus.tasks.scoring import head_of, loss_of
from larvatus.tasks.trainer.causal import task_and_lm_loss
from larvatus.tasks.trainer.checkpoint import (
    Epoch,
    SeedRun,
    TrainState,
    improves,
    is_better,
    no_progress_warning,
    resolve_patience,
)
from larvatus.tasks.trainer.config import AuxiliaryLoss, FineTuneArguments
from larvatus.tasks.trainer.step_parts import (
    CachedGradients,
    CachedStep,
    FrozenFeatures,
    StepPart,
    VectorHead,
    head_rates,
    step_parts,
)
from larvatus.tasks.trainer.trainable import train_mode, trainable
from larvatus.tasks.validation import Scores, ValidationSet
from larvatus.training.engine.checkpoint import restore_weights
from larvatus.training.engine.loop import Clock, run_loop
from larvatus.training.engine.optimizer import build_optimizer, learning_rate, optimizer_tensors, restore_optimizer
from larvatus.training.engine.step import MicrobatchLoss, Update, autocast

READ_EVERY = 16
"""Steps between two reads of the losses: each makes a GPU wait."""


class Microbatch(NamedTuple):
    """A part of a step, and the function that gives its loss."""

    batch: TrainingBatch[Ints]
    loss: Callable[[TrainingBatch[Ints]], MicrobatchLoss]


class Trainer:
    """Trains on one seed; `train` runs from the first step, or the last checkpoint, to the best weights.

    Args:
        model: The network with the head to train.
        data: Training examples.
        args: Settings of the run.
        seed: Seed of order and dropout.
        validation: Examples that select the best weights; None keeps the last weights.
        features: Outputs of a frozen encoder, where only the head is trained; of several tasks, by task.
    """

    def __init__(
        self,
        model: Network,
        data: ExampleBatches,
        args: FineTuneArguments,
        *,
        seed: int,
        validation: ValidationSet | None = None,
        features: FrozenFeatures | None = None,
    ) -> None:
        self.model, self.data, self.args, self.seed = model, data, args, seed
        self.validation, self.features = validation, features
        self.head = head_of(model)
        config = args.config
        weight = 0.0 if config.lm_weight is msgspec.UNSET else config.lm_weight
        self.lm = CausalLM(CausalLMConfig(weight=weight)) if weight else None
        """Language-model loss that is added for left-to-right models; it has no weights of its own."""
        rates = head_rates(data, config.trained.part)
        groups = trainable(model, config.trained, decay=config.decay, seed=seed, rates=rates)
        self.optimizer = build_optimizer(model, config.optimizer, groups)
        self.update = Update(
            self.optimizer,
            [parameter for group in groups for parameter in group["params"]],
            runtime=args.runtime,
            ranks=args.ranks,
            clip=config.clip,
            seed=seed,
            warn=args.say,
        )
        self.steps_per_epoch = epoch_steps(data, config.batch)
        self.steps = self.steps_per_epoch * (config.epochs or 1)
        self.evaluated = evaluation_steps(self.steps_per_epoch, config.evaluations)
        self.patience = resolve_patience(config.patience, evaluations=len(self.evaluated) * (config.epochs or 1))
        self.state = TrainState()
        self.clock = Clock()
        self._unread: list[Tensor] = []
        self._chosen = np.empty(0, np.int64)
        self._order: tuple[int, Sequence[Ints]] | None = None

    def train(self) -> SeedRun:
        """Train to the end, and put the best weights into the model; a run that was stopped raises `Preempted`."""
        self.restore()
        self.run()
        if not self.finished:
            raise Preempted(self._save_stopped())
        for line in self._remarks():
            self.args.say(line)
        self.keep_best()
        state = self.state
        return SeedRun(
            seed=self.seed,
            steps=state.step,
            seconds=round(state.seconds, 3),
            history=tuple(state.history),
            best=state.best_epoch,
        )

    def run(self) -> TrainState:
        """Run the loop of the engine, which calls the methods below, until finished or stopped."""
        self.clock = Clock(self.state.seconds)
        run_loop(self, stop=self.args.callbacks.stop, ranks=self.args.ranks)
        self.state.seconds = self.clock.seconds
        return self.state

    # ---- a step

    def fetch(self) -> bool:
        """Choose the examples of the next step: each epoch is a permutation of all, or as the data plan it."""
        epoch, place = divmod(self.state.step, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._batches(epoch)
        self._chosen = self._order[1][place]
        return True

    def _batches(self, epoch: int) -> Sequence[Ints]:
        """The examples of each step of an epoch."""
        size = self.args.config.batch
        if isinstance(self.data, PlannedBatches):
            return self.data.epoch_batches(self.seed, epoch, size)
        order = epoch_order(self.seed, epoch, len(self.data))
        return [order[place : place + size] for place in range(0, len(order), size)]

    def step(self) -> None:
        config, step = self.args.config, self.state.step
        train_mode(self.model)
        if isinstance(self.head, VectorHead):
            self.head.progress = step / self.steps
        whole = step_parts(self.model, self.data, self._chosen, self.features)
        parts = [self._with_next_tokens(part) for part in whole]
        predicted = sum(part.batch.targets[NextTokens].count for part in parts) if self.lm is not None else 0
        numbers = self.update(
            lambda budget: self._microbatches(parts, predicted, step, budget=budget),
            lambda part: part.loss(part.batch),
            step=step,
            rate=learning_rate(config.schedule, config.peak, step=step, steps=self.steps),
            figures=1,
        )
        self._unread.append(numbers[0])
        self.state.step += 1
        if self.state.step % READ_EVERY == 0 or self.state.step == 1:
            self.read()
        self.state.seconds = self.clock.seconds

    def _with_next_tokens(self, part: StepPart) -> StepPart:
        """The part with the targets of the language model, if its loss is added."""
        if self.lm is None:
            return part
        return part._replace(batch=add_text_targets(part.batch, text_target_kinds([self.lm])))

    def _microbatches(self, parts: Sequence[StepPart], predicted: int, step: int, *, budget: int) -> list[Microbatch]:
        """The microbatches of a step, of at most `budget` tokens; precomputed features fit in one."""
        micros = [micro for part in parts for micro in self._microbatches_of(part, predicted, step, budget=budget)]
        if self.args.auxiliary is not None:
            micros += self._auxiliary(self.args.auxiliary, step, budget)
        return micros

    def _microbatches_of(self, part: StepPart, predicted: int, step: int, *, budget: int) -> list[Microbatch]:
        """The microbatches of one head."""
        whole, batch = part.features is not None, part.batch
        cuts = [batch] if whole else list(batch.split(budget, self.args.ranks.count))
        if len(cuts) > 1 and isinstance(part.head, VectorHead) and part.head.whole_step:
            at = CachedStep(seed=self.seed, step=step, runtime=self.args.runtime, ranks=self.args.ranks)
            cached = CachedGradients(self.model, part.head, batch, cuts, at=at)
            return [Microbatch(cut, partial(_cached_loss, cached, item)) for item, cut in enumerate(cuts)]
        size = max(part.head.size(batch), 1e-9)
        return [Microbatch(cut, lambda micro: self._loss(micro, part, size, predicted)) for cut in cuts]

    def _loss(self, micro: TrainingBatch[Ints], part: StepPart, size: float, predicted: int) -> MicrobatchLoss:
        """The share of a microbatch in the loss of a step, through the encoder or from features.

        That is the mean loss of the part, of `size`, by its weight. With a language model, `predicted` is the number of
        next tokens in the step. Only the losses of tasks are reported.
        """
        runtime, auxiliary = self.args.runtime, self.args.auxiliary
        tensors, limit = on_device(micro, runtime.device), int(micro.tokens.lengths.max())
        lm = None
        with autocast(runtime):
            if part.features is not None:
                loss = part.features.loss(part.head, part.examples, tensors)
            elif self.lm is not None:
                loss, lm = task_and_lm_loss(self.model, tensors, part.head, self.lm, limit=limit)
            else:
                loss = loss_of(self.model, tensors, part.head, limit=limit)
        mean = loss.total / size
        mean = mean if part.weight == 1 else mean * part.weight
        total = mean if lm is None else mean + lm.total * (lm.weight / max(predicted, 1))
        if auxiliary is not None:
            total = total * (1 - auxiliary.share)
        return MicrobatchLoss(loss=total, figures=mean.detach().float()[None])

    def _auxiliary(self, auxiliary: AuxiliaryLoss, step: int, budget: int) -> list[Microbatch]:
        """The microbatches of the auxiliary loss, which is not reported."""
        runtime = self.args.runtime
        batch = auxiliary.batch(step, seed=self.seed)
        scale = auxiliary.share / max(auxiliary.count(batch), 1)

        def loss(micro: TrainingBatch[Ints]) -> MicrobatchLoss:
            tensors = on_device(micro, runtime.device)
            with autocast(runtime):
                total = auxiliary.loss(self.model, tensors, limit=int(micro.tokens.lengths.max())).total
            return MicrobatchLoss(loss=total * scale, figures=torch.zeros(1, device=runtime.device))

        return [Microbatch(part, loss) for part in batch.split(budget, self.args.ranks.count)]

    def read(self) -> None:
        """Read the losses of the last steps from the device, refuse any that is not finite, and report progress."""
        if self.update.unsound:
            raise NumericsError(
                f"the loss was not finite by step {self.state.step:,}, and the weights were left as they were; "
                "try a smaller --rate, or --precision fp32"
            )
        if not self._unread:
            return
        self.state.losses += torch.stack(self._unread).tolist()
        self._unread.clear()
        done = self.state.step * max(self.args.config.batch, len(self._chosen))
        speed = done / max(self.clock.seconds, 1e-9)
        self.args.callbacks.progress(self.state.step, self.steps, self.state.losses[-1], speed)

    # ---- an evaluation

    def _evaluates_here(self) -> bool:
        """Whether an evaluation follows the last step."""
        return self.state.step > 0 and (self.state.step - 1) % self.steps_per_epoch + 1 in self.evaluated

    @property
    def evaluation_due(self) -> bool:
        """After the step, or again where a signal interrupted the evaluation."""
        history = self.state.history
        return self._evaluates_here() and (not history or history[-1].step < self.state.step)

    def evaluate(self) -> Scores | None:
        """Scores from the main rank, for all: the ranks must agree on the best weights and on when to stop."""
        if (validation := self.validation) is None:
            return None
        return self.args.ranks.share(lambda: validation.scores(self.model, self.args.scoring))

    def record(self, scores: Scores | None) -> None:
        """Keep the best weights, count the evaluations without an improvement, and report."""
        state = self.state
        state.seconds = self.clock.seconds
        epoch = Epoch(
            step=state.step,
            epoch=state.step / self.steps_per_epoch,
            training_loss=sum(state.losses) / len(state.losses),
            scores=scores,
            seconds=round(state.seconds, 3),
        )
        if scores is not None:
            state.waited = 0 if improves(scores, state.history) else state.waited + 1
            if is_better(scores, state.best_epoch.scores if state.best_epoch is not None else None):
                state.best = {name: tensor.cpu().clone() for name, tensor in self.trained.items()}
                state.best_epoch = epoch
        state.losses.clear()
        state.history.append(epoch)
        self.args.callbacks.epoch(self.seed, epoch)

    @property
    def finished(self) -> bool:
        """Whether all steps are made and evaluated, or early stopping ended training."""
        return not self.evaluation_due and (self.state.step >= self.steps or 0 < self.patience <= self.state.waited)

    @property
    def trained(self) -> dict[str, Tensor]:
        """The weights that training changes, by name."""
        return {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

    def keep_best(self) -> None:
        """Put the best weights back into the model."""
        if self.state.best is not None:
            parameters = dict(self.model.named_parameters())
            with torch.no_grad():
                for name, tensor in self.state.best.items():
                    parameters[name].copy_(tensor)

    def _remarks(self) -> Iterator[str]:
        """Warnings about a run that stopped early, or whose metric never moved."""
        state = self.state
        if state.step < self.steps:
            yield (
                f"stopped at step {state.step:,} of {self.steps:,}: the last {state.waited} evaluations brought "
                "neither a better score nor a lower validation loss (--patience 0 trains to the end)"
            )
        if (line := no_progress_warning(state.history)) is not None:
            yield line

    # ---- checkpoints

    @property
    def save_due(self) -> bool:
        return self._evaluates_here() or self.state.step % READ_EVERY == 0

    def save(self) -> None:
        """Save a checkpoint between two steps, if the last is old enough."""
        store = self.args.store
        if store is not None and self.args.ranks.main and store.due():
            self.save_checkpoint()

    def save_checkpoint(self) -> Path:
        """Save a checkpoint now."""
        assert self.args.store is not None
        tensors = {
            "trained.safetensors": self.trained,
            "optimizer.safetensors": optimizer_tensors(self.optimizer, self.model),
        }
        return self.args.store.save(self.seed, self.state, tensors, self.update.lowered)

    def restore(self) -> None:
        """Resume from the checkpoint of this seed, if there is one."""
        checkpoint = self.args.store.of_seed(self.seed) if self.args.store is not None else None
        if checkpoint is None:
            return
        saved, folder = checkpoint.state, checkpoint.path
        restore_weights(folder / "trained.safetensors", self.trained)
        moments = read_tensors(folder / "optimizer.safetensors")
        restore_optimizer(self.optimizer, self.model, moments, steps=saved.step)
        self.state = saved.train_state(folder)
        self.update.lower(saved.microbatch)

    def _save_stopped(self) -> str:
        """Save a run that was stopped; the message states whether it can be resumed."""
        args, stop = self.args, self.args.callbacks.stop
        where = f"{stop.by or 'another rank'} stopped it at step {self.state.step:,} of {self.steps:,}"
        if args.store is None:
            return f"{where}, which was not saved"
        if args.ranks.main:
            with stop.noting():
                self.save_checkpoint()
        return f"{where}, where it was saved; the same command with --resume continues from there"


def _cached_loss(cached: CachedGradients, item: int, micro: TrainingBatch[Ints]) -> MicrobatchLoss:
    return cached.loss(item)


def epoch_order(seed: int, epoch: int, examples: int) -> Ints:
    """Permutation of the examples for each epoch."""
    return stream(seed, "finetune order", epoch).permutation(examples)


def evaluation_steps(steps_per_epoch: int, evaluations: int) -> frozenset[int]:
    """Steps of an epoch after which to evaluate: evenly spaced, always the last, at most all."""
    evaluations = min(evaluations, steps_per_epoch)
    return frozenset(max(1, round(steps_per_epoch * (n + 1) / evaluations)) for n in range(evaluations))
