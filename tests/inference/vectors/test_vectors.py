"""Every vector equals the naive computation: the text alone through the encoder, pooled by character offsets."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from larvatus.inference.vectors import vectors as module
from larvatus.models.nn.device import on_device
from tests.data.text.hostile import hostile_unicode
from tests.inference.conftest import Tiny, tiny

POOLS = {
    "mean": lambda z: z.mean(0),
    "sum": lambda z: z.sum(0),
    "max": lambda z: z.max(0),
    "first": lambda z: z[0],
    "last": lambda z: z[-1],
}


def alone(model: Tiny, text: str) -> np.ndarray:
    """States of the embeddings and every layer for one text by itself: [layers + 1, T + 2, D]."""
    return computed_alone(model.encoder, model.tokenizer, text)


@lru_cache(maxsize=1000)
def computed_alone(encoder: Any, tokenizer: Tokenizer, text: str) -> np.ndarray:
    """Once for all tests that compare vectors with it."""
    with torch.no_grad():
        states = encoder(on_device(encode_batch(tokenizer, [text]), "cpu"), layers=range(encoder.depth + 1))
    array = torch.stack(states).numpy()
    array.flags.writeable = False
    return array


def by_offsets(model: Tiny, text: str, state: np.ndarray, pool: str, wanted: list[list[int]]) -> np.ndarray:
    """Pool the tokens whose characters overlap each wanted span, token by token; NaN where there is none."""
    _, spans = model.tokenizer.encode_spans(text)
    out = []
    for start, end in wanted:
        own = [place + 1 for place, (a, b) in enumerate(spans.tolist()) if a < end and b > start]
        out.append(POOLS[pool](state[own]) if own else np.full(state.shape[-1], np.nan))
    return np.array(out).reshape(-1, state.shape[-1])


@pytest.mark.parametrize("pool", POOLS)
def test_word_vectors_equal_encoding_each_text_alone(model: Tiny, texts: list[str], pool: str) -> None:
    for text, found in zip(texts, model.vectors(texts, unit="word", pool=pool), strict=True):
        words = segment_words(text).tolist()
        assert found.spans.tolist() == words
        assert found.units == tuple(text[start:end] for start, end in words)
        assert (found.text, found.windows) == (text, 1)
        assert_allclose(found.vectors, by_offsets(model, text, alone(model, text)[-1], pool, words), atol=1e-5)


@given(text=hostile_unicode())
def test_word_vectors_of_hostile_text_equal_the_naive_ones(wordpiece: Tiny, text: str) -> None:
    text = text[:24]
    found = wordpiece.vectors([text], unit="word")[0]
    expected = by_offsets(wordpiece, text, alone(wordpiece, text)[-1], "mean", segment_words(text).tolist())
    assert_allclose(found.vectors, expected, atol=1e-5)
    assert list(found.missing) == [index for index, row in enumerate(expected) if np.isnan(row).any()]


@pytest.mark.parametrize("pool", ["mean", "max", "cls"])
@pytest.mark.parametrize("unit", ["sentence", "document"])
def test_sentence_vectors_equal_encoding_each_text_alone(model: Tiny, texts: list[str], unit: str, pool: str) -> None:
    naive = {"mean": lambda z: z.mean(0), "max": lambda z: z.max(0), "cls": lambda z: z[0]}[pool]
    for text, found in zip(texts, model.vectors(texts, unit=unit, pool=pool), strict=True):
        assert_allclose(found.array, naive(alone(model, text)[-1]), atol=1e-5)
        assert found.vectors.shape == (1, 16)
        assert found.units == (text,)


def test_token_vectors_have_their_characters(model: Tiny, texts: list[str]) -> None:
    for text, found in zip(texts, model.vectors(texts, unit="token"), strict=True):
        assert_allclose(found.vectors, alone(model, text)[-1, 1:-1], atol=1e-5)
        assert found.spans.tolist() == model.tokenizer.encode(text).spans.tolist()
        assert found.tokens == len(found)


@pytest.mark.parametrize(
    ("layers", "mix"),
    [
        ("last", lambda h: h[3]),
        ("last2", lambda h: (h[2] + h[3]) / 2),
        ("last3-sum", lambda h: h[1] + h[2] + h[3]),
        (0, lambda h: h[0]),
        ("2", lambda h: h[2]),
        (-2, lambda h: h[2]),
        ([0.5, 0, 0, -2], lambda h: 0.5 * h[0] - 2 * h[3]),
        ("0.1,0.2,0.3,0", lambda h: 0.1 * h[0] + 0.2 * h[1] + 0.3 * h[2]),
        ([0, 0, 3.0, 0], lambda h: 3 * h[2]),
    ],
)
def test_layers_are_mixed_as_asked(model: Tiny, texts: list[str], layers, mix) -> None:
    for text, found in zip(texts, model.vectors(texts, unit="word", layers=layers), strict=True):
        expected = by_offsets(model, text, mix(alone(model, text)), "mean", found.spans.tolist())
        assert_allclose(found.vectors, expected, atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_all_layers_come_as_a_stack(model: Tiny, texts: list[str], pool: str) -> None:
    for text, found in zip(texts, model.vectors(texts, unit="word", layers="all", pool=pool), strict=True):
        states = alone(model, text)
        expected = [by_offsets(model, text, state, pool, found.spans.tolist()) for state in states]
        assert found.vectors.shape == (4, len(found), 16)
        assert_allclose(found.vectors, np.stack(expected), atol=1e-5)
    whole = model.vectors(["a river"], unit="sentence", layers="all")[0]
    assert_allclose(whole.array, alone(model, "a river").mean(1), atol=1e-5)


def test_layers_above_the_wanted_one_are_not_computed(wordpiece: Tiny) -> None:
    computed = []
    hooks = [
        block.register_forward_hook(lambda *_, layer=layer: computed.append(layer))
        for layer, block in enumerate(wordpiece.encoder.blocks, start=1)
    ]
    try:
        for layers, expected in ((0, []), (1, [1]), ([0, 0.5, 0.5, 0], [1, 2]), ("last", [1, 2, 3])):
            wordpiece.vectors(["a river"], layers=layers)
            assert computed == expected
            computed.clear()
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize(
    "options", [{"unit": "word"}, {"unit": "sentence", "pool": "max"}, {"unit": "token", "layers": "all"}]
)
def test_batches_never_change_a_vector_and_order_is_kept(
    model: Tiny, texts: list[str], options, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = [model.vectors([text], **options)[0].vectors for text in texts]
    for tokens in (1, 50, 100_000):
        for found, expected in zip(model.vectors(texts, tokens=tokens, **options), single, strict=True):
            assert_allclose(found.vectors, expected, atol=1e-5)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 3)
    monkeypatch.setattr(module, "CHARACTERS_AT_ONCE", 40)
    for found, expected in zip(model.vectors(texts[::-1], **options), single[::-1], strict=True):
        assert_allclose(found.vectors, expected, atol=1e-5)


def naive_long(model: Tiny, text: str, size: int, overlap: int) -> tuple[np.ndarray, np.ndarray]:
    """Each token from the window with the largest min(before, after), the opening [CLS] and the closing [SEP] of the
    text around them: [T + 2, D]; and the [CLS] of each window."""
    ids = model.tokenizer.encode(text).ids.tolist()
    spare, count = len(ids) - size, -(-(len(ids) - size) // (size - overlap)) + 1
    starts = [number * spare // (count - 1) for number in range(count)]
    frame = model.tokenizer.cls_id, model.tokenizer.sep_id
    rows = []
    for start in starts:
        batch = TokenBatch.of([[frame[0], *ids[start : start + size], frame[1]]])
        with torch.no_grad():
            rows.append(model.encoder(on_device(batch, "cpu")).numpy())
    out = [rows[0][0]]
    for token in range(len(ids)):
        seen = [
            (min(token - start, start + size - 1 - token), -number)
            for number, start in enumerate(starts)
            if start <= token < start + size
        ]
        number = -max(seen)[1]
        out.append(rows[number][token - starts[number] + 1])
    return np.array([*out, rows[-1][-1]]), np.array([row[0] for row in rows])


@pytest.mark.parametrize("overlap", [None, 0, 20])
def test_long_texts_are_read_to_their_end_in_windows(model: Tiny, prose: list[str], overlap: int | None) -> None:
    text = prose[1]
    state, openings = naive_long(model, text, 62, 15 if overlap is None else overlap)
    tokens = len(model.tokenizer.encode(text))
    words = model.vectors(["short", text, "also"], unit="word", overlap=overlap)[1]
    assert (words.tokens, words.windows) == (tokens, len(openings))
    assert_allclose(words.vectors, by_offsets(model, text, state, "mean", words.spans.tolist()), atol=1e-5)
    for pool, expected in (("mean", state.mean(0)), ("max", state.max(0)), ("cls", openings.mean(0))):
        whole = model.vectors([text], unit="document", pool=pool, overlap=overlap)[0]
        assert_allclose(whole.array, expected, atol=1e-5)
        assert whole.windows == len(openings) > 3


def test_a_word_longer_than_the_window_has_a_vector_of_all_its_tokens(vocabularies) -> None:
    small, word = tiny(vocabularies["byte-bpe"], max_positions=16), "xylophonist" * 10
    text = f"a {word} b"
    found = small.vectors([text], unit="word")[0]
    assert found.units == ("a", word, "b")
    assert found.windows > 3
    state, _ = naive_long(small, text, 14, 3)
    assert_allclose(found.vectors, by_offsets(small, text, state, "mean", found.spans.tolist()), atol=1e-5)


def test_words_already_cut_keep_their_numbers(model: Tiny) -> None:
    words = ["Mt.", "Sanitas", "isn't", "well-known", "\u200b!", "."]
    found = model.vectors([words, "plain text"], unit="word")[0]
    assert found.units == tuple(words)
    text = " ".join(words)
    expected = by_offsets(model, text, alone(model, text)[-1], "mean", found.spans.tolist())
    assert_allclose(found.vectors, expected, atol=1e-5)


def test_spans_by_offsets_and_by_stars_agree(model: Tiny) -> None:
    text, spans = "the bank of the river", [(16, 21), (4, 8), (4, 21)]
    by_number = model.vectors([text], unit="span", spans=[spans])[0]
    by_stars = model.vectors(["the *bank* of the *river*"], unit="span")[0]
    assert_allclose(by_number.vectors, by_offsets(model, text, alone(model, text)[-1], "mean", spans), atol=1e-5)
    assert by_number.units == ("river", "bank", "bank of the river")
    assert (by_stars.text, by_stars.units) == (text, ("bank", "river"))
    assert_allclose(by_stars.vectors, by_number.vectors[[1, 0]], atol=1e-6)


def test_a_word_that_the_vocabulary_deletes_is_missing_not_made_up(wordpiece: Tiny) -> None:
    found = wordpiece.vectors(["a \u0301 river"], unit="word")[0]
    assert found.missing == (1,)
    assert np.isnan(found.vectors[1]).all()
    assert not np.isnan(found.vectors[[0, 2]]).any()
    assert found.to_dict()["units"][1]["vector"] is None
    stacked = wordpiece.vectors(["a \u0301 river"], unit="word", layers="all", normalise=True, pool="max")[0]
    assert stacked.missing == (1,)


def test_vectors_can_have_length_one(wordpiece: Tiny, texts: list[str]) -> None:
    for plain, unit in zip(wordpiece.vectors(texts), wordpiece.vectors(texts, normalise=True), strict=True):
        assert_allclose(unit.array, plain.array / np.linalg.norm(plain.array), atol=1e-6)


def test_results_print_and_turn_into_dicts(wordpiece: Tiny, prose: list[str]) -> None:
    found = wordpiece.vectors(["the bank of the river"], unit="word")[0]
    value = found.to_dict()
    assert value["units"][1] == {"text": "bank", "start": 4, "end": 8, "vector": found.vectors[1].tolist()}
    assert str(found).startswith(f"5 words · 5 × 16 · {found.tokens} tokens read\n  the ")
    assert repr(found) == "<Vectors of 5 × word, 5 × 16>"
    long = wordpiece.vectors([prose[1]], unit="word")[0]
    assert f"in {long.windows} windows" in str(long)
    assert str(long).endswith("  …")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unit": "wrod"}, "did you mean word"),
        ({"unit": "word", "pool": "cls"}, "a word cannot be pooled by 'cls'; use mean, sum, max, first, last"),
        ({"unit": "sentence", "pool": "first"}, "a sentence cannot be pooled by 'first'; use mean, max, cls"),
        ({"layers": "last9"}, "last9 does not exist: the model has 3 layers; use last1 to last3"),
        ({"layers": 4}, "there is no layer 4: the model has 1 to 3"),
        ({"layers": "top"}, "'top' names no layers; use last, last4"),
        ({"layers": True}, "names no layers"),
        ({"layers": [1.0, 2.0]}, "2 layer weights, but 4 are needed"),
        ({"layers": [0.0] * 4}, "all layer weights are 0"),
        ({"layers": [0.0, float("nan"), 0, 1]}, "a weight = nan must lie"),
        ({"overlap": 62}, "overlap must be from 0 to 61"),
        ({"tokens": 0}, "tokens = 0 must lie between 1"),
        ({"precision": "fp8"}, "fp32 or bf16"),
    ],
)
def test_bad_options_are_one_line(wordpiece: Tiny, options, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        wordpiece.vectors(["a river"], **options)
    assert "\n" not in str(raised.value)


def test_bad_texts_and_spans_are_one_line(wordpiece: Tiny) -> None:
    with pytest.raises(UsageError, match="expected a list of texts"):
        wordpiece.vectors("a river")
    with pytest.raises(DataError, match="text 2 is int"):
        wordpiece.vectors(["a", 7])
    with pytest.raises(DataError, match="surrogate"):
        wordpiece.vectors(["a \ud800"], unit="word")
    with pytest.raises(DataError, match="word 2 of 2 is empty"):
        wordpiece.vectors([["a", ""]], unit="word")
    for spans in ([(0, 9)], [(2, 2)], [(-1, 1)], [(3, 1)]):
        with pytest.raises(UsageError, match=r"text 1 has no span .*: spans are \(start, end\) in its 5 characters"):
            wordpiece.vectors(["river"], unit="span", spans=[spans])
    with pytest.raises(UsageError, match="1 texts, but spans of 2"):
        wordpiece.vectors(["river"], unit="span", spans=[[(0, 1)], []])
    with pytest.raises(UsageError, match='use unit="span"'):
        wordpiece.vectors(["river"], unit="word", spans=[[(0, 1)]])
    with pytest.raises(UsageError, match="no word is marked"):
        wordpiece.vectors(["river"], unit="span")


def test_no_text_gives_nothing(wordpiece: Tiny) -> None:
    assert wordpiece.vectors([]) == []
    assert wordpiece.vectors([""], unit="word")[0].vectors.shape == (0, 16)
    assert wordpiece.vectors(["a"], unit="span", spans=[[]])[0].vectors.shape == (0, 16)
