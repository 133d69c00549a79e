"""Texts that belong together: what rows of a file are, batches without false negatives, tokens that count."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import larvatus as lv
from larvatus.core.errors import DataError
from larvatus.core.targets import SentenceTargets
from larvatus.data.labelled.records import Place
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig
from larvatus.tasks.embed.encode import BatchPlan, EncodeOptions, encode_sentences, pairs_of, text_vectors
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.embed.reader import SentenceFiles, read_sentences
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions
from tests.tasks.conftest import PLAIN

PLACE = Place("test.jsonl", 1)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


QUESTIONS = "question\tanswer\nwho is it\tit is he\nwhat is it\tit is that\n"
BARE = "the first text\tthe second text\nanother one here\tand its own pair\n"
TRIPLETS = "anchor\tpositive\tnegative\na b\tc d\te f\ng h\ti j\tk l\n"
GROUPS = "caption\timage_id\na dog runs\t17\na dog is running\t17\na cat\t18\n"
ROWS = {
    "pairs by name": ("anchor\tpositive\na b\tc d\ne f\tg h\n", "pairs", ("a b", "c d"), "anchor = anchor"),
    "questions": (QUESTIONS, "pairs", ("who is it", "it is he"), "positive = answer"),
    "no header": (BARE, "pairs", ("the first text", "the second text"), "anchor = 1"),
    "triplets": (TRIPLETS, "triplets", ("a b", "c d", "e f"), "negative = negative"),
    "scores": ("sentence1\tsentence2\tscore\na b\tc d\t3.5\ne f\tg h\t0\n", "scores", ("a b", "c d"), "score = score"),
    "groups": (GROUPS, "groups", ("a dog runs",), "group = image_id"),
    "texts": ("text\none text\nanother text\n", "texts", ("one text",), "text = text"),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_rows_are_is_seen_from_columns(name: str, tmp_path: Path) -> None:
    text, rows, first, said = ROWS[name]
    data = read_sentences(write(tmp_path / "train.tsv", text))
    assert {example.rows for example in data} == {rows}
    assert data.examples[0].texts == first
    assert f"read as: {rows}" in data.describe()
    assert said in data.describe()


def test_columns_and_rows_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "q,a,b,mark,who\nwhy so,since it is,because,1,x\nhow so,like this,like that,0,y\n")
    files = SentenceFiles(text="q", pair="a", negative=("b",))
    assert read_sentences(path, files).examples[0].texts == ("why so", "since it is", "because")
    scored = read_sentences(path, SentenceFiles(text="q", pair="a", score="mark"))
    assert [example.score for example in scored] == [1.0, 0.0]
    assert read_sentences(path, SentenceFiles(text="q", member="who")).examples[1].group == "y"
    assert read_sentences(path, SentenceFiles(text="q", rows="texts")).examples[0].texts == ("why so",)


def test_lists_of_negatives_plain_lines_and_tables_in_memory(tmp_path: Path) -> None:
    row = {"query": "a b", "positive": "c d", "negatives": ["e f", "g h"]}
    path = write(tmp_path / "x.jsonl", json.dumps(row) + "\n" + json.dumps({**row, "negatives": ["i j"]}) + "\n")
    assert [len(example.texts) for example in read_sentences(path)] == [4, 3]
    lines = read_sentences(write(tmp_path / "x.txt", "one text\n\nanother\n"))
    assert [(example.texts, example.place.line) for example in lines] == [(("one text",), 1), (("another",), 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("premise\thypothesis\tlabel\na b\tc d\tneutral\ne f\tg h\tentailment\n", "label has labels of pairs"),
        ("sentence1\tsentence2\tscore\na b\tc d\t3.5\ne f\t \t1\n", "sentence2 is empty"),
        ("anchor\tpositive\tnegative\na b\tc d\t\ne f\tg h\ti j\n", "negative is empty"),
    ],
)
def test_rows_that_cannot_be_used_are_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read_sentences(write(tmp_path / "train.tsv", text))


def test_a_score_that_is_none_and_files_of_two_kinds_are_refused(tmp_path: Path) -> None:
    scores = write(tmp_path / "a.tsv", "sentence1\tsentence2\tscore\na b\tc d\tmuch\ne f\tg h\t1\n")
    with pytest.raises(DataError, match=r"a\.tsv:2: score is 'much'"):
        read_sentences(scores, SentenceFiles(score="score"))
    pairs = write(tmp_path / "b.tsv", "anchor\tpositive\na b\tc d\n")
    with pytest.raises(DataError, match="holds texts, but"):
        read_sentences([write(tmp_path / "c.txt", "x y\n"), pairs])
    with pytest.raises(DataError, match="groups need --member"):
        read_sentences(write(tmp_path / "d.tsv", "text\na b\nc d\n"), SentenceFiles(rows="groups"))


def test_a_row_may_be_a_group(tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.tsv", "a dog runs\ta dog is running\tthere is a dog\na cat\tthe cat\t\n")
    data = read_sentences(wide, SentenceFiles(rows="groups"))
    texts = ["a dog runs", "a dog is running", "there is a dog", "a cat", "the cat"]
    assert [example.texts[0] for example in data] == texts
    assert len({example.group for example in data}) == 2
    assert "a row is a group of 1, 2, 3" in data.describe()
    plain = write(tmp_path / "y.jsonl", json.dumps({"captions": ["a b", "c d"]}) + "\n")
    assert [example.texts for example in read_sentences(plain, SentenceFiles(rows="groups"))] == [("a b",), ("c d",)]


keys = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=3, unique=True), min_size=1, max_size=40)


@given(keys=keys, size=st.integers(1, 9), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_no_step_holds_a_key_twice(keys: list[list[int]], size: int, seed: int) -> None:
    plan = BatchPlan(keys)
    for epoch in range(2):
        batches = plan.epoch_batches(seed, epoch, size)
        assert len(batches) == plan.steps(size)
        used = np.concatenate(batches)
        assert len(np.unique(used)) == len(used) <= len(keys)
        for batch in batches:
            assert 1 <= len(batch) <= max(size, 1)
            held = [key for example in batch for key in keys[example]]
            assert len(set(held)) == len(held)


def test_batches_are_even_repeatable_and_lose_nothing_without_conflicts() -> None:
    plan = BatchPlan([(2 * n, 2 * n + 1) for n in range(33)])
    batches = plan.epoch_batches(3, 1, 16)
    assert sorted(map(len, batches)) == [11, 11, 11]
    assert sorted(np.concatenate(batches).tolist()) == list(range(33))
    again = plan.epoch_batches(3, 1, 16)
    assert all(np.array_equal(one, other) for one, other in zip(batches, again, strict=True))
    assert not np.array_equal(batches[0], plan.epoch_batches(3, 2, 16)[0])
    assert plan.left_out(16) == 0


def test_few_duplicates_cost_no_example() -> None:
    """A tenth of the pairs share their anchor with another: there is room for all of them."""
    plan = BatchPlan([(n % 900, 1_000 + n) for n in range(1_000)])
    assert plan.left_out(64) == 0


def test_what_fits_in_no_step_is_left_out_of_an_epoch() -> None:
    plan = BatchPlan([(0, n) for n in range(1, 30)] + [(30 + n,) for n in range(30)])
    batches = plan.epoch_batches(0, 0, 10)
    assert sum(map(len, batches)) == 59 - plan.left_out(10)
    assert plan.left_out(10) == 29 - len(batches)


def test_groups_become_pairs_each_once() -> None:
    for count in range(2, 12):
        pairs = pairs_of(list(range(count)), 0)
        assert len({frozenset(pair) for pair in pairs}) == len(pairs)
        assert {text for pair in pairs for text in pair} == set(range(count))
        assert len(pairs) == min(count * (count - 1) // 2, 2 * count)


@pytest.fixture(scope="module", params=["mean", "cls", "max"])
def embedder(request: pytest.FixtureRequest, tuned: object) -> Bundle:
    config = EmbeddingConfig(pool=request.param, projections=(DenseProjection(size=8),), normalise=True)
    return tuned(config)  # type: ignore[operator, no-any-return]


def test_vectors_in_training_are_those_of_embed_in_windows_too(embedder: Bundle) -> None:
    """Texts of one to five windows: the two paths share no code after the tokenizer."""
    texts = ["the river", "a bank was wide and deep .", "run " * 40, "the river bank of your homework , " * 12]
    examples = [SentenceExample((text,), "texts", PLACE) for text in texts]
    windows = WindowOptions.of(embedder)
    data = encode_sentences(embedder, examples, EncodeOptions(pool=embedder.objectives[0].pool, windows=windows))
    assert data.sequences.parts.tolist()[:2] == [1, 1]
    assert data.sequences.parts[3] > 3
    ours = text_vectors(embedder.network, data, ScoringOptions(tokens=50))
    assert_allclose(ours, lv.load(embedder.path).embed(texts), atol=1e-6)


def test_a_batch_holds_the_texts_of_its_examples(tuned: object) -> None:
    bundle: Bundle = tuned(EmbeddingConfig())  # type: ignore[operator]
    rows = [("the river", "a bank"), ("the river", "run and run"), ("deep", "wide", "homework")]
    examples = [SentenceExample(texts, "triplets", PLACE) for texts in rows]
    options = EncodeOptions(pool="mean", windows=WindowOptions.of(bundle), contrasts=True)
    data = encode_sentences(bundle, examples, options)
    assert len(data.sequences) == 6  # every text once
    batch = data.batch(np.array([2, 0]))
    assert batch.targets[SentenceTargets].texts.tolist() == [3, 2]
    assert batch.tokens.groups is not None
    assert batch.tokens.groups.tolist() == [3, 2]
    first = data.sequences.batch(data.sequences.of(data.texts_of(np.array([2]))))
    assert batch.tokens.ids[: first.size].tolist() == first.ids.tolist()
    together = [set(chosen.tolist()) for chosen in data.epoch_batches(0, 0, 3)]
    assert not any({0, 1} <= chosen for chosen in together)  # they share a text


def test_examples_that_are_left_out_and_small_steps_are_reported(tuned: object) -> None:
    bundle: Bundle = tuned(EmbeddingConfig())  # type: ignore[operator]
    options = EncodeOptions(pool="mean", windows=WindowOptions.of(bundle), contrasts=True)
    words = [f"{first} {second}" for first in PLAIN for second in PLAIN][:60]
    one_question = [SentenceExample(("the river", word), "pairs", PLACE) for word in words[:20]]
    others = [SentenceExample((f"{word} .", f"{word} !"), "pairs", PLACE) for word in words[20:]]
    left = encode_sentences(bundle, one_question + others, options).remarks(10)
    assert left[-1].startswith("14 of 60 examples are left out of an epoch")  # 6 steps take 6 of the 20
    groups = [SentenceExample((word,), "groups", PLACE, group=str(n % 3)) for n, word in enumerate(words)]
    small = encode_sentences(bundle, groups, options).remarks(32)
    assert small[0].startswith("steps hold 3 examples at most, not 32")


def test_without_a_header_texts_scores_and_labels_are_told_by_their_values(tmp_path: Path) -> None:
    long = "a much longer text that follows its title and goes on for quite a while, so that lengths differ " * 3
    titles = "".join(f"title {n} here\t{n} {long}\n" for n in range(6))
    assert read_sentences(write(tmp_path / "titles.tsv", titles)).examples[0].texts[0] == "title 0 here"
    rows = [f"this is text number {n}\tthis is the other text {n}" for n in range(8)]
    graded = "".join(f"{row}\t{n % 2}\n" for n, row in enumerate(rows))
    data = read_sentences(write(tmp_path / "graded.tsv", graded))
    assert [example.score for example in data][:3] == [0.0, 1.0, 0.0]
    assert "scores, text = 1, second text = 2, score = 3" in data.describe()
    named = "".join(f"{row}\t{'neutral' if n % 2 else 'contradiction'}\n" for n, row in enumerate(rows))
    path = write(tmp_path / "named.tsv", named)
    with pytest.raises(DataError, match="the column 3 has labels of pairs"):
        read_sentences(path)
    assert len(read_sentences(path, SentenceFiles(rows="pairs")).examples[0].texts) == 2
