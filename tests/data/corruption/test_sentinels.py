"""Span corruption with sentinels: the example of the paper, a naive loop, counts, and independence of the batch."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.batch import NO_WORD, TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.pretraining_targets import DenoisedText, PaddedSizes
from larvatus.data.corruption import MaskVocabulary, SentinelsConfig, corrupt
from larvatus.data.corruption.sentinels import replaced_by_sentinels

SENTINELS = np.arange(199, 99, -1)  # <extra_id_0> is the last id, as in T5
VOCABULARY = MaskVocabulary(mask_id=None, size=200, special_ids={0, 1, 2, *range(100, 200)}, sentinels=SENTINELS)
CLOSING = 1


def texts(*lengths: int) -> TokenBatch[np.ndarray]:
    """Sequences of so many tokens, each closed."""
    ids = [
        [3 + (7 * number + place) % 90 for place in range(length)] + [CLOSING] for number, length in enumerate(lengths)
    ]
    return TokenBatch.of(ids, words=[[*range(length), NO_WORD] for length in lengths])


def hidden(batch: TokenBatch[np.ndarray], *, items: list[int] | None = None, epoch: int = 0, **config: float):  # type: ignore[no-untyped-def]
    return corrupt(
        TrainingBatch(tokens=batch, targets={}), SentinelsConfig(**config), vocabulary=VOCABULARY, seed=5, epoch=epoch,
        items=np.array(items if items is not None else range(batch.count)),
    )  # fmt: skip


@pytest.mark.parametrize("closing", [[], ["</s>"]])
def test_the_example_of_figure_2(closing: list[str]) -> None:
    """Thank you <X> me to your party <Y> week → <X> for inviting <Y> last <Z>."""
    words = [*["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"], *closing]
    names = sorted({*words, "<X>", "<Y>", "<Z>"})
    spans = {"for", "inviting", "last"}
    batch = TokenBatch.of([[names.index(word) for word in words]], words=[[*range(10), *[NO_WORD] * len(closing)]])
    read, targets = replaced_by_sentinels(
        batch, np.array([word in spans for word in words]), np.array([names.index(f"<{x}>") for x in "XYZ"])
    )
    ends = "".join(f" {word}" for word in closing)
    assert " ".join(names[i] for i in read.ids) == "Thank you <X> me to your party <Y> week" + ends
    assert " ".join(names[i] for i in targets[DenoisedText].ids) == "<X> for inviting <Y> last <Z>" + ends


def naive(ids: list[int], mask: list[bool]) -> tuple[list[int], list[int]]:
    """Token by token, as one would tell it."""
    read: list[int] = []
    written: list[int] = []
    used = 0
    for place, (token, gone) in enumerate(zip(ids, mask, strict=True)):
        if gone:
            if place == 0 or not mask[place - 1]:
                read.append(int(SENTINELS[used]))
                written.append(int(SENTINELS[used]))
                used += 1
            written.append(token)
        else:
            read.append(token)
    return [*read, CLOSING], [*written, int(SENTINELS[used]), CLOSING] if used else []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=12), min_size=1, max_size=5))
def test_any_mask_is_replaced_as_by_a_loop(masks: list[list[bool]]) -> None:
    batch = texts(*map(len, masks))
    read, targets = replaced_by_sentinels(batch, np.array([x for mask in masks for x in [*mask, False]]), SENTINELS)
    starts = np.cumsum(batch.lengths) - batch.lengths
    loop = [
        naive(batch.ids[start : start + len(mask)].tolist(), mask) for start, mask in zip(starts, masks, strict=True)
    ]
    assert read.ids.tolist() == [token for inputs, _ in loop for token in inputs]
    assert read.lengths.tolist() == [len(inputs) for inputs, _ in loop]
    assert targets[DenoisedText].ids.tolist() == [token for _, written in loop for token in written]
    assert targets[DenoisedText].lengths.tolist() == [len(written) for _, written in loop]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.integers(0, 3))
def test_nothing_is_lost_and_the_counts_are_as_published(lengths: list[int], epoch: int) -> None:
    batch, got = texts(*lengths), hidden(texts(*lengths), epoch=epoch)
    targets = got.targets[DenoisedText]
    reads, writes = np.cumsum(got.tokens.lengths), np.cumsum(targets.lengths)
    starts = np.cumsum(batch.lengths) - batch.lengths
    for number, length in enumerate(lengths):
        read = got.tokens.ids[reads[number] - got.tokens.lengths[number] : reads[number]].tolist()
        written = targets.ids[writes[number] - targets.lengths[number] : writes[number]].tolist()
        noise = min(max(round(length * 0.15), 1), max(length - 1, 0))
        spans = min(max(round(noise / 3), min(noise, 1)), length - noise)
        assert len(read) == length - noise + spans + 1
        assert len(written) == (noise + spans + 2 if spans else 0)
        used = [token for token in read if token >= 100]
        assert used == SENTINELS[:spans].tolist()
        filled: list[int] = []
        for token in read:  # the text again: what is written after a sentinel goes where it stands
            if token >= 100:
                at = written.index(token) + 1
                while written[at] < 100:
                    filled.append(written[at])
                    at += 1
            else:
                filled.append(token)
        assert filled == batch.ids[starts[number] : starts[number] + length + 1].tolist()


def test_a_sequence_is_corrupted_alike_in_every_batch_and_anew_in_every_epoch() -> None:
    together = hidden(texts(40, 17, 300), items=[4, 9, 2])
    alone = hidden(TokenBatch.of([texts(40, 17, 300).ids[41:59]], words=[[*range(17), NO_WORD]]), items=[9])
    cut = together.cut(1, 2)
    assert cut.tokens.ids.tolist() == alone.tokens.ids.tolist()
    assert cut.targets[DenoisedText].ids.tolist() == alone.targets[DenoisedText].ids.tolist()
    again = hidden(texts(40, 17, 300), items=[4, 9, 2], epoch=1)
    assert again.tokens.ids.tolist() != together.tokens.ids.tolist()
    assert again.tokens.lengths.tolist() == together.tokens.lengths.tolist()


def test_spans_lie_anywhere_and_have_any_length_by_the_law_of_random_cuts() -> None:
    """A span of h hidden tokens cut into s runs has length l with probability C(h − l − 1, s − 2) / C(h − 1, s − 1)."""
    many = hidden(texts(*[100] * 3000))  # 15 hidden tokens in 5 spans
    targets = many.targets[DenoisedText]
    sentinels = np.flatnonzero(targets.ids >= 100)
    lengths = np.diff(sentinels) - 1
    lengths = lengths[(targets.ids[sentinels[:-1]] > 199 - 5)]  # not from the last sentinel of one to the next
    law = np.array([comb(15 - size - 1, 3) / comb(14, 4) for size in range(1, 12)])
    seen = np.bincount(lengths, minlength=12)[1:12] / len(lengths)
    assert lengths.mean() == pytest.approx(3.0)
    assert np.abs(seen - law).max() < 0.012


def test_published_lengths_and_what_a_vocabulary_without_sentinels_says() -> None:
    config = SentinelsConfig()
    assert config.text_length(512) - 1 == 568  # tokens of text that leave 512 to read
    assert config.written(512) == 115  # the released code has 114: it ends without one more sentinel
    with pytest.raises(RecipeError, match=r"needs a vocabulary with sentinels .* set tokenizer.type"):
        corrupt(
            TrainingBatch(tokens=texts(9), targets={}), config, seed=1, epoch=0, items=np.array([0]),
            vocabulary=MaskVocabulary(mask_id=None, size=200, special_ids={0, 1}),
        )  # fmt: skip
    with pytest.raises(RecipeError, match=r"corruption.mean = 0.5"):
        SentinelsConfig(mean=0.5)


def test_targets_are_cut_joined_and_filled() -> None:
    whole = hidden(texts(40, 1, 30, 22))
    parts = [whole.cut(0, 2), whole.cut(2, 4)]
    again = TrainingBatch.join(parts)
    assert again.targets[DenoisedText].ids.tolist() == whole.targets[DenoisedText].ids.tolist()
    assert again.targets[DenoisedText].lengths.tolist() == whole.targets[DenoisedText].lengths.tolist()
    count = whole.targets[DenoisedText].count
    filled = whole.targets[DenoisedText].filled(PaddedSizes(tokens=200, sequences=7, targets=count + 10))
    assert filled.lengths.tolist()[4:] == [3, 3, 4]
    assert (filled.ids[count:] == -100).all()
    with pytest.raises(UsageError, match="raise targets"):
        whole.targets[DenoisedText].filled(PaddedSizes(tokens=200, sequences=7, targets=5))
