"""The passages: the same words hidden for every vocabulary, and a loss that is a code length in each of them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.readers import Document
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.data.text.words import segment_words
from larvatus.evaluation.compare.word_nll import (
    LONGEST,
    SHORTEST,
    UNICODE,
    MaskedPassages,
    length_cost,
    mask_words,
    measure_word_nll,
    tokenise_passage,
)
from larvatus.models.objectives import NextSentenceConfig
from tests.data.text.conftest import CONFIGS
from tests.data.text.hostile import hostile_unicode, ordinary_text

RIVER = (
    "The river was wide and deep. Please turn your homework in! The bank of the river was wide, and a run was running.",
    "A bank turned in the homework, please. Your run was deep and wide? The bank was in the river and the river ended.",
)


def river():
    return MaskedPassages.of(Document(text, "river") for text in RIVER)


# — what is hidden —


@given(text=st.one_of(hostile_unicode(), ordinary_text()), number=st.integers(0, 2**40))
@pytest.mark.parametrize("kind", CONFIGS)
def test_every_vocabulary_hides_the_same_characters_and_shows_none_of_them(tokenizers, kind, text, number):
    passage = mask_words(text, number)
    chars = {c for word in passage.hidden for c in range(*passage.words[word])}
    alignment = tokenizers[kind].encode(text)
    hidden = tokenise_passage(passage, alignment)
    places = set(hidden.places)
    for token in range(len(alignment)):
        start, end = alignment.chars_of_token(token)
        touches = any(c in chars for c in range(start, end))
        if token not in places:
            assert not touches
        elif not touches:  # the lone mark of a space before a hidden word
            assert text[start:end].isspace()
            assert alignment.words[token] == alignment.words[token + 1]
    assert len(hidden.words) == len(passage.hidden)
    assert len(hidden.visible) == len(passage.words) - len(passage.hidden)


@given(text=st.one_of(hostile_unicode(), ordinary_text()), number=st.integers(0, 2**40))
def test_fifteen_percent_of_the_words_and_never_punctuation(text, number):
    passage = mask_words(text, number)
    words = [text[start:end] for start, end in segment_words(text).tolist()]
    assert [text[start:end] for start, end in passage.words] == [w for w in words if any(c.isalnum() for c in w)]
    assert len(passage.hidden) == (max(1, round(0.15 * len(passage.words))) if passage.words else 0)
    assert mask_words(text, number) == passage


def test_passages_are_whole_sentences_of_one_document_up_to_the_limit():
    documents = list(itertools.islice(embedded_documents("valid"), 3))
    passages = MaskedPassages.of(documents)
    for passage in passages.passages:
        assert SHORTEST <= len(segment_words(passage.text)) <= LONGEST
        assert any(passage.text in document.text for document in documents)
    assert sum(passage.text.rstrip("\"')").endswith((".", "?", "!", ":")) for passage in passages.passages) > 0.8 * len(
        passages.passages
    )


def test_a_sample_is_spread_over_the_text_and_depends_on_it_alone():
    documents = [Document(f"Number {n} says that all of this text is worth reading twice.", "made") for n in range(300)]
    few = MaskedPassages.of(iter(documents), limit=30)
    again = MaskedPassages.of(documents, limit=30)
    assert few == again
    assert few.fingerprint == again.fingerprint
    numbers = [int(passage.text.split()[1]) for passage in few.passages]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 30
    assert numbers[0] < 60
    assert numbers[-1] > 240
    whole = MaskedPassages.of(documents, limit=300)
    assert set(few.passages) < set(whole.passages)  # a word is hidden or not, whatever else is drawn
    assert MaskedPassages.of(documents[1:], limit=30).fingerprint != few.fingerprint


def test_a_sentence_longer_than_a_passage_is_cut():
    passages = MaskedPassages.of([Document(" ".join(["word"] * 150), "long")])
    assert [len(passage.words) for passage in passages.passages] == [64, 64, 22]


# — what it costs —


def naive(model, tokenizer, passages):
    """One passage at a time, word by word, in float64: (loss a word, right)."""
    model = model.double()
    head, words = model.objectives["masked-lm"], model.encoder.embeddings.words.weight
    rows, visible = [], []
    for passage in passages.passages:
        alignment = tokenizer.encode(passage.text)
        tokens = [
            [t for t, (a, b) in enumerate(alignment.spans.tolist()) if a < end and b > start]
            for start, end in passage.words
        ]
        ids = alignment.ids.copy()
        for word in passage.hidden:
            ids[tokens[word]] = tokenizer.mask_id
        with torch.no_grad():
            z_ND = model.encoder(wrap_batch(tokenizer, [[(ids, alignment.words)]]).map(torch.from_numpy))
            log_NV = torch.log_softmax(head.logits(z_ND, words), dim=-1)
        visible += [len(t) for w, t in enumerate(tokens) if w not in passage.hidden]
        rows += [(log_NV, alignment.ids, tokens[word]) for word in passage.hidden]
    total, right = 0.0, 0
    for log_NV, ids, own in rows:
        share = (sum(n == len(own) for n in visible) + 0.5 ** (len(own) + 1)) / (len(visible) + 1)
        total -= math.log(share) + sum(float(log_NV[t + 1, ids[t]]) for t in own)
        right += all(int(log_NV[t + 1].argmax()) == ids[t] for t in own)
    return total / len(rows), right / len(rows)


def test_the_score_equals_the_naive_loop(tiny_model, tiny_tokenizer):
    passages = river()
    model = tiny_model(seed=3)
    score = measure_word_nll(model, tiny_tokenizer, passages, room=64)
    assert score.words == passages.hidden == sum(len(p.hidden) for p in passages.passages) > 4
    loss, right = naive(tiny_model(seed=3), tiny_tokenizer, passages)
    assert score.loss == pytest.approx(loss, rel=1e-5)
    assert score.accuracy == pytest.approx(right)
    assert score.bits == pytest.approx(loss * score.words / passages.characters / math.log(2), rel=1e-5)


def test_a_model_that_knows_nothing_pays_the_logarithm_of_the_vocabulary_for_each_token(tiny_model, tiny_tokenizer):
    model = tiny_model()
    with torch.no_grad():
        model.encoder.embeddings.words.weight.zero_()  # tied: all logits 0
    passages = river()
    score = measure_word_nll(model, tiny_tokenizer, passages, room=64)
    hidden = [tokenise_passage(p, tiny_tokenizer.encode(p.text)) for p in passages.passages]
    price = length_cost([n for h in hidden for n in h.visible])
    told = np.mean([price(len(tokens)) for h in hidden for tokens in h.words])
    assert score.loss == pytest.approx(told + score.pieces * math.log(tiny_tokenizer.size), rel=1e-5)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_the_price_of_a_number_of_tokens_is_a_probability(seen):
    price = length_cost(seen)
    assert math.fsum(math.exp(-price(n)) for n in range(80)) == pytest.approx(1.0)


def test_a_word_outside_the_vocabulary_is_charged_by_its_characters_and_never_right(tiny_model, tiny_tokenizer):
    model = tiny_model()
    with torch.no_grad():  # always says [UNK]
        model.objectives["masked-lm"].bias[tiny_tokenizer.unk_id] = 50.0
    text = "zyx zyx zyx zyx zyx zyx zyx zyx zyx."
    score = measure_word_nll(model, tiny_tokenizer, MaskedPassages.of([Document(text, "unknown")]), room=64)
    assert score.words == 1
    assert score.accuracy == 0.0
    assert score.loss == pytest.approx(3 * UNICODE, rel=0.02)


def test_a_passage_longer_than_the_model_reads_is_read_in_windows_and_nothing_is_left_out(tiny_model, tiny_tokenizer):
    passages = river()
    model = tiny_model(seed=3)
    whole = measure_word_nll(model, tiny_tokenizer, passages, room=64)
    parts = measure_word_nll(model, tiny_tokenizer, passages, room=7)
    assert (whole.windowed, parts.windowed) == (0, 2)
    assert parts.words == whole.words
    assert parts.pieces == whole.pieces
    assert parts.loss != whole.loss


def test_measuring_changes_nothing_and_wants_a_head_that_predicts_words(tiny_model, tiny_tokenizer):
    model = tiny_model().train()
    assert measure_word_nll(model, tiny_tokenizer, river(), room=64) == measure_word_nll(
        model, tiny_tokenizer, river(), room=64
    )
    assert model.training
    assert measure_word_nll(tiny_model(objectives=(NextSentenceConfig(),)), tiny_tokenizer, river(), room=64) is None
    assert measure_word_nll(model, tiny_tokenizer, MaskedPassages(()), room=64) is None
