"""Optimizers (AdamW, LAMB, Adafactor, Muon), their state as named tensors, and learning-rate schedules.

AdamW is torch's (Loshchilov & Hutter 2019); the others are in `adam_variants.py` and `muon.py`. None decays norms and
biases; only Adafactor does not correct its moments for bias.

Schedules warm up, then fall linearly, by a cosine or as a trapezoid; or follow the inverse square root of the step. The
rate is a pure function of the step. It rises from 0 over the warm-up, and falls to `floor` × peak at the last step. By
the inverse square root (T5) it stays at the peak over the warm-up, and falls as 1 / √step from there on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from larvatus.core.errors import ArtefactError, RecipeError
from larvatus.models.recipes import OptimizerConfig, ScheduleConfig
from larvatus.training.engine.adam_variants import Adafactor, Lamb
from larvatus.training.engine.muon import Muon
from larvatus.training.engine.parallel import is_sharded, local_part

Groups = Sequence[dict[str, Any]]
"""Parameters that learn alike: `params`, `weight_decay`, and where a group has its own rate, `scale` (`set_rate`)."""


def build_optimizer(model: nn.Module, config: OptimizerConfig, groups: Groups | None = None) -> torch.optim.Optimizer:
    """What the settings ask for, over all parameters of a model, or over the groups that are given."""
    builders = {"adamw": adamw, "lamb": lamb, "adafactor": adafactor, "muon": muon}
    return builders[config.type](model, config, groups)


def adamw(model: nn.Module, config: OptimizerConfig, groups: Groups | None = None) -> torch.optim.AdamW:
    """Fused AdamW."""
    return torch.optim.AdamW(
        list(groups) if groups is not None else decay_groups(model, config.decay),
        lr=config.rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def lamb(model: nn.Module, config: OptimizerConfig, groups: Groups | None = None) -> Lamb:
    """LAMB, each matrix with its own ratio; norms and biases have none."""
    parts = decay_groups(model, config.decay) if groups is None else groups
    adapted = [{**group, "adapt": group["params"][0].ndim >= 2} for group in parts]
    betas = (config.beta1, config.beta2)
    return Lamb(adapted, config.rate, betas=betas, eps=config.epsilon, stacked=stacked_matrices(model))


def adafactor(model: nn.Module, config: OptimizerConfig, groups: Groups | None = None) -> Adafactor:
    """Adafactor, each matrix with moments and a scale of its own."""
    parts = decay_groups(model, config.decay) if groups is None else groups
    return Adafactor(parts, config.rate, beta1=config.beta1, stacked=stacked_matrices(model))


def muon(model: nn.Module, config: OptimizerConfig, groups: Groups | None = None) -> Muon:
    """Muon for the matrices of blocks, with a rate and a decay of their own; AdamW for all else."""
    hidden, settings = set(hidden_matrices(model)), config.hidden
    parts: list[dict[str, Any]] = []
    for group in decay_groups(model, config.decay) if groups is None else groups:
        matrices = [weight for weight in group["params"] if weight in hidden]
        others = [weight for weight in group["params"] if weight not in hidden]
        scale = group.get("scale", 1.0) * settings.rate / config.rate  # of the rate of a step, which is AdamW's
        apart = {"lr": scale * config.rate, "scale": scale, "weight_decay": settings.decay, "muon": True}
        parts.append({**group, "params": matrices, **apart})
        parts.append({**group, "params": others})
    parts = [group for group in parts if group["params"]]
    if not any(group.get("muon") for group in parts):
        raise RecipeError(
            'optimizer.type = "muon" is for the matrices of blocks, and this model has none that learn; '
            'set optimizer.type = "adamw"'
        )
    betas, stacked = (config.beta1, config.beta2), stacked_matrices(model)
    return Muon(parts, config.rate, momentum=settings.momentum, betas=betas, eps=config.epsilon, stacked=stacked)


def stacked_matrices(model: nn.Module) -> dict[Tensor, int]:
    """The parameters of a model that hold several matrices, and how many; modules name theirs in `stacked`."""
    named = ((module, getattr(module, "stacked", {})) for module in model.modules())
    return {module.get_parameter(name): count for module, parts in named for name, count in parts.items()}


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """The weights of linear layers in the blocks of a model, each once: shared ones are in several blocks."""
    stacks = (getattr(module, "blocks", None) for module in model.modules())
    layers = (layer for stack in stacks if isinstance(stack, nn.Module) for layer in stack.modules())
    return list(dict.fromkeys(layer.weight for layer in layers if isinstance(layer, nn.Linear)))


def moments(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, tuple[int, ...]]:
    """What an optimizer keeps of a parameter apart from the step: names and shapes."""
    if isinstance(optimizer, Adafactor):
        return optimizer.moments(parameter, beta1=optimizer.param_groups[0]["beta1"])
    if isinstance(optimizer, Muon):
        return optimizer.moments(parameter)
    return dict.fromkeys(("exp_avg", "exp_avg_sq"), tuple(parameter.shape))


def decay_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Matrices, which decay, and vectors (norms, biases), which do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The rate of this step; a group with a `scale` has that share of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The moments of every parameter by name: ``exp_avg/blocks.0.…``. Nothing else needs to be kept but the step."""
    return {
        f"{moment}/{name}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in moments(optimizer, parameter)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], *, steps: int
) -> None:
    """Put the moments back; each must be there, in its shape, and no other."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    kept = {name: moments(optimizer, parameter) for name, parameter in learning.items()}
    wanted = {f"{moment}/{name}": shape for name, shapes in kept.items() for moment, shape in shapes.items()}
    wrong = sorted({*wanted} ^ {*tensors}) or [n for n, shape in wanted.items() if tuple(tensors[n].shape) != shape]
    if steps and wrong:
        raise ArtefactError(f"the optimizer state does not fit the model: {', '.join(wrong[:5])}")
    for name, parameter in learning.items():
        if steps:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(steps), device=parameter.device),
                **{m: _moment(tensors[f"{m}/{name}"], parameter) for m in kept[name]},
            }


def _moment(whole: Tensor, parameter: Tensor) -> Tensor:
    """A moment where its parameter is; sharded if that is, since a sharded optimizer has moments of its shape."""
    moment = whole.to(parameter.device, torch.float32)
    return (local_part(moment, parameter) if is_sharded(parameter) else moment).clone()


def learning_rate(config: ScheduleConfig, peak: float, *, step: int, steps: int) -> float:
    """The rate of update number `step` (0 … steps − 1).

    >>> learning_rate(ScheduleConfig(type="linear", warmup=0.1), 1.0, step=10, steps=100)
    1.0
    """
    warmup = config.warmup_steps(steps)
    if config.type == "inverse-square-root":
        share = math.sqrt(max(warmup, 1) / max(step + 1, warmup))
        return peak * (config.floor + (1 - config.floor) * share)
    if step < warmup:
        return peak * (step + 1) / warmup
    left = (steps - step) / max(1, steps - warmup)  # from 1 down to just above 0
    if config.type == "linear":
        share = left
    elif config.type == "cosine":
        share = 0.5 * (1 + math.cos(math.pi * (1 - left)))
    elif config.type == "trapezoid":
        cooldown = max(1, round(config.cooldown * steps))
        share = min(1.0, (steps - step) / cooldown)
    else:
        share = 1.0
    return peak * (config.floor + (1 - config.floor) * share)
