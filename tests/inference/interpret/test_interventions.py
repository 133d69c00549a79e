"""An edited encoder computes what the encoder computes, but for its edits; the encoder itself never changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.core.rng import stream
from larvatus.inference.interpret.interventions import Edit, Site, capture, edited, tapped, without_heads
from larvatus.models.network import quantise_network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.elmo import ElmoConfig
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.nn.xlnet import XLNetConfig

SIZES: dict[str, Any] = {"layers": 3, "hidden": 16, "heads": 2, "max_positions": 32}
MODERN = {"norm": "pre", "positions": "rotary", "gated": True, "local_attention": 4, "global_every": 3, "segments": 0}
KINDS: dict[str, Any] = {
    "bert": TransformerConfig(**SIZES),
    "modern": TransformerConfig(**SIZES, **MODERN),
    "shared": TransformerConfig(**SIZES, shared=True),
    "causal": CausalTransformerConfig(**SIZES),
    "xlnet": XLNetConfig(**SIZES),
    "t5": EncoderDecoderConfig(**SIZES, head_size=4, relative_buckets=8, relative_distance=16),
}
LENGTHS = (7, 3, 9, 3, 5)
"""Neither ascending nor distinct, so that blocks reorder the sequences."""
SITES: tuple[Site, ...] = ("attention", "feedforward", "heads", "neurons")


def tokens(item: int = 0, lengths: tuple[int, ...] = LENGTHS) -> TokenBatch:
    draw = stream(3, "ids", item=item)
    return TokenBatch.of([draw.integers(1, 12, size=size).tolist() for size in lengths]).map(torch.from_numpy)


@pytest.fixture(params=list(KINDS))
def encoder(request: pytest.FixtureRequest) -> Any:
    built = KINDS[request.param].build(40).eval()
    initialise(built, seed=1, std=0.3)
    return built


@torch.no_grad()
def test_residuals_are_the_states_of_the_layers_in_the_order_of_the_batch(encoder: Any) -> None:
    batch = tokens()
    held = capture(encoder, batch, [("residual", layer) for layer in range(4)])
    for layer, states in enumerate(encoder(batch, layers=[0, 1, 2])):  # the third has its final norm already
        assert torch.equal(held["residual", layer], states)
    alone = capture(encoder, tokens().map(lambda x: x), [("attention", 2)])["attention", 2]
    start = LENGTHS[0] + LENGTHS[1]
    third = TokenBatch.of([batch.ids[start : start + 9].tolist()]).map(torch.from_numpy)
    assert_close(alone[start : start + 9], capture(encoder, third, [("attention", 2)])["attention", 2])


@torch.no_grad()
def test_swapping_all_residuals_of_a_layer_gives_the_other_run_and_swapping_none_nothing(encoder: Any) -> None:
    batch, other = tokens(), tokens(1)
    before, after = encoder(batch), encoder(other)
    assert (after - before).abs().max() > 0.1
    rows = torch.arange(batch.size)
    for layer in range(4):
        states = capture(encoder, other, [("residual", layer)])["residual", layer]
        whole = edited(encoder, [Edit("residual", layer, states, rows=rows)], batch)
        assert_close(whole(batch), after)
        none = edited(encoder, [Edit("residual", layer, states[:0], rows=rows[:0])], batch)
        assert torch.equal(none(batch), before)
    assert torch.equal(encoder(batch), before)


@torch.no_grad()
def test_an_edit_of_one_token_leaves_the_other_sequences_as_they_were(encoder: Any) -> None:
    """Row 8 is of the second sequence, whose tokens are 7, 8 and 9."""
    batch, before = tokens(), encoder(tokens())
    mine = torch.zeros(batch.size, dtype=torch.bool)
    mine[7:10] = True
    for site in (*SITES, "residual"):
        width = capture(encoder, batch, [(site, 2)])[site, 2].shape[1]
        for columns in (None, slice(2, 5), torch.tensor([0, width - 1])):
            size = width if columns is None else 3 if isinstance(columns, slice) else 2
            edit = Edit(site, 2, torch.full((1, size), 3.0), rows=torch.tensor([8]), columns=columns)
            after = edited(encoder, [edit], batch)(batch)
            assert_close(after[~mine], before[~mine])
            assert (after[mine] - before[mine]).abs().amax() > 1e-3, (site, columns)


@torch.no_grad()
def test_sites_hold_what_their_names_say(encoder: Any) -> None:
    """Heads through W^O give the attention output; neurons through W_down the feedforward output."""
    batch = tokens()
    held = capture(encoder, batch, [(site, 2) for site in SITES])
    block = encoder.block(1)
    assert_close(block.attention.out(held["heads", 2]), held["attention", 2])
    assert_close(block.feedforward.down(held["neurons", 2]), held["feedforward", 2])


@torch.no_grad()
def test_removed_heads_are_those_with_zero_output_weights(encoder: Any) -> None:
    batch = tokens()
    shared = len(encoder.blocks) < encoder.depth
    heads = [(layer, 2) for layer in (1, 2, 3)] if shared else [(1, 2), (3, 1)]
    view = without_heads(encoder, heads)
    places = torch.tensor([2, 8, 15, 19, 24])
    removed, fast = view(batch), view.at(batch, places)
    both = edited(without_heads(encoder, heads[:1]), [], None)
    assert_close(without_heads(both, heads[1:])(batch), removed)  # a view of a view
    encoder.zero_heads(heads)
    assert_close(encoder(batch), removed, rtol=1e-5, atol=1e-6)
    assert_close(fast, removed[places], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_taps_see_all_rows_of_an_int8_model_and_of_the_fast_path(tiny_model: Any) -> None:
    network = tiny_model(hidden=64, heads=2)
    quantise_network(network)
    batch = tokens(lengths=(30,) * 20)  # more rows than are computed at once
    assert capture(network.encoder, batch, [("neurons", 1)])["neurons", 1].shape[0] == 600
    seen: list[int] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return x

    places = torch.arange(0, 600, 30)
    tapped(network.encoder, {("residual", 2): look}).at(batch, places)
    tapped(network.encoder, {("heads", 2): look}, whole=False).at(batch, places)
    assert seen == [600, 20]


def test_what_cannot_be_edited_is_one_line(tiny_model: Any) -> None:
    encoder = tiny_model().encoder
    for site, layer in (("residual", 3), ("attention", 0), ("heads", 3)):
        with pytest.raises(UsageError, match=f"there is no layer {layer}: the model has layers 1 to 2"):
            capture(encoder, tokens(), [(site, layer)])
    with pytest.raises(UsageError, match="there is no layer 1, head 3"):
        without_heads(encoder, [(1, 3)])
    with pytest.raises(UsageError, match="Elmo has no attention blocks"):
        without_heads(ElmoConfig().build(8), [(1, 1)])
