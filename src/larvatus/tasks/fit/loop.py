"""The fine-tuning loop: epochs over examples in an order of their own, scores on held-out ones, the best weights kept.

    fitted = fit(model, data, Fitting(config=…, seed=1, evaluate=…))
    fitted.best, fitted.history

The order of an epoch is f(seed, epoch), dropout f(seed, step, microbatch): a run that was stopped and goes on ends with
the same weights, and the microbatch (runtime, not science) changes nothing but dropout's draws.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from larvatus.arrays import Ints
from larvatus.batch import TrainingBatch
from larvatus.engine.schedule import learning_rate
from larvatus.engine.settings import Runtime
from larvatus.engine.step import replayable
from larvatus.errors import NumericsError
from larvatus.network import Network
from larvatus.nn.device import on_device
from larvatus.objectives import Loss
from larvatus.rng import derive, stream
from larvatus.signals import Stop, Stopped
from larvatus.tasks.fit.choosing import Epoch, Scores, better, gains, patience_of
from larvatus.tasks.fit.features import Examples, Features
from larvatus.tasks.fit.settings import FineTuneConfig
from larvatus.tasks.fit.trained import set_rates, train_mode, trainable
from larvatus.tasks.scoring import Scoring, head_of, loss_of

LOOK_EVERY = 16
"""Steps between two looks at the losses: a GPU would wait at each."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """What the loop is told."""

    config: FineTuneConfig
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
    pause: Callable[[], None] = lambda: None
    """Called now and then between two steps, where the state is whole and may be saved."""


@dataclass
class Fit:
    """A fine-tuning under way: what changes over time."""

    step: int = 0
    seconds: float = 0.0
    best: dict[str, Tensor] | None = None
    """Weights with the best score, of those that are trained."""
    best_epoch: Epoch | None = None
    history: list[Epoch] = field(default_factory=list)
    waited: int = 0
    """Evaluations in a row without a gain (`choosing.gains`)."""


class FineTuning:
    """A model, its optimizer and its examples; `run` trains, `fit` says how far it has come."""

    def __init__(self, model: Network, data: Examples, fitting: Fitting, features: Features | None = None) -> None:
        self.model, self.data, self.fitting, self.features = model, data, fitting, features
        self.head = head_of(model)
        config = fitting.config
        groups = trainable(model, config.trained, decay=config.decay, seed=fitting.seed)
        own = config.optimizer
        self.optimizer = torch.optim.AdamW(
            groups, lr=own.rate, betas=(own.beta1, own.beta2), eps=own.epsilon, fused=True
        )
        self.each = -(-len(data) // config.batch)
        self.steps = self.each * (config.epochs or 1)
        self.places = evaluation_places(self.each, config.evaluations)
        self.patience = patience_of(config.patience, evaluations=len(self.places) * (config.epochs or 1))
        self.fit = Fit()
        self.losses: list[float] = []
        """Of the steps since the last evaluation, as far as they were read."""
        self._unread: list[Tensor] = []
        self._bad: Tensor | None = None
        self._order: tuple[int, Ints] | None = None

    @property
    def trained(self) -> dict[str, Tensor]:
        """The weights that training changes, by name."""
        return {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

    @property
    def finished(self) -> bool:
        """Whether all steps are made and evaluated, or it no longer gets better."""
        return not self._owed and (self.fit.step >= self.steps or 0 < self.patience <= self.fit.waited)

    @property
    def _owed(self) -> bool:
        """Whether an evaluation is due: after the step, or still, where a signal came in the middle of it."""
        return self._due() and (not self.fit.history or self.fit.history[-1].step < self.fit.step)

    def _due(self) -> bool:
        """Whether an evaluation belongs after the last step."""
        return self.fit.step > 0 and (self.fit.step - 1) % self.each + 1 in self.places

    def run(self) -> Fit:
        """Train until finished, or until asked to stop."""
        self._began = time.monotonic()
        with self.fitting.stop.noting():
            while not self.finished and not self.fitting.stop.asked:
                if not self._owed:
                    self._step()
                if self._owed and not self._evaluate():
                    break
                if self._due() or self.fit.step % LOOK_EVERY == 0:
                    self._count_time()
                    self.fitting.pause()
                    self._began = time.monotonic()  # saving does not count
        self._read()
        self._count_time()
        return self.fit

    def _count_time(self) -> None:
        now = time.monotonic()
        self.fit.seconds += now - self._began
        self._began = now

    def keep_best(self) -> None:
        """Put the best weights back into the model."""
        if self.fit.best is not None:
            own = dict(self.model.named_parameters())
            with torch.no_grad():
                for name, tensor in self.fit.best.items():
                    own[name].copy_(tensor)

    def _step(self) -> None:
        config, step = self.fitting.config, self.fit.step
        train_mode(self.model)
        chosen = self._examples(step)
        batch = self.data.batch(chosen)
        size = max(self.head.size(batch), 1e-9)
        total = torch.zeros((), device=self.fitting.runtime.device)
        budget = self.fitting.runtime.microbatch if self.features is None else batch.tokens.size
        for item, micro in enumerate(batch.split(budget)):
            with replayable(derive(self.fitting.seed, "dropout", step, item), self.fitting.runtime.device):
                loss = self._loss(micro, chosen).total / size
            loss.backward()
            total += loss.detach().float()
        norm = torch.nn.utils.clip_grad_norm_(
            [p for group in self.optimizer.param_groups for p in group["params"]], config.clip or math.inf
        )
        bad = (~torch.isfinite(norm + total)).float()
        self._bad = bad if self._bad is None else torch.maximum(self._bad, bad)
        self.optimizer.found_inf = self._bad  # type: ignore[attr-defined]  # the fused kernel then leaves all as it is
        set_rates(self.optimizer, learning_rate(config.schedule, config.peak, step=step, steps=self.steps))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._unread.append(total)
        self.fit.step += 1
        if self.fit.step % LOOK_EVERY == 0 or self.fit.step == 1:
            self._read()

    def _loss(self, micro: TrainingBatch[Ints], chosen: Ints) -> Loss:
        tensors = on_device(micro, self.fitting.runtime.device)
        scoring = scoring_of(self.fitting.runtime)
        with scoring.autocast():
            if self.features is not None:
                return self.features.loss(self.head, chosen, tensors)
            return loss_of(self.model, tensors, self.head, limit=int(micro.tokens.lengths.max()))

    def _examples(self, step: int) -> Ints:
        """The examples of a step: each epoch is a permutation of all."""
        epoch, place = divmod(step, self.each)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, epoch_order(self.fitting.seed, epoch, len(self.data))
        batch = self.fitting.config.batch
        return self._order[1][place * batch : (place + 1) * batch]

    def _read(self) -> None:
        """Read the losses of the last steps, refuse what is not finite, and show how far it is."""
        if self._bad is not None and float(self._bad):
            raise NumericsError(
                f"the loss was not finite by step {self.fit.step:,}, and the weights were left as they were; "
                "try a smaller --rate, or --precision fp32"
            )
        if not self._unread:
            return
        self.losses += torch.stack(self._unread).tolist()
        self._unread.clear()
        seconds = self.fit.seconds + time.monotonic() - self._began
        done = self.fit.step * self.fitting.config.batch
        self.fitting.progress(self.fit.step, self.steps, self.losses[-1], done / max(seconds, 1e-9))

    def _evaluate(self) -> bool:
        """Score what is held out, unless a signal comes first: then all is as it was before."""
        self._read()
        loss = sum(self.losses) / len(self.losses)
        self._count_time()
        try:
            with self.fitting.stop.at_once():
                scores = self.fitting.evaluate() if self.fitting.evaluate is not None else None
        except Stopped:
            self._began = time.monotonic()
            return False
        self.losses.clear()
        epoch = Epoch(
            step=self.fit.step,
            epoch=self.fit.step / self.each,
            training_loss=loss,
            scores=scores,
            seconds=round(self.fit.seconds, 3),
        )
        before = self.fit.best_epoch.scores if self.fit.best_epoch is not None else None
        if scores is not None:
            self.fit.waited = 0 if gains(scores, self.fit.history) else self.fit.waited + 1
            if better(scores, before):
                self.fit.best = {name: tensor.cpu().clone() for name, tensor in self.trained.items()}
                self.fit.best_epoch = epoch
        self.fit.history.append(epoch)
        self.fitting.report(epoch)
        self._began = time.monotonic()  # evaluation does not count
        return True


def epoch_order(seed: int, epoch: int, examples: int) -> Ints:
    """A permutation of the examples for each epoch."""
    return stream(seed, "finetune order", epoch).permutation(examples)


def evaluation_places(each: int, evaluations: int) -> frozenset[int]:
    """After which steps of an epoch to evaluate: evenly, always at its end, at most after each."""
    evaluations = min(evaluations, each)
    return frozenset(max(1, round(each * (n + 1) / evaluations)) for n in range(evaluations))


def scoring_of(runtime: Runtime) -> Scoring:
    return Scoring(device=runtime.device, precision=runtime.precision)
