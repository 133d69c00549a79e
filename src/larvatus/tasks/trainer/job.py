"""A fine-tuning job from settings by name, as `larvatus.finetune` takes them.

    job_of("tag", {"epochs": 3, "trained": "lora", "crf": True, "seeds": 3})

A name belongs to the training (`TrainConfig`), to what is trained (`TrainableConfig`), to the task (its `Options`) or
to the run (`FineTuneArguments`); one that belongs nowhere is refused, with the nearest that does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.tasks.registry import option_names, parse_options
from larvatus.tasks.trainer.config import TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneArguments
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.training.engine.settings import Runtime

TRAINED = ("layer_decay", "head_rate", "crf_rate", "embeddings")
RUN = ("metric", "strict", "hold_out", "watch")
RUNTIME = ("device", "precision", "microbatch")


def parse_arguments(task: str, settings: Mapping[str, Any]) -> FineTuneArguments:
    given = dict(settings)
    options_given = given.pop("options", None)  # a struct of the task, or settings by name
    config = set(TrainConfig.__struct_fields__) - {"trained"}
    options = option_names()
    known = {*config, *options, *TRAINED, *RUN, *RUNTIME, "trained", "seed", "seeds"}
    for name in given:
        if name not in known:
            raise UsageError(f"finetune has no setting {name!r}{did_you_mean(name, known)}")

    def take(names: Any) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    try:
        first = msgspec.convert(given.get("seed", 0), int)
        seeds = msgspec.convert(given.get("seeds", 1), int | tuple[int, ...])
        trained = TrainableConfig.read(msgspec.convert(given.get("trained", "all"), str), **take(TRAINED))
        return FineTuneArguments(
            config=msgspec.convert({**take(config), "trained": trained}, TrainConfig, from_attributes=True),
            options=options_given or parse_options(task, take(options), strict=True),
            runtime=Runtime.here(compile=False, **take(RUNTIME)),
            seeds=tuple(range(first, first + seeds)) if isinstance(seeds, int) else seeds,
            **take(RUN),
        )
    except msgspec.ValidationError as fault:
        raise UsageError(f"finetune: {fault}") from fault
