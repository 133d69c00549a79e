"""What fine-tuning trains: how much, how fast each layer, and that nothing else moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import ClassTargets
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig
from larvatus.models.nn.lora import LoRAConfig, parameter_counts
from larvatus.tasks.trainer.trainable import TrainableConfig, train_mode, trainable
from larvatus.training.engine.optimizer import set_rate

LAYERS, HIDDEN, INNER, VOCABULARY, POSITIONS = 3, 16, 64, 20, 32
BLOCK = 4 * HIDDEN * HIDDEN + 4 * HIDDEN + 2 * HIDDEN * INNER + INNER + HIDDEN + 4 * HIDDEN
EMBEDDINGS = (VOCABULARY + POSITIONS + 2 + 2) * HIDDEN
HEAD = HIDDEN * HIDDEN + HIDDEN + 2 * HIDDEN + 2
LORA = LAYERS * 2 * 8 * (HIDDEN + HIDDEN)
BATCH = TrainingBatch(
    tokens=TokenBatch.of([[4, 7, 9, 3], [5, 2], [8, 1, 6, 11, 12, 3]]).map(torch.from_numpy),
    targets={ClassTargets: ClassTargets(labels=torch.tensor([0, 1, 1]), weights=torch.ones(3))},
)


def model(**shape: object) -> Network:
    settings = {"layers": LAYERS, "hidden": HIDDEN, "heads": 2, "max_positions": POSITIONS, "init": 0.3, **shape}
    config = TransformerConfig(**settings)  # type: ignore[arg-type]
    return Network.build(config, [ClassificationConfig(labels=("a", "b"))], VOCABULARY, seed=1)


def step(whole: Network, groups: list[dict[str, object]], *, rate: float = 0.1) -> None:
    optimizer = torch.optim.AdamW(groups)
    set_rate(optimizer, rate)
    train_mode(whole)
    torch.manual_seed(1)
    whole.loss(BATCH, {"classification": 3})[0].backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("word", "settings", "expected"),
    [
        ("all", {}, EMBEDDINGS + LAYERS * BLOCK + HEAD),
        ("all", {"embeddings": False}, LAYERS * BLOCK + HEAD),
        ("head", {}, HEAD),
        ("last1", {}, BLOCK + HEAD),
        ("last2", {}, 2 * BLOCK + HEAD),
        ("last3", {}, 3 * BLOCK + HEAD),
        ("lora", {}, LORA + HEAD),
        ("lora16", {}, 2 * LORA + HEAD),
    ],
)
def test_so_many_numbers_learn(word: str, settings: dict[str, bool], expected: int) -> None:
    whole = model()
    groups = trainable(whole, TrainableConfig.read(word, **settings), decay=0.01, seed=1)
    assert parameter_counts(whole).trained == expected
    grouped = [p for group in groups for p in group["params"]]
    assert {id(p) for p in grouped} == {id(p) for p in whole.parameters() if p.requires_grad}
    assert len({id(p) for p in grouped}) == len(grouped)


def in_head(name: str) -> bool:
    return name.startswith("objectives.")


@pytest.mark.parametrize(
    ("config", "moves"),
    [
        (TrainableConfig(), lambda name: True),
        (TrainableConfig(embeddings=False), lambda name: ".embeddings." not in name),
        (TrainableConfig.read("head"), in_head),
        (TrainableConfig.read("last2"), lambda name: in_head(name) or ".blocks.1." in name or ".blocks.2." in name),
        (TrainableConfig.read("lora"), lambda name: in_head(name) or ".lora." in name),
    ],
    ids=["all", "but embeddings", "head", "last2", "lora"],
)
def test_one_step_changes_what_should_and_nothing_else(config: TrainableConfig, moves: Callable[[str], bool]) -> None:
    whole = model()
    groups = trainable(whole, config, decay=0.0, seed=1)
    for name, parameter in whole.named_parameters():
        if name.endswith(".b"):  # else A has no gradient yet
            parameter.data.fill_(0.1)
    before = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    step(whole, groups)
    changed = {name for name, tensor in whole.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if moves(name)}


def test_lower_layers_learn_slower_and_embeddings_slowest() -> None:
    whole = model(norm="pre")
    groups = trainable(whole, TrainableConfig(layer_decay=0.5, head_rate=3.0), decay=0.01, seed=1)
    optimizer = torch.optim.AdamW(groups)
    set_rate(optimizer, 0.1)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    expected = {
        "encoder.embeddings.": 0.1 / 8,
        "encoder.blocks.0.": 0.1 / 4,
        "encoder.blocks.1.": 0.1 / 2,
        "encoder.blocks.2.": 0.1,
        "encoder.final_norm.": 0.1,
        "objectives.": 0.3,
    }
    for name, parameter in whole.named_parameters():
        (own,) = [rate for start, rate in expected.items() if name.startswith(start)]
        assert rates[id(parameter)] == pytest.approx(own), name
    set_rate(optimizer, 0.0)
    assert {group["lr"] for group in optimizer.param_groups} == {0.0}


def test_a_first_adam_step_is_as_long_as_the_layer_s_rate() -> None:
    """Adam's first step moves every number by its rate, whatever the gradient."""
    whole = model(dropout=0.0, attention_dropout=0.0)
    before = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    step(whole, trainable(whole, TrainableConfig(layer_decay=0.5), decay=0.0, seed=1), rate=0.01)
    after = whole.state_dict()
    for layer, rate in enumerate([0.0025, 0.005, 0.01]):
        name = f"encoder.blocks.{layer}.feedforward.up.weight"
        assert float((after[name] - before[name]).abs().median()) == pytest.approx(rate, rel=1e-3)


