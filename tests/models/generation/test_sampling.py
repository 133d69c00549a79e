"""Draws: from the distributions of `transformers`, by numbers that depend on seed, prompt, sample and place alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as process

from larvatus.core.errors import UsageError
from larvatus.models.generation.decoding import SampledChoice, Sampling, Stopping, decode
from larvatus.models.generation.generate import GenerateSettings
from tests.models.generation.toy import Table


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.7, None, None), (1.3, 5, None), (1.0, None, 0.8), (2.0, 9, 0.6)]
)
def test_the_distribution_is_that_of_transformers(temperature: float, top_k: int | None, top_p: float | None) -> None:
    logits = 3 * torch.randn(40, 30, generator=torch.Generator().manual_seed(2))
    scores = process.TemperatureLogitsWarper(temperature)(None, logits)
    scores = scores if top_k is None else process.TopKLogitsWarper(top_k)(None, scores)
    scores = scores if top_p is None else process.TopPLogitsWarper(top_p)(None, scores)
    ours = Sampling(temperature, top_k, top_p).weights(logits)
    torch.testing.assert_close(ours.float(), scores.softmax(-1), atol=1e-6, rtol=1e-5)


def test_a_nucleus_holds_at_least_the_likeliest_token() -> None:
    assert Sampling(1.0, top_p=1e-9).weights(torch.tensor([[0.0, 1.0, 2.0]])).tolist() == [[0, 0, 1]]


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log().expand(20_000, -1)
    draws = SampledChoice(Sampling(1.0), 3, np.arange(20_000), np.zeros(20_000, np.int64))
    counts = np.bincount(draws(logits, np.arange(20_000), 0).numpy(), minlength=3)
    assert np.abs(counts / 20_000 - [0.5, 0.25, 0.25]).max() < 0.015  # 4 standard deviations


def test_a_prompt_is_gone_on_with_in_the_same_way_whatever_it_is_batched_with() -> None:
    table = torch.randn(9, 9, generator=torch.Generator().manual_seed(4))

    def written(prompts: list[int], samples: list[int]) -> list[tuple[int, ...]]:
        numbers, most = np.array(prompts), np.full(len(prompts), 8)
        draws = SampledChoice(Sampling(1.0), 11, numbers, np.array(samples))
        starts = [[number % 5] for number in prompts]
        rows = decode(Table(table, starts), choose=draws, limits=most, stopping=Stopping(ends=frozenset({8})))
        return [row.ids for row in rows]

    together = written([0, 1, 2, 2, 7], [0, 0, 0, 1, 0])
    assert together == [written([p], [s])[0] for p, s in [(0, 0), (1, 0), (2, 0), (2, 1), (7, 0)]]
    assert together[2] != together[3]  # another sample of the same prompt
    assert len({len(ids) for ids in together}) > 1  # some left earlier than others


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"beams": 0}, "beams = 0 must lie between 1 and 1,000"),
        ({"temperature": -1}, "temperature = -1.0 must lie between 0 and 1,000,000"),
        ({"top_p": 0}, "top_p = 0.0 must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p = 1.5 must be above 0 and at most 1"),
        ({"top_k": 0}, "top_k = 0 must lie between 1 and 1,000,000,000"),
        ({"max_tokens": 0}, "max_tokens = 0 must lie between 1 and 1,000,000,000"),
        ({"beams": 4, "top_k": 3}, "beams = 4 searches and does not sample; leave out"),
        (
            {"beams": 2, "samples": 3},
            "samples = 3 is more than the 2 continuations that beams = 2 keeps; give beams = 3",
        ),
        ({"length_penalty": 2.0}, "length_penalty and early_stopping are for beam search; give beams above 1"),
        ({"temperature": 1e-300}, "temperature = 1e-300 must be 0, which takes the likeliest token, or at least 0.001"),
        ({"temperature": 0, "top_p": 0.5}, "temperature = 0 samples nothing"),
        ({"stop": ""}, "stop = '' occurs everywhere"),
        ({"maxtokens": 3}, "generate has no setting 'maxtokens'; did you mean max_tokens"),
        ({"stop": 3}, "fill: Expected `array`, got `int`"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_in_one_line(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        GenerateSettings.of(settings)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_asking_for_draws_means_a_temperature_of_one() -> None:
    assert GenerateSettings().warmth == 0
    assert GenerateSettings(top_k=3).warmth == GenerateSettings(samples=2).warmth == 1
    assert GenerateSettings(beams=3, samples=2).warmth == 0
    assert GenerateSettings.of({"stop": "."}).stop == (".",)
