"""A masking share that changes over a run: what each step hides, whatever the workers and wherever it is resumed."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from larvatus.core.arrays import Ints
from larvatus.core.batch import NO_WORD, TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corpus.loader import Loader
from larvatus.data.corpus.packing import FullSentencesConfig, PackingConfig, SentencePairsConfig
from larvatus.data.corpus.store import Corpus
from larvatus.data.corruption import MaskingConfig, RunPosition, SpanCorruptionConfig, WholeWordConfig
from larvatus.data.corruption.replacement import share_at
from larvatus.models.recipes import read_recipe, recipe_table
from larvatus.training.pretraining.evaluation import build_corruption, held_out_batches
from tests.data.corpus.test_loader import loader, same

STEPS, TOKENS = 90, 2048
UNIFORM: dict[str, Any] = {"replacement": "uniform"}  # the small vocabulary has no counts
DOWN = MaskingConfig(rate=0.15, first_rate=0.4, **UNIFORM)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "block_tokens", 5000)


def scheduled(
    corpus: Corpus,
    config: Any = DOWN,
    packing: PackingConfig = FullSentencesConfig(),
    *,
    first: int = 0,
    workers: int = 0,
) -> Loader:
    course = RunPosition(first=first, steps=STEPS, tokens=TOKENS)
    corruption = build_corruption(config, corpus.tokenizer, 3, limit=48, course=course)
    return loader(corpus, packing, corruption=corruption, tokens=TOKENS, workers=workers)


def share(batch: TrainingBatch[Ints]) -> float:
    """Of the ordinary tokens of a step, how many are hidden."""
    return batch.targets[MaskedTokens].count / int((batch.tokens.words != NO_WORD).sum())


@pytest.mark.parametrize(
    ("config", "wanted", "packing"),
    [
        (DOWN, lambda place: 0.4 - 0.25 * place, FullSentencesConfig()),
        (DOWN, lambda place: 0.4 - 0.25 * place, SentencePairsConfig()),
        (
            WholeWordConfig(rate=0.15, first_rate=0.4, path="cosine", **UNIFORM),
            lambda place: 0.275 + 0.125 * math.cos(math.pi * place),
            FullSentencesConfig(),
        ),
        (
            MaskingConfig(rate=0.3, first_rate=0.1, path="linear", **UNIFORM),
            lambda place: 0.1 + 0.2 * place,
            FullSentencesConfig(),
        ),
    ],
    ids=["down", "down-pairs", "cosine", "up"],
)
def test_every_step_hides_the_share_of_its_place_in_the_run(
    corpus: Corpus, config: Any, wanted: Callable[[float], float], packing: PackingConfig
) -> None:
    steps = list(islice(scheduled(corpus, config, packing).steps(), STEPS))
    assert steps[-1][1].epoch >= 1, "a run of several epochs, many blocks"
    for step, (batch, _) in enumerate(steps):
        assert share(batch) == pytest.approx(wanted((step + 0.5) / STEPS), abs=0.035), step
    ends = [np.mean([share(batch) for batch, _ in part]) for part in (steps[:9], steps[-9:])]
    assert ends == pytest.approx([wanted(0.05), wanted(0.95)], abs=0.01)


def test_a_later_phase_goes_on_where_the_earlier_ended(corpus: Corpus) -> None:
    batch, _ = next(scheduled(corpus, first=60).steps())
    assert share(batch) == pytest.approx(0.4 - 0.25 * 60 / STEPS, abs=0.02)


def test_neither_workers_nor_a_resume_change_a_mask(corpus: Corpus) -> None:
    steps = list(islice(scheduled(corpus).steps(), 50))
    others = list(islice(scheduled(corpus, workers=2).steps(), 50))
    assert all(same(one, other) for (one, _), (other, _) in zip(steps, others, strict=True))
    for at in (0, 7, 23, 48):
        batch, after = next(scheduled(corpus).steps(steps[at][1]))
        assert same(batch, steps[at + 1][0])
        assert after == steps[at + 1][1]


def test_a_stretch_of_a_block_has_the_masks_that_it_has_in_the_whole(corpus: Corpus) -> None:
    course = RunPosition(first=0, steps=7, tokens=333).after(501)
    corruption = build_corruption(DOWN, corpus.tokenizer, 3, limit=48, course=course)
    assert corruption is not None
    block, _ = next(loader(corpus, FullSentencesConfig(), corruption=None, tokens=TOKENS).steps())
    whole = corruption(block, 1, 5 << 32)
    for first in (1, 7, block.tokens.count - 1):
        begins = 501 + int(block.tokens.lengths[:first].sum())
        stretch = corruption.after(begins)(block.cut(first, block.tokens.count), 1, (5 << 32) + first)
        assert same(stretch, whole.cut(first, block.tokens.count))


def test_held_out_text_has_the_last_share_at_any_time_and_without_a_schedule_nothing_changes(corpus: Corpus) -> None:
    settings: dict[str, Any] = {"length": 48, "tokens": 3000, "microbatch": 2048}
    constant, down = (
        list(held_out_batches(corpus, FullSentencesConfig(), config, **settings))
        for config in (MaskingConfig(rate=0.15, **UNIFORM), DOWN)
    )
    assert all(same(one, other) for one, other in zip(constant, down, strict=True))
    plain = build_corruption(MaskingConfig(**UNIFORM), corpus.tokenizer, 3, limit=48)
    for (one, _), (other, _) in zip(
        islice(scheduled(corpus, MaskingConfig(**UNIFORM)).steps(), 20),
        islice(loader(corpus, FullSentencesConfig(), corruption=plain, tokens=TOKENS).steps(), 20),
        strict=True,
    ):
        assert same(one, other)


def test_shares_begin_and_end_as_the_recipe_says() -> None:
    assert [DOWN.at(place).rate for place in (0.0, 0.4, 1.0)] == pytest.approx([0.4, 0.3, 0.15])
    assert share_at(0.25, first=0.4, last=0.2, path="cosine") == pytest.approx(0.2 + 0.1 * (1 + math.sqrt(0.5)))
    recipe = read_recipe("roberta", settings=["corruption.first_rate=0.4", "corruption.rate=0.15"])
    assert recipe_table(recipe)["corruption"]["first_rate"] == 0.4
    assert recipe.most_words_per_token == 0.4  # what a compiled step has room for
    assert recipe.words_per_token == pytest.approx(0.275)
    assert not {"first_rate", "path"} & recipe_table(read_recipe("bert"))["corruption"].keys()
    with pytest.raises(RecipeError, match=r"set corruption.first_rate, too"):
        MaskingConfig(path="cosine")
    with pytest.raises(RecipeError, match=r"corruption.first_rate = 0.9 is more than spans"):
        SpanCorruptionConfig(first_rate=0.9).check(126)
