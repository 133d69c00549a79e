"""XLNet's two streams: what a prediction must not see changes no bit of it; sequences do not meet; memory is read.

That the numbers are those of `transformers` is shown in tests/models/bundle/test_xlnet.py, from text.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.rng import stream
from larvatus.models.nn.attention.relative_attention import StreamLayout
from larvatus.models.nn.lora import LoRAConfig, add_lora, merge_lora
from larvatus.models.nn.xlnet import XLNet, XLNetConfig
from larvatus.models.nn.xlnet_layers import SegmentMemory

LENGTHS = (9, 5, 9, 1, 7)
VOCABULARY = 40


def build(**settings: Any) -> XLNet:
    config = XLNetConfig(**{"layers": 3, "hidden": 16, "heads": 4, "max_positions": 32, **settings})
    encoder = config.build(VOCABULARY).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.4, generator=generator)
    return encoder


def tokens(lengths: tuple[int, ...] = LENGTHS) -> TokenBatch[Tensor]:
    draw = stream(1, "test xlnet")
    rows = [draw.integers(0, VOCABULARY, size=n).tolist() for n in lengths]
    segments = [[int(2 * place >= n) for place in range(n)] for n in lengths]
    return TokenBatch.of(rows, segments=segments).map(torch.from_numpy)


def orders(lengths: tuple[int, ...] = LENGTHS, *, whole: bool = True) -> tuple[Tensor, Tensor]:
    """The last third of each order is predicted; the rest is seen by all, or follows the order too."""
    draw, order, places, before = stream(2, "test xlnet"), [], [], 0
    for length in lengths:
        turns = draw.permutation(length) + 1
        asked = turns > length - max(1, length // 3)
        order += np.where(asked | (not whole), turns, 0).tolist()
        places += (before + np.flatnonzero(asked)).tolist()
        before += length
    return torch.tensor(order), torch.tensor(places)


def seen_by(place: int, order: Tensor, owner: Tensor) -> Tensor:
    """[N] what the prediction at a place may depend on."""
    return (owner == owner[place]) & (order < order[place])


@pytest.mark.parametrize("whole", [True, False])
@torch.no_grad()
def test_a_prediction_is_bit_equal_whatever_stands_at_its_place_and_later_in_the_order(whole: bool) -> None:
    encoder, batch, (order, places) = build(), tokens(), orders(whole=whole)
    owner = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    before = encoder.two_streams(batch, order, places)
    for row, place in enumerate(places.tolist()):
        hidden = ~seen_by(place, order, owner)
        changed = torch.where(hidden, (batch.ids + 7) % VOCABULARY, batch.ids)
        after = encoder.two_streams(dataclasses.replace(batch, ids=changed), order, places)
        assert torch.equal(before[row], after[row])
        if not hidden.all():
            seen = torch.where(hidden, batch.ids, (batch.ids + 7) % VOCABULARY)
            assert not torch.equal(
                before[row], encoder.two_streams(dataclasses.replace(batch, ids=seen), order, places)[row]
            )


@pytest.mark.parametrize("whole", [True, False])
def test_no_gradient_reaches_what_a_prediction_must_not_see_and_some_reaches_all_it_may(whole: bool) -> None:
    encoder, (order, places) = build(), orders(whole=whole)
    batch = dataclasses.replace(tokens(), ids=torch.arange(sum(LENGTHS)))  # every token another word
    owner = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    for row, place in enumerate(places.tolist()):
        encoder.zero_grad()
        encoder.two_streams(batch, order, places)[row].square().sum().backward()
        gradient = encoder.word_vectors.grad
        assert gradient is not None
        reached = gradient[: len(order)].abs().sum(1) > 0
        assert torch.equal(reached, seen_by(place, order, owner))


def test_each_sequence_is_read_as_if_alone() -> None:
    encoder, batch, (order, places) = build(), tokens(), orders()
    states, asked, before = encoder(batch), encoder.two_streams(batch, order, places), 0
    assert isinstance(states, Tensor)
    for length in LENGTHS:
        here = slice(before, before + length)
        alone = TokenBatch.of([batch.ids[here].tolist()], segments=[batch.segments[here].tolist()]).map(
            torch.from_numpy
        )
        mine = (places >= before) & (places < before + length)
        assert_close(states[here], encoder(alone), rtol=1e-5, atol=1e-6)
        assert_close(asked[mine], encoder.two_streams(alone, order[here], places[mine] - before), rtol=1e-5, atol=1e-6)
        before += length


def test_a_place_that_sees_nothing_knows_nothing_of_the_text() -> None:
    """The first of an order, where no special token stands by; in `transformers` it gets the mean of all tokens."""
    encoder = build()
    order, places = torch.tensor([1, 2, 3]), torch.tensor([0, 1, 2])
    rows = [
        encoder.two_streams(TokenBatch.of([ids]).map(torch.from_numpy), order, places) for ids in ([1, 2, 3], [4, 5, 6])
    ]
    assert torch.equal(rows[0][0], rows[1][0])
    assert not torch.equal(rows[0][1], rows[1][1])


def test_layers_and_some_tokens_are_those_of_the_whole() -> None:
    encoder, batch = build(), tokens()
    states = encoder(batch, layers=[0, 3, 1])
    assert torch.equal(states[0], encoder.word_vectors[batch.ids])
    assert torch.equal(states[1], encoder(batch))
    assert torch.equal(encoder.at(batch, torch.tensor([8, 3])), encoder(batch)[[8, 3]])


def test_attention_weights_are_shares_and_masked_heads_are_zeroed_ones() -> None:
    encoder, batch = build(), tokens()
    for layer in encoder.attention(batch):
        assert [tuple(weights.shape) for weights in layer] == [(4, n, n) for n in LENGTHS]
        for weights in layer:
            assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    kept = torch.ones(3, 4)
    kept[1, 2] = 0
    masked = encoder.with_heads(batch, kept)
    encoder.zero_heads([(2, 3)])
    assert_close(masked, encoder(batch))


def test_lora_starts_where_the_model_was_and_merges_without_trace() -> None:
    encoder, batch = build(), tokens()
    before = encoder(batch)
    add_lora(encoder, LoRAConfig(rank=2), seed=1)
    assert_close(encoder(batch), before)
    merge_lora(encoder)
    assert encoder.state_dict().keys() == build().state_dict().keys()


# ── memory


@torch.no_grad()
def test_a_segment_read_with_memory_sees_every_state_kept_of_those_before_it() -> None:
    """Sequences of other lengths remember other numbers of states; each is as if alone."""
    encoder, lengths = build(memory=6), (4, 9)
    segments = [tokens(lengths), tokens((5, 2)), tokens((3, 3))]
    memory: SegmentMemory | None = None
    together = []
    for batch in segments:
        states, memory = encoder.with_memory(batch, memory)
        together.append(states)
    assert memory is not None
    assert memory.lengths.tolist() == [6, 6]
    assert memory.states[0].shape == (12, 16)
    for number in range(2):
        alone: SegmentMemory | None = None
        for batch, states in zip(segments, together, strict=True):
            first = int(batch.lengths[:number].sum())
            here = slice(first, first + int(batch.lengths[number]))
            one = TokenBatch.of([batch.ids[here].tolist()], segments=[batch.segments[here].tolist()])
            mine, alone = encoder.with_memory(one.map(torch.from_numpy), alone)
            assert_close(states[here], mine, rtol=1e-5, atol=1e-6)


def test_in_training_the_second_half_remembers_the_first_and_never_the_other_way_round() -> None:
    encoder, batch, (order, places) = build(memory=8), tokens(), orders()
    before = encoder.in_training(batch, order, places)
    place_in = batch.positions >= torch.repeat_interleave(batch.lengths // 2, batch.lengths)  # of the second half
    late = place_in[places]
    assert 0 < late.sum() < len(late)
    for half, moved, still in ((place_in, late, ~late), (~place_in, late, ~late)):
        ids = torch.where(half, (batch.ids + 7) % VOCABULARY, batch.ids)
        after = encoder.in_training(dataclasses.replace(batch, ids=ids), order, places)
        if half is place_in:
            assert torch.equal(after[still], before[still])  # the first half reads nothing of the second
        else:
            changed = (after[moved] != before[moved]).any(1)
            alone = batch.lengths[torch.bucketize(places[moved], batch.lengths.cumsum(0), right=True)] == 1
            assert torch.equal(changed, ~alone)  # a sequence of one token has no first half
    # a prediction of the second half leaves no gradient in the first: it is remembered, not computed again
    encoder.in_training(dataclasses.replace(batch, ids=torch.arange(batch.size)), order, places)[late].sum().backward()
    gradient = encoder.word_vectors.grad
    assert gradient is not None
    assert not gradient[: batch.size][~place_in].any()


def test_memory_of_another_batch_is_refused() -> None:
    encoder = build(memory=4)
    _, memory = encoder.with_memory(tokens((3, 4)))
    with pytest.raises(UsageError, match="give each batch the memory of the one before"):
        encoder.with_memory(tokens((3,)), memory)


# ── settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"heads": 3}, "set model.heads = 2"), ({"hidden": 15, "heads": 3}, "model.hidden = 15 must be even")],
)
def test_settings_that_cannot_be_are_refused_in_one_line(settings: dict[str, int], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        build(**settings)


def test_a_sequence_longer_than_the_model_reads_is_refused() -> None:
    with pytest.raises(UsageError, match="cut the text into windows of 32"):
        build()(tokens((33,)))


def test_groups_are_of_equal_sequences_and_empty_ones_are_left_out() -> None:
    streams = StreamLayout.of(torch.tensor([3, 0, 2, 3]), places=torch.tensor([0, 3, 6, 7]))
    assert [(g.count, g.length, g.query_length) for g in streams.groups] == [(1, 2, 1), (1, 3, 1), (1, 3, 2)]
    assert streams.tokens.arrange(torch.arange(8)).tolist() == [3, 4, 0, 1, 2, 5, 6, 7]
    assert streams.places.tolist() == [0, 0, 1, 2]
    assert streams.queries.restore(streams.queries.arrange(torch.arange(4))).tolist() == [0, 1, 2, 3]
