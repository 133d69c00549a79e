"""Examples as sequences, over every kind of vocabulary and hostile Unicode: each word once, each token read."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import ClassTargets, WordTags
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import train_vocabulary
from larvatus.tasks.classify.classify import LabelledTexts
from larvatus.tasks.encoding.sequences import Sequences, TextOrPair, text_sequences, word_sequences
from larvatus.tasks.tag.tag import TaggedWords, words_read
from tests.data.text.conftest import CONFIGS, TEXTS
from tests.data.text.hostile import PIECES, hostile_unicode
from tests.tasks.aligned import align_texts

KINDS = st.sampled_from(sorted(CONFIGS))
LIMITS = st.sampled_from([8, 9, 13, 24, 128])
OVERLAPS = st.sampled_from([None, 0, 1, 5])
WINDOWS = st.fixed_dictionaries({"limit": LIMITS, "overlap": OVERLAPS, "truncate": st.booleans()})


def long_text() -> st.SearchStrategy[str]:
    return st.tuples(hostile_unicode(), st.integers(1, 6)).map(lambda made: made[0] * made[1])


def tagged_texts() -> st.SearchStrategy[list[str | list[str]]]:
    """Texts, and words already cut; a word may be one that normalisation deletes."""
    word = st.sampled_from([piece for piece in PIECES if piece.strip()])
    return st.lists(st.one_of(long_text(), st.lists(word, max_size=30)), max_size=5)


def texts_and_pairs() -> st.SearchStrategy[list[TextOrPair]]:
    return st.lists(st.one_of(long_text(), st.tuples(long_text(), long_text())), max_size=5)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {name: train_vocabulary(TEXTS, config) for name, config in CONFIGS.items()}


def each_sequence(sequences: Sequences) -> list[list[list[int]]]:
    """Ids of the sequences of each example."""
    rows = np.split(sequences.ids, np.cumsum(sequences.lengths)[:-1]) if len(sequences.lengths) else []
    numbers = iter(row.tolist() for row in rows)
    return [list(islice(numbers, count)) for count in sequences.parts.tolist()]


@settings(max_examples=120)
@given(texts=tagged_texts(), kind=KINDS, windows=WINDOWS)
def test_every_word_is_in_one_sequence_with_tokens_of_its_own(
    tokenizers: dict[str, Tokenizer],
    texts: list[str | list[str]],
    kind: str,
    windows: dict[str, Any],
) -> None:
    tokenizer = tokenizers[kind]
    found = align_texts(tokenizer, texts)
    sequences = word_sequences(tokenizer, found, **windows)
    words = sequences.words
    assert words is not None
    assert (sequences.lengths <= windows["limit"]).all()
    read = words_read(sequences).tolist()
    for number, one in enumerate(found):
        own = sequences.of([number])
        batch = sequences.batch(own)
        tags = batch.word_tokens
        assert sequences.tokens[number] == len(one.ids)
        assert tags.total == read[number]  # words keep their order, so word w here is word w of the text
        if not windows["truncate"] or sequences.read[number] == len(one.ids):
            assert read[number] == len(one.word_spans)
        else:
            assert sequences.read[number] == len(batch.ids) - 2
            assert read[number] == (one.word_tokens[:, 0] < sequences.read[number]).sum()
        for word in range(read[number]):
            mine = batch.ids[tags.rows[tags.words == word]]
            theirs = one.ids[slice(*one.word_tokens[word])]
            assert len(mine) > 0 or len(theirs) == 0
            assert mine.tolist() == theirs[: len(mine)].tolist()  # the first is there; a border may cut the rest
            assert len(mine) == len(theirs) or batch.ids[tags.rows[tags.words == word][-1] + 1] == tokenizer.sep_id
        if not windows["truncate"]:
            assert covered(one, each_sequence(sequences)[number], tokenizer)
            assert sequences.read[number] == len(one.ids)


def covered(one: Alignment, rows: list[list[int]], tokenizer: Tokenizer) -> bool:
    """Whether the windows are stretches of the text, framed, that go from its beginning to its end without a gap."""
    ids, reached = one.ids.tolist(), 0
    for row in rows:
        assert (row[0], row[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
        inner = row[1:-1]
        places = [n for n in range(reached + 1) if ids[n : n + len(inner)] == inner]  # several, if the text repeats
        assert places
        reached = max(reached, places[-1] + len(inner))
    return reached == len(ids)


@settings(max_examples=120)
@given(texts=texts_and_pairs(), kind=KINDS, windows=WINDOWS)
def test_every_token_of_texts_and_pairs_is_read(
    tokenizers: dict[str, Tokenizer],
    texts: list[TextOrPair],
    kind: str,
    windows: dict[str, Any],
) -> None:
    tokenizer = tokenizers[kind]
    sequences = text_sequences(tokenizer, texts, **windows)
    assert len(sequences) == len(texts)
    assert (sequences.lengths <= windows["limit"]).all()
    for number, text in enumerate(texts):
        parts = [text] if isinstance(text, str) else list(text)
        wanted = [tokenizer.encode(part) for part in parts]
        assert sequences.tokens[number] == sum(map(len, wanted))
        batch = sequences.batch(sequences.of([number]))
        border = np.cumsum(batch.lengths)[:-1]
        seen: list[list[list[int]]] = [[] for _ in parts]
        two = tokenizer.special.sep == "</s>"  # RoBERTa's way: two separators in a pair, and no second segment
        specials = 2 if len(parts) == 1 else 4 if two else 3
        for row, segments in zip(np.split(batch.ids, border), np.split(batch.segments, border), strict=True):
            assert set(segments.tolist()) == ({0} if two else set(range(len(parts))))
            assert (np.diff(segments) >= 0).all()
            assert row[0] == tokenizer.cls_id
            assert row[-1] == tokenizer.sep_id
            ends = np.flatnonzero(row == tokenizer.sep_id)  # no text holds one
            assert len(ends) == specials - 1
            assert np.diff(ends)[:-1].tolist() == [1] * (len(ends) - 2)  # those in a pair are neighbours
            borders = [0, *ends[-2::-1][:1], len(row) - 1] if len(parts) > 1 else [0, len(row) - 1]
            for own, (low, high) in zip(seen, pairwise(borders), strict=True):
                inner = [id for id in row[low + 1 : high].tolist() if id != tokenizer.sep_id]
                own.append([tokenizer.cls_id, *inner, tokenizer.sep_id])
        if windows["truncate"]:
            assert sequences.parts[number] == 1
            assert sequences.read[number] == len(batch.ids) - specials
            assert sequences.read[number] <= sequences.tokens[number]
        else:
            assert sequences.read[number] == sequences.tokens[number]
            assert all(covered(one, rows, tokenizer) for one, rows in zip(wanted, seen, strict=True))


def same(one: Any, other: Any) -> None:
    """Two batches with the same tokens and targets."""
    assert one.targets.keys() == other.targets.keys()
    pairs = [(one.tokens, other.tokens), *((one.targets[k], other.targets[k]) for k in one.targets)]
    if one.tokens.word_tokens is not None:
        pairs.append((one.tokens.word_tokens, other.tokens.word_tokens))
    for a, b in pairs:
        for name in vars(a).keys() - {"word_tokens", "groups"}:
            assert np.array_equal(getattr(a, name), getattr(b, name)), name


@settings(max_examples=60)
@given(data=st.data(), texts=tagged_texts(), kind=KINDS, limit=LIMITS, budget=st.sampled_from([1, 7, 30, 1000]))
def test_a_batch_is_its_examples_end_to_end(
    tokenizers: dict[str, Tokenizer], data: st.DataObject, texts: list[str | list[str]], kind: str, limit: int,
    budget: int,
) -> None:  # fmt: skip
    """Any pick is each example built alone, joined; and cut into microbatches it is still the same."""
    tokenizer = tokenizers[kind]
    texts = texts or ["one"]
    sequences = word_sequences(tokenizer, align_texts(tokenizer, texts), limit=limit)
    alone = [word_sequences(tokenizer, align_texts(tokenizer, [text]), limit=limit) for text in texts]
    tags = np.arange(int(words_read(sequences).sum()))
    first = np.cumsum(words_read(sequences)) - words_read(sequences)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=6)))
    words = [TaggedWords(one, tags[first[n] :]).batch(np.array([0])) for n, one in enumerate(alone)]
    classes = [LabelledTexts(one, np.array([n])).batch(np.array([0])) for n, one in enumerate(alone)]
    whole = TaggedWords(sequences, tags).batch(chosen)
    same(whole, TrainingBatch.join([words[n] for n in chosen]))
    labelled = LabelledTexts(sequences, np.arange(len(texts))).batch(chosen)
    same(labelled, TrainingBatch.join([classes[n] for n in chosen]))
    assert labelled.targets[ClassTargets].weights.sum() == pytest.approx(len(chosen))  # a long text counts once
    for batch in (whole, labelled):
        for parts in (list(batch.split(budget)), list(batch.cuts(budget))):
            same(TrainingBatch.join(parts), batch)
            for part in parts:
                for target in part.targets.values():
                    assert len(target.counts if isinstance(target, WordTags) else target.labels) == part.tokens.count


def test_words_without_any_token_are_kept(tokenizers: dict[str, Tokenizer]) -> None:
    """An accent alone is deleted by WordPiece's normaliser, so that no token is left; the word still wants a tag."""
    found = align_texts(tokenizers["wordpiece"], [["\u0301"], ["a", "\u0301"]])
    for truncate in (False, True):
        sequences = word_sequences(tokenizers["wordpiece"], found, limit=8, truncate=truncate)
        assert words_read(sequences).tolist() == [1, 2]
        assert sequences.tokens.tolist() == sequences.read.tolist()


def test_a_window_that_holds_nothing_is_refused(tokenizers: dict[str, Tokenizer]) -> None:
    with pytest.raises(UsageError, match="at least 8"):
        text_sequences(tokenizers["wordpiece"], ["a"], limit=7)
