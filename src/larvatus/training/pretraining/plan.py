"""The plan of a run that adapts a model, and whether a recipe fits the memory.

    scope = PlanScope(text=480_000, free=frozenset({"batch", "rate"}))
    plan = plan_for(recipe, scope, Budget(minutes=2), StepTime(fixed=4.0, per_token=0.002))
    plan.recipe(recipe).batch, plan.steps          # 32, 8: 8 steps of 4,096 tokens

**The plan** has a batch, rate and steps that suit the machine, the budget and the text. A model's own recipe describes
its training from scratch, often in steps of 100,000 tokens on a GPU: in two minutes a CPU does not make one. A plan
only ever makes the batch smaller, and never touches what the user has set. It is stored in the run's directory
(`plan.json`), because a resumed run must follow the very plan that it began with.

**Memory** is checked before any text is read, and again with the vocabulary known:

    check_memory(recipe, runtime)
    check_memory(recipe, runtime, vocabulary=30_522)

    larvatus: 9,000 layers of 65,536 need at least 7 PB to be trained, more than the 24 GB of memory here; lower …

Weights, gradients and moments, and what one pass keeps for its backward pass: lower bounds, so nothing is refused that
might fit. Whether layers are recomputed instead of kept (`must_recompute`) depends on what a pass is expected to keep,
which is about three times the bound. `place_model` puts the weights on each process, or a part on each
(`training/engine/parallel.py`), and `whole_model` collects them to be saved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, RecipeError, UsageError
from larvatus.core.regular_files import is_there
from larvatus.core.settings import Settings
from larvatus.models.network import Network
from larvatus.models.nn.device import format_bytes, memory_of
from larvatus.models.nn.encoder_base import ModelConfig
from larvatus.models.recipes import Recipe, steps_of_phases
from larvatus.training.engine.parallel import BYTES_TRAINED, gather_tensors, is_sharded, shard, should_shard
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.job import PretrainingJob

FILE = "plan.json"
SMALL_TOKENS, LEAST_TOKENS = 4_096, 1_024
"""Tokens of a small planned step, and of the smallest, in which the optimizer takes most of a CPU's time."""
MANY_STEPS, FEW_STEPS, LEAST_STEPS = 50, 6, 4
"""A step is larger than a small one where a run has many of them, smaller where it would have fewer than a few; with
fewer than the least, the warm-up is the whole run."""
EPOCHS = 3.0
"""How often the new text is read where no budget is given."""
MOST_EPOCHS = 100
"""How often a budget of minutes reads the text at most, as task-adaptive pretraining does (Gururangan et al. 2020)."""
RESERVE = 0.94
"""Share of the minutes for steps and evaluation; the rest is saving."""
EVALUATION = 0.2
"""Share of the minutes for evaluation before and after."""
FORWARD = 3.0
"""A token of a forward pass takes a third of the time of one that is trained on."""
LEAST_EVALUATED = 8_192
"""Held-out tokens of an evaluation."""
_WAY = "begin again with --overwrite, or choose another --out"


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: what the optimizer takes, and what each token adds."""

    fixed: float
    per_token: float

    def seconds(self, tokens: float) -> float:
        return self.fixed + self.per_token * tokens


@dataclass(frozen=True, kw_only=True)
class PlanScope:
    """What a plan may choose, and how much text there is."""

    free: frozenset[str]
    """Those of "batch" and "rate" that the user has not set."""
    text: int
    """Tokens of one epoch."""
    evaluations: int = 4
    """How often held-out text is read before the first step and after the last."""
    spent: float = 0.0
    """Seconds of the budget that are over already."""


class AdaptationPlan(Settings):
    """What `plan.json` holds."""

    batch: int
    """Sequences a step."""
    rate_scale: float = 1.0
    """Factor of the recipe's peak rates."""
    steps: int | None = None
    """Steps of a budget of minutes on a slow machine; None: measured at this batch, or given."""
    evaluated_tokens: int | None = None
    """Held-out tokens that one evaluation reads at most; None: as many as ever."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe that the run follows."""
        if self.batch == recipe.batch:
            return recipe
        optimizer = recipe.optimizer
        rates = {"rate": optimizer.rate * self.rate_scale}
        if optimizer.type == "muon":
            rates["muon_rate"] = optimizer.hidden.rate * self.rate_scale
        return msgspec.structs.replace(recipe, batch=self.batch, optimizer=msgspec.structs.replace(optimizer, **rates))


