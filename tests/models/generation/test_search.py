"""Beam search and greedy decoding, against exhaustive search and against `transformers`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from larvatus.models.generation.decoding import BeamSettings, Stopping, beam_search, decode, greedy
from tests.models.generation.toy import Table, Theirs

END = 3
PROMPTS = [[5, 9, 11], [7], [12, 4, 4, 8, 20, 1], [2, 2]]


@pytest.fixture(scope="module")
def gpt2() -> Any:
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=32, n_positions=32, n_embd=16, n_layer=2, n_head=2, eos_token_id=END, initializer_range=0.5
    )
    return transformers.GPT2LMHeadModel(config).eval()


def theirs(model: Any, prompt: list[int], **settings: Any) -> list[list[int]]:
    """What `generate` adds to a prompt, without the padding after the end token."""
    rows = model.generate(torch.tensor([prompt]), do_sample=False, pad_token_id=END, **settings).tolist()
    added = [row[len(prompt) :] for row in rows]
    return [ids[: ids.index(END) + 1] if END in ids else ids for ids in added]


def test_greedy_adds_the_tokens_that_transformers_adds(gpt2: Any) -> None:
    most = np.array([12, 12, 12, 12])
    ours = decode(Theirs(gpt2, PROMPTS), choose=greedy, limits=most, stopping=Stopping(ends=frozenset({END})))
    assert [list(each.ids) for each in ours] == [theirs(gpt2, p, max_new_tokens=12)[0] for p in PROMPTS]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("beams", "penalty"), [(2, 1.0), (5, 1.0), (2, 0.0), (5, 2.5), (2, -1.0)])
def test_beams_of_ragged_prompts_are_those_of_transformers_alone(
    gpt2: Any, beams: int, penalty: float, early: bool
) -> None:
    search = BeamSettings(beams, length_penalty=penalty, early_stopping=early)
    stopping = Stopping(ends=frozenset({END}))
    ours = beam_search(Theirs(gpt2, PROMPTS), search, limits=np.full(4, 10), stopping=stopping)
    for prompt, continuations in zip(PROMPTS, ours, strict=True):
        settings = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": 10}
        expected = theirs(gpt2, prompt, **settings, length_penalty=penalty, early_stopping=early)
        assert [list(each.ids) for each in continuations] == expected


def test_a_beam_as_wide_as_the_tree_finds_what_exhaustive_search_finds() -> None:
    table = (2 * torch.randn(4, 4, generator=torch.Generator().manual_seed(1))).log_softmax(-1)
    search = BeamSettings(beams=64, length_penalty=0.0)
    found = beam_search(Table(table, [[0]]), search, limits=np.array([4]), stopping=Stopping(ends=frozenset({END})))[0]

    def likelihood(ids: tuple[int, ...]) -> float:
        return sum(float(table[a, b]) for a, b in itertools.pairwise((0, *ids)))

    whole = [ids for n in range(1, 5) for ids in itertools.product(range(4), repeat=n)]
    ended = [ids for ids in whole if END not in ids[:-1] and (ids[-1] == END or len(ids) == 4)]
    best = sorted(ended, key=likelihood, reverse=True)
    assert [each.ids for each in found[:10]] == best[:10]
    assert found[0].log_probability == pytest.approx(likelihood(best[0]), abs=1e-5)
    assert {each.reason for each in found} == {"end", "length"}


def test_prompts_have_limits_of_their_own_and_leave_when_they_are_done(gpt2: Any) -> None:
    most = np.array([3, 9, 1, 6])
    ours = beam_search(Theirs(gpt2, PROMPTS), BeamSettings(3), limits=most, stopping=Stopping())
    for prompt, limit, continuations in zip(PROMPTS, most.tolist(), ours, strict=True):
        expected = theirs(gpt2, prompt, num_beams=3, max_new_tokens=limit, eos_token_id=None)
        assert list(continuations[0].ids)[: len(expected[0])] == expected[0]
        assert len(continuations[0].ids) == limit
