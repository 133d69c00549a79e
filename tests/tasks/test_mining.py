"""Hard negatives against a naive loop and `sentence_transformers.util.mine_hard_negatives`, on the same vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Dataset, Place
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.tasks.embed import mining
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.embed.mining import (
    MiningOptions,
    anchors_and_candidates,
    as_pairs,
    nearest_negatives,
    with_negatives,
)
from tests.tasks.conftest import PLAIN


def _pairs(rows: list[tuple[str, str]]) -> list[SentenceExample]:
    return [SentenceExample(row, "pairs", Place("pairs.tsv", number)) for number, row in enumerate(rows, start=1)]


def _vectors(texts: list[str], seed: int = 0) -> np.ndarray:
    """A fixed random vector for each text, near to that of texts that begin alike."""
    out = []
    for text in texts:
        topic = np.random.default_rng([seed, ord(text[0])]).normal(size=16)
        out.append(topic + np.random.default_rng([seed, *text.encode()]).normal(size=16))
    return np.array(out, np.float32)


def _naive(texts: list[str], vectors: np.ndarray, examples: list[SentenceExample], options: MiningOptions) -> dict:
    """The definition, in float64, a pair at a time."""
    x = vectors.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    at = {text: number for number, text in enumerate(texts)}
    mined = {}
    for anchor in dict.fromkeys(example.texts[0] for example in examples):
        positives = {example.texts[1] for example in examples if example.texts[0] == anchor}
        worst = min(x[at[anchor]] @ x[at[positive]] for positive in positives)
        never = {" ".join(text.lower().split()) for text in (anchor, *positives)}
        scored = []
        for text in dict.fromkeys(example.texts[1] for example in examples):
            score = x[at[anchor]] @ x[at[text]]
            if " ".join(text.lower().split()) not in never and score <= worst - options.mine_margin * abs(worst):
                scored.append((-score, text))
        mined[anchor] = [text for _, text in sorted(scored)][options.mine_skip : options.mine_skip + options.mine]
    return mined


def _mine(examples: list[SentenceExample], options: MiningOptions) -> tuple[dict[str, list[str]], list[str]]:
    problem, texts = anchors_and_candidates(examples)
    mined = nearest_negatives(_vectors(texts), problem, options)
    made = with_negatives(examples, problem, texts, mined)
    return {example.texts[0]: list(example.texts[2:]) for example in made}, texts


ROWS = [(f"{chr(97 + n % 7)} question {n // 2}", f"{chr(97 + n % 7)} answer {n}") for n in range(60)]


@pytest.mark.parametrize("skip", [0, 3])
@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_negatives_equal_the_definition(skip: int, margin: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "ANCHORS", 7)
    monkeypatch.setattr(mining, "CANDIDATES", 11)  # several blocks
    options = MiningOptions(mine=4, mine_margin=margin, mine_skip=skip)
    examples = _pairs(ROWS)
    mined, texts = _mine(examples, options)
    assert mined == _naive(texts, _vectors(texts), examples, options)
    assert any(mined.values())


def test_negatives_equal_those_of_sentence_transformers() -> None:
    pytest.importorskip("datasets")
    util = pytest.importorskip("sentence_transformers.util")
    from datasets import Dataset as Table

    class Encoder:
        device = "cpu"
        similarity = staticmethod(util.cos_sim)
        similarity_pairwise = staticmethod(util.pairwise_cos_sim)

        def encode_document(self, texts: list[str], **_: Any) -> np.ndarray:
            vectors = _vectors(texts)
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

        encode_query = encode_document

    table = Table.from_dict({"anchor": [a for a, _ in ROWS], "positive": [p for _, p in ROWS]})
    theirs = util.mine_hard_negatives(
        table, Encoder(), range_min=1, range_max=60, relative_margin=0.1, num_negatives=3, verbose=False
    )
    triplets = {(row["anchor"], row["negative"]) for row in theirs}
    mined, _ = _mine(_pairs(ROWS), MiningOptions(mine=3, mine_margin=0.1, mine_skip=1))
    assert {(anchor, negative) for anchor, negatives in mined.items() for negative in negatives} == triplets
    assert len(triplets) > 30


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "X", "y", "z ", "z", "w"])), min_size=2))
@settings(max_examples=40, deadline=None)
def test_what_belongs_together_is_no_negative(rows: list[tuple[str, str]]) -> None:
    mined, _ = _mine(_pairs(rows), MiningOptions(mine=3, mine_margin=0.0))
    for anchor, negatives in mined.items():
        positives = {positive.casefold().strip() for other, positive in rows if other == anchor}
        assert not {negative.casefold().strip() for negative in negatives} & (positives | {anchor})
        assert len(set(negatives)) == len(negatives)


def test_texts_of_a_group_are_no_negatives() -> None:
    members = [SentenceExample((f"{g}{n}",), "groups", Place("g", n), group=g) for g in "abc" for n in range(4)]
    pairs = as_pairs(Dataset(tuple(members), "g"))
    assert {example.texts[0][0] == example.texts[1][0] for example in pairs} == {True}
    mined, _ = _mine(pairs, MiningOptions(mine=5, mine_margin=0.0))
    assert all(negative[0] != anchor[0] for anchor, negatives in mined.items() for negative in negatives)
    assert sum(map(len, mined.values())) > 10


def test_a_random_choice_is_of_the_nearest_and_repeats() -> None:
    some = MiningOptions(mine=2, mine_margin=0.0, mine_among=8)
    nearest, _ = _mine(_pairs(ROWS), MiningOptions(mine=8, mine_margin=0.0))
    first, _ = _mine(_pairs(ROWS), some)
    again, _ = _mine(_pairs(ROWS), some)
    assert first == again
    assert all(set(first[anchor]) <= set(nearest[anchor]) for anchor in nearest)
    assert any(first[anchor] != nearest[anchor][:2] for anchor in nearest)


def test_fewer_to_choose_from_than_to_take_is_refused() -> None:
    with pytest.raises(UsageError, match="--mine-among 2 is fewer than the 3"):
        MiningOptions(mine=3, mine_among=2)


def test_a_run_mines_and_keeps_its_vectors(tuned: Callable[..., Bundle], tmp_path: Path) -> None:
    model = tuned(EmbeddingConfig()).path
    rows = [(f"{word} ran", f"a {word} is here") for word in PLAIN[:12]]
    run: dict[str, Any] = {"epochs": 1, "batch": 4, "device": "cpu", "quiet": True, "dev": rows[:3]}
    mining: dict[str, Any] = {"mine": 2, "mine_margin": 0.0, "mined": str(tmp_path / "kept")}
    first = lv.finetune("embed", model, train=rows, **mining, **run)
    parts = list((tmp_path / "kept").glob("*.npy"))
    times = [path.stat().st_mtime_ns for path in parts]
    again = lv.finetune("embed", model, train=rows, **mining, **run)
    assert parts
    assert [path.stat().st_mtime_ns for path in parts] == times  # read, not computed again
    plain = lv.finetune("embed", model, train=rows, **run)
    mined, repeated, without = (each.embed(rows[0][0]) for each in (first, again, plain))
    assert np.array_equal(mined, repeated)
    assert not np.array_equal(mined, without)
    with pytest.raises(UsageError, match="--mine finds negatives for pairs"):
        lv.finetune("embed", model, train=[{"sentence1": "a", "sentence2": "b", "score": 1.0}] * 4, mine=1, **run)
    with pytest.raises(DataError, match="no text is a hard negative"):
        lv.finetune("embed", model, train=[("a", "b"), ("a", "B")], mine=1, **run)
