"""Scores of pairs of spans: against a loop over all pairs in float64, gradients too; gaps and distances."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from larvatus.models.nn.span_scorer import DISTANCES, RelationScorer, distances, gaps

SPANS = [(0, 0), (0, 3), (2, 2), (4, 6), (5, 5), (6, 8)]  # words first … last
TYPES = [0, 1, 0, 2, 2, 1]


def scorer() -> RelationScorer:
    made = RelationScorer(5, hidden=7, types=3, outputs=4).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return made


def gap(a: tuple[int, int], b: tuple[int, int]) -> int:
    """Words from the head to the tail, by counting."""
    shared = set(range(a[0], a[1] + 1)) & set(range(b[0], b[1] + 1))
    if shared:
        return 0
    return b[0] - a[1] if a < b else b[1] - a[0]


def bucket(gap: int) -> int:
    step = abs(gap).bit_length()
    return min(step, 10) + (10 if gap < 0 else 0)


def direct(own: RelationScorer, z: torch.Tensor, a: int, b: int) -> torch.Tensor:
    """A pair as the formula has it: the net over the concatenation of both spans."""
    vectors = []
    for first, last in (SPANS[a], SPANS[b]):
        words = [z[k] for k in range(first, last + 1)]
        vectors.append(torch.cat([z[first], z[last], sum(words) / len(words)]))
    weight = torch.cat([own.sides.weight[:7], own.sides.weight[7:]], 1)  # [W_h W_t]
    hidden = weight @ torch.cat(vectors) + own.types.weight[TYPES[a], :7] + own.types.weight[TYPES[b], 7:]
    hidden = hidden + own.distance.weight[bucket(gap(SPANS[a], SPANS[b]))] + own.bias
    return own.output.weight @ torch.relu(hidden) + own.output.bias


def test_scores_and_gradients_equal_a_loop_over_all_pairs_in_float64() -> None:
    own = scorer()
    z = torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    pairs = [(a, b) for a in range(len(SPANS)) for b in range(len(SPANS)) if a != b]
    heads, tails = torch.tensor(pairs).T
    first, last = torch.tensor(SPANS).T
    found = own(
        own.project(z, first, last, torch.tensor(TYPES)), heads, tails, distances(gaps(first, last, heads, tails))
    )
    wanted = torch.stack([direct(own, z, a, b) for a, b in pairs])
    assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(found[pairs.index((0, 3))], found[pairs.index((3, 0))])  # who is head matters
    tensors = [z, *own.parameters()]
    mix = torch.randn(found.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for ours, theirs in zip(
        torch.autograd.grad((found * mix).sum(), tensors),
        torch.autograd.grad((wanted * mix).sum(), tensors),
        strict=True,
    ):
        assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@settings(max_examples=50)
@given(
    a=st.tuples(st.integers(0, 3000), st.integers(0, 30)),
    b=st.tuples(st.integers(0, 3000), st.integers(0, 30)),
)
def test_gaps_and_distances_are_what_counting_gives(a, b) -> None:
    a, b = (a[0], sum(a)), (b[0], sum(b))
    first, last = torch.tensor([a, b]).T
    found = gaps(first, last, torch.tensor([0, 1]), torch.tensor([1, 0]))
    assert found.tolist() == [gap(a, b), -gap(a, b)]
    assert distances(found).tolist() == [bucket(gap(a, b)), bucket(-gap(a, b))]
    assert int(distances(found).max()) < DISTANCES
