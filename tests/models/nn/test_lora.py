"""LoRA: what it adds, that it starts as nothing, what learns, and that merging it leaves the plain model."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import ClassTargets
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn import Transformer, TransformerConfig, initialise
from larvatus.models.nn.linear import LoRALinear, LowRank
from larvatus.models.nn.lora import TARGETS, LoRAConfig, add_lora, merge_lora, parameter_counts

SHAPES: dict[str, dict[str, object]] = {
    "bert": {},
    "shared": {"shared": True, "embedding": 4},
    "modern": {
        "norm": "pre",
        "biases": False,
        "gated": True,
        "feedforward": 24,
        "positions": "rotary",
        "local_attention": 4,
        "global_every": 2,
    },
}
BATCH = TokenBatch.of([[4, 7, 9, 3], [5, 2], [8, 1, 6, 11, 12, 3]]).map(torch.from_numpy)
ALL = LoRAConfig(rank=3, alpha=5.0, targets=TARGETS)


def model(**shape: object) -> Transformer:
    settings = {"layers": 2, "hidden": 12, "heads": 2, "max_positions": 16, **shape}
    encoder = Transformer(TransformerConfig(**settings), vocabulary=20).double().eval()  # type: ignore[arg-type]
    initialise(encoder, seed=3, std=0.3)
    return encoder


def learnt(encoder: Transformer) -> Transformer:
    """As if training had moved B away from zero."""
    draw = torch.Generator().manual_seed(7)
    for module in encoder.modules():
        if isinstance(module, LowRank):
            module.b.data.copy_(torch.empty(module.b.shape).normal_(std=0.3, generator=draw))
    return encoder


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_at_the_start_nothing_is_added(shape: dict[str, object]) -> None:
    encoder = model(**shape)
    before = encoder(BATCH)
    add_lora(encoder, ALL, seed=1)
    assert_close(encoder(BATCH), before, rtol=0, atol=0)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_merged_computes_the_same_under_the_names_of_before(shape: dict[str, object]) -> None:
    encoder = model(**shape).float()
    plain = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    before = encoder(BATCH)
    add_lora(encoder, ALL, seed=1)
    assert set(plain) < set(encoder.state_dict())  # the base weights keep their names
    with_lora = learnt(encoder)(BATCH)
    assert (with_lora - before).abs().max() > 0.01
    merge_lora(encoder)
    assert_close(encoder(BATCH), with_lora, rtol=0, atol=1e-5)
    assert list(encoder.state_dict()) == list(plain)
    changed = {name for name, tensor in encoder.state_dict().items() if not torch.equal(tensor, plain[name])}
    matrices = ("attention.qkv", "attention.out", "feedforward.up", "feedforward.down")
    assert changed == {f"blocks.{n}.{m}.weight" for n in range(len(encoder.blocks)) for m in matrices}
    merge_lora(encoder)  # nothing left to do
    assert_close(encoder(BATCH), with_lora, rtol=0, atol=1e-5)


@pytest.mark.parametrize("targets", [("query",), ("key",), ("query", "value"), ("value", "key", "query")])
def test_thirds_of_one_matrix_equal_the_naive_formula(targets: tuple[str, ...]) -> None:
    config = LoRAConfig(rank=2, alpha=3.0, targets=targets)  # type: ignore[arg-type]
    encoder = model()
    add_lora(encoder, config, seed=1)
    linear = learnt(encoder).get_submodule("blocks.1.attention.qkv")
    assert isinstance(linear, LoRALinear)
    x = torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.zeros(5, 36, dtype=torch.float64)
    for n, j in itertools.product(range(5), range(36)):
        expected[n, j] = linear.bias[j] + sum(linear.weight[j, i] * x[n, i] for i in range(12))
        name = ("query", "key", "value")[j // 12]
        if name in targets:
            a, b = linear.lora[name].a, linear.lora[name].b
            read = [sum(a[r, i] * x[n, i] for i in range(12)) for r in range(2)]
            expected[n, j] += 3.0 / 2 * sum(b[j % 12, r] * read[r] for r in range(2))
    assert_close(linear(x), expected)
    assert_close(torch.nn.functional.linear(x, linear.full_weight(), linear.bias), expected)


def test_only_the_pairs_and_the_head_learn() -> None:
    task = ClassificationConfig(labels=("a", "b"))
    config = TransformerConfig(layers=2, hidden=12, heads=2, max_positions=16)
    whole = Network.build(config, [task], 20, seed=1)
    add_lora(whole.encoder, LoRAConfig(rank=2, dropout=0.2), seed=1)
    targets = ClassTargets(labels=torch.tensor([0, 1, 1]), weights=torch.ones(3))
    batch = TrainingBatch(tokens=BATCH, targets={ClassTargets: targets})
    learnt(whole.encoder)
    whole.train()(batch)["classification"].total.backward()
    moved = {name for name, p in whole.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    pairs = {f"encoder.blocks.{n}.attention.qkv.lora.{t}.{m}" for n in (0, 1) for t in ("query", "value") for m in "ab"}
    assert moved == pairs | {name for name, _ in whole.named_parameters() if name.startswith("objectives.")}
    assert parameter_counts(whole.encoder).trained == 2 * 2 * 2 * (12 + 12)
    assert parameter_counts(whole.encoder).total == parameter_counts(model()).total + 192


def test_dropout_falls_on_what_a_reads_and_on_nothing_else() -> None:
    encoder = model(dropout=0.0, attention_dropout=0.0)
    before = encoder(BATCH)
    add_lora(encoder, LoRAConfig(dropout=0.5), seed=1)
    assert_close(encoder.train()(BATCH), before)  # B is zero
    learnt(encoder)
    assert (encoder(BATCH) - encoder(BATCH)).abs().max() > 1e-3
    encoder.eval()
    assert_close(encoder(BATCH), encoder(BATCH), rtol=0, atol=0)


def test_half_precision_computes_the_same_and_reaches_the_pairs() -> None:
    encoder = model(dropout=0.0, attention_dropout=0.0).float()
    add_lora(encoder, LoRAConfig(rank=2), seed=1)
    exact = learnt(encoder)(BATCH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = encoder.train()(BATCH)
        half.square().sum().backward()
    assert_close(half.float(), exact, rtol=0, atol=0.1)
    pair = encoder.get_submodule("blocks.0.attention.qkv.lora.query")
    assert isinstance(pair, LowRank)
    assert pair.a.grad is not None
    assert pair.a.grad.dtype == torch.float32


def test_the_short_way_to_one_token_sees_lora_too() -> None:
    encoder = model()
    add_lora(encoder, ALL, seed=1)
    places = torch.tensor([1, 4, 9])
    assert_close(learnt(encoder).at(BATCH, places), encoder(BATCH)[places])


def test_the_draw_is_decided_by_the_seed() -> None:
    def drawn(seed: int, **settings: object) -> dict[str, torch.Tensor]:
        encoder = model()
        add_lora(encoder, LoRAConfig(**settings), seed=seed)  # type: ignore[arg-type]
        return {name: t for name, t in encoder.state_dict().items() if "lora" in name}

    one, again, other, wider = drawn(1), drawn(1), drawn(2), drawn(1, targets=("value", "up", "query"))
    for name, tensor in one.items():
        assert torch.equal(tensor, again[name])
        assert torch.equal(tensor, wider[name])  # other targets change nothing
        assert torch.equal(tensor, other[name]) == name.endswith(".b")
    wide = Transformer(TransformerConfig(layers=1, hidden=768), 20)
    add_lora(wide, LoRAConfig(rank=64), seed=1)
    assert float(wide.state_dict()["blocks.0.attention.qkv.lora.query.a"].std()) == pytest.approx(0.0208, rel=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank = 0 must lie between 1"),
        ({"alpha": 0.0}, "alpha = 0.0 must be above 0"),
        ({"alpha": float("nan")}, "alpha = nan must be above 0"),
        ({"dropout": 1.0}, "dropout = 1.0 must be at least 0 and below 1"),
        ({"targets": ("query", "valeu")}, "did you mean value"),
        ({"targets": ()}, "at least one target"),
        ({"targets": ("up", "up")}, "each named once"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LoRAConfig(**settings)  # type: ignore[arg-type]


def test_lora_is_added_once() -> None:
    encoder = model()
    add_lora(encoder, LoRAConfig(), seed=1)
    with pytest.raises(UsageError, match="merge it"):
        add_lora(encoder, LoRAConfig(), seed=1)