def plan_for(recipe: Recipe, scope: PlanScope, budget: Budget, speed: StepTime | None = None) -> AdaptationPlan:
    """A plan; `speed` is needed where the budget is in minutes, and such a budget may be refused."""
    if budget.minutes is None:
        return _with_rate(recipe, scope, AdaptationPlan(batch=_batch_of_text(recipe, scope, budget)))
    assert speed is not None
    evaluation = EVALUATION * 60 * budget.minutes
    tokens = max(LEAST_EVALUATED, int(evaluation / scope.evaluations / (speed.per_token / FORWARD)))
    seconds = RESERVE * 60 * budget.minutes - scope.spent - evaluation
    batch = _largest(recipe, scope, lambda batch: steps_within(recipe, batch, seconds, speed) >= _wanted(recipe, batch))
    steps = steps_within(recipe, batch, seconds, speed)
    if steps < LEAST_STEPS:
        raise budget_too_short(recipe, batch, budget, speed, share=RESERVE - EVALUATION, spent=scope.spent)
    most = most_steps(recipe, batch, scope.text)
    quick = 2 * MANY_STEPS <= steps < most  # there is time to measure it
    plan = AdaptationPlan(batch=batch, steps=None if quick else min(steps, most), evaluated_tokens=tokens)
    return _with_rate(recipe, scope, plan)


def most_steps(recipe: Recipe, batch: int, text: int) -> int:
    """Steps that read a text of `text` tokens `MOST_EPOCHS` times."""
    return max(LEAST_STEPS, int(MOST_EPOCHS * text / tokens_per_step(recipe, batch)))


def steps_within(recipe: Recipe, batch: int, seconds: float, speed: StepTime) -> int:
    """How many steps of a batch fit: phases with longer sequences have longer steps."""
    mean = sum(phase.share * speed.seconds(batch * phase.length) for phase in recipe.phases)
    steps = max(0, int(seconds / mean))
    while steps and _seconds(recipe, batch, steps, speed) > seconds:
        steps -= 1  # whole steps of a phase may be more than its share, or less
    while _seconds(recipe, batch, steps + 1, speed) <= seconds:
        steps += 1
    return steps


def _seconds(recipe: Recipe, batch: int, steps: int, speed: StepTime) -> float:
    counts = zip(steps_of_phases(recipe.phases, steps), recipe.phases, strict=True)
    return sum(count * speed.seconds(batch * phase.length) for count, phase in counts)


def budget_too_short(
    recipe: Recipe, batch: int, budget: Budget, speed: StepTime, *, share: float = RESERVE, spent: float | None = None
) -> UsageError:
    """An impossible budget: what a step takes, and which budget would do, or which batch where none is planned.

    `share` of the minutes are for steps, less what a plan has `spent` already.
    """
    minutes = budget.minutes or 0.0
    tokens = batch * recipe.phases[0].length
    seconds = _seconds(recipe, batch, LEAST_STEPS, speed) + (spent or 0.0)
    needed = math.ceil(10 * seconds / share / 60) / 10
    smaller = batch
    while smaller > 1 and steps_within(recipe, smaller, share * 60 * minutes, speed) < LEAST_STEPS:
        smaller //= 2
    fits = spent is None and steps_within(recipe, smaller, share * 60 * minutes, speed) >= LEAST_STEPS
    return UsageError(
        f"--minutes {minutes:g} is too short for {LEAST_STEPS} steps of {tokens:,} tokens, which take about "
        f"{speed.seconds(tokens):,.0f} seconds each here; give --minutes {needed:g} or more, or "
        + (f"smaller steps: --set batch={smaller}" if fits else "take a smaller model")
    )


