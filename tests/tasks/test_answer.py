"""Questions over passages: windows, targets and decoding, held against loops over every span."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.batch import edges
from larvatus.core.errors import DataError, UsageError
from larvatus.core.targets import AnswerSpans
from larvatus.data.labelled.records import Dataset, Place, QuestionExample
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from larvatus.models.heads import ClassificationConfig, QuestionAnsweringConfig
from larvatus.models.network import Network
from larvatus.tasks.answers.answer import (
    DecodedSpans,
    Decoding,
    answer,
    best_spans,
    chosen_text,
    decode,
    null_score,
    spans_of,
    to_words,
)
from larvatus.tasks.answers.passages import (
    EmptyWindows,
    EncodedQuestions,
    answer_tokens,
    encode_passages,
    label_questions,
)
from larvatus.tasks.answers.task import AnswerOptions, answering_head, marks_whole_words
from larvatus.tasks.scoring import ScoringOptions

PROSE = "Please turn your homework in. The river was wide, and deep! A naïve café by the river's bank? " * 3
QUESTION = "was the river wide ?"
KINDS = {"wordpiece": WordPieceConfig(size=90), "byte-bpe": ByteBPEConfig(size=290), "unigram": UnigramConfig(size=60)}
TOKENIZERS = {name: train_vocabulary([PROSE], kind, allow_smaller=True) for name, kind in KINDS.items()}
TEXTS = st.text(
    st.sampled_from("the riverwid,.'é山 \u00a0\u200b\u0301🙂\t\nA") | st.characters(exclude_categories=("Cs",))
)


def example(passage: str, text: str, start: int) -> QuestionExample:
    return QuestionExample("q", QUESTION, passage, ((text, start),) if text else (), not text, None, Place("x", 1))


def scores_of(asked: EncodedQuestions, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(len(asked.sequences.ids), 2)).astype(np.float32)


def naive(asked: EncodedQuestions, scores: Any, number: int, longest: int, merge: str) -> dict[tuple[int, int], float]:
    """The score of each legal span of a question, by loops."""
    rows, parts = edges(asked.sequences.lengths), edges(asked.sequences.parts)
    passage = asked.passages[number]
    sees: dict[int, tuple[int, int]] = {}  # token → what it sees at least on either side, its window
    for sequence in range(parts[number], parts[number + 1]):
        begin, size = int(asked.begins[sequence]), int(asked.sizes[sequence])
        for place in range(size):
            context = min(place, size - 1 - place)
            if begin + place not in sees or context > sees[begin + place][0]:
                sees[begin + place] = context, sequence

    def score(token: int, side: int, sequence: int) -> float:
        return float(scores[rows[sequence] + asked.firsts[sequence] + token - asked.begins[sequence], side])

    found = {}
    for first, last in itertools.combinations_with_replacement(range(len(passage)), 2):
        ends = [passage.text[slice(*passage.chars_of_token(token))] for token in (first, last)]
        if last - first >= longest or not all(text.strip() for text in ends) or first not in sees or last not in sees:
            continue
        where = sees[first][1]
        inside = asked.begins[where] <= last < asked.begins[where] + asked.sizes[where]
        if merge == "window" and not inside:
            continue
        found[first, last] = score(first, 0, where) + score(last, 1, where if merge == "window" else sees[last][1])
    return found


@settings(max_examples=40, deadline=None)
@given(
    passages=st.lists(TEXTS, min_size=1, max_size=3),
    kind=st.sampled_from([*TOKENIZERS]),
    limit=st.integers(20, 60),
    overlap=st.none() | st.integers(0, 30),
    longest=st.integers(1, 6),
    merge=st.sampled_from(["context", "window"]),
)
def test_the_best_spans_are_those_of_a_loop_over_all(
    passages: list[str], kind: str, limit: int, overlap: int | None, longest: int, merge: Any
) -> None:
    asked = encode_passages(
        TOKENIZERS[kind], [("wide?", passage * 3) for passage in passages], limit=limit, overlap=overlap
    )
    config = QuestionAnsweringConfig(longest=longest, temperature=0.7, null=True)
    scores = scores_of(asked)
    firsts = edges(asked.sequences.lengths)
    for number, found in enumerate(decode(asked, scores, config, Decoding(top=3, merge=merge))):
        wanted = naive(asked, scores, number, longest, merge)
        passage = asked.passages[number]
        assert [score for score, _, _ in found.spans] == pytest.approx(
            sorted(wanted.values(), reverse=True)[: len(found.spans)], abs=1e-5
        )
        assert len(found.spans) == min(16, len(wanted))
        assert all(abs(wanted[first, last] - score) < 1e-5 for score, first, last in found.spans)
        owner = np.flatnonzero(asked.sequences.owners == number)
        assert found.null == pytest.approx(min(scores[firsts[s]].sum() for s in owner), abs=1e-5)
        total = sum(np.exp(score / 0.7) for score in wanted.values()) + np.exp(found.null / 0.7)
        spans = spans_of(passage, found, config, 3)
        assert len({(span.start, span.end) for span in spans}) == len(spans)
        for span in spans:
            assert span.text == passage.text[span.start : span.end] == span.text.strip() != ""
        if spans:
            assert spans[0].score == pytest.approx(np.exp(found.spans[0][0] / 0.7) / total, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.sampled_from([*TOKENIZERS]), st.integers(20, 40), st.none() | st.integers(0, 30), st.booleans())
def test_windows_hold_the_whole_question_and_share_out_the_passage(
    passage: str, kind: str, limit: int, overlap: int | None, truncate: bool
) -> None:
    tokenizer = TOKENIZERS[kind]
    asked = encode_passages(tokenizer, [("wide?", passage * 4)], limit=limit, overlap=overlap, truncate=truncate)
    question = tokenizer.encode_fast(["wide?"])[0].tolist()
    ids, segments = ([*np.split(one, edges(asked.sequences.lengths)[1:-1])] for one in
                     (asked.sequences.ids, asked.sequences.segments))  # fmt: skip
    owned: list[int] = []
    for sequence, (row, segment) in enumerate(zip(ids, segments, strict=True)):
        begin, size, first = (int(part[sequence]) for part in (asked.begins, asked.sizes, asked.firsts))
        held = asked.passages[0].ids[begin : begin + size].tolist()
        two = tokenizer.special.sep == "</s>"  # RoBERTa's way
        between = [tokenizer.sep_id] * (2 if two else 1)
        assert row.tolist() == [tokenizer.cls_id, *question, *between, *held, tokenizer.sep_id]
        assert segment.tolist() == [0] * first + [0 if two else 1] * (size + 1)
        assert len(row) <= limit
        own = range(*asked.owns[sequence].tolist())
        assert all(begin <= token < begin + size for token in own)
        owned += own
    assert owned == list(range(int(asked.sequences.read[0])))
    assert asked.sequences.tokens[0] == len(asked.passages[0])
    assert truncate or asked.sequences.read[0] == asked.sequences.tokens[0]


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from([*TOKENIZERS]), st.integers(20, 60))
def test_targets_point_at_the_tokens_of_the_answer(data: st.DataObject, kind: str, limit: int) -> None:
    passage = data.draw(TEXTS.filter(str.strip)) * 3
    start = data.draw(st.integers(0, len(passage) - 1))
    end = data.draw(st.integers(start + 1, min(len(passage), start + 12)))
    one = example(passage, passage[start:end] if passage[start:end].strip() else "", start)
    asked = encode_passages(TOKENIZERS[kind], [("wide?", passage)], limit=limit)
    made = label_questions(asked, [one])
    own = answer_tokens(asked.passages[0], one)
    batch = made.batch(np.array([0]))
    spans = batch.targets[AnswerSpans]
    assert batch.tokens.count == len(asked.sequences.lengths)
    rows = edges(asked.sequences.lengths)
    for sequence, (first, last) in enumerate(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)):
        begin, size = int(asked.begins[sequence]), int(asked.sizes[sequence])
        inside = len(own) > 0 and begin <= own.start and own.stop <= begin + size
        if inside:
            ids = batch.tokens.ids[rows[sequence] + first : rows[sequence] + last + 1]
            assert ids.tolist() == asked.passages[0].ids[own.start : own.stop].tolist()
            assert first >= asked.firsts[sequence]
        else:
            assert (first, last) == (0, 0)
    assert made.lost == int(bool(one.answers) and not spans.starts.any())


def test_windows_without_the_answer_count_as_asked(tiny_tokenizer: Tokenizer) -> None:
    passage = "the river was deep . " * 30 + "please run ! " + "a bank was wide . " * 30
    one = example(passage, "please run", passage.index("please run"))
    none = example(passage, "", 0)
    asked = encode_passages(tiny_tokenizer, [(QUESTION, passage)] * 2, limit=32)
    plain = label_questions(asked, [one, none])
    parts = asked.sequences.parts.tolist()
    held = int((plain.starts > 0).sum())
    assert parts[0] > 10
    assert 1 <= held <= 2
    assert plain.batch(np.array([0, 1])).tokens.count == 2 * parts[0]
    few = label_questions(asked, [one, none], EmptyWindows(weight=0.25, most=3), seed=4)
    batch = few.batch(np.array([1, 0]))
    weights = batch.targets[AnswerSpans].weights
    assert weights.tolist().count(1.0) == held
    assert weights.tolist().count(0.25) == 6
    again = label_questions(asked, [one, none], EmptyWindows(weight=0.25, most=3), seed=4)
    assert np.array_equal(few.kept, again.kept)
    other = label_questions(asked, [one, none], EmptyWindows(weight=0.25, most=3), seed=5)
    assert not np.array_equal(few.kept, other.kept)
    bare = label_questions(asked, [one, none], EmptyWindows(most=0))
    assert [bare.batch(np.array([n])).tokens.count for n in (0, 1)] == [held, 1]  # a question keeps one at least
    with pytest.raises(UsageError, match="must lie between 0 and"):
        EmptyWindows(weight=-1.0)


def test_all_legal_spans_have_their_share() -> None:
    found, total = best_spans(np.zeros(5, np.float32), np.zeros(5, np.float32), longest=2, top=3)
    assert {span[0] for span in found} == {0.0}
    assert total == pytest.approx(np.log(9))
    assert best_spans(np.zeros(0, np.float32), np.zeros(0, np.float32), longest=2, top=1) == ([], -np.inf)


def test_many_spans_are_looked_at_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(2)
    starts, ends = (draw.normal(size=300).astype(np.float32) for _ in range(2))
    whole = best_spans(starts, ends, longest=7, top=9)
    monkeypatch.setattr("larvatus.tasks.answers.answer.AT_ONCE", 50)
    parts = best_spans(starts, ends, longest=7, top=9)
    assert parts[0] == whole[0]
    assert parts[1] == pytest.approx(whole[1])


def test_no_answer_is_given_above_the_threshold(tiny_tokenizer: Tokenizer) -> None:
    asked = encode_passages(tiny_tokenizer, [(QUESTION, "the river was wide")], limit=32)
    passage = asked.passages[0]
    found = DecodedSpans(((2.0, 1, 1),), 2.5, 3.0)
    config = QuestionAnsweringConfig(null=True, threshold=0.5)
    assert null_score(found, config) == 1.0
    assert chosen_text(passage, found, config) == ""
    assert chosen_text(passage, found, config, threshold=1.0) == "river"
    assert chosen_text(passage, found, QuestionAnsweringConfig(null=True, threshold=2.0)) == "river"
    assert chosen_text(passage, found, QuestionAnsweringConfig()) == "river"  # [CLS] says nothing there
    nothing = DecodedSpans((), -np.inf, 1.0)
    assert chosen_text(passage, nothing, QuestionAnsweringConfig()) == ""
    assert chosen_text(passage, nothing, config) == ""


def test_white_space_at_the_ends_is_no_part_of_an_answer() -> None:
    none = np.empty((0, 2), np.int64)
    passage = Alignment(" a\tb  c", np.arange(2), np.array([[0, 6], [6, 7]]), np.full(2, -1), none, none)
    (span,) = spans_of(passage, DecodedSpans(((1.0, 0, 0),), 1.0, 0.0), QuestionAnsweringConfig())
    assert (span.text, span.start, span.end, span.score) == ("a\tb", 1, 4, 1.0)


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_random_weights_do_not_cut_words_and_take_no_more_than_them(kind: str) -> None:
    passage = "Riverward, homebanks: wideness and deepnaive turnover; readers were driven."
    asked = encode_passages(TOKENIZERS[kind], [(QUESTION, passage)] * 40, limit=200)
    scores = scores_of(asked, seed=5)
    cut = 0
    for found in decode(asked, scores, QuestionAnsweringConfig(longest=4)):
        (raw,) = spans_of(asked.passages[0], found, QuestionAnsweringConfig(whole_words=False))
        (whole,) = spans_of(asked.passages[0], found, QuestionAnsweringConfig())
        cut += raw.text != whole.text
        letters = [(one.start(), one.end()) for one in re.finditer(r"[^\W\d_]+", passage)]
        assert not any(start < border < end for start, end in letters for border in (whole.start, whole.end))
        assert whole.text == passage[whole.start : whole.end]
        first = passage[whole.start : raw.start] + passage[raw.end : whole.end]
        assert re.fullmatch(r"[^\W\d_]*", first), first  # only what the cut words lack
        assert whole.score == raw.score
    assert cut > 5


@pytest.mark.parametrize(
    ("text", "piece", "whole"),
    [
        ("He was born in Regensburg, Bavaria.", "gens", "Regensburg"),
        ("from 1914 to 1918", "14 to 19", "1914 to 1918"),
        ("他在北京市出生", "北京", "北京"),
        ("กรุงเทพมหานคร", "เทพ", "เทพ"),
        ("the river's bank", "er", "river"),
    ],
)
def test_an_answer_is_widened_to_words_but_never_to_a_sentence_without_spaces(
    text: str, piece: str, whole: str
) -> None:
    start = text.index(piece)
    first, end = to_words(text, start, start + len(piece))
    assert text[first:end] == whole


def test_answers_stay_inside_words_where_people_mark_them_so() -> None:
    def data(*answers: tuple[str, str]) -> Dataset[QuestionExample]:
        return Dataset(tuple(example(passage, text, passage.index(text)) for passage, text in answers), "train.json")

    korean = ("서울은 대한민국의 수도이다", "서울")
    assert not marks_whole_words(data(korean))
    assert marks_whole_words(data(*[("in Rome", "Rome")] * 39, korean))
    head = answering_head(data(korean), AnswerOptions(), natural={})
    assert not head.whole_words
    assert answering_head(data(korean), AnswerOptions(whole_words=True), natural={}).whole_words


def test_a_passage_of_100_000_characters_is_read_whole(
    tiny_tokenizer: Tokenizer, tiny_model: Callable[..., Network]
) -> None:
    passage = "The river was wide, and deep! " * 3_400
    asked = encode_passages(tiny_tokenizer, [(QUESTION, passage)], limit=32)
    (found,) = answer(
        tiny_model(objectives=(QuestionAnsweringConfig(null=True),), layers=1),
        [QUESTION],
        asked,
        scoring=ScoringOptions(),
        decoding=Decoding(top=3, threshold=1e9),
    )
    assert len(passage) > 100_000
    assert found.coverage.tokens == found.coverage.read == len(asked.passages[0]) > 20_000
    assert found.coverage.windows > 1_000
    assert found.start is not None
    assert found.text == passage[found.start : found.end]
    assert found.to_dict()["tokens_read"] == found.coverage.read
    assert 0 < found.others[2].score <= found.others[1].score <= found.score == found.others[0].score < 1
    assert str(found).startswith(found.text)


def test_what_was_cut_off_is_said(tiny_tokenizer: Tokenizer, tiny_model: Callable[..., Network]) -> None:
    asked = encode_passages(tiny_tokenizer, [(QUESTION, "the river was wide . " * 40)], limit=32, truncate=True)
    model = tiny_model(objectives=(QuestionAnsweringConfig(null=True, threshold=-1e9),))
    (found,) = answer(model, [QUESTION], asked, scoring=ScoringOptions())
    assert (found.coverage.tokens, found.coverage.read, found.coverage.windows) == (200, 24, 1)
    assert (found.text, found.start, found.end) == ("", None, None)
    assert 0 < found.score < 1
    assert str(found).startswith("no answer")
    assert found.to_dict()["null_score"] == found.null_score


def test_bad_questions_and_models_are_one_clear_line(
    tiny_tokenizer: Tokenizer, tiny_model: Callable[..., Network]
) -> None:
    with pytest.raises(DataError, match=r"question 1: the question has 20 tokens, .* shorten it to 14"):
        encode_passages(tiny_tokenizer, [("river " * 20, "wide")], limit=32)
    with pytest.raises(DataError, match=r"dev.json:7: the question has 20 tokens"):
        encode_passages(tiny_tokenizer, [("river " * 20, "wide")], limit=32, places=[Place("dev.json", 7)])
    with pytest.raises(UsageError, match="too short for a question"):
        encode_passages(tiny_tokenizer, [("river", "wide")], limit=8)
    with pytest.raises(UsageError, match="must lie between 1 and"):
        Decoding(top=0)
    other = tiny_model(objectives=(ClassificationConfig(labels=("a", "b")),))
    with pytest.raises(UsageError, match="does not answer questions"):
        answer(
            other, ["river"], encode_passages(tiny_tokenizer, [("river", "wide")], limit=16), scoring=ScoringOptions()
        )
    empty = encode_passages(tiny_tokenizer, [("river", " ")], limit=16)
    (found,) = answer(tiny_model(objectives=(QuestionAnsweringConfig(),)), ["river"], empty, scoring=ScoringOptions())
    assert (found.text, found.start, found.others) == ("", None, ())
