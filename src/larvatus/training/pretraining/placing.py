"""Where the weights of a run lie: all of them on the device of each process, or a part on each
(`training/engine/parallel.py`).

sharded, job = place_model(model, job, ranks, print)
whole = whole_model(model, job, ranks, vocabulary=30_522)      # to be saved; None on all ranks but the main one
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from larvatus.models.network import Network
from larvatus.training.engine.distribution import Ranks
from larvatus.training.engine.gradients import is_sharded
from larvatus.training.engine.parallel import chosen, gathered, shard
from larvatus.training.pretraining.job import Job


def place_model(model: Network, job: Job, ranks: Ranks, warn: Callable[[str], None]) -> tuple[bool, Job]:
    """Bring the model, or this rank's part of it, to the device; whether it is a part, and the job as it then is."""
    device = job.runtime.device
    how = job.parallel if job.may_shard else "replicate"
    if not chosen(how, ranks=ranks, model=model, optimizer=job.recipe.optimizer.type, device=device):
        model.to(device)
        return False, job
    if job.runtime.compile:
        warn("sharded weights are trained without compilation: --compile is left out")
        job = dataclasses.replace(job, runtime=dataclasses.replace(job.runtime, compile=False))
    shard(model, device)
    return True, job


def shared(ranks: Ranks, *, sharded: bool) -> str:
    """How processes share the work, for the first lines of a run; nothing where there is one.

    >>> shared(Ranks(0, 8), sharded=True)
    ' · 8 processes, each with a part of the weights'
    """
    if ranks.count == 1:
        return ""
    return f" · {ranks.count} processes, each with {'a part of the' if sharded else 'all'} weights"


def whole_model(model: Network, job: Job, ranks: Ranks, vocabulary: int) -> Network | None:
    """The model with all its weights, on the main rank; every rank gives its part."""
    named = {name: parameter.detach() for name, parameter in model.named_parameters()}
    if not any(map(is_sharded, named.values())):
        return model if ranks.main else None
    weights = gathered(named, keep=ranks.main)
    if not ranks.main:
        return None
    recipe = job.recipe
    whole = Network.build(recipe.model, recipe.objectives, vocabulary=vocabulary, seed=job.seed)
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            parameter.copy_(weights[name])
    return whole
