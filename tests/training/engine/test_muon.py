"""Muon against a singular value decomposition, against a loop over single matrices, and against `torch.optim.Muon`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import ArtefactError, RecipeError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.models.network import Network
from larvatus.models.nn import Transformer, TransformerConfig, initialise
from larvatus.models.recipes import OptimizerConfig, read_recipe, recipe_table
from larvatus.training.engine import adam_variants as lamb
from larvatus.training.engine.muon import Muon, orthogonalised
from larvatus.training.engine.optimizer import (
    build_optimizer,
    hidden_matrices,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
)
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.step import Stepper
from tests.shared import SMALL
from tests.training.engine.test_no_waiting import Refusing
from tests.training.engine.test_step import NO_DROPOUT

CONFIG = OptimizerConfig(type="muon", rate=1e-3, beta2=0.95, decay=0.1, muon_rate=0.03, muon_decay=0.2, momentum=0.9)


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def encoder(dtype: torch.dtype = torch.float32) -> Transformer:
    """Gated, with embeddings, norms and biases: matrices of several shapes, some parameters of several matrices."""
    config = TransformerConfig(layers=2, hidden=8, heads=2, max_positions=8, gated=True, norm="pre")
    model = Transformer(config, vocabulary=9).to(dtype)
    initialise(model, seed=1, std=0.3)
    return model


def give_gradients(model: nn.Module, step: int) -> None:
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = drawn(*parameter.shape, seed=1000 * step + number, dtype=parameter.dtype)


def trained(model: nn.Module, optimizer: Any, steps: range) -> dict[str, Tensor]:
    for step in steps:
        give_gradients(model, step)
        optimizer.step()
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("shape", [(12, 12), (7, 20), (20, 7)])
def test_the_iteration_comes_near_u_v_of_the_singular_value_decomposition(shape: tuple[int, int]) -> None:
    """Same directions exactly, all singular values near 1, though they were 1,000 times apart."""
    u, _, v = torch.linalg.svd(drawn(*shape, seed=3), full_matrices=False)
    values = torch.logspace(0, -3, min(shape), dtype=torch.float64) * 50
    step = orthogonalised((u * values @ v)[None])[0]
    inside = u.mT @ step @ v.mT  # diagonal, where the directions are those of the matrix
    torch.testing.assert_close(inside, torch.diag(inside.diagonal()), rtol=0, atol=1e-9)
    torch.testing.assert_close(u @ inside @ v, step, rtol=0, atol=1e-9)
    large = values > 0.05 * values.norm() / math.sqrt(len(values))  # five iterations bring up what is not tiny
    assert ((inside.diagonal()[large] - 1).abs() < 0.35).all()
    assert (inside.diagonal() > 0).all()
    assert inside.diagonal().max() < 1.3


def test_a_matrix_without_a_gradient_has_no_step() -> None:
    assert torch.equal(orthogonalised(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def matrices_apart(name: str, tensor: Tensor) -> list[Tensor]:
    return list(tensor.chunk({"qkv.weight": 3, "up.weight": 2}.get(".".join(name.split(".")[-2:]), 1)))


def naive(model: nn.Module, steps: range) -> dict[str, Tensor]:
    """One matrix after the other, by singular values where the iteration's polynomial says what becomes of each."""
    kept = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters() if "blocks" in name}
    squares: dict[str, list[Tensor]] = {}
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for step in steps:
        give_gradients(model, step)
        for name, parameter in model.named_parameters():
            gradient, weight = parameter.grad, weights[name]
            assert gradient is not None
            if "blocks" in name and name.endswith("weight") and "norm" not in name:
                kept[name] = 0.9 * kept[name] + 0.1 * gradient
                ways = matrices_apart(name, 0.9 * kept[name] + 0.1 * gradient)
                updates = [by_singular_values(way) * math.sqrt(max(1, way.shape[0] / way.shape[1])) for way in ways]
                weights[name] = weight - 0.03 * (torch.cat(updates) + 0.2 * weight)
                continue
            m, v = squares.setdefault(name, [torch.zeros_like(gradient), torch.zeros_like(gradient)])
            m, v = 0.9 * m + 0.1 * gradient, 0.95 * v + 0.05 * gradient**2
            squares[name] = [m, v]
            t = step + 1
            update = (m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-6)
            decay = 0.1 if gradient.ndim > 1 else 0.0
            weights[name] = weight - 1e-3 * (update + decay * weight)
    return weights