def _with_rate(recipe: Recipe, scope: PlanScope, plan: AdaptationPlan) -> AdaptationPlan:
    # A smaller batch has noisier gradients. For optimizers that divide by the size of the gradient (Adam, Muon), the
    # same noise in the weights comes of a rate in proportion to the square root of the batch (Malladi et al. 2022);
    # with the rate of large steps a small batch unlearns (docs/adapt.md has the figures).
    if "rate" not in scope.free:
        return plan
    return msgspec.structs.replace(plan, rate_scale=math.sqrt(plan.batch / recipe.batch))


def _batch_of_text(recipe: Recipe, scope: PlanScope, budget: Budget) -> int:
    """The batch where no clock runs: the largest that makes enough steps of the text."""
    if budget.steps is not None:  # read about as often as without a budget
        most = EPOCHS * scope.text / budget.steps
        return _largest(recipe, scope, lambda batch: tokens_per_step(recipe, batch) <= most)
    epochs = EPOCHS if budget.epochs is None else budget.epochs
    tokens = epochs * scope.text if budget.tokens is None else float(budget.tokens)
    return _largest(recipe, scope, lambda batch: tokens >= _wanted(recipe, batch) * tokens_per_step(recipe, batch))


def _wanted(recipe: Recipe, batch: int) -> int:
    """Fewest steps in the budget for which a batch of this size is used."""
    return MANY_STEPS if batch * min(phase.length for phase in recipe.phases) > SMALL_TOKENS else FEW_STEPS


