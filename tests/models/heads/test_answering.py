"""Starts and ends of answers: the segment softmax against a loop, loss and gradients against `transformers`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import AnswerSpans
from larvatus.models.bundle.huggingface import Architecture, layout_named, to_theirs
from larvatus.models.heads import QuestionAnswering, QuestionAnsweringConfig
from larvatus.models.heads.answering import segment_argmax, segment_cross_entropy
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

LENGTHS = [9, 3, 14, 6]
STARTS, ENDS = [4, 0, 7, 2], [5, 0, 13, 2]


def batch(weights: tuple[float, ...] = (1, 1, 1, 1), starts: Any = STARTS) -> TrainingBatch[Any]:
    draw = np.random.default_rng(5)
    tokens = TokenBatch.of([draw.integers(5, 40, length).tolist() for length in LENGTHS])
    spans = AnswerSpans(
        starts=np.array(starts),
        ends=np.array(ENDS),
        weights=np.array(weights, np.float32),
        lengths=tokens.lengths,
    )
    return TrainingBatch(tokens=tokens, targets={AnswerSpans: spans})


def model(**settings: Any) -> Network:
    shape = TransformerConfig(
        layers=2, hidden=16, heads=2, max_positions=16, init=0.3, dropout=0.0, attention_dropout=0.0
    )
    return Network.build(shape, [QuestionAnsweringConfig(**settings)], 40, seed=1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_segment_softmax_equals_the_loop(lengths: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = 30 * torch.randn(sum(lengths), 2, generator=generator, dtype=torch.float64)
    places = torch.stack([torch.randint(0, length, (2,), generator=generator) for length in lengths])
    sizes = torch.tensor(lengths)
    found = segment_cross_entropy(scores, places, sizes)
    best = segment_argmax(scores, sizes)
    for row, (own, place) in enumerate(zip(scores.split(lengths), places.tolist(), strict=True)):
        for side in (0, 1):
            alone = torch.nn.functional.cross_entropy(own[None, :, side], torch.tensor([place[side]]))
            assert_close(found[row, side], alone)
            assert best[row, side] == own[:, side].argmax()


def test_loss_and_gradients_equal_those_of_transformers() -> None:
    ours = model()
    theirs = transformers.BertForQuestionAnswering(
        transformers.BertConfig(
            vocab_size=40,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    layout = layout_named("bert")
    tensors = to_theirs(layout, ours.own_state())
    own = Architecture(model=ours.encoder.config, objectives=(QuestionAnsweringConfig(),), vocabulary=40)
    assert layout.refusal(own) is None
    missing = theirs.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys
    assert not [name for name in missing.missing_keys if not name.endswith("position_ids")]
    given_ = batch()
    rows = torch.split(torch.from_numpy(given_.tokens.ids), LENGTHS)
    ids = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    answer = theirs(
        input_ids=ids,
        attention_mask=mask,
        start_positions=torch.tensor(STARTS),
        end_positions=torch.tensor(ENDS),
    )
    loss = ours(on_device(given_, "cpu"))["answering"]
    with torch.no_grad():
        z_ND = ours.encoder(on_device(given_.tokens, "cpu"))
    head = ours.objectives["answering"]
    assert isinstance(head, QuestionAnswering)
    logits = torch.stack([answer.start_logits, answer.end_logits], -1)[mask.bool()]
    assert_close(head.logits(z_ND, given_), logits, rtol=1e-4, atol=1e-4)
    # theirs has the padding in its softmax, so the loss is compared over the real tokens of each sequence
    naive = torch.stack(
        [
            torch.nn.functional.cross_entropy(side[row, : LENGTHS[row]][None], torch.tensor([places[row]]))
            for row in range(4)
            for side, places in ((answer.start_logits, STARTS), (answer.end_logits, ENDS))
        ]
    ).mean()
    assert_close(loss.mean, naive, rtol=1e-4, atol=1e-4)
    loss.mean.backward()
    naive.backward()
    for name, parameter in head.named_parameters():
        assert_close(parameter.grad, theirs.get_parameter(layout.theirs(f"objectives.answering.{name}")[0]).grad)
    words = ours.encoder.embeddings.words.weight.grad
    assert_close(words, theirs.bert.embeddings.word_embeddings.weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("row", range(4))
def test_one_sequence_has_the_very_loss_of_transformers(row: int) -> None:
    """Without padding the two agree to the last digit that matters."""
    given_ = batch().cut(row, row + 1)
    ours = model()
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16}
    config = transformers.BertConfig(vocab_size=40, intermediate_size=64, **shape)
    theirs = transformers.BertForQuestionAnswering(config).eval()
    theirs.load_state_dict(to_theirs(layout_named("bert"), ours.own_state()), strict=False)
    answer = theirs(
        input_ids=torch.from_numpy(given_.tokens.ids)[None],
        start_positions=torch.tensor(STARTS[row : row + 1]),
        end_positions=torch.tensor(ENDS[row : row + 1]),
    )
    loss = ours.eval()(on_device(given_, "cpu"))["answering"]
    assert_close(loss.mean, answer.loss, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("settings_", [{}, {"dense": "gelu", "dense_norm": True}])
def test_weights_and_unknown_answers_count_as_said(settings_: dict[str, Any]) -> None:
    whole = model(**settings_).eval()
    head = whole.objectives["answering"]
    assert isinstance(head, QuestionAnswering)
    each = [float(whole(on_device(batch().cut(row, row + 1), "cpu"))["answering"].total) for row in range(4)]
    weighted = whole(on_device(batch((1, 0.5, 0, 2)), "cpu"), accuracy=True)["answering"]
    assert float(weighted.total) == pytest.approx(each[0] + 0.5 * each[1] + 2 * each[3], rel=1e-5)
    assert float(weighted.count) == 3.5 == head.size(batch((1, 0.5, 0, 2)))
    unknown = whole(on_device(batch(starts=[4, -100, -100, 2]), "cpu"))["answering"]
    assert float(unknown.total) == pytest.approx(each[0] + each[3], rel=1e-5)
    assert float(unknown.count) == 2 == head.size(batch(starts=[4, -100, -100, 2]))


def test_right_is_a_sequence_whose_start_and_end_are() -> None:
    whole = model().eval()
    head = whole.objectives["answering"]
    assert isinstance(head, QuestionAnswering)
    given_ = on_device(batch(), "cpu")
    scores = head.scores(whole.encoder(given_.tokens), given_)
    best = segment_argmax(scores, given_.tokens.lengths)
    spans = AnswerSpans(
        starts=best[:, 0], ends=best[:, 1].clone(), weights=torch.ones(4), lengths=given_.tokens.lengths
    )
    spans.ends[2] = (spans.ends[2] + 1) % 14
    z_ND = whole.encoder(given_.tokens)
    again = TrainingBatch(tokens=given_.tokens, targets={AnswerSpans: spans})
    assert int(head(z_ND, again, accuracy=True).correct) == 3


def test_a_learned_mix_of_layers_answers_too() -> None:
    whole = model(mix=True).eval()
    head = whole.objectives["answering"]
    assert isinstance(head, QuestionAnswering)
    given_ = on_device(batch(), "cpu")
    stack = torch.stack(whole.encoder(given_.tokens, layers=range(whole.encoder.depth + 1)))
    assert_close(head.logits(stack, given_), head.classifier(stack.mean(0)))
    assert_close(whole(given_)["answering"].total, head.loss(stack, given_, whole.encoder).total)  # either way


@torch.no_grad()
def test_microbatches_add_up() -> None:
    whole, given_ = model().eval(), batch((1, 2, 0.5, 1))
    total = float(whole(on_device(given_, "cpu"))["answering"].total)
    parts = [float(whole(on_device(part, "cpu"))["answering"].total) for part in given_.cuts(12)]
    assert len(parts) > 1
    assert sum(parts) == pytest.approx(total, rel=1e-5)
    again = TrainingBatch.join([given_.cut(0, 2), given_.cut(2, 4)])
    assert np.array_equal(again.targets[AnswerSpans].ends, given_.targets[AnswerSpans].ends)
    assert float(whole(on_device(again, "cpu"))["answering"].total) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("settings_", "said"),
    [
        ({"longest": 0}, "longest = 0 must lie between 1"),
        ({"temperature": 0.0}, "temperature = 0.0 must lie between"),
        ({"dropout": 1.0}, "dropout = 1.0 must be at least 0 and below 1"),
        ({"threshold": float("nan")}, "threshold = nan"),
        ({"threshold": float("inf")}, "threshold = inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings_: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        QuestionAnsweringConfig(**settings_)
