"""The parsing head: arcs, relations and loss against loops over words; microbatches keep sentences whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.batch import edges
from larvatus.core.errors import UsageError
from larvatus.models.heads.parsing import Parsing, ParsingConfig, WordTrees, sentence_sizes
from larvatus.models.nn.biaffine import SLOPE
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.transformer import TransformerConfig

CONFIG = ParsingConfig(
    labels=("det", "nsubj", "root"), upos=("DET", "NOUN"), scripts=("a", "b", "c"), arc_size=7, relation_size=5
)
SIZES = (3, 1, 4, 3)


@pytest.fixture(scope="module")
def head() -> Parsing:
    torch.manual_seed(0)
    made = Parsing(CONFIG, TransformerConfig(layers=2, hidden=6, heads=2, max_positions=32)).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def z_WD() -> Tensor:
    return torch.randn(sum(SIZES), 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def projected(linear: torch.nn.Linear, z: Tensor) -> Tensor:
    return F.leaky_relu(linear(z), SLOPE)


def naive_arc(head: Parsing, dependent: Tensor, of: Tensor) -> float:
    d = torch.cat([projected(head.arcs.dependent, dependent), torch.ones(1, dtype=torch.float64)])
    return float(d @ head.arcs.weight @ projected(head.arcs.head, of))


def naive_relations(head: Parsing, dependent: Tensor, of: Tensor) -> list[float]:
    one = torch.ones(1, dtype=torch.float64)
    d = torch.cat([projected(head.relations.dependent, dependent), one])
    h = torch.cat([projected(head.relations.head, of), one])
    return [float(d @ weight @ h) for weight in head.relations.weight]


def targets() -> WordTrees[Any]:
    random = np.random.default_rng(0)
    heads = [int(random.choice([h for h in range(n + 1) if h != i + 1])) for n in SIZES for i in range(n)]
    words = len(heads)
    relations = random.integers(0, 3, words)
    relations[2] = IGNORE
    gold = [
        np.array(heads),
        relations,
        random.integers(0, 2, words),
        np.full(words, IGNORE),
        random.integers(0, 3, words),
    ]
    counts = np.array([3, 1, 2, 2, 3])  # the third sentence has two windows
    return WordTrees.of(gold, counts, np.array([1, 1, 2, 1]))


def test_arcs_of_a_sentence_are_scored_within_it(head: Parsing, z_WD: Tensor) -> None:
    starts = edges(np.array(SIZES)).tolist()
    seen = []
    for group, _, scores in head.arcs(z_WD, head.root, SIZES):
        for words, table in zip(group.words, scores, strict=True):
            number = starts.index(words[0])
            seen.append(number)
            sentence = z_WD[starts[number] : starts[number + 1]]
            for i, word in enumerate(sentence):
                for j, of in enumerate([head.root, *sentence]):
                    expected = -np.inf if j == i + 1 else naive_arc(head, word, of)
                    assert float(table[i, j].detach()) == pytest.approx(expected, rel=1e-9)
    assert sorted(seen) == [0, 1, 2, 3]


def test_scores_of_trees_keep_their_precision_where_the_encoder_has_less(z_WD: Tensor) -> None:
    torch.manual_seed(0)
    head = (
        Parsing(CONFIG, TransformerConfig(layers=2, hidden=6, heads=2, max_positions=32)).eval().requires_grad_(False)
    )
    for parameter in head.parameters():
        parameter.normal_()
    z = z_WD.bfloat16()
    heads = torch.full((len(z),), -1)
    plain = [*(scores for *_, scores in head.arcs(z.float(), head.root, SIZES)), head.relation_scores(z.float(), heads)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = [*(scores for *_, scores in head.arcs(z, head.root, SIZES)), head.relation_scores(z, heads)]
    for first, second in zip(plain, low, strict=True):
        torch.testing.assert_close(first, second)


def test_the_loss_is_the_sum_over_words_heads_and_annotations(head: Parsing, z_WD: Tensor) -> None:
    gold = targets().map(torch.as_tensor)
    starts = edges(np.array(SIZES)).tolist()
    total = 0.0
    place = 0
    for number, size in enumerate(SIZES):
        sentence = z_WD[starts[number] : starts[number + 1]]
        for i in range(size):
            nodes = [head.root, *sentence]
            arcs = torch.tensor([naive_arc(head, sentence[i], node) for j, node in enumerate(nodes) if j != i + 1])
            at = int(gold.heads[place])
            total -= float(torch.log_softmax(arcs, 0)[at - (at > i + 1)])
            scores = [(torch.tensor(naive_relations(head, sentence[i], nodes[at])), int(gold.relations[place]))]
            scores += [
                (head.annotations[name](sentence[i]), int(getattr(gold, name)[place])) for name in ("upos", "scripts")
            ]
            total -= sum(float(torch.log_softmax(row, 0)[label].detach()) for row, label in scores if label != IGNORE)
            place += 1
    loss = head.tree_loss(z_WD, gold)
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-5)
    assert int(loss.count) == sum(SIZES)


def test_targets_are_cut_with_the_words_of_their_sequences() -> None:
    whole = targets()
    parts = [whole.cut(tokens=(0, 0), sequences=sequences) for sequences in ((0, 2), (2, 4), (4, 5))]
    assert [part.sizes for part in parts] == [(3, 1), (4,), (3,)]
    for name in ("heads", "relations", "upos", "scripts", "counts"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
    assert sentence_sizes(whole.counts, whole.windows) == whole.sizes == SIZES


def test_a_head_is_reused_only_for_the_same_labels() -> None:
    assert CONFIG.same_labels(ParsingConfig(labels=CONFIG.labels, upos=CONFIG.upos, scripts=CONFIG.scripts))
    assert not CONFIG.same_labels(ParsingConfig(labels=CONFIG.labels, upos=CONFIG.upos))
    with pytest.raises(UsageError, match="once each"):
        ParsingConfig(labels=("a", "a"))
