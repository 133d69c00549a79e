"""All spans at once against a loop over every span, in float64: scores and gradients of every representation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from larvatus.core.rng import stream
from larvatus.models.nn.span_scorer import SpanIndex, SpanScorer

REPRESENTATIONS = ["mean", "boundaries", "attention", "self-attention"]


def normal(item: int, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.from_numpy(stream(3, "test spans", 0, item).normal(0, scale, shape))


def scorer(representation: str, *, longest: int, widths: bool = True, size: int = 6, scale: float = 0.6) -> SpanScorer:
    made = SpanScorer(size, hidden=5, outputs=3, longest=longest, representation=representation, widths=widths).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for item, parameter in enumerate(made.parameters()):
            parameter.copy_(normal(item, *parameter.shape, scale=scale))
    return made


def naive(made: SpanScorer, z: Tensor, counts: list[int], starts: list[int] | None = None) -> Tensor:
    """Eq. 11.21 to 11.27 as written: a vector [start; end; content] for every span, and a feed-forward net over it."""
    first_layer = torch.cat([made.start.weight, made.end.weight, made.content.weight], dim=1)
    rows, place = [z.new_zeros(0, 3)], 0
    for number, count in enumerate(counts):
        for i in range(place, place + (count if starts is None else starts[number])):
            for j in range(i, min(i + made.longest, place + count)):
                inside = z[i : j + 1]
                if made.query is not None and made.key is not None:
                    outputs = []  # eq. 11.26: each word of the span looks at the words of the span, and no others
                    for one in inside:
                        scores = torch.stack([made.query(one) @ made.key(other) for other in inside])
                        outputs.append(torch.softmax(scores / len(made.query.weight) ** 0.5, 0) @ inside)
                    g = torch.stack(outputs).mean(0)
                elif made.attention is None:
                    g = torch.stack(list(inside)).sum(0) / (j - i + 1)
                else:
                    g = torch.softmax(inside @ made.attention.weight[0], 0) @ inside
                s = z[i] if made.start_ffn is None else made.start_ffn(z[i])
                e = z[j] if made.end_ffn is None else made.end_ffn(z[j])
                hidden = first_layer @ torch.cat([s, e, g]) + made.content.bias
                if made.width is not None:
                    hidden = hidden + made.width.weight[j - i]
                rows.append(made.output(torch.relu(hidden))[None])
        place += count
    return torch.cat(rows)


def gradients(made: SpanScorer, z: Tensor, scores: Tensor) -> list[Tensor]:
    weights = normal(99, *scores.shape)
    return list(torch.autograd.grad((scores * weights).sum(), [z, *made.parameters()]))


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    longest=st.integers(1, 9),
    representation=st.sampled_from(REPRESENTATIONS),
    widths=st.booleans(),
    block=st.sampled_from([1, 3, 1000]),
)
def test_eq_11_21_to_11_27_scores_of_all_spans_and_their_gradients_equal_the_loop(
    counts, longest, representation, widths, block
) -> None:
    made = scorer(representation, longest=longest, widths=widths)
    z = normal(7, sum(counts), 6).requires_grad_()
    index = SpanIndex.of(torch.tensor(counts), longest=longest)
    fast = made(z, index, budget=block * 5 * max(1, index.longest))
    slow = naive(made, z, counts)
    assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    if sum(counts):
        for ours, theirs in zip(gradients(made, z, fast), gradients(made, z, slow), strict=True):
            assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_words_that_begin_no_span_still_end_some(representation: str) -> None:
    counts, starts = [5, 4, 2], [3, 0, 2]
    made = scorer(representation, longest=4)
    z = normal(8, 11, 6)
    index = SpanIndex.of(torch.tensor(counts), longest=4, starts_B=torch.tensor(starts))
    assert_close(made(z, index), naive(made, z, counts, starts), rtol=1e-12, atol=1e-12)


def test_an_index_knows_the_number_of_each_of_its_spans() -> None:
    index = SpanIndex.of(torch.tensor([4, 0, 2]), longest=3)
    assert index.count == 3 + 3 + 2 + 1 + 2 + 1
    assert index.number(index.first_M, index.last_M).tolist() == list(range(index.count))
    outside = index.number(torch.tensor([0, 3, 1]), torch.tensor([3, 4, 0]))  # too long, two sequences, backwards
    assert outside.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("representation", ["attention", "self-attention"])
def test_attention_of_any_size_neither_overflows_nor_underflows(representation: str) -> None:
    made = scorer(representation, longest=6).float()
    z = (normal(9, 12, 6) * 1e3).float()
    wanted = naive(made.double(), z.double(), [12])
    found = made.float()(z, SpanIndex.of(torch.tensor([12]), longest=6))
    assert torch.isfinite(found).all()
    assert_close(found.double(), wanted, rtol=1e-4, atol=1e-2)


def test_means_of_a_long_text_in_float32_lose_nothing_to_cancelling() -> None:
    """Differences of sums over the whole text would: the text before a span is 10,000 times as large."""
    made = scorer("mean", longest=4, scale=0.3).float()
    z = normal(10, 3000, 6).float()
    z[:2900] *= 1e4
    found = made(z, SpanIndex.of(torch.tensor([3000]), longest=4))[-10:]
    wanted = naive(made.double(), z.double()[-8:], [8])[-10:]
    assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_self_attention_is_torchs_own_over_each_span() -> None:
    """W^Q, W^K, W^V as papers have them, through torch's attention: `content` is W_c W^V."""
    made = scorer("self-attention", longest=3, widths=False)
    assert made.query is not None
    assert made.key is not None
    value, z = normal(20, 6, 6), normal(21, 5, 6)
    contents = made.content.weight.detach().clone()
    with torch.no_grad():
        made.content.weight.copy_(contents @ value)
    found = made(z, SpanIndex.of(torch.tensor([5]), longest=3))
    row = 0
    for i in range(5):
        for j in range(i, min(i + 3, 5)):
            own = z[i : j + 1]
            q, k = made.query(own), made.key(own)
            seen = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], (own @ value.T)[None])[0]
            hidden = made.start(made.start_ffn(z[i])) + made.end(made.end_ffn(z[j]))
            hidden = hidden + seen.mean(0) @ contents.T + made.content.bias
            assert_close(found[row], made.output(hidden.relu()), rtol=1e-10, atol=1e-10)
            row += 1
    assert row == len(found)


@pytest.mark.parametrize("words", [200, 800])
def test_memory_of_self_attention_does_not_grow_with_the_square_of_the_text(words: int) -> None:
    """What a block holds is bounded by its budget, however long the text is."""
    made = scorer("self-attention", longest=8).float()
    index = SpanIndex.of(torch.tensor([words]), longest=8)
    z = normal(22, words, 6).float().requires_grad_()
    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else (out,):
                largest = max(largest, tensor.numel() if isinstance(tensor, Tensor) else 0)
            return out

    with Largest():
        made(z, index, budget=8 * 8 * 5 * 16).square().sum().backward()
    assert largest <= max(3 * index.count, 6 * words, 16 * 8 * 8 * 5)  # scores, words, a block of 16 words


def test_frozen_words_and_autocast_give_gradients_to_the_scorer_alone() -> None:
    made = scorer("self-attention", longest=4).float()
    z = normal(11, 9, 6).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = made(z, SpanIndex.of(torch.tensor([9]), longest=4))
    assert scores.dtype == torch.float32
    scores.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in made.parameters())
