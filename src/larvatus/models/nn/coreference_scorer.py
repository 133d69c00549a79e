"""Scores of mentions and of their antecedents, for one document of any length.

A span of up to L words is a mention by its ends, as in s2e (Kirstain, Ram & Levy 2021); no vector of a span is built:

    m(i, j) = v_s · s_i + v_e · e_j + s_i B e_j + b_{j−i}        s = GELU(W_s z), e = GELU(W_e z)

The λ n best spans of n words go on to antecedents, in the order of the text. Each has a vector of its ends and of its
words, which attention weighs by how likely they are the head (Lee et al. 2017):

    h = LayerNorm(GELU(A z_i + C z_j + F Σ_k α_k z_k + length))

A mention c is compared with the `reach` mentions q before it by a bilinear score, and with the K best of these by a
layer over both, their product and features (coarse to fine; Lee, He & Zettlemoyer 2018): how far apart they are, in
words and mentions, whether they have the same words, the same last word, or one is in the other, and the same speaker:

    coarse(c, q) = m(c) + m(q) + h_c U h_q / √H
    f(c, q) = coarse(c, q) + w · GELU(P h_c + Q h_q + R (h_c ∘ h_q) + φ)

The score of having no antecedent is 0. s2e scores antecedents by bilinear forms of the ends only, which takes a large
encoder with long attention; a small encoder that reads windows gains from the features, which also compare mentions of
different windows. Maverick (Martinelli et al. 2024) scores ends given starts, which saves work where nearly all
starts can be dropped early; scores of all n · L spans by their ends are as cheap here, and leave nothing out.

Memory is n · (D + L) and m · (H + K) for m = λ n mentions, and `BLOCK` mentions · (reach + K · H) for what is compared:
linear in n. n words, m mentions, D size of a word, H hidden size, L longest mention, K antecedents.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.models.nn.dropout import Dropout

BLOCK = 512
"""Mentions whose antecedents are compared at a time."""
BAND = 64
"""Starts of spans that are multiplied with all ends they reach at a time."""
BUCKETS = 16
"""Buckets of distances: 0 to 4, then powers of two."""
RARE = -3.0
"""Score of a mention before training: most spans are none."""


class ScoredMentions(NamedTuple):
    """The mentions that are kept, in the order of the text."""

    first: Tensor  # [m]
    last: Tensor  # [m] inclusive
    scores: Tensor  # [m]


class ScoredAntecedents(NamedTuple):
    """Antecedents of some mentions in a row."""

    numbers: Tensor  # [r, K] among the mentions of the document
    scores: Tensor  # [r, K] −∞ where there are fewer


class CoreferenceScorer(nn.Module):
    def __init__(
        self, size: int, *, hidden: int, longest: int, antecedents: int, reach: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.longest, self.antecedents, self.reach = longest, antecedents, reach
        self.scale = hidden**-0.5
        self.start, self.end = nn.Linear(size, hidden), nn.Linear(size, hidden)
        self.pair = nn.Linear(hidden, hidden, bias=False)
        self.start_score, self.end_score = nn.Linear(hidden, 1, bias=False), nn.Linear(hidden, 1, bias=False)
        self.length_score = nn.Embedding(longest, 1)
        self.first_word, self.last_word = nn.Linear(size, hidden), nn.Linear(size, hidden, bias=False)
        self.content, self.attention = nn.Linear(size, hidden, bias=False), nn.Linear(size, 1, bias=False)
        self.length = nn.Embedding(BUCKETS, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.coarse = nn.Linear(hidden, hidden, bias=False)
        self.anaphor, self.antecedent = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.product = nn.Linear(hidden, hidden, bias=False)
        self.word_distance, self.mention_distance = nn.Embedding(BUCKETS, hidden), nn.Embedding(BUCKETS, hidden)
        self.match, self.speaker = nn.Embedding(8, hidden), nn.Embedding(3, hidden)
        self.output = nn.Linear(hidden, 1)
        self.dropout = Dropout(dropout)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Matrices keep the scale of their input (σ = 1 / √inputs); attention starts as the mean; the rest is 0."""
        for part in self.modules():
            for name, parameter in part.named_parameters(recurse=False):
                if isinstance(part, nn.LayerNorm):
                    parameter.fill_(1.0 if name == "weight" else 0.0)
                elif isinstance(part, nn.Linear) and name == "weight" and part is not self.attention:
                    sampled = torch.empty(parameter.shape).normal_(0, part.in_features**-0.5, generator=generator)
                    parameter.copy_(sampled)
                else:
                    parameter.zero_()
        self.length_score.weight.fill_(RARE)

    def mention_scores(self, z_nD: Tensor) -> Tensor:
        """Scores of all spans by their first word and length: [n, D] → [n, L]; −∞ beyond the end."""
        start_nH, end_nH = F.gelu(self.start(z_nD)), F.gelu(self.end(z_nD))
        first_n, last_n = self.start_score(start_nH)[:, 0].float(), self.end_score(end_nH)[:, 0].float()
        count, longest = len(z_nD), self.longest
        ends = torch.arange(count, device=z_nD.device)[:, None] + torch.arange(longest, device=z_nD.device)
        scores_nL: Tensor = _bands(self.pair(start_nH) * self.scale, end_nH, longest)
        scores_nL = scores_nL + first_n[:, None] + last_n[ends.clamp(max=count - 1)] + self.length_score.weight[:, 0]
        return scores_nL.masked_fill(ends >= count, -math.inf)

    def spans(self, words: int) -> int:
        """How many spans a document of so many words has."""
        longest = min(self.longest, words)
        return longest * words - longest * (longest - 1) // 2

    def select(self, scores_nL: Tensor, *, most: int, always: Tensor | None = None) -> ScoredMentions:
        """The `most` best spans in the order of the text, those of `always` (first · L + length − 1) among them.

        A number after the last, n · L, is no span.
        """
        flat = scores_nL.flatten()
        ranked = flat.detach()
        if always is not None:
            ranked = F.pad(ranked, (0, 1)).index_fill(0, always, math.inf)[:-1]
        chosen = ranked.topk(min(most, self.spans(len(scores_nL)))).indices.sort().values
        first = chosen // self.longest
        return ScoredMentions(first, first + chosen % self.longest, flat[chosen])

    def represent(self, z_nD: Tensor, mentions: ScoredMentions) -> Tensor:
        """Vectors of mentions: [m, H]."""
        weight_n, content_nH = self.attention(z_nD)[:, 0].float(), self.content(z_nD)
        first_nH, last_nH = self.first_word(z_nD), self.last_word(z_nD)
        places = torch.arange(self.longest, device=z_nD.device)
        blocks = []
        for first, last in zip(mentions.first.split(BLOCK), mentions.last.split(BLOCK), strict=True):
            words = (first[:, None] + places).clamp(max=len(z_nD) - 1)
            outside = places > (last - first)[:, None]
            share = weight_n[words].masked_fill(outside, -math.inf).softmax(-1).to(content_nH.dtype)
            content = torch.einsum("rl,rlh->rh", share, content_nH[words])
            blocks.append(first_nH[first] + last_nH[last] + content + self.length(buckets(last - first)))
        h_mH = torch.cat(blocks) if blocks else content_nH[:0]
        vectors: Tensor = self.dropout(self.norm(F.gelu(h_mH)))
        return vectors

    def antecedents_of(
        self, h_mH: Tensor, mentions: ScoredMentions, forms_n2: Tensor
    ) -> Iterator[tuple[slice, ScoredAntecedents]]:
        """The K best antecedents of each mention, some mentions at a time.

        `forms` are a number for the form of each word, and for its speaker, 0 if unknown.
        """
        coarse_mH = self.coarse(h_mH) * self.scale
        anaphor_mH, antecedent_mH = self.anaphor(h_mH), self.antecedent(h_mH)
        form_n, speaker_m = forms_n2[:, 0], forms_n2[mentions.first, 1]
        sums = F.pad(form_n.cumsum(0), (1, 0))  # wraps around, so differences are exact
        words_m, final_m = sums[mentions.last + 1] - sums[mentions.first], form_n[mentions.last]
        total = len(h_mH)
        for start in range(0, total, BLOCK):
            rows = torch.arange(start, min(start + BLOCK, total), device=h_mH.device)
            numbers, there = self._nearest(coarse_mH, h_mH, mentions.scores, (start, start + len(rows)))
            earlier_rKH = h_mH[numbers]
            score = (coarse_mH[rows, None] * earlier_rKH).sum(-1).float()
            score = score + mentions.scores[rows, None] + mentions.scores[numbers]
            first, last = mentions.first, mentions.last
            match = (words_m[rows, None] == words_m[numbers]) + 2 * (final_m[rows, None] == final_m[numbers])
            match = match + 4 * (first[rows, None] <= last[numbers])
            known = (speaker_m[rows, None] != 0) & (speaker_m[numbers] != 0)
            speaker = known * (1 + (speaker_m[rows, None] == speaker_m[numbers]))
            hidden = anaphor_mH[rows, None] + antecedent_mH[numbers] + self.product(h_mH[rows, None] * earlier_rKH)
            hidden = hidden + self.word_distance(buckets(first[rows, None] - last[numbers]))
            hidden = hidden + self.mention_distance(buckets(rows[:, None] - numbers)) + self.match(match)
            hidden = hidden + self.speaker(speaker)
            fine = self.output(self.dropout(F.gelu(hidden)))[..., 0].float()
            yield (
                slice(start, start + len(rows)),
                ScoredAntecedents(numbers, (score + fine).masked_fill(~there, -math.inf)),
            )

    @torch.no_grad()
    def _nearest(
        self, coarse_mH: Tensor, h_mH: Tensor, scores_m: Tensor, rows: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """[r, K] the mentions before each that have the best coarse scores, and which of these there are."""
        begin, end = rows
        low = max(0, begin - self.reach)
        coarse = (coarse_mH[begin:end] @ h_mH[low:end].T).float() + scores_m[low:end]
        numbers = torch.arange(low, end, device=coarse.device)
        behind = numbers[begin - low :, None] - numbers
        coarse = coarse.masked_fill((behind < 1) | (behind > self.reach), -math.inf)
        best = coarse.topk(min(self.antecedents, end - low))
        return best.indices + low, torch.isfinite(best.values)


def _bands(start_nH: Tensor, end_nH: Tensor, longest: int) -> Tensor:
    """[n, L] products of each row with the L rows from the same place on; 0 after the last.

    `BAND` rows at a time are multiplied with all rows that they reach, in one product for all.
    """
    count, hidden = start_nH.shape
    blocks = max(1, -(-count // BAND))
    reach = BAND + longest - 1
    start = F.pad(start_nH, (0, 0, 0, blocks * BAND - count)).view(blocks, BAND, hidden)
    end = F.pad(end_nH, (0, 0, 0, (blocks - 1) * BAND + reach - count)).unfold(0, reach, BAND)
    places = torch.arange(BAND, device=start_nH.device)[:, None] + torch.arange(longest, device=start_nH.device)
    square = start @ end  # [blocks, BAND, reach]
    return square.gather(2, places.expand(blocks, -1, -1)).reshape(-1, longest)[:count].float()


def buckets(distance: Tensor) -> Tensor:
    """Distances in buckets: 0 to 4 each in its own, then powers of two; negative ones as 0.

    >>> buckets(torch.tensor([-2, 0, 4, 5, 8, 10**6])).tolist()
    [0, 0, 4, 5, 6, 15]
    """
    far = distance.clamp(min=1).float().log2().floor().long() + 3
    return torch.where(distance < 5, distance.clamp(min=0), far).clamp(max=BUCKETS - 1)
