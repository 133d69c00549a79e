"""The validation loss: the mean over all held-out examples, by a loop over one at a time, whatever the batches are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from larvatus.data.labelled.records import Place, QuestionExample
from larvatus.data.labelled.span_records import SpannedWords, SpanRelation
from larvatus.data.text.tag_schemes import EntitySpan
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads import ClassificationConfig, QuestionAnsweringConfig, SpansConfig, TaggingConfig
from larvatus.models.heads.spans import RelationsConfig
from larvatus.models.network import Network
from larvatus.tasks.answers.evaluation import QuestionValidation
from larvatus.tasks.answers.passages import EmptyWindows, encode_passages
from larvatus.tasks.classify.classify import LabelledTexts
from larvatus.tasks.classify.task import TextValidation
from larvatus.tasks.encoding.sequences import text_sequences, word_sequences
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.evaluation import SpanValidation
from larvatus.tasks.spans.spans import label_spans
from larvatus.tasks.tag.tag import TaggedWords
from larvatus.tasks.tag.task import TagValidation
from tests.tasks.aligned import align_texts

SENTENCES = [
    "the river bank was wide and deep and the river runs deep , please !",
    "homework",
    "the deep river turned wide and the bank was deep and wide and deep the river runs",
    "please turned the homework",
]
BUDGETS = (8, 40, 10_000)
"""Tokens of a batch: one example, some, all."""
Build = Callable[..., Network]


def loss_under(held: Any, model: Network) -> float:
    """The same under every budget."""
    found = [held.scores(model, ScoringOptions(tokens=budget)).validation_loss for budget in BUDGETS]
    assert found == pytest.approx([found[0]] * len(BUDGETS), rel=1e-5)
    return float(found[0])


def head_scores(model: Network, data: Any, number: int) -> torch.Tensor:
    """Of one example, through the whole model."""
    batch = data.batch(np.array([number])).map(torch.from_numpy)
    (head,) = model.eval().heads.values()
    with torch.inference_mode():
        return head.scores(model.encoder(batch.tokens), batch).double()


@pytest.mark.parametrize("weights", [(), (1.0, 3.0)])
def test_of_classes_long_texts_count_once_and_classes_by_their_weights(
    tiny_model: Build, tiny_tokenizer: Tokenizer, weights: tuple[float, ...]
) -> None:
    config = ClassificationConfig(labels=("a", "b"), class_weights=weights)
    model = tiny_model(objectives=[config])
    data = LabelledTexts(text_sequences(tiny_tokenizer, SENTENCES, limit=16), np.array([0, 1, 1, 0]))
    assert (data.sequences.parts > 1).any()
    total = count = 0.0
    for number, label in enumerate(data.labels.tolist()):
        weight = weights[label] if weights else 1.0
        scores = head_scores(model, data, number)
        total += weight * float(-torch.log_softmax(scores, -1)[:, label].mean())
        count += weight
    assert loss_under(TextValidation(data, config, "accuracy"), model) == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_of_sets_of_labels_and_of_numbers(tiny_model: Build, tiny_tokenizer: Tokenizer, kind: Any) -> None:
    names = ("a", "b", "c") if kind == "multi-label" else ("value",)
    labels = np.random.default_rng(0).integers(0, 2, (4, 3)).astype(np.float32)
    gold = labels if kind == "multi-label" else labels[:, 0] + 0.25
    config = ClassificationConfig(labels=names, kind=kind)
    model = tiny_model(objectives=[config])
    data = LabelledTexts(text_sequences(tiny_tokenizer, SENTENCES, limit=32), gold)
    losses = []
    for number in range(4):
        scores, wanted = head_scores(model, data, number), torch.tensor(gold[number]).double()
        wanted = wanted.expand_as(scores) if kind == "multi-label" else wanted.reshape(1, 1)
        loss = F.binary_cross_entropy_with_logits if kind == "multi-label" else F.mse_loss
        losses.append(float(loss(scores, wanted)))
    held = TextValidation(data, config, "micro-f1" if kind == "multi-label" else "spearman")
    assert loss_under(held, model) == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("crf", [False, True])
def test_of_tags_each_word_counts_once_and_a_crf_counts_sequences(
    tiny_model: Build, tiny_tokenizer: Tokenizer, crf: bool
) -> None:
    config = TaggingConfig(labels=("a", "b", "c"), crf=crf)
    model = tiny_model(objectives=[config])
    words = [sentence.split() for sentence in SENTENCES]
    sequences = word_sequences(tiny_tokenizer, align_texts(tiny_tokenizer, words), limit=32)
    tags = np.random.default_rng(0).integers(0, 3, sum(map(len, words)))
    data = TaggedWords(sequences, tags)
    (head,) = model.heads.values()
    if crf:
        torch.manual_seed(0)
        for parameter in head.crf.parameters():
            parameter.data.normal_()
    total, place = 0.0, 0
    for number, own in enumerate(words):
        scores, gold = head_scores(model, data, number), torch.from_numpy(tags[place : place + len(own)])
        place += len(own)
        if not crf:
            total += float(F.cross_entropy(scores, gold, reduction="sum"))
            continue
        start, end, between = (one.detach().double() for one in (head.crf.start, head.crf.end, head.crf.transitions))
        path = start[gold[0]] + end[gold[-1]] + scores[torch.arange(len(own)), gold].sum()
        path = path + between[gold[:-1], gold[1:]].sum()
        alpha = start + scores[0]
        for row in scores[1:]:
            alpha = torch.logsumexp(alpha[:, None] + between, 0) + row
        total += float(torch.logsumexp(alpha + end, 0) - path)
    assert loss_under(TagValidation(data, config, "accuracy"), model) == pytest.approx(total / place, rel=1e-4)


@pytest.mark.parametrize("related", [False, True])
def test_of_spans_every_span_counts_and_every_pair_of_gold_spans(
    tiny_model: Build, tiny_tokenizer: Tokenizer, related: bool
) -> None:
    relations = RelationsConfig(labels=("next",), reach=20, hidden=8, weight=0.5) if related else None
    config = SpansConfig(labels=("X", "Y"), longest=3, hidden=8, null_weight=0.5, relations=relations)
    model = tiny_model(objectives=[config])
    examples = []
    for n, sentence in enumerate(SENTENCES):
        words = tuple(sentence.split())
        spans = (EntitySpan(0, 1, "X"), EntitySpan(1, 3, "Y")) if len(words) > 3 else (EntitySpan(0, 1, "X"),)
        links = (SpanRelation(0, 1, "next"),) if related and len(spans) > 1 and n % 2 == 0 else ()
        examples.append(SpannedWords(words, spans, Place("t", n), relations=links))
    data = label_spans(tiny_tokenizer, examples, config, limit=32)
    sums = [span_losses(head_scores(model, data, number), example) for number, example in enumerate(examples)]
    total, count = np.sum(sums, axis=0).tolist()
    held = SpanValidation(data, config, "joint-f1" if related else "span-f1")
    if not related:
        assert loss_under(held, model) == pytest.approx(total / count, rel=1e-5)
        return
    paired = [number for number, one in enumerate(examples) if len(one.spans or ()) > 1]
    with torch.inference_mode():
        both = float(model.eval()(data.batch(np.array(paired)).map(torch.from_numpy))["spans"].total)
    of_pairs = both - sum(sums[number][0] for number in paired)
    expected = (total + of_pairs) / (count + 0.5 * 2 * len(paired))  # two ordered pairs a text
    assert loss_under(held, model) == pytest.approx(expected, rel=1e-4)


def span_losses(scores: torch.Tensor, example: SpannedWords) -> tuple[float, float]:
    """Sum of the losses of all spans of up to three words, NULL counted half, and of their weights."""
    gold = {(start, end): "XY".index(label) + 1 for start, end, label in example.spans or ()}
    width = len(example.words)
    pairs = [(a, b) for a in range(width) for b in range(a + 1, min(a + 3, width) + 1)]
    weights = [1.0 if span in gold else 0.5 for span in pairs]
    losses = [float(-torch.log_softmax(row, -1)[gold.get(span, 0)]) for span, row in zip(pairs, scores, strict=True)]
    return float(np.dot(weights, losses)), sum(weights)


def test_of_answers_every_window_counts_by_its_weight(tiny_model: Build, tiny_tokenizer: Tokenizer) -> None:
    config = QuestionAnsweringConfig()
    model = tiny_model(objectives=[config])
    passages = [SENTENCES[0], SENTENCES[3]]
    examples = tuple(
        QuestionExample(str(n), "please", text, (("the", text.index("the")),), False, None, Place("q", n))
        for n, text in enumerate(passages)
    )
    asked = encode_passages(tiny_tokenizer, [(one.question, one.passage) for one in examples], limit=16)
    held = QuestionValidation(asked, examples, False, "f1", empty=EmptyWindows(weight=0.25))
    assert (asked.sequences.parts > 1).any()
    (head,) = model.eval().heads.values()
    total = count = 0.0
    for number, (start, end) in enumerate(zip(held.targets.starts.tolist(), held.targets.ends.tolist(), strict=True)):
        batch = asked.sequences.inputs(np.array([number])).map(torch.from_numpy)
        with torch.inference_mode():
            scores = head.scores(model.encoder(batch.tokens), batch).double()
        weight = 1.0 if start else 0.25  # a window without the answer points at [CLS]
        losses = -torch.log_softmax(scores, 0)
        total += weight * float(losses[start, 0] + losses[end, 1]) / 2
        count += weight
    assert count not in (len(asked.sequences.lengths), 0.25 * len(asked.sequences.lengths))
    assert loss_under(held, model) == pytest.approx(total / count, rel=1e-5)


def test_held_out_spans_are_scored_in_one_pass(
    tiny_model: Build, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss and the relations between gold spans come from the pass that finds the spans."""
    relations = RelationsConfig(labels=("next",), reach=20, hidden=8)
    config = SpansConfig(labels=("X",), longest=2, hidden=8, relations=relations)
    model = tiny_model(objectives=[config])
    words = tuple(SENTENCES[3].split())
    example = SpannedWords(
        words, (EntitySpan(0, 1, "X"), EntitySpan(1, 2, "X")), Place("t", 1), relations=(SpanRelation(0, 1, "next"),)
    )
    data = label_spans(tiny_tokenizer, [example], config, limit=32)
    passes = []
    plain = model.encoder.forward
    monkeypatch.setattr(model.encoder, "forward", lambda *one, **more: passes.append(1) or plain(*one, **more))
    assert not math.isnan(SpanValidation(data, config, "joint-f1").scores(model, ScoringOptions()).validation_loss)
    assert len(passes) == 1
