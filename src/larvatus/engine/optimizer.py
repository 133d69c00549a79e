"""The optimizer of a recipe: AdamW (Loshchilov & Hutter 2019) or LAMB (`lamb.py`); its state as named tensors.

Both correct their moments for bias and decay no norms and biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from larvatus.engine.lamb import Lamb, stacked_matrices
from larvatus.errors import ArtefactError
from larvatus.recipes import OptimizerConfig

_MOMENTS = ("exp_avg", "exp_avg_sq")


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """What the recipe asks for, over all parameters."""
    return {"adamw": adamw, "lamb": lamb}[config.type](model, config)


def adamw(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """One fused AdamW over all parameters."""
    return torch.optim.AdamW(
        _groups(model, config),
        lr=config.rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def lamb(model: nn.Module, config: OptimizerConfig) -> Lamb:
    """LAMB over all parameters, each matrix of its own; norms and biases have no ratio either."""
    groups = [{**group, "adapt": group["params"][0].ndim >= 2} for group in _groups(model, config)]
    betas = (config.beta1, config.beta2)
    return Lamb(groups, config.rate, betas=betas, eps=config.epsilon, stacked=stacked_matrices(model))


def _groups(model: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Matrices, which decay, and vectors (norms, biases), which do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The moments of every parameter by name: ``exp_avg/blocks.0.…``. Nothing else needs to be kept but the step."""
    return {
        f"{moment}/{name}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in _MOMENTS
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], *, steps: int
) -> None:
    """Put the moments back; each must be there, in the shape of its parameter, and none besides."""
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    wanted = {f"{moment}/{name}": p for name, p in own.items() for moment in _MOMENTS}
    wrong = sorted({*wanted} ^ {*tensors}) or [n for n, p in wanted.items() if tensors[n].shape != p.shape]
    if steps and wrong:
        raise ArtefactError(f"the optimizer state does not fit the model: {', '.join(wrong[:5])}")
    for name, parameter in own.items():
        if steps:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(steps), device=parameter.device),
                **{m: tensors[f"{m}/{name}"].to(parameter.device, torch.float32).clone() for m in _MOMENTS},
            }
