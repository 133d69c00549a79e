"""What an encoder that can generate offers: sequences under way, and the tokens of given continuations at once.

    under_way = encoder.continuing(prompts, room=20, head=head)       # prompts: a flat batch, nothing padded
    under_way.logits()                                                # [B, V] of the next token of each
    under_way.extend(ids_B)                                           # one more token each; no prompt is read again
    under_way.take(rows)                                              # keep, repeat or reorder sequences

A left-to-right model goes on with the prompt itself; an encoder–decoder reads it in its encoder, and its decoder
begins at its own start token. Who generates sees no difference. An encoder has these methods, or it cannot generate: it
inherits nothing for it. `head` turns states into logits, [M, D] → [M, V]: the head of the objective that the model was
trained on, tied to the encoder's word vectors.
B sequences, N tokens of the prompts, M tokens of the continuations, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor

from larvatus.core.batch import TokenBatch

Head = Callable[[Tensor], Tensor]
"""States of the last layer → a score for every word: [M, D] → [M, V]."""


class Continuing(Protocol):
    """B sequences under way, each with what has been computed of it (its keys and values)."""

    def logits(self) -> Tensor:
        """Scores of the next token of each sequence, [B, V] in float32."""

    def extend(self, ids_B: Tensor) -> None:
        """Each sequence gets one more token."""

    def take(self, rows_R: Tensor) -> None:
        """Go on with these sequences in this order: some leave, some are repeated (beams). R sequences then."""


@runtime_checkable
class Continues(Protocol):
    """An encoder that can generate."""

    closes_prompts: bool
    """Whether a prompt is a finished text, dressed at its end too (an encoder–decoder reads one); a left-to-right model
    goes on where the prompt ends, and has it dressed at its beginning alone."""

    def room_after(self, length: int) -> int:
        """Tokens that can be added after a prompt of this many; negative or 0 where the prompt leaves no room."""

    def continuing(self, prompts: TokenBatch[Tensor], *, room: int, head: Head) -> Continuing:
        """The prompts read, ready to be gone on with; at most `room` tokens will be added to each."""

    def predicting(self, prompts: TokenBatch[Tensor], continuations: TokenBatch[Tensor]) -> Tensor:
        """The state [M, D] from which each token of the continuations is predicted, given its prompt and the tokens
        of the continuation before it; all in one pass. Both batches have B sequences."""
