"""Relations in the loss of spans: against a loop over all pairs, negatives, cutting of batches, settings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import WordSpans
from larvatus.models.heads import SpansConfig
from larvatus.models.heads.spans import RelationsConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.nn.span_scorer import distances, gaps
from tests.models.heads.span_batches import span_batch

SHAPE = TransformerConfig(layers=1, hidden=16, heads=2, max_positions=16, init=0.3)
COUNTS = [6, 2, 5]
GOLD = [[(0, 0, 0), (1, 2, 1), (5, 5, 1)], [(0, 0, 0)], [(0, 1, 1), (0, 2, 0), (4, 4, 0)]]
RELATED = {(0, 0, 1): 1, (0, 1, 0): 2, (2, 2, 0): 1}  # sequence, head, tail: 1 + label


def config(**settings) -> RelationsConfig:
    return RelationsConfig(**{"labels": ("in", "of"), "reach": 9, "hidden": 8, **settings})


def model(**settings) -> Network:
    spans = SpansConfig(labels=("ORG", "PER"), longest=3, hidden=8, dropout=0.0, relations=config(**settings))
    return Network.build(SHAPE, [spans], 20, seed=1)


def batch() -> TrainingBatch:
    before = np.cumsum([0, *(len(own) for own in GOLD[:-1])])
    related = [(before[b] + h, before[b] + t, label - 1) for (b, h, t), label in sorted(RELATED.items())]
    return span_batch(COUNTS, GOLD, related=np.array(related))


def pairs(reach: int = 9) -> list[tuple[int, int, int]]:
    found = []
    for b, own in enumerate(GOLD):
        for h, (i, j, _) in enumerate(own):
            for t, (k, m, _) in enumerate(own):
                if h != t and max(k - j, i - m) <= reach:
                    found.append((b, h, t))
    return found


def loss_of(own: Network, given: TrainingBatch) -> torch.Tensor:
    return own(on_device(given, "cpu"))["spans"].total


@pytest.mark.parametrize("reach", [9, 1])
def test_the_loss_adds_the_cross_entropy_of_every_pair_of_gold_spans_with_its_weight(reach) -> None:
    own = model(weight=0.5, reach=reach).eval()
    tensors, head = on_device(batch(), "cpu"), own.heads["spans"]
    targets = tensors.targets[WordSpans]
    before = [0, 3, 4]
    with torch.inference_mode():
        found = own(tensors, accuracy=True)["spans"]
        z = head.features(own.encoder(tensors.tokens), tensors)
        sides = head.relations.project(z, targets.first, targets.last, targets.types)
        scorer, head.relations = head.relations, None
        spans = own(tensors, accuracy=True)["spans"]
        wanted, right = spans.total.double(), int(spans.correct)
        for b, h, t in pairs(reach):
            a, c = torch.tensor([before[b] + h]), torch.tensor([before[b] + t])
            (row,) = scorer(sides, a, c, distances(gaps(targets.first, targets.last, a, c))).double()
            gold = RELATED.get((b, h, t), 0)
            wanted = wanted - 0.5 * torch.log_softmax(row, 0)[gold]
            right += int(row.argmax()) == gold
    assert_close(found.total.double(), wanted, rtol=1e-5, atol=1e-5)
    assert int(found.count) == int(spans.count) + len(pairs(reach))
    assert int(found.correct) == right
    head.relations = scorer
    alone = Network.build(SHAPE, [SpansConfig(labels=("ORG", "PER"), longest=3)], 20, seed=1).heads["spans"]
    given = batch()
    assert head.size(given) == pytest.approx(alone.size(given) + 0.5 * len(pairs(reach)))


def test_many_negatives_are_drawn_by_lot_and_related_pairs_always_learnt() -> None:
    own = model(negatives=2)
    tensors = on_device(batch(), "cpu")
    spans = int(own.eval()(tensors)["spans"].count) - len(pairs())
    counts = []
    for step in range(120):
        torch.manual_seed(step)
        counts.append(int(own.train()(tensors)["spans"].count) - spans)
    assert abs(np.mean(counts) - (3 + 2 + 2)) < 0.4  # three related, of two windows two each that are nothing
    assert min(counts) >= 3
    alone = Network.build(SHAPE, [SpansConfig(labels=("ORG", "PER"), longest=3)], 20, seed=1).heads["spans"]
    given = batch()
    assert own.heads["spans"].size(given) == pytest.approx(alone.size(given) + 7)


def test_batches_cut_and_joined_again_lose_no_relation() -> None:
    whole = batch()
    again = TrainingBatch.join([whole.cut(0, 1), whole.cut(1, 3)])
    assert again.targets[WordSpans].related.tolist() == whole.targets[WordSpans].related.tolist()
    assert whole.cut(1, 3).targets[WordSpans].related.tolist() == [[3, 1, 0]]
    own = model().eval()
    assert_close(sum(loss_of(own, whole.cut(n, n + 1)) for n in range(3)), loss_of(own, whole))


def test_half_precision_gives_nearly_the_same_loss() -> None:
    own = model().eval()
    with torch.autocast("cpu", torch.bfloat16):
        half = loss_of(own, batch())
    assert half.dtype == torch.float32
    assert_close(half, loss_of(own, batch()), rtol=0.03, atol=0.0)


def test_a_batch_without_gold_spans_or_with_one_has_the_loss_of_its_spans() -> None:
    own = model()
    loss_of(own.train(), batch().cut(1, 2)).backward()
    gradient = own.heads["spans"].relations.sides.weight.grad
    assert gradient is None or not gradient.any()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"labels": ()}, "at least one label"),
        ({"labels": ("A", "A")}, "named once"),
        ({"reach": -1}, "reach = -1 must lie between 0"),
        ({"weight": 0.0}, "weight = 0.0 must be above 0"),
        ({"threshold": 2.0}, "threshold"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said) -> None:
    with pytest.raises(UsageError, match=said):
        config(**settings)