def _largest(recipe: Recipe, scope: PlanScope, enough: Callable[[int], bool]) -> int:
    """The largest batch that is enough: the recipe's, or a smaller one of at least `LEAST_TOKENS`.

    No batch is larger than the text. Where none is enough it is the smallest.
    """
    shortest, longest = (pick(phase.length for phase in recipe.phases) for pick in (min, max))
    batch = recipe.batch
    if "batch" in scope.free and not enough(batch):
        smaller = -(-LEAST_TOKENS // shortest)
        sizes = [size for times in range(batch.bit_length()) if (size := smaller << times) < batch]
        batch = max(filter(enough, sizes), default=min(sizes, default=batch))
    return max(1, min(batch, scope.text // longest)) if "batch" in scope.free else batch


def tokens_per_step(recipe: Recipe, batch: int) -> float:
    """The mean over phases, weighted by their shares of the steps."""
    return sum(phase.share * batch * phase.length for phase in recipe.phases)


def write_plan(directory: Path, plan: AdaptationPlan) -> None:
    write_checksummed(directory / FILE, msgspec.to_builtins(plan))


def read_plan(directory: Path) -> AdaptationPlan | None:
    """The plan that the run in a directory follows; None where it has none."""
    path = directory / FILE
    if not is_there(path):
        return None
    try:
        return msgspec.convert(read_checksummed(path, way=_WAY), AdaptationPlan)
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{path} is no plan of a run: {fault}; {_WAY}") from fault


# Memory.

KEPT = {"fp32": 3.0 * 4, "bf16": 4.0 * 2}
"""Bytes kept for each of `kept_numbers`, as measured: inputs, masks and sums are kept as well, some in fp32."""
ROOM = 0.9
"""Share of the memory that a run is expected to fill at most: allocators lose some of it."""


def check_memory(recipe: Recipe, runtime: Runtime, vocabulary: int = 0, *, shards: int = 1) -> None:
    """`shards`: processes that may each have a part of the weights."""
    model, most = recipe.model, memory_of(runtime.device)
    step = recipe.batch * max(phase.length for phase in recipe.phases)
    weights = BYTES_TRAINED * model.least_weights(vocabulary) // shards
    if weights > most:
        pieces = f" and {vocabulary:,} pieces" if vocabulary else ""
        raise RecipeError(
            f"{model.layers:,} layers of {model.hidden:,}, {model.max_positions:,} positions{pieces} need at least "
            f"{format_bytes(weights)} to be trained, more than the {format_bytes(most)} of memory here; lower "
            "model.layers, model.hidden, model.max_positions or tokenizer.size"
        )
    tokens = min(runtime.microbatch, step) // 2  # sequences are not cut, so a pass may have fewer than it could
    kept = 2 * tokens * model.kept_numbers  # in bf16
    if weights + kept > most:
        raise RecipeError(
            f"a pass over {min(runtime.microbatch, step):,} tokens needs at least {format_bytes(weights + kept)}, more "
            f"than the {format_bytes(most)} of memory here; lower --microbatch"
        )
    if (read := 3 * 8 * step) > (room := memory_of("cpu")):  # ids, words and segments
        raise RecipeError(
            f"a step of {step:,} tokens needs at least {format_bytes(read)}, more than the {format_bytes(room)} of "
            "memory here; lower batch or phases.length"
        )


def must_recompute(recipe: Recipe, runtime: Runtime, vocabulary: int, *, shards: int = 1) -> bool:
    """Whether layers are computed again in the backward pass: by the runtime, or if memory is short."""
    if runtime.activation_checkpointing != "auto":
        return runtime.activation_checkpointing == "always"
    return expected_bytes(recipe, runtime, vocabulary, shards=shards) > ROOM * memory_budget(runtime)


def memory_budget(runtime: Runtime) -> int:
    """Bytes of the device that training may take."""
    most = memory_of(runtime.device)
    return most if runtime.memory is None else min(most, round(1e9 * runtime.memory))


def expected_bytes(recipe: Recipe, runtime: Runtime, vocabulary: int, *, shards: int = 1) -> int:
    """What training is expected to take where all that layers leave is kept."""
    model, longest = recipe.model, max(phase.length for phase in recipe.phases)
    tokens = min(runtime.microbatch, recipe.batch * longest)
    kept = round(KEPT[runtime.precision] * model.kept_numbers) + _attention_bytes(model, runtime, longest)
    return BYTES_TRAINED * model.least_weights(vocabulary) // shards + tokens * kept


def _attention_bytes(model: ModelConfig, runtime: Runtime, length: int) -> int:
    """Bytes of a token's attention weights, which are stored if dropout applies and no flash kernel runs."""
    flash = runtime.cuda and runtime.precision == "bf16"
    dropped = getattr(model, "attention_dropout", 1.0) > 0
    return 0 if flash or not dropped else 3 * 4 * model.layers * getattr(model, "heads", 0) * length


def place_model(
    model: Network, job: PretrainingJob, ranks: Ranks, warn: Callable[[str], None]
) -> tuple[bool, PretrainingJob]:
    """Bring the model, or this rank's part of it, to the device; whether it is a part, and the job as it then is."""
    device = job.runtime.device
    how = job.parallel if job.may_shard else "replicate"
    if not should_shard(how, ranks=ranks, model=model, optimizer=job.recipe.optimizer.type, device=device):
        model.to(device)
        return False, job
    if job.runtime.compile:
        warn("sharded weights are trained without compilation: --compile is ignored")
        job = dataclasses.replace(job, runtime=dataclasses.replace(job.runtime, compile=False))
    shard(model, device)
    return True, job


def describe_parallel(ranks: Ranks, *, sharded: bool) -> str:
    """How processes share the work, for the first lines of a run; nothing where there is one.

    >>> describe_parallel(Ranks(0, 8), sharded=True)
    ' · 8 processes, each with a part of the weights'
    """
    if ranks.count == 1:
        return ""
    return f" · {ranks.count} processes, each with {'a part of the' if sharded else 'all'} weights"


def whole_model(model: Network, job: PretrainingJob, ranks: Ranks, vocabulary: int) -> Network | None:
    """The model with all its weights, on the main rank; every rank gives its part."""
    named = {name: parameter.detach() for name, parameter in model.named_parameters()}
    if not any(map(is_sharded, named.values())):
        return model if ranks.main else None
    weights = gather_tensors(named, keep=ranks.main)
    if not ranks.main:
        return None
    recipe = job.recipe
    whole = Network.build(recipe.model, recipe.objectives, vocabulary=vocabulary, seed=job.seed)
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            parameter.copy_(weights[name])
    return whole
