"""Pseudo-log-likelihoods are those of naive loops, ours and over `transformers`, whatever shares a batch."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze import masked_copies as copies_module
from larvatus.inference.cloze.likelihood import score_texts
from larvatus.inference.cloze.masked_copies import masked_copies
from larvatus.inference.cloze.results import ScoreTotals
from larvatus.inference.model import load
from larvatus.models.masked_prediction import find_predictor, log_sum_exp_
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from tests.tiny import save_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

Make = Callable[..., Any]
METHODS = ("original", "word-l2r")
TEXTS = [
    "The river was wide.",
    "turnings",
    "The banks, running deep!",
    "a",
    "turninged rivers was",
    "The river was deep.",
]


@pytest.fixture(scope="module")
def model(tiny_model: Make) -> Network:
    made: Network = tiny_model(seed=4)
    return made


def naive(network: Network, tokenizer: Tokenizer, text: str, method: str) -> list[float]:
    """One copy at a time, in float64, by the definition; the text fits into the model."""
    found = tokenizer.encode(text)
    double = find_predictor(network.double())
    assert double is not None
    answers = []
    try:
        for place in range(len(found)):
            hidden = [place]
            if method == "word-l2r":
                hidden += [t for t in found.tokens_of_word(found.word_of_token(place)) if t > place]
            ids = found.ids.copy()
            ids[hidden] = tokenizer.mask_id
            batch = TokenBatch.of([[tokenizer.cls_id, *ids.tolist(), tokenizer.sep_id]]).map(torch.from_numpy)
            with torch.no_grad():
                logits_V = double.logits(batch, torch.tensor([place + 1]))[0]
            answers.append(float(logits_V.log_softmax(-1)[found.ids[place]]))
    finally:
        network.float()
    return answers


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_a_naive_loop(model: Network, tiny_tokenizer: Tokenizer, method: Any) -> None:
    for text, score in zip(TEXTS, score_texts(model, tiny_tokenizer, TEXTS, method=method), strict=True):
        assert_allclose(score.log_probabilities, naive(model, tiny_tokenizer, text, method), atol=1e-5)
        assert score.total == pytest.approx(sum(score.log_probabilities))
        assert sum(word.score for word in score.words) == pytest.approx(score.total)
        assert score.perplexity == pytest.approx(math.exp(-score.total / len(score.tokens)))
        assert score.per_word == pytest.approx(score.total / len(score.words))


def test_word_l2r_hides_the_rest_of_the_word_and_only_that(tiny_tokenizer: Tokenizer) -> None:
    found = tiny_tokenizer.encode("the turninged banks")
    assert [tiny_tokenizer.token(id) for id in found.ids.tolist()] == ["the", "turn", "##ing", "##ed", "bank", "##s"]
    (made,) = masked_copies([found], tiny_tokenizer, method="word-l2r", longest=30)
    rows = [[tiny_tokenizer.token(id) for id in row] for row in made.ids.reshape(-1, 8).tolist()]
    shown = {question: " ".join(rows[copy][1:-1]) for question, copy in zip(made.questions, made.copies, strict=True)}
    assert [shown[question] for question in range(6)] == [
        "[MASK] turn ##ing ##ed bank ##s",
        "the [MASK] [MASK] [MASK] bank ##s",
        "the turn [MASK] [MASK] bank ##s",
        "the turn ##ing [MASK] bank ##s",
        "the turn ##ing ##ed [MASK] [MASK]",
        "the turn ##ing ##ed bank [MASK]",
    ]


def test_the_two_methods_differ_only_inside_words_and_agree_on_their_last_pieces(
    model: Network, tiny_tokenizer: Tokenizer
) -> None:
    original, l2r = (
        next(iter(score_texts(model, tiny_tokenizer, ["the turninged banks ."], method=method)))  # type: ignore[arg-type]
        for method in METHODS
    )
    same = np.isclose(original.log_probabilities, l2r.log_probabilities, atol=1e-6)
    assert same.tolist() == [True, False, False, True, False, True, True]


def their_scores(theirs: Any, tokenizer: Tokenizer, text: str) -> list[float]:
    """One copy at a time through a model of `transformers`."""
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode(text).ids.tolist(), tokenizer.sep_id]])
    answers = []
    for place in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, place] = tokenizer.mask_id
        with torch.no_grad():
            logits_V = theirs(input_ids=masked).logits[0, place]
        answers.append(float(logits_V.log_softmax(-1)[ids[0, place]]))
    return answers


def test_scores_equal_those_over_transformers_bert(
    model: Network, save_tiny: Make, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    save_tiny(tmp_path, model)
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path).eval()
    for text, score in zip(TEXTS, load(tmp_path, device="cpu").score(TEXTS), strict=True):
        assert_allclose(score.log_probabilities, their_scores(theirs, tiny_tokenizer, text), atol=1e-4)


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdeinrtv.", "Ġ", "Ġb", "Ġi", "in", "Ġin"]
    merges = [("Ġ", "b"), ("Ġ", "i"), ("i", "n"), ("Ġ", "in")]
    library = Library(models.BPE({t: i for i, t in enumerate(tokens)}, merges, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(tokens[:5])
    return Tokenizer.from_library(library)


def test_scores_equal_those_over_transformers_roberta(byte_level: Tokenizer, tmp_path: Path) -> None:
    shape = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=30, segments=0, norm_epsilon=1e-5, init=0.3)
    made = Network.build(shape, (MaskedLMConfig(),), byte_level.size, seed=2).eval()
    save_model(tmp_path, made, byte_level)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "roberta"
    theirs = transformers.RobertaForMaskedLM.from_pretrained(tmp_path).eval()
    for score in load(tmp_path, device="cpu").score(["bad in a div", "a b in tv", "retina."]):
        assert_allclose(score.log_probabilities, their_scores(theirs, byte_level, score.text), atol=1e-4)


WORDS = st.sampled_from(["the", "river", "banks", "turninged", "wide", ".", "runs", "é", "deep", "[MASK]"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)


@settings(max_examples=25)
@given(texts=st.lists(SENTENCES, min_size=1, max_size=6), budget=st.integers(1, 200), method=st.sampled_from(METHODS))
def test_what_shares_a_batch_changes_no_score(
    model: Network, tiny_tokenizer: Tokenizer, texts: list[str], budget: int, method: Any
) -> None:
    together = list(score_texts(model, tiny_tokenizer, texts, method=method, budget=budget))
    for text, score in zip(texts, together, strict=True):
        (alone,) = score_texts(model, tiny_tokenizer, [text], method=method)
        assert_allclose(score.log_probabilities, alone.log_probabilities, atol=1e-5)
        assert score.text == text
        assert tuple(text[word.start : word.end] for word in score.words) == tuple(word.text for word in score.words)


def test_copies_that_texts_share_are_read_once(
    model: Network, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    at = model.encoder.at
    monkeypatch.setattr(model.encoder, "at", lambda batch, places: read.append(batch.count) or at(batch, places))
    texts = ["the river was wide", "the river was deep", "the river was wide"]
    good, bad, again = score_texts(model, tiny_tokenizer, texts)
    assert sum(read) == 4 + 3  # "the river was [MASK]" is in both, and the third text is the first
    assert good.log_probabilities.tolist() == again.log_probabilities.tolist()
    for text, score in zip(texts, (good, bad, again), strict=True):
        assert_allclose(score.log_probabilities, naive(model, tiny_tokenizer, text, "original"), atol=1e-5)


def test_a_long_text_is_read_to_its_end_each_token_in_the_middle_of_what_the_model_sees(
    model: Network, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("the river was wide and deep , a bank of homework . " * 6).split()
    (whole,) = score_texts(model, tiny_tokenizer, [" ".join(words)])
    assert (len(whole.pieces), whole.context) == (72, 30)
    assert "each of 72 tokens was read with 30 around it" in str(whole)
    for place in (0, 5, 14, 15, 40, 57, 71):
        start = max(0, min(place - 14, 72 - 30))
        (part,) = score_texts(model, tiny_tokenizer, [" ".join(words[start : start + 30])])
        assert whole.log_probabilities[place] == pytest.approx(part.log_probabilities[place - start], abs=1e-5)
    monkeypatch.setattr(copies_module, "BLOCK", 100)  # so that a text is cut between blocks
    (cut,) = score_texts(model, tiny_tokenizer, [" ".join(words)])
    assert_allclose(cut.log_probabilities, whole.log_probabilities, atol=1e-5)


def test_the_sum_over_the_vocabulary_does_not_overflow() -> None:
    rows = torch.tensor([[1e4, 1e4, -1e4], [-1e4, -1e4 + 1, -1e4]])
    assert_allclose(log_sum_exp_(rows.clone()), torch.logsumexp(rows, -1))


def test_results_print_and_turn_into_json(model: Network, tiny_tokenizer: Tokenizer) -> None:
    first, second = score_texts(model, tiny_tokenizer, ["The Turnings was wide.", "an unknown river"])
    value = json.loads(json.dumps(first.to_dict()))
    assert [word["text"] for word in value["words"]] == ["The", "Turnings", "was", "wide", "."]
    assert [word["tokens"] for word in value["words"]] == [1, 3, 1, 1, 1]
    assert value["tokens"][1] == {
        "token": "turn",
        "score": float(first.log_probabilities[1]),
        "start": 4,
        "end": 8,
    }
    assert (value["total"], value["method"], value["unknown"]) == (first.total, "original", 0)
    assert second.unknown == 2
    assert "2 tokens are unknown" in str(second)
    assert "Turnings" in str(first)
    both = ScoreTotals().plus(first).plus(second)
    assert both.perplexity == pytest.approx(math.exp(-(first.total + second.total) / (7 + 3)))


def test_bad_calls_are_refused_in_one_line(model: Network, tiny_tokenizer: Tokenizer, tiny_model: Make) -> None:
    def refused(error: type[Exception], match: str, texts: Any, **options: Any) -> None:
        with pytest.raises(error, match=match):
            list(score_texts(options.pop("model", model), tiny_tokenizer, texts, **options))

    refused(UsageError, "expected a list of texts", "the river")
    refused(DataError, "text 2 of 2 is empty", ["the", " \n"])
    refused(DataError, "text 1 of 1 has no tokens", ["\u0301"])
    refused(DataError, "text 1 of 1 is int", [3])
    refused(DataError, "surrogate", ["the \ud800"])
    refused(UsageError, "'words' is not a method", ["the"], method="words")
    refused(UsageError, "at least one token", ["the"], budget=0)
    headless = tiny_model(objectives=(NextSentenceConfig(),))
    refused(ArtefactError, "no masked-lm head to score texts with", ["the"], model=headless)
    assert list(score_texts(model, tiny_tokenizer, [])) == []
