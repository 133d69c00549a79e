"""The coreference head: scores against loops, the loss against its definition, memory by its largest tensor."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from larvatus.core.batch import TokenBatch, TrainingBatch, WordTokens
from larvatus.models.heads.coreference import Coreference, CoreferenceConfig, CoreferenceTargets, antecedent_loss
from larvatus.models.nn import coreference_scorer
from larvatus.models.nn.coreference_scorer import CoreferenceScorer, ScoredAntecedents, buckets
from larvatus.models.nn.transformer import TransformerConfig

SIZE, HIDDEN, LONGEST = 6, 8, 4


def scorer(**how: int) -> CoreferenceScorer:
    made = CoreferenceScorer(SIZE, **{"hidden": HIDDEN, "longest": LONGEST, "antecedents": 3, "reach": 5, **how})
    made.initialise(torch.Generator().manual_seed(1))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if (
                "distance" in name
                or "speaker" in name
                or "match" in name
                or "attention" in name
                or name.startswith("length")
            ):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    return made.double().eval()


def words(count: int) -> Tensor:
    return torch.randn(count, SIZE, generator=torch.Generator().manual_seed(count), dtype=torch.float64)


def test_mentions_are_scored_by_their_ends() -> None:
    made, z = scorer(), words(9)
    scores = made.mention_scores(z)
    gelu = torch.nn.functional.gelu
    for first in range(9):
        for length in range(LONGEST):
            if first + length >= 9:
                assert scores[first, length] == -math.inf
                continue
            s, e = gelu(made.start(z[first])), gelu(made.end(z[first + length]))
            wanted = made.start_score(s) + made.end_score(e) + made.pair(s) @ e * HIDDEN**-0.5
            assert scores[first, length].item() == pytest.approx(
                (wanted + made.length_score.weight[length]).item(), abs=1e-5
            )
    assert made.mention_scores(words(2)).shape == (2, LONGEST)
    assert made.mention_scores(z[:0]).shape == (0, LONGEST)


def test_the_best_spans_are_kept_in_the_order_of_the_text_and_gold_ones_always() -> None:
    made = scorer()
    scores = made.mention_scores(words(12))
    worst = int(scores.flatten().masked_fill(~torch.isfinite(scores.flatten()), math.inf).argmin())
    kept = made.select(scores, most=5, always=torch.tensor([worst]))
    numbers = (kept.first * LONGEST + kept.last - kept.first).tolist()
    assert numbers == sorted(numbers)
    assert worst in numbers
    best = set(scores.flatten().topk(4).indices.tolist())
    assert best | {worst} == set(numbers)
    assert len(made.select(scores, most=10_000).first) == int(torch.isfinite(scores).sum())


@torch.no_grad()
def naive_score(
    made: CoreferenceScorer, z: Tensor, spans: list[tuple[int, int]], pair: tuple[int, int], words: list[list[int]]
) -> float:
    """f(c, q) by the equations of the module, a pair at a time."""
    gelu = torch.nn.functional.gelu

    def vector(first: int, last: int) -> Tensor:
        share = torch.stack([made.attention(z[k])[0] for k in range(first, last + 1)]).softmax(0)
        content = sum(
            (a * made.content(z[k]) for a, k in zip(share, range(first, last + 1), strict=True)), torch.zeros(())
        )
        whole = made.first_word(z[first]) + made.last_word(z[last]) + content
        return made.norm(gelu(whole + made.length.weight[int(buckets(torch.tensor(last - first)))]))

    def mention(first: int, last: int) -> Tensor:
        return made.mention_scores(z)[first, last - first]

    c, q = pair
    (a, b), (i, j) = spans[c], spans[q]
    h, g = vector(a, b), vector(i, j)
    forms, said = [form for form, _ in words], [speaker for _, speaker in words]
    same = int(said[a] != 0 and said[i] != 0) * (1 + int(said[a] == said[i]))
    match = int(sorted(forms[a : b + 1]) == sorted(forms[i : j + 1])) + 2 * int(forms[b] == forms[j]) + 4 * int(a <= j)
    hidden = made.anaphor(h) + made.antecedent(g) + made.product(h * g) + made.match.weight[match]
    hidden = hidden + made.speaker.weight[same] + made.word_distance.weight[int(buckets(torch.tensor(a - j)))]
    hidden = hidden + made.mention_distance.weight[int(buckets(torch.tensor(c - q)))]
    coarse = mention(a, b) + mention(i, j) + made.coarse(h) @ g * HIDDEN**-0.5
    return float(coarse + made.output(gelu(hidden)))


def test_antecedents_are_scored_by_the_equations_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, z = scorer(antecedents=100, reach=6), words(14)
    forms = torch.tensor([7**9, 5**20, -(3**30), 11**15])[torch.arange(14) * 5 % 7 % 4]
    forms = torch.stack([forms, torch.arange(14) // 3 % 3], 1)
    kept = made.select(made.mention_scores(z), most=11)
    spans = list(zip(kept.first.tolist(), kept.last.tolist(), strict=True))
    whole = [compared for _, compared in made.antecedents_of(made.represent(z, kept), kept, forms)]
    assert len(whole) == 1
    there = torch.isfinite(whole[0].scores)
    assert there.sum(1).tolist() == [min(c, 6) for c in range(11)]
    for c in range(11):
        for q, score, known in zip(whole[0].numbers[c].tolist(), whole[0].scores[c].tolist(), there[c], strict=True):
            if known:
                assert score == pytest.approx(naive_score(made, z, spans, (c, q), forms.tolist()), abs=1e-5)
    monkeypatch.setattr(coreference_scorer, "BLOCK", 4)
    parts = list(made.antecedents_of(made.represent(z, kept), kept, forms))
    assert [part.start for part, _ in parts] == [0, 4, 8]
    for rows, compared in parts:
        for mine, all_of in zip(compared.scores, whole[0].scores[rows], strict=True):
            assert torch.equal(mine[torch.isfinite(mine)].sort().values, all_of[torch.isfinite(all_of)].sort().values)


def test_fewer_antecedents_are_those_with_the_best_coarse_scores() -> None:
    made, z = scorer(antecedents=2, reach=50), words(14)
    forms = torch.arange(28).view(14, 2)
    kept = made.select(made.mention_scores(z), most=11)
    h = made.represent(z, kept)
    ((_, compared),) = made.antecedents_of(h, kept, forms)
    coarse = made.coarse(h) @ h.T * HIDDEN**-0.5 + kept.scores
    for c in range(2, 11):
        assert set(compared.numbers[c].tolist()) == set(coarse[c, :c].topk(2).indices.tolist())


def test_the_loss_of_antecedents_is_the_share_of_all_gold_ones() -> None:
    numbers = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0], [2, 1, 0]])
    scores = torch.tensor(
        [[-math.inf] * 3, [0.4, -math.inf, -math.inf], [1.0, -0.5, -math.inf], [0.3, 2.0, -1.0]], dtype=torch.float64
    )
    clusters = torch.tensor([7, -1, 7, 7])
    loss, right = antecedent_loss(ScoredAntecedents(numbers, scores), clusters, slice(0, 4))
    e = math.exp
    wanted = -math.log(1 / 1) - math.log(1 / (1 + e(0.4))) - math.log(e(-0.5) / (1 + e(1.0) + e(-0.5)))
    wanted -= math.log((e(0.3) + e(-1.0)) / (1 + e(0.3) + e(2.0) + e(-1.0)))
    assert loss.item() == pytest.approx(wanted)
    assert int(right) == 1  # the first mention has no antecedent; the best of each other one is wrong


def head(**settings: object) -> Coreference:
    config = CoreferenceConfig(longest=LONGEST, hidden=HIDDEN, dropout=0.0, **settings)  # type: ignore[arg-type]
    made = config.build(TransformerConfig(layers=1, hidden=SIZE, heads=1, max_positions=8), 10)
    made.scorer.initialise(torch.Generator().manual_seed(2))
    return made.eval()


def batch(targets: CoreferenceTargets[Tensor]) -> TrainingBatch[Tensor]:
    nothing = torch.empty(0, dtype=torch.long)
    pieces = WordTokens(nothing, nothing, nothing, nothing, total=sum(targets.words))
    tokens = TokenBatch(nothing, nothing, nothing, nothing, nothing, word_tokens=pieces)
    return TrainingBatch(tokens=tokens, targets={CoreferenceTargets: targets})


def targets(words_E: tuple[int, ...], golds: list[list[tuple[int, int, int]]]) -> CoreferenceTargets[np.ndarray]:
    flat = np.array([row for rows in golds for row in rows], np.int64).reshape(-1, 3)
    return CoreferenceTargets(
        windows=np.ones(len(words_E), np.int64),
        forms=np.arange(2 * sum(words_E)).reshape(-1, 2) % 3,
        first=flat[:, 0],
        last=flat[:, 1],
        clusters=flat[:, 2],
        words=words_E,
        golds=tuple(map(len, golds)),
    )


def test_the_loss_of_a_step_is_the_sum_of_its_documents_and_cuts_keep_them_whole() -> None:
    made, z = head(), words(20).float()
    both = targets((12, 8), [[(0, 1, 0), (4, 4, 0), (2, 9, 1)], [(1, 1, 0), (5, 6, 0)]])  # one is longer than L
    losses = [
        made(part, batch(both.cut(tokens=(0, 0), sequences=(at, at + 1)).map(torch.from_numpy))).total
        for at, part in enumerate((z[:12], z[12:]))
    ]
    total = made(z, batch(both.map(torch.from_numpy)), accuracy=True)
    assert total.total.item() == pytest.approx(sum(losses).item(), rel=1e-6)  # type: ignore[union-attr]
    assert 0 <= int(total.correct) <= int(total.count)
    assert made.size(batch(both.map(torch.from_numpy))) == 5
    assert made.size(batch(targets((4,), [[]]).map(torch.from_numpy))) == 1
    empty = made(words(1).float(), batch(targets((1,), [[]]).map(torch.from_numpy)))
    assert torch.isfinite(empty.total)
    alone = made.document_loss(
        z[:12], torch.arange(24).view(12, 2) % 3, torch.from_numpy(np.array([[0, 1, 0], [4, 4, 0], [2, 9, 1]])).T
    )
    assert alone == pytest.approx(losses[0].item())


class LargestTensor(TorchDispatchMode):
    """Numbers of the largest tensor that any operation gives."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, Tensor) and each.untyped_storage().nbytes() > each.element_size():
                self.size = max(self.size, each.untyped_storage().nbytes() // each.element_size())
        return out


def test_memory_grows_with_the_words_and_not_with_their_square() -> None:
    made = head(reach=40, antecedents=10)
    sizes = {}
    for count in (1_000, 4_000):
        with LargestTensor() as largest, torch.inference_mode():
            mentions, numbers, scores = made.resolve(torch.randn(count, SIZE), torch.arange(2 * count).view(-1, 2))
        assert len(mentions.first) == len(numbers) == len(scores) == math.ceil(0.4 * count)
        sizes[count] = largest.size
    block = coreference_scorer.BLOCK
    assert sizes[4_000] <= max(4_000 * (HIDDEN + LONGEST), block * (block + 40), block * 10 * HIDDEN)
    assert sizes[4_000] <= 4 * sizes[1_000]
