"""The runtime of a run: what may differ between machines and must not change the result, and how long to train.

Runtime(device="cuda", precision="bf16", compile=True, microbatch=65_536, workers=8)
Budget(minutes=20)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from larvatus.core.errors import UsageError
from larvatus.core.ranges import STEPS, Range, whole
from larvatus.data.corpus.processes import check_count
from larvatus.models.nn.device import check_bf16, choose_device

MICROBATCH = whole(8, 2**31)
WORKERS = whole(0, 1024)
MEMORY = Range(0, 1_000_000, above=True)
SILENT_S = 60.0
SILENCE = Range(1, 86_400)
"""Seconds of silence after which a rank counts as lost."""
Checkpointing = Literal["auto", "always", "never"]
Parallel = Literal["auto", "replicate", "shard"]
BUDGETS = {
    "steps": STEPS,
    "minutes": Range(0, 10_000_000, above=True),
    "epochs": Range(0, 1_000_000, above=True),
    "tokens": whole(1, 10**15),
}
"""A thousand times what anyone trained an encoder for."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Device, precision, compilation, microbatch and workers. The science is the recipe's."""

    device: str = "cpu"
    precision: str = "fp32"
    compile: bool = False
    microbatch: int = 16_384
    """Tokens of one forward and backward pass; gradients of several are added up to a step."""
    workers: int = 0
    """Processes that pack and mask ahead of the training; 0 does it in a thread of this one."""
    deterministic: bool = False
    """Only kernels that give the same bits each time (always so on a CPU)."""
    activation_checkpointing: Checkpointing = "auto"
    """Whether layers are computed again in the backward pass instead of kept: slower, and far less memory."""
    memory: float | None = None
    """GB that training may take of the device; None: all."""
    rank_timeout: float = SILENT_S
    """Seconds of silence after which one of several ranks counts as lost, and the run ends for all."""

    def __post_init__(self) -> None:
        if self.precision not in ("fp32", "bf16"):
            raise UsageError(f"--precision is fp32 or bf16, not {self.precision!r}")
        if self.precision == "bf16":
            check_bf16(self.device)
        if self.activation_checkpointing not in get_args(Checkpointing):
            words = ", ".join(get_args(Checkpointing))
            raise UsageError(f"--activation-checkpointing is one of {words}, not {self.activation_checkpointing!r}")
        MICROBATCH.check(self.microbatch, "--microbatch")
        MEMORY.check(1.0 if self.memory is None else self.memory, "--memory")
        SILENCE.check(self.rank_timeout, "--rank-timeout")
        check_count(self.workers)

    @classmethod
    def here(
        cls,
        *,
        device: str = "auto",
        precision: str = "auto",
        compile: bool | None = None,
        microbatch: int | None = None,
        workers: int | None = None,
        deterministic: bool = False,
        activation_checkpointing: Checkpointing = "auto",
        memory: float | None = None,
    ) -> Runtime:
        """Defaults that suit this machine, for what is not given."""
        device = str(choose_device(device))
        cuda = device.startswith("cuda")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(
            device=device,
            precision=("bf16" if cuda else "fp32") if precision == "auto" else precision,
            compile=cuda if compile is None else compile,
            microbatch=(65_536 if cuda else 16_384) if microbatch is None else microbatch,
            workers=(min(8, max(1, cores - 2)) if cuda else 0) if workers is None else workers,
            deterministic=deterministic,
            activation_checkpointing=activation_checkpointing,
            memory=memory,
        )

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    def __str__(self) -> str:
        words = [self.device, self.precision, *(["compiled"] if self.compile else [])]
        return ", ".join(words)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to train: steps, minutes, epochs or tokens; the recipe's own number of steps where none is given."""

    steps: int | None = None
    minutes: float | None = None
    epochs: float | None = None
    tokens: int | None = None
    """Tokens seen in all, special ones included; a step holds `batch × length` of them."""

    def __post_init__(self) -> None:
        given = [n for n in ("steps", "minutes", "epochs", "tokens") if getattr(self, n) is not None]
        if len(given) > 1:
            raise UsageError(f"give one of --steps, --minutes, --epochs and --tokens, not {' and '.join(given)}")
        for name in given:
            BUDGETS[name].check(getattr(self, name), f"--{name}")
