"""Names of clusters: words that tell them apart, not function words; beside the points, not over them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.rng import stream
from larvatus.data.text.embedded import embedded_documents
from larvatus.inference.maps.clusters import context_words, typical_words
from larvatus.inference.maps.picture import place_labels

ROOM = (900.0, 600.0)


def test_clusters_drawn_at_random_from_real_text_are_not_named_by_its_commonest_words() -> None:
    text = " ".join(document.text for document in islice(embedded_documents("train"), 60))
    sentences = [one for one in re.split(r"(?<=[.!?])\s+", text) if 40 < len(one) < 300]
    common = {word for word, _ in Counter(re.findall(r"[a-z]{3,}", text.lower())).most_common(60)}
    numbers = np.array([0] * 55 + [1] * 22 + [2] * 13)
    named: list[str] = []
    for draw in range(20):
        chosen = stream(draw, "test clusters").choice(len(sentences), len(numbers), replace=False)
        names = typical_words([context_words(sentences[at], []) for at in chosen], numbers)
        named += [word for name in names if not name.startswith("cluster") for word in name.split(", ")]
    assert sum(word in common for word in named) <= 2  # of 60 clusters, by chance
    assert len(named) <= 10  # there is nothing to tell them apart by


def test_content_words_name_clusters_whose_function_words_differ_too() -> None:
    water = ["which the river had flooded and the water of which was wide", "the river which rose", "the water of it"]
    money = ["they would lend from it money for a loan", "from the loan they had money", "they owe money and the loan"]
    odd = ["a blood donor gave", "the blood of a donor", "blood which the donor gave"]
    contexts = [context_words(text, ["bank"]) for text in water * 8 + money * 8 + odd * 4]
    names = typical_words(contexts, np.array([0] * 24 + [1] * 24 + [2] * 12), top=2)
    assert [set(name.split(", ")) for name in names] == [{"river", "water"}, {"loan", "money"}, {"blood", "donor"}]


def overlap(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> bool:
    return bool((a[0] < b[1]).all() and (b[0] < a[1]).all())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), groups=st.integers(2, 8), spread=st.floats(5, 80))
def test_names_stand_inside_and_cover_neither_points_nor_each_other(seed: int, groups: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    middles = random.uniform([100, 60], [800, 540], (groups, 2))
    points = np.clip(np.concatenate([random.normal(one, spread, (40, 2)) for one in middles]), 0, [899, 599])
    sizes = np.column_stack([random.uniform(60, 220, groups), np.full(groups, 14.0)])
    legend = (700.0, 480.0, 890.0, 590.0)
    places = place_labels(points, middles, sizes, ROOM, taken=[legend])
    boxes = [(place - size / 2, place + size / 2) for place, size in zip(places, sizes, strict=True)]
    for number, (low, high) in enumerate(boxes):
        assert (low >= 0).all()
        assert (high <= ROOM).all()
        assert not overlap((low, high), (np.array(legend[:2]), np.array(legend[2:])))
        assert not any(overlap((low, high), other) for other in boxes[:number])
        inside = ((points >= low) & (points <= high)).all(1).sum()
        at_middle = (np.abs(points - middles[number]) <= sizes[number] / 2).all(1).sum()
        assert inside <= max(1, at_middle)


def test_a_name_stays_at_its_cluster_where_there_is_room() -> None:
    ring = 60 * np.array([[np.cos(x), np.sin(x)] for x in np.linspace(0, 6.2, 40)]) + [450, 300]
    (place,) = place_labels(ring, np.array([[450.0, 300.0]]), np.array([[70.0, 14.0]]), ROOM)
    assert np.abs(place - [450, 300]).max() <= 8
