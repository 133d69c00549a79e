"""Held-out parts of training sets: groups stay whole, labels keep their shares, rare ones stay in training."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Dataset, Place, QuestionExample, TaggedExample, TextExample
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.labelled.split import hold_out, with_groups
from larvatus.data.labelled.squad import read_questions
from larvatus.data.labelled.tagged import read_spanned, read_tagged
from larvatus.data.labelled.texts import read_texts
from larvatus.data.text.tag_schemes import EntitySpan


def texts(labels: list[Any], *, kind: Any = "multi-class", words: list[str] | None = None, **more: Any) -> Dataset[Any]:
    made = words or [f"text {n}" for n in range(len(labels))]
    rows = zip(made, labels, strict=True)
    examples = [TextExample(text, None, label, Place("t", n)) for n, (text, label) in enumerate(rows)]
    return Dataset(tuple(examples), "t.csv", kind=kind, **more)


def places(data: Dataset[Any]) -> set[Place]:
    return {example.place for example in data}


@given(st.lists(st.sampled_from("aaaaaaabbbc"), min_size=10, max_size=300))
def test_each_class_has_its_share_of_what_is_held_out(labels: list[str]) -> None:
    counts = Counter(labels)
    assume(min(counts.values()) >= 3)
    data = texts(labels)
    train, held, said = hold_out(data)
    assert len(held) == round(0.1 * len(labels))
    assert places(train) | places(held) == places(data)
    assert not places(train) & places(held)
    assert said == f"{len(held):,} of {len(data):,} examples are held out at random, stratified by label"
    for label, count in counts.items():
        assert abs(held.labels()[label] - len(held) * count / len(labels)) < 1
        assert train.labels()[label] >= 2 * count / 3


def test_classes_have_the_counts_that_scikit_learn_gives_them() -> None:
    labels = ["a"] * 500 + ["b"] * 250 + ["c"] * 50
    (_, theirs), *_ = StratifiedShuffleSplit(n_splits=1, test_size=80, random_state=0).split(labels, labels)
    assert hold_out(texts(labels)).held_out.labels() == Counter(labels[n] for n in theirs)
    assert len(hold_out(texts(labels)).train) == 720
    assert len(hold_out(texts(["a", "b"] * 15_000)).held_out) == 2_000  # at most


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab")), min_size=30, max_size=200))
def test_a_group_is_never_on_both_sides(rows: list[tuple[int, str]]) -> None:
    groups = {Place("t", n): str(group) for n, (group, _) in enumerate(rows)}
    data = texts([label for _, label in rows], groups=groups)
    try:
        train, held, said = hold_out(data)
    except DataError:
        assert len(set(groups.values())) < 10  # each has much of a label
        return
    assert not {groups[place] for place in places(train)} & {groups[place] for place in places(held)}
    assert said.endswith("whole groups at a time")
    assert set(train.labels()) == set(data.labels())


def test_as_many_are_held_out_of_groups_as_scikit_learn_holds_out() -> None:
    random = np.random.default_rng(1)
    groups = random.integers(0, 100, 1000)
    (_, theirs), *_ = GroupShuffleSplit(n_splits=1, test_size=0.1, random_state=0).split(groups, groups=groups)
    own = {Place("t", n): str(group) for n, group in enumerate(groups)}
    held = hold_out(texts(["a", "b"] * 500, groups=own)).held_out
    assert 80 <= len(theirs) <= 120
    assert abs(len(held) - 100) <= 10


def test_large_groups_are_held_out_one_at_a_time() -> None:
    groups = {Place("t", n): str(n % 3) for n in range(60)}
    train, held, _ = hold_out(texts(["a", "b"] * 30, groups=groups))
    assert (len(train), len(held)) == (40, 20)
    with pytest.raises(DataError, match="1 groups are too few"):
        hold_out(texts(["a", "b"] * 30, groups=dict.fromkeys(groups, "x")))


def test_questions_of_one_passage_are_never_on_both_sides() -> None:
    """As XQuAD has it: five questions a passage, which a draw of questions would part nearly always."""
    examples = tuple(
        QuestionExample(str(n), f"what {n}?", f"passage {n // 5}", (("passage", 0),), False, None, Place("q", n))
        for n in range(1190)
    )
    train, held, said = hold_out(Dataset(examples, "q.json"))
    assert not {one.passage for one in train} & {one.passage for one in held}
    assert said == f"{len(held)} of 1,190 questions are held out at random, whole passages at a time"
    assert 115 <= len(held) <= 122
    with pytest.raises(DataError, match="1 passages are too few to hold some out; give --dev, or --no-dev"):
        hold_out(Dataset(examples[:5] * 4, "q.json"))


@given(st.lists(st.integers(0, 40), min_size=40, max_size=200))
def test_texts_that_are_the_same_are_never_on_both_sides(numbers: list[int]) -> None:
    data = texts([str(number % 2) for number in numbers], words=[f"text {number}" for number in numbers])
    train, held, said = hold_out(data)
    shared = {one.text for one in train} & {one.text for one in held}
    assert bool(shared) == ("the same texts are on both sides" in said)
    assert not shared or max(Counter(numbers).values()) > len(numbers) / 20  # only where few texts are most of the data


@given(st.lists(st.sets(st.sampled_from(["PER", "LOC", "ORG", "RARE"]), max_size=3), min_size=30, max_size=150))
def test_rare_types_of_spans_and_tags_stay_in_training(kinds: list[set[str]]) -> None:
    counts = Counter(kind for own in kinds for kind in own)
    spanned = tuple(
        SpannedWords(
            tuple(f"w{n}-{k}" for k in range(4)),
            tuple(EntitySpan(k, k + 1, kind) for k, kind in enumerate(sorted(own))),
            Place("s", n),
        )
        for n, own in enumerate(kinds)
    )
    tagged = tuple(
        TaggedExample(
            one.words, tuple(["B-" + label for _, _, label in one.spans or ()] + ["O"] * 4)[:4], Place("s", 1 + n)
        )
        for n, one in enumerate(spanned)
    )
    for data in (Dataset(spanned, "s.jsonl"), Dataset(tagged, "s.conll")):
        train, held, _ = hold_out(data)
        assert abs(len(held) - 0.1 * len(data)) <= 1
        for name, count in counts.items():
            left = max(train.labels()[name], train.labels()[f"B-{name}"])
            assert left >= math.ceil(count / 2)
            assert left == count or count > 1


def test_a_type_of_two_sentences_stays_in_training_and_frequent_ones_are_held_out() -> None:
    kinds = ["RARE"] * 2 + ["PER"] * 198
    data = Dataset(
        tuple(SpannedWords((f"w{n}",), (EntitySpan(0, 1, kind),), Place("s", n)) for n, kind in enumerate(kinds)), "s"
    )
    train, held, said = hold_out(data)
    assert train.labels()["RARE"] == 2
    assert held.labels() == {"PER": 20}
    assert said == "20 of 200 examples are held out at random, stratified by type"


def test_numbers_are_held_out_from_the_whole_of_their_range() -> None:
    numbers = np.random.default_rng(0).exponential(size=500).tolist()
    held = hold_out(texts(numbers, kind="regression")).held_out
    borders = np.quantile(numbers, np.arange(1, 10) / 10)
    assert np.bincount(np.searchsorted(borders, [one.label for one in held]), minlength=10).tolist() == [5] * 10


def test_sets_of_labels_keep_their_shares() -> None:
    random = np.random.default_rng(2)
    sets = [tuple(name for name, p in (("a", 0.5), ("b", 0.2), ("c", 0.04)) if random.random() < p) for _ in range(500)]
    data = texts(sets, kind="multi-label")
    held = hold_out(data).held_out
    for name, count in data.labels().items():
        assert abs(held.labels()[name] - count / 10) <= max(2, 0.02 * count), name


ROWS = [
    {"text": f"text {n}", "label": "ab"[n % 2], "author": n // 10, "tokens": ["a", f"w{n}"], "tags": ["O", "B-LOC"],
     "spans": [[0, 4, "X"]], "question": "what?", "context": f"a text {n}", "answers": ["text"]}
    for n in range(100)
]  # fmt: skip
READ: dict[str, Any] = {"texts": read_texts, "tags": read_tagged, "spans": read_spanned, "questions": read_questions}
KEYS = {
    "texts": ("text", "label"), "tags": ("tokens", "tags"), "spans": ("text", "spans"),
    "questions": ("question", "context", "answers"),
}  # fmt: skip


@pytest.mark.parametrize("what", READ)
def test_a_column_names_the_groups_of_every_task(tmp_path: Path, what: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({key: row[key] for key in (*KEYS[what], "author")}) + "\n" for row in ROWS))
    data = with_groups(READ[what]([str(path)]), [str(path)], "author")
    _, held, said = hold_out(data)
    assert "whole groups at a time" in said
    assert len(held) == 10  # one author
    lines = {example.place.line for example in held}
    assert len({(line - 1) // 10 for line in lines}) == 1
    with pytest.raises(DataError, match="did you mean author"):
        with_groups(data, [str(path)], "autor")


def test_what_has_no_groups_is_refused(tmp_path: Path) -> None:
    conll = tmp_path / "train.conll"
    conll.write_text("a\tO\nb\tB-LOC\n\n" * 20)
    with pytest.raises(UsageError, match=r"train.conll has no columns by name; give CSV, TSV, JSONL or Parquet"):
        with_groups(read_tagged([str(conll)]), [str(conll)], "author")
    csv = tmp_path / "train.csv"
    csv.write_text("text,label,author\n" + "".join(f"text {n},{'ab'[n % 2]},x\n" for n in range(20)))
    with pytest.raises(DataError, match="all examples are of the group 'x'"):
        with_groups(read_texts([str(csv)]), [str(csv)], "author")


def test_pairs_of_one_premise_are_never_on_both_sides() -> None:
    rows = [(f"premise {n}", f"hypothesis {n} {k}", "abc"[k]) for n in range(60) for k in range(3)]
    examples = (TextExample(text, pair, label, Place("t", at)) for at, (text, pair, label) in enumerate(rows))
    train, held, said = hold_out(Dataset(tuple(examples), "nli.tsv", kind="multi-class"))
    assert len(held) == 18
    assert not {example.text for example in train} & {example.text for example in held}
    assert held.labels() == {"a": 6, "b": 6, "c": 6}
    assert said == "18 of 180 examples are held out at random, stratified by label"


@pytest.mark.parametrize("name", ["t.conll", "t.conllu"])
def test_sentences_of_one_document_are_never_on_both_sides(tmp_path: Path, name: str) -> None:
    def row(document: int, word: int) -> str:
        form = f"w{document}-{word}"
        return f"{form}\tB-X" if name == "t.conll" else f"{word}\t{form}\t_\tX\t_\t_\t0\t_\t_\t_"

    mark = "-DOCSTART-\tO\n\n" if name == "t.conll" else "# newdoc\n"
    sentences = {n: [f"{row(n, 1)}\n{row(n, 2)}\n\n".replace("-1", f"-{k}") for k in range(4)] for n in range(30)}
    path = tmp_path / name
    path.write_text("".join(mark + "".join(each) for each in sentences.values()))
    data = read_tagged(str(path))
    train, held, said = hold_out(data)
    documents = [{example.words[-1].split("-")[0] for example in part} for part in (train, held)]
    assert not documents[0] & documents[1]
    assert (len(data), len(held)) == (120, 12)
    assert said.endswith("whole documents at a time")
    few = tmp_path / f"few-{name}"
    few.write_text("".join(mark + "".join(sentences[n]) for n in range(5)))
    assert "documents" not in hold_out(read_tagged(str(few))).said  # of five documents none can be spared