def by_singular_values(matrix: Tensor) -> Tensor:
    u, values, v = torch.linalg.svd(matrix, full_matrices=False)
    values = values / matrix.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return u * values @ v


def test_steps_equal_a_loop_over_single_matrices_and_adamw_for_the_rest() -> None:
    model = encoder(torch.float64)
    wanted = naive(encoder(torch.float64), range(6))
    for name, tensor in trained(model, build_optimizer(model, CONFIG), range(6)).items():
        torch.testing.assert_close(tensor, wanted[name], rtol=1e-9, atol=1e-11, msg=name)


def test_batches_of_matrices_equal_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    together, alone = encoder(), encoder()
    whole = trained(together, build_optimizer(together, CONFIG), range(4))
    monkeypatch.setattr(lamb, "TOGETHER", 1)
    for name, tensor in trained(alone, build_optimizer(alone, CONFIG), range(4)).items():
        torch.testing.assert_close(tensor, whole[name], rtol=1e-5, atol=1e-6, msg=name)


def test_steps_are_those_of_torch() -> None:
    """Which computes them in bfloat16 on every device: the matrices agree as far as eight bits go, the rest fully."""
    config = TransformerConfig(layers=1, hidden=16, heads=2, max_positions=8, norm="pre")
    ours, theirs = (Transformer(config, vocabulary=9) for _ in range(2))
    for model in (ours, theirs):
        initialise(model, seed=1, std=0.3)
        model.blocks[0].attention.stacked = {}  # theirs knows no matrices within matrices
    start = {name: parameter.detach().clone() for name, parameter in ours.named_parameters()}
    hidden = hidden_matrices(theirs)
    rest = [parameter for parameter in theirs.parameters() if not any(parameter is matrix for matrix in hidden)]
    groups = [
        {"params": [p for p in rest if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
    ]
    peers = (
        torch.optim.Muon(hidden, lr=0.03, weight_decay=0.2, momentum=0.9),
        torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-6),
    )
    optimizer = build_optimizer(ours, CONFIG)
    set_rate(optimizer, 1e-3)
    for step in range(5):
        for model in (ours, theirs):
            give_gradients(model, step)
        for each in (optimizer, *peers):
            each.step()
    for (name, mine), its in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        moved = float((its.detach() - start[name]).abs().max())
        close = 0.05 * moved if any(its is matrix for matrix in hidden) else 1e-6
        torch.testing.assert_close(mine, its, rtol=0, atol=close, msg=name)


def test_which_weights_are_hidden_matrices_with_a_rate_of_their_own() -> None:
    for name in ("bert", "modern", "electra", "albert", "t5", "xlnet"):
        recipe = read_recipe(name, size="tiny", settings=["optimizer.type=muon", "optimizer.rate=1e-3"])
        model = Network.empty(recipe.model, recipe.objectives, 40)
        optimizer = build_optimizer(model, recipe.optimizer)
        set_rate(optimizer, 5e-4)  # half way down
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        assert len(rates) == len(list(model.parameters()))
        for path, parameter in model.named_parameters():
            linear = isinstance(model.get_submodule(path.rpartition(".")[0]), nn.Linear)
            matrix = ".blocks." in path and path.endswith(".weight") and linear
            assert rates[id(parameter)] == pytest.approx(0.01 if matrix else 5e-4), path


def test_a_state_put_back_goes_on_bit_for_bit() -> None:
    model, again = encoder(), encoder()
    optimizer = build_optimizer(model, CONFIG)
    trained(model, optimizer, range(3))
    again.load_state_dict(model.state_dict())
    state = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, model).items()}
    assert {name for name in state if "blocks.0.attention.qkv.weight" in name} == {
        "momentum_buffer/blocks.0.attention.qkv.weight"
    }
    resumed = build_optimizer(again, CONFIG)
    restore_optimizer(resumed, again, state, steps=3)
    went_on = trained(again, resumed, range(3, 6))
    for name, tensor in trained(model, optimizer, range(3, 6)).items():
        assert torch.equal(tensor, went_on[name]), name
    state.pop("momentum_buffer/blocks.1.feedforward.up.weight")
    with pytest.raises(ArtefactError, match=r"momentum_buffer/blocks.1.feedforward.up.weight"):
        restore_optimizer(resumed, again, state, steps=3)