def test_lora_s_pairs_have_the_rate_of_their_layer() -> None:
    whole = model()
    groups = trainable(whole, TrainableConfig.read("lora", layer_decay=0.5), decay=0.01, seed=1)
    scales = {id(p): group["scale"] for group in groups for p in group["params"]}
    found = [scales[id(p)] for name, p in whole.named_parameters() if name.endswith("qkv.lora.query.a")]
    assert found == [0.25, 0.5, 1.0]


def test_norms_and_biases_do_not_decay() -> None:
    whole = model()
    groups = trainable(whole, TrainableConfig(), decay=0.03, seed=1)
    assert len(groups) == 2  # as few as there are kinds: the optimizer is fused over each
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    for name, parameter in whole.named_parameters():
        vector = name.endswith("bias") or "norm" in name
        assert decays[id(parameter)] == (0.0 if vector else 0.03), name


@pytest.mark.parametrize(
    ("word", "settings", "training"),
    [
        ("all", {}, [True, True, True, True]),
        ("all", {"embeddings": False}, [False, True, True, True]),
        ("head", {}, [False, False, False, False]),
        ("last2", {}, [False, False, True, True]),
        ("lora", {}, [False, True, True, True]),
    ],
)
def test_what_is_frozen_below_has_no_dropout(word: str, settings: dict[str, bool], training: list[bool]) -> None:
    whole = model().eval()
    trainable(whole, TrainableConfig.read(word, **settings), decay=0.01, seed=1)
    train_mode(whole)
    encoder = whole.encoder
    assert [encoder.embeddings.dropout.training, *(block.dropout.training for block in encoder.blocks)] == training
    assert [block.attention.training for block in encoder.blocks] == training[1:]
    assert whole.heads["classification"].dropout.training  # type: ignore[union-attr]


def test_frozen_layers_build_no_graph() -> None:
    whole = model()
    trainable(whole, TrainableConfig.read("last1"), decay=0.01, seed=1)
    train_mode(whole)
    states = whole.encoder(BATCH.tokens, layers=range(whole.encoder.depth + 1))
    assert [state.requires_grad for state in states] == [False, False, False, True]


def test_training_another_part_afterwards_leaves_nothing_of_the_first() -> None:
    whole = model()
    trainable(whole, TrainableConfig(), decay=0.01, seed=1)
    trainable(whole, TrainableConfig.read("head"), decay=0.01, seed=1)
    assert parameter_counts(whole).trained == HEAD


def test_layers_that_are_one_learn_together() -> None:
    whole = model(shared=True)
    groups = trainable(whole, TrainableConfig(layer_decay=0.5), decay=0.01, seed=1)
    assert {group["scale"] for group in groups} == {1.0, 0.5}
    assert parameter_counts(whole).trained == EMBEDDINGS + BLOCK + HEAD
    with pytest.raises(UsageError, match="train lora or all"):
        trainable(whole, TrainableConfig.read("last1"), decay=0.01, seed=1)


def test_a_bias_on_distances_is_trained_with_all_only() -> None:
    for word, learns in (("all", True), ("last2", False), ("lora", False), ("head", False)):
        whole = model(relative_buckets=8, relative_distance=16)
        trainable(whole, TrainableConfig.read(word), decay=0.01, seed=1)
        assert whole.encoder.relative is not None
        assert {p.requires_grad for p in whole.encoder.relative.parameters()} == {learns}


@pytest.mark.parametrize("word", ["all", "head", "last2", "last12", "lora8", "lora16", "lora16-all"])
def test_a_word_is_read_and_said_again(word: str) -> None:
    assert TrainableConfig.read(word).word == word


@pytest.mark.parametrize("word", ["last2-all", "all-all", "lora-all", "head-all", "lora16-", "lora16-all-all"])
def test_only_lora_of_a_rank_may_have_all_targets(word: str) -> None:
    with pytest.raises(UsageError, match="is not something to train"):
        TrainableConfig.read(word)


def test_lora_without_a_number_has_the_default_rank_and_another_rank_the_same_scale() -> None:
    assert (
        TrainableConfig.read("lora") == TrainableConfig.read("lora8") == TrainableConfig(part="lora", lora=LoRAConfig())
    )
    lora = TrainableConfig.read("lora64").lora
    assert lora.alpha / lora.rank == LoRAConfig().alpha / LoRAConfig().rank


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lsat2", "did you mean last2"),
        ("haed", "did you mean head"),
        ("last", "did you mean last"),
        ("everything", "there are: all, bias, head"),
        ("", "there are"),
        ("all3", "did you mean all"),
        ("head1", "did you mean head"),
        ("last0", "one or more"),
        ("last-1", "did you mean last"),
        ("last٢", "did you mean last"),
        ("lora0", "rank = 0 must lie between 1"),
        ("last99999", "did you mean"),
    ],
)
def test_words_that_say_nothing(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrainableConfig.read(word)


def test_more_layers_than_there_are() -> None:
    with pytest.raises(UsageError, match="has 3 layers, so its last 4"):
        trainable(model(), TrainableConfig.read("last4"), decay=0.01, seed=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"layer_decay": 0.0},
        {"layer_decay": 1.1},
        {"layer_decay": float("nan")},
        {"head_rate": 0.0},
        {"head_rate": float("inf")},
        {"last": 2},
        {"part": "last"},
        {"part": "last", "last": -1},
        {"part": "lsat"},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        TrainableConfig(**settings)  # type: ignore[arg-type]
