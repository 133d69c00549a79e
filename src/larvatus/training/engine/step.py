"""One optimisation step of pretraining or fine-tuning: microbatches, backward, sum over ranks, clip, guard, update.

    update = Update(optimizer, parameters, runtime=runtime, ranks=Ranks(), clip=1.0, seed=1)
    numbers = update(batch.split, share, step=0, rate=1e-4, figures=1)         # sums of figures, norm of the gradient

`batch.split(tokens)` gives the microbatches of the step. `share(microbatch)` computes what a microbatch adds to the
loss of the whole step (so gradients do not depend on the split), and F figures to report, such as summed losses.
A value that is not finite never reaches the weights, on any rank. If memory runs out before the update, the microbatch
is halved and the step repeated; the run then equals one that had this microbatch from there on.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor, nn

from larvatus.core.errors import RecipeError, is_out_of_memory
from larvatus.core.rng import derive
from larvatus.training.engine.optimizer import set_rate
from larvatus.training.engine.parallel import build_gradients
from larvatus.training.engine.ranks import Ranks, at_step, timed_compute
from larvatus.training.engine.settings import MICROBATCH, Runtime

Split = Callable[[int], Iterable[Any]]
"""Splits a step into microbatches of at most this many tokens; None may replace those of other ranks."""


class MicrobatchLoss(NamedTuple):
    """What one microbatch adds to a step."""

    loss: Tensor
    """Its part of the loss of the whole step, which is minimised."""
    figures: Tensor
    """[F] numbers to report, summed over microbatches and ranks."""


class Update:
    """Runs steps with an optimizer. A checkpoint needs nothing of it but `lowered`, a microbatch that was halved."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        *,
        runtime: Runtime,
        ranks: Ranks,
        clip: float,
        seed: int,
        draws: bool = True,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare steps.

        Args:
            optimizer: With the parameters below.
            parameters: Trained weights.
            runtime: Device, precision, microbatch.
            ranks: Processes that share each step.
            clip: The largest norm of the gradient; 0 for none.
            seed: Seed of dropout, with the step and the microbatch.
            draws: Whether a step uses torch's random generator (dropout); if not, its state does not change.
            warn: Called with a line when memory runs out.
        """
        self.optimizer, self.parameters = optimizer, parameters
        self.runtime, self.ranks, self.clip, self.seed = runtime, ranks, clip, seed
        self.draws, self.warn = draws, warn
        self.gradients = build_gradients(parameters, ranks)
        self.microbatch = runtime.microbatch
        """Tokens of one forward and backward pass: the runtime's, until memory runs out."""
        self.mine: Tensor | None = None
        """Figures of only this rank in the last step: they show which rank had a loss that is not finite."""
        self.after_step: Callable[[float, Tensor], None] | None = None
        """Called after each update with its rate and whether a number was not finite (1, on the device)."""
        self._bad: Tensor | None = None  # on the device: 1 if any number of any step was not finite

    def __call__(
        self,
        split: Split,
        share: Callable[[Any], MicrobatchLoss],
        *,
        step: int,
        rate: float,
        figures: int,
    ) -> Tensor:
        """Update the weights once; [F + 1]: the sums of the figures, then the norm of the unclipped gradient.

        Args:
            split: Splits the step into microbatches.
            share: What a microbatch adds to the loss, and its figures.
            step: Number of the step, from 0.
            rate: Learning rate.
            figures: Number of figures, F.
        """
        at_step(step)
        sums = self._backward_or_none(split, share, step=step, figures=figures)
        while sums is None:  # memory ran out, here or on another rank
            sums = self._backward_or_none(split, share, step=step, figures=figures)
        self.mine = sums.clone() if self.ranks.count > 1 else sums
        sums = self.ranks.add(sums)
        norm = self.gradients.clip(self.clip)
        numbers = torch.cat([sums, norm.float()[None]])
        self._refuse_what_is_not_finite(numbers)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        if self.after_step is not None and self._bad is not None:
            self.after_step(rate, self._bad)
        self.optimizer.zero_grad(set_to_none=True)
        return numbers

    def _generator(self) -> AbstractContextManager[None]:
        """Preserve torch's generator around a step; without dropout, the first step checks that nothing uses it."""
        if self.draws:
            return preserved_generator(self.runtime.device)
        if self._bad is None and not self.runtime.compile:  # the first step; the compiler itself uses random numbers
            return unused_generator(self.runtime.device)
        return nullcontext()

    def _backward_or_none(
        self,
        split: Split,
        share: Callable[[Any], MicrobatchLoss],
        *,
        step: int,
        figures: int,
    ) -> Tensor | None:
        """Gradients of a step; None, and a smaller microbatch, if memory ran out on any rank."""
        micros, sums = list(split(self.microbatch)), None
        try:
            sums = self._backward(micros, share, step=step, figures=figures)
        except (MemoryError, RuntimeError) as fault:
            if self.gradients.equal or not is_out_of_memory(fault) or self._smaller(split, len(micros)) is None:
                raise
        # not within `except`: the exception keeps references to all that was computed
        if not self.gradients.finish(failed=sums is None):
            return sums
        smaller = self._smaller(split, len(micros)) or self.microbatch
        self.warn(
            f"step {step + 1:,}: memory ran out with {self.microbatch:,} tokens at once; the step is taken again, and "
            f"the run continues, with {smaller:,} (--microbatch {smaller} begins so)"
        )
        self.microbatch = smaller
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        if self.runtime.cuda:
            torch.cuda.empty_cache()
        return None

    def _backward(
        self, micros: Sequence[Any], share: Callable[[Any], MicrobatchLoss], *, step: int, figures: int
    ) -> Tensor:
        """Sum the gradients of this rank's microbatches; returns the sums of their figures."""
        sums = torch.zeros(figures, device=self.runtime.device)
        self.gradients.begin()
        mine = [(item, micro) for item, micro in enumerate(micros) if micro is not None and self.ranks.takes(item)]
        idle = self._idle(len(micros), len(mine))
        with self._generator(), timed_compute(self.runtime.device):
            for turn, (item, micro) in enumerate(mine + mine[:1] * idle):
                if self.draws:
                    seed_generator(self.runtime.device, derive(self.seed, "dropout", step, item))
                part = share(micro)
                counts = turn < len(mine)
                with self.gradients.last() if turn + 1 == len(mine) + idle else nullcontext():
                    (part.loss if counts else part.loss * 0.0).backward()
                if counts:
                    sums += part.figures
        return sums

    def _idle(self, micros: int, mine: int) -> int:
        """Passes to repeat with weight 0: with sharded weights all ranks must run the same number of passes."""
        if not self.gradients.equal:
            return 0
        if micros < self.ranks.count:
            raise RecipeError(
                f"a step of {micros} microbatches has none for some of {self.ranks.count} processes, and sharded "
                "weights need one on each; make the batch larger, start fewer processes, or give --parallel replicate"
            )
        return -(-micros // self.ranks.count) - mine

    def _smaller(self, split: Split, parts: int) -> int | None:
        """The microbatch, halved until the step has more parts; None if it cannot be split further."""
        smaller, least = self.microbatch // 2, int(MICROBATCH.least)
        while smaller >= least and len(list(split(smaller))) <= parts:
            smaller //= 2
        return smaller if smaller >= least else None

    @property
    def lowered(self) -> int | UnsetType:
        """The microbatch if memory ran out and it is no longer the runtime's: for checkpoints."""
        return UNSET if self.microbatch == self.runtime.microbatch else self.microbatch

    def lower(self, microbatch: int | UnsetType) -> None:
        """Use the microbatch of an earlier session, if that is smaller."""
        if microbatch is not UNSET:
            self.microbatch = min(self.microbatch, microbatch)

    @property
    def unsound(self) -> bool:
        """Whether any number was not finite so far; reading it waits for the device."""
        return self._bad is not None and bool(self._bad)

    def _refuse_what_is_not_finite(self, numbers: Tensor) -> None:
        """If a number is not finite, the fused optimizer keeps the weights from now on; the host does not wait."""
        bad = (~torch.isfinite(numbers).all()).float()
        self._bad = bad if self._bad is None else torch.maximum(self._bad, bad)
        self.optimizer.found_inf = self._bad  # type: ignore[attr-defined]


def autocast(runtime: Runtime) -> torch.autocast:
    """Mixed precision, if the runtime has bf16."""
    device = runtime.device.partition(":")[0]
    return torch.autocast(device, dtype=torch.bfloat16, enabled=runtime.precision == "bf16")


@contextmanager
def preserved_generator(device: str) -> Iterator[None]:
    """Inside, torch's generator may be seeded and used; afterwards it is in its earlier state."""
    devices = [torch.cuda.current_device()] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices):
        yield


def seed_generator(device: str, seed: int) -> None:
    """As `torch.manual_seed`, which takes milliseconds because it also prepares devices that are not used."""
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@contextmanager
def unused_generator(device: str) -> Iterator[None]:
    """Check that nothing is sampled inside: numbers of an unseeded generator cannot be repeated."""

    def states() -> list[Tensor]:
        return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device.startswith("cuda") else [])]

    before = states()
    yield
    if not all(map(torch.equal, before, states())):
        raise AssertionError("a step drew random numbers, which `larvatus.models.nn.dropout.has_dropout` did not see")
