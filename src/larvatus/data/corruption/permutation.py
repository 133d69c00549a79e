"""A factorisation order for each sequence (XLNet, Yang et al. 2019, §2.2 and 2.3): nothing is hidden or changed.

    p(x) = Π_t p(x_{z_t} | x_{z_1}, …, x_{z_{t−1}})        z a permutation of the places, sampled again in every epoch

    text      the  cat   sat   on   the  mat  <sep> <cls>
    z           3    1     6    5     2    4     0     0      when each is predicted; what is 0 is seen by all
    predicted            sat                                  the last sixth of the order (partial prediction, §2.3)

Every order of the ordinary tokens is as likely as any other. Special tokens are never predicted and always seen.
`order` says when a token is predicted: it sees those of smaller numbers, and in the content stream itself and its
equals. Of the tokens that only serve as context:

    context = "whole"      all come first, together (0): they see each other, as in the authors' release
    context = "ordered"    each sees those before it in the order, as the paper's equations have it

Random numbers depend on (seed, epoch, item, place), not on the batch. N tokens, M predicted, B sequences.

    >>> from larvatus.data.corruption.replacement import MaskVocabulary
    >>> tokens = TokenBatch.of([[7, 8, 9, 4, 3]], words=[[0, 1, 2, -1, -1]])
    >>> text = CorruptionInput(tokens, MaskVocabulary(mask_id=None, size=10, special_ids={3, 4}), 1, 0, np.array([0]))
    >>> target = PermutationConfig(rate=0.34).apply(text)[1][PermutedTokens]
    >>> target.order.tolist(), target.places.tolist(), target.ids.tolist()
    ([0, 0, 3, 0, 0], [2], [9])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from larvatus.core.arrays import Ints, TargetRecord, pad_array
from larvatus.core.batch import TokenBatch
from larvatus.core.pretraining_targets import MaskedTokens, PaddedSizes
from larvatus.core.ranges import PositiveShare
from larvatus.data.corruption.masking import budgets, by_sequence_at_random
from larvatus.data.corruption.replacement import CorruptionInput, CorruptionSettings

A = TypeVar("A")


@dataclass(frozen=True, eq=False)
class PermutedTokens(TargetRecord, Generic[A]):
    """When each token is predicted, and which are: their places in the flat batch (ascending), and what they are."""

    what: ClassVar[str] = "an order of the tokens"
    order: A  # [N]
    places: A  # [M]
    ids: A  # [M]

    @property
    def count(self) -> int:
        return len(self.ids)  # type: ignore[arg-type]

    @property
    def _predicted(self) -> MaskedTokens[A]:
        return MaskedTokens(places=self.places, ids=self.ids)

    def cut(self, *, tokens: tuple[int, int], sequences: tuple[int, int]) -> PermutedTokens[A]:
        part = self._predicted.cut(tokens=tokens, sequences=sequences)
        return PermutedTokens(order=self.order[slice(*tokens)], places=part.places, ids=part.ids)  # type: ignore[index]

    @classmethod
    def join(cls, parts: Sequence[tuple[PermutedTokens[Ints], int, int]]) -> PermutedTokens[Ints]:
        whole = MaskedTokens.join([(part._predicted, tokens, sequences) for part, tokens, sequences in parts])
        order = np.concatenate([part.order for part, _, _ in parts])
        return PermutedTokens(order=order, places=whole.places, ids=whole.ids)

    def filled(self: PermutedTokens[Ints], totals: PaddedSizes) -> PermutedTokens[Ints]:
        whole = self._predicted.filled(totals)
        return PermutedTokens(order=pad_array(self.order, totals.tokens, 0), places=whole.places, ids=whole.ids)


class PermutationConfig(CorruptionSettings, tag_field="type", tag="permutation"):
    gives: ClassVar[tuple[type, ...]] = (PermutedTokens,)

    rate: PositiveShare = 1 / 6
    """Share of a sequence's ordinary tokens that are predicted: the last of the order (the paper's 1/K, K = 6)."""
    context: Literal["whole", "ordered"] = "whole"
    """Whether tokens that are not predicted all see each other (as released), or follow the order too (as written)."""

    def apply(self, text: CorruptionInput) -> tuple[TokenBatch[Ints], dict[type, Any]]:
        """The tokens as they are, and their order."""
        ordinary_T = text.ordinary_T
        sequences_T = text.sequences_N[ordinary_T]
        by_turn_T = by_sequence_at_random(text.bits(ordinary_T, "permutation")[0], sequences_T)
        present_B = np.bincount(sequences_T, minlength=text.tokens.count)
        turn_T = np.arange(len(by_turn_T)) - np.repeat(np.cumsum(present_B) - present_B, present_B) + 1
        context_T = turn_T <= np.repeat(present_B - budgets(present_B, self.rate), present_B)
        order_N = np.zeros(text.tokens.size, dtype=np.int64)
        order_N[ordinary_T[by_turn_T]] = np.where(context_T & (self.context == "whole"), 0, turn_T)
        places_M = np.sort(ordinary_T[by_turn_T[~context_T]])
        targets = PermutedTokens(order=order_N, places=places_M, ids=text.tokens.ids[places_M])
        return text.tokens, {PermutedTokens: targets}
