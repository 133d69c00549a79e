"""A tiny model that has read made-up reviews: it knows which adjectives go together, and was never told a label."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.models.bundle.directory import Bundle, load_bundle

GOOD = ("superb", "lovely", "bright", "charming", "fine", "warm", "clever", "rich")
BAD = ("awful", "dreary", "boring", "clumsy", "poor", "cold", "stupid", "thin")
THINGS = ("film", "plot", "cast", "score", "scene", "story", "ending", "music")


def review(random: Any, words: tuple[str, ...]) -> str:
    first, second = random.choice(words, size=2)
    thing, other = random.choice(THINGS, size=2)
    return f"the {thing} is {first} and the {other} seems {second}"


def reviews(count: int, seed: int, *, labelled: bool = True) -> Dataset[TextExample]:
    """Of two classes, half each."""
    random = stream(seed, "test reviews")
    rows = []
    for number in range(count):
        label = ("neg", "pos")[number % 2]
        text = review(random, GOOD if label == "pos" else BAD)
        rows.append(TextExample(text, None, label if labelled else None, Place("reviews.tsv", number + 1)))
    return Dataset(tuple(rows), "reviews.tsv", kind="multi-class")


@pytest.fixture
def tiny(tiny_model: Callable[..., Any], save_tiny: Callable[..., Path], tmp_path: Path) -> Bundle:
    """Random weights, in few words."""
    return load_bundle(save_tiny(tmp_path / "tiny", tiny_model(seed=3)))
