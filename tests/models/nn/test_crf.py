"""The CRF against enumeration of all tag sequences, and against autograd through the plain recursion."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.errors import UsageError
from larvatus.core.rng import stream
from larvatus.data.text.tag_schemes import LETTERS, find_illegal, legal_transitions
from larvatus.models.nn.crf import CRF, AllowedTransitions, constrained_viterbi
from larvatus.models.nn.linear_chain import ChainSteps, forward_backward


@dataclass
class Allowed:
    starts: np.ndarray
    transitions: np.ndarray
    ends: np.ndarray


BIO = Allowed(  # O, B, I
    np.array([True, True, False]),
    np.array([[True, True, False], [True, True, True], [True, True, True]]),
    np.array([True, True, True]),
)


def normal(item: int, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.from_numpy(stream(5, "test crf", 0, item).normal(0, scale, shape))


def random_crf(tags: int, seed: int, scale: float = 1.0) -> CRF:
    crf = CRF(tags).double()
    with torch.no_grad():
        for item, parameter in enumerate(crf.parameters()):
            parameter.copy_(normal(100 * seed + item, *parameter.shape, scale=scale))
    return crf


def legal(path: tuple[int, ...], table: Allowed | None) -> bool:
    return table is None or bool(
        table.starts[path[0]]
        and table.ends[path[-1]]
        and all(table.transitions[a, b] for a, b in itertools.pairwise(path))
    )


def enumerate_all(crf: CRF, e: Tensor, table: Allowed | None = None) -> tuple[list[tuple[int, ...]], Tensor]:
    """All legal tag sequences of one sequence of emissions [T, K], and their scores."""
    paths = [path for path in itertools.product(range(e.shape[1]), repeat=len(e)) if legal(path, table)]
    scores = []
    for path in paths:
        score = crf.start[path[0]] + crf.end[path[-1]] + sum(e[t, tag] for t, tag in enumerate(path))
        scores.append(score + sum(crf.transitions[a, b] for a, b in itertools.pairwise(path)))
    return paths, torch.stack(scores)


def naive_marginals(paths, scores, size: int, tags: int) -> Tensor:
    found = torch.zeros(size, tags, dtype=torch.float64)
    for path, probability in zip(paths, torch.softmax(scores, 0), strict=True):
        for t, tag in enumerate(path):
            found[t, tag] += probability
    return found


cases = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(0, 5), min_size=0, max_size=4),
        "seed": st.integers(0, 10_000),
        "scale": st.sampled_from([0.1, 1.0, 10.0]),
        "constrained": st.booleans(),
    }
)


@settings(max_examples=40)
@given(case=cases)
def test_likelihood_viterbi_and_marginals_equal_enumeration_of_all_tag_sequences(case) -> None:
    lengths, tags = case["lengths"], 3
    table = BIO if case["constrained"] else None
    allowed = None if table is None else AllowedTransitions.of(table)
    crf = random_crf(tags, case["seed"])
    e = normal(case["seed"], sum(lengths), tags, scale=case["scale"])
    sizes = torch.tensor(lengths, dtype=torch.int64)
    best, marginals = crf.viterbi(e, sizes, allowed=allowed), crf.marginals(e, sizes, allowed=allowed)
    gold = torch.cat([e.new_zeros(0, dtype=torch.int64), best.roll(1)])
    likelihoods = crf(e, gold, sizes, allowed=allowed)
    scores_of_best = crf.score(e, best, sizes)
    assert best.shape == (sum(lengths),)
    for b, (size, at) in enumerate(zip(lengths, np.cumsum(lengths) - lengths, strict=True)):
        if not size:
            assert likelihoods[b] == 0
            continue
        own = slice(at, at + size)
        paths, scores = enumerate_all(crf, e[own], table)
        assert tuple(best[own].tolist()) == paths[int(scores.argmax())]
        assert_close(scores_of_best[b], scores.max())
        assert_close(marginals[own], naive_marginals(paths, scores, size, tags))
        path = tuple(gold[own].tolist())
        wanted = scores[paths.index(path)] - scores.logsumexp(0) if path in paths else -torch.tensor(torch.inf).double()
        assert_close(likelihoods[b], wanted)


@pytest.mark.parametrize("constrained", [False, True])
def test_gradients_are_those_of_finite_differences(constrained: bool) -> None:
    crf, lengths = random_crf(3, 1), torch.tensor([4, 1, 0, 2])
    e, tags = normal(1, 7, 3).requires_grad_(), torch.tensor([0, 1, 2, 0, 1, 1, 2])
    allowed = AllowedTransitions.of(BIO) if constrained else None

    def likelihood(e, *parameters):
        names = dict(zip(dict(crf.named_parameters()), parameters, strict=True))
        return torch.func.functional_call(crf, names, (e, tags, lengths), {"allowed": allowed})

    assert torch.autograd.gradcheck(likelihood, (e, *(p.detach().clone().requires_grad_() for p in crf.parameters())))


def naive_log_partition(crf: CRF, e: Tensor) -> Tensor:
    alpha = crf.start + e[0]
    for row in e[1:]:
        alpha = torch.logsumexp(alpha[:, None] + crf.transitions, 0) + row
    return torch.logsumexp(alpha + crf.end, 0)


def naive_log_likelihood(crf: CRF, e: Tensor, tags: list[int]) -> Tensor:
    score = crf.start[tags[0]] + crf.end[tags[-1]] + sum(e[t, tag] for t, tag in enumerate(tags))
    return score + sum(crf.transitions[a, b] for a, b in itertools.pairwise(tags)) - naive_log_partition(crf, e)


@pytest.mark.parametrize("transitions", [1.0, 60.0])  # 60: products of float32 lose paths that count
def test_float32_with_emissions_of_50_equals_autograd_through_the_recursion_in_float64(transitions: float) -> None:
    lengths, tags = [40, 3, 1, 25], 5
    crf = random_crf(tags, 2, transitions)
    e = (normal(2, sum(lengths), tags).clamp(-1, 1) * 50).requires_grad_()
    gold = torch.from_numpy(stream(5, "gold").integers(0, tags, sum(lengths)))
    naive = torch.stack(
        [
            naive_log_likelihood(crf, own, t.tolist())
            for own, t in zip(e.split(lengths), gold.split(lengths), strict=True)
        ]
    )
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    wanted = torch.autograd.grad(naive @ weights, [e, *crf.parameters()])
    single = random_crf(tags, 2, transitions).float()
    e32 = e.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = single(e32, gold, torch.tensor(lengths))
    assert found.dtype == torch.float32
    assert_close(found.double(), naive, rtol=1e-5, atol=1e-3)
    for a, b in zip(torch.autograd.grad(found @ weights.float(), [e32, *single.parameters()]), wanted, strict=True):
        assert_close(a.double(), b, rtol=1e-3, atol=1e-4)


def test_paths_too_small_for_products_are_counted_by_sums_of_logarithms() -> None:
    """Only the tag that the first token all but excludes may come second."""
    table = Allowed(np.array([True, True]), np.array([[False, True], [True, False]]), np.array([True, True]))
    allowed, crf = AllowedTransitions.of(table), CRF(2)
    e = torch.tensor([[0.0, -200.0], [-200.0, 0.0], [0.0, -200.0], [0.0, -200.0]])
    sizes = torch.tensor([4])
    scores = (allowed.transitions, allowed.starts, allowed.ends)
    sums = forward_backward(e, *scores, steps=ChainSteps.of(sizes, e.device), reachable_2K=allowed.reachable)
    assert sums.exact
    _, wanted = enumerate_all(crf, e, table)
    assert_close(sums.log_partition, wanted.logsumexp(0, keepdim=True).double())
    loss = -crf(e.requires_grad_(), torch.tensor([0, 1, 0, 1]), sizes, allowed=allowed)
    assert_close(loss, torch.zeros(1))
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in crf.parameters())


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_a_ragged_batch_equals_its_sequences_one_by_one(lengths: list[int], seed: int) -> None:
    crf, allowed = random_crf(3, seed), AllowedTransitions.of(BIO)
    e = normal(seed, sum(lengths), 3, scale=3)
    tags = crf.viterbi(e, torch.tensor(lengths), allowed=allowed)
    together = (tags, crf.marginals(e, torch.tensor(lengths)), crf(e, tags, torch.tensor(lengths), allowed=allowed))
    alone: list[list[Tensor]] = [[], [], []]
    for own in e.split(lengths):
        size = torch.tensor([len(own)])
        best = crf.viterbi(own, size, allowed=allowed)
        for found, one in zip(
            alone, (best, crf.marginals(own, size), crf(own, best, size, allowed=allowed)), strict=True
        ):
            found.append(one)
    for a, b in zip(together, alone, strict=True):
        assert_close(a, torch.cat(b))


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_without_a_crf_the_best_allowed_tags_are_found(lengths: list[int], seed: int) -> None:
    e = normal(seed, sum(lengths), 3, scale=3).float()
    found = constrained_viterbi(e, torch.tensor(lengths), AllowedTransitions.of(BIO))
    for own, tags in zip(e.split(lengths), found.split(lengths), strict=True):
        paths, scores = enumerate_all(CRF(3), own, BIO)
        assert tuple(tags.tolist()) == paths[int(scores.argmax())]


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "BIOES", "BILOU", "none"])
def test_no_illegal_tags_are_decoded_in_any_scheme(scheme: str) -> None:
    letters = LETTERS[scheme][1:] or "BI"
    labels = ["O", *(f"{letter}-{kind}" for kind in ("PER", "LOC") for letter in letters)]
    allowed = AllowedTransitions.of(legal_transitions(labels, scheme))
    lengths = [1, 2, 0, 7, 30, 3, 1, 12]
    e = normal(9, sum(lengths), len(labels), scale=5).float()
    crf = random_crf(len(labels), 9, 5).float()
    for tags in (
        constrained_viterbi(e, torch.tensor(lengths), allowed),
        crf.viterbi(e, torch.tensor(lengths), allowed=allowed),
    ):
        for own in tags.split(lengths):
            assert find_illegal([labels[tag] for tag in own], scheme) == []
    if scheme == "none":
        assert_close(constrained_viterbi(e, torch.tensor(lengths), allowed), e.argmax(-1))
    else:
        assert find_illegal([labels[tag] for tag in e.argmax(-1)], scheme)  # the emissions alone would say some


@pytest.mark.parametrize("lengths", [[], [0, 0], [1]])
def test_batches_of_next_to_nothing_have_gradients(lengths: list[int]) -> None:
    crf, size = CRF(3), sum(lengths)
    e, tags = torch.zeros(size, 3, requires_grad=True), torch.zeros(size, dtype=torch.int64)
    crf(e, tags, torch.tensor(lengths, dtype=torch.int64)).sum().backward()
    assert_close(e.grad, torch.tensor([[2 / 3, -1 / 3, -1 / 3]] * size).view(size, 3))
    assert crf.transitions.grad is not None
    assert not crf.transitions.grad.any()


def test_tables_that_forbid_everything_and_emissions_that_do_not_fit_are_refused() -> None:
    dead = Allowed(np.array([True, False]), np.zeros((2, 2), np.bool_), np.array([True, True]))
    with pytest.raises(UsageError, match="no sequence of length 2"):
        AllowedTransitions.of(dead)
    with pytest.raises(UsageError, match="do not agree"):
        AllowedTransitions.of(Allowed(BIO.starts, BIO.transitions[:2], BIO.ends))
    with pytest.raises(UsageError, match=r"needs emissions \[N, 3\], not \[4, 2\]"):
        CRF(3).viterbi(torch.zeros(4, 2), torch.tensor([4]))