def test_a_step_with_found_inf_leaves_weights_and_moments_and_the_next_goes_on() -> None:
    plain, guarded = encoder(), encoder()
    optimizers = [build_optimizer(model, CONFIG) for model in (plain, guarded)]
    for step in range(4):
        if step in (0, 2):
            give_gradients(guarded, step)
            for parameter in guarded.parameters():
                assert parameter.grad is not None
                parameter.grad.view(-1)[0] = math.nan
            before = {name: tensor.clone() for name, tensor in guarded.state_dict().items()}
            optimizers[1].found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]
            optimizers[1].step()
            assert all(torch.equal(tensor, before[name]) for name, tensor in guarded.state_dict().items())
            optimizers[1].found_inf = torch.tensor(0.0)  # type: ignore[attr-defined]
        for model, optimizer in zip((plain, guarded), optimizers, strict=True):
            give_gradients(model, step)
            optimizer.step()
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, guarded.state_dict()[name]), name
    for name, tensor in optimizer_tensors(optimizers[0], plain).items():
        assert torch.equal(tensor, optimizer_tensors(optimizers[1], guarded)[name]), name


def copying(step: int) -> TrainingBatch[Any]:
    """Every fourth token is hidden, and was what stands before it: nothing that embeddings alone can know."""
    ids = np.random.default_rng(step).integers(5, 50, 256)
    places = np.arange(2, 256, 4)
    ids[places] = 3
    targets = {MaskedTokens: MaskedTokens(places=places, ids=ids[places - 1])}
    return TrainingBatch(tokens=TokenBatch.of(ids.reshape(16, 16).tolist()), targets=targets)


def learnt(*settings: str) -> tuple[float, Stepper]:
    """The loss after 100 steps of a small `modern`, with 10 of warm-up."""
    recipe = read_recipe("modern", settings=[*SMALL, *settings])
    model = Network.build(recipe.model, recipe.objectives, 50, seed=0)
    optimizer = build_optimizer(model, recipe.optimizer)
    stepper = Stepper(model, optimizer, recipe, runtime=Runtime(), ranks=Ranks(), seed=1, pad_id=0)
    for step in range(100):
        rate = recipe.optimizer.rate * min(1, (step + 1) / 10)
        loss = stepper(copying(step), step=step, rate=rate, limit=48).losses["masked-lm"]
    return loss, stepper


@pytest.mark.parametrize("rates", [(5e-3,), pytest.param((3e-3, 5e-3, 1e-2), marks=pytest.mark.proof)])
def test_it_learns_faster_than_adamw_at_its_best_rate_and_waits_for_nothing(rates: tuple[float, ...]) -> None:
    adamw = min(learnt("optimizer.type=adamw", f"optimizer.rate={rate}")[0] for rate in rates)
    loss, stepper = learnt("optimizer.type=muon", "optimizer.rate=1e-2", "optimizer.muon_rate=0.05")
    assert isinstance(stepper.update.optimizer, Muon)
    assert loss < adamw - 0.5
    give_gradients(stepper.model, 0)
    for group in stepper.update.optimizer.param_groups:
        if group.get("muon"):
            with Refusing(), torch.no_grad():
                stepper.update.optimizer._update(group, group["params"])


def test_a_recipe_takes_it_by_one_setting_and_says_nothing_of_it_otherwise(small_recipe: Any) -> None:
    table = recipe_table(small_recipe("optimizer.type=muon", "optimizer.muon_rate=0.03"))
    saved = {name: table["optimizer"][name] for name in ("muon_rate", "muon_decay", "momentum")}
    assert saved == {"muon_rate": 0.03, "muon_decay": 0.05, "momentum": 0.95}  # in full, said or not
    assert not {"muon_rate", "muon_decay", "momentum"} & recipe_table(small_recipe(*NO_DROPOUT))["optimizer"].keys()
    assert OptimizerConfig(type="muon").hidden == (0.02, 0.05, 0.95)
    with pytest.raises(RecipeError, match="matrices of blocks"):
        read_recipe("elmo", settings=["optimizer.type=muon"])
    with pytest.raises(RecipeError, match="none that learn"):
        build_optimizer(nn.Linear(2, 2), OptimizerConfig(type="muon"))
