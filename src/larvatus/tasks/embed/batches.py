"""The batches of an epoch without false negatives: no text, and no group, is in a step twice.

    plan = BatchPlan(keys=[[0, 1], [0, 2], [3, 4]])          # texts 0 … 4; the first two examples share text 0
    plan.epoch_batches(seed=0, epoch=0, size=2)              # they are in different steps

With in-batch negatives (`MultipleNegatives`), the positive of another example counts as a negative. If it is the same
text, or of the same group, the model would learn that a text is unlike itself.

The examples of an epoch are permuted, then each goes into the first step that has a free place and no conflict: a key
that was in step n may be in step n + 1 or later. What is left at the end goes wherever a step may still grow. Steps are
as even as possible, and their number is the same in every epoch. Examples that fit in no step of an epoch (a text of
more pairs than there are steps) are skipped in this epoch; another permutation skips others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.rng import stream

TRIES = 1_000
"""Steps that are tried for an example that is left at the end."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """E examples, each with the keys that no other example of its step may have."""

    keys: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def _widest(self) -> int:
        """Upper bound of the examples that can be in one step: those of the rarest keys."""
        if not any(self.keys):
            return len(self.keys)
        last = Counter(keys[-1] for keys in self.keys if keys)
        return max(1, len(last) + sum(not keys for keys in self.keys))

    def steps(self, size: int) -> int:
        """Steps of an epoch, of at most `size` examples each."""
        return -(-len(self.keys) // max(1, min(size, self._widest)))

    def epoch_batches(self, seed: int, epoch: int, size: int) -> list[Ints]:
        """The examples of each step: `steps` of them, none empty, by seed and epoch only."""
        order = stream(seed, "finetune order", epoch).permutation(len(self.keys))
        steps = self.steps(size)
        even, more = divmod(len(order), steps)
        rooms = [even + (step < more) for step in range(steps)]
        held: list[list[int]] = [[] for _ in range(steps)]
        left = self._fill(order.tolist(), rooms, held)
        self._squeeze(left, held, size)
        for step in range(steps):
            if not held[step]:  # only where nearly all examples share a text
                held[step].append(max(held, key=len).pop())
        return [np.array(examples, np.int64) for examples in held]

    def _fill(self, order: list[int], rooms: list[int], held: list[list[int]]) -> list[int]:
        """Put examples into steps, in one pass; those that fit in none."""
        after: dict[int, int] = {}  # the step from which a key is free again
        first, left = 0, []
        for example in order:
            while first < len(held) and len(held[first]) >= rooms[first]:
                first += 1
            keys = self.keys[example]
            step = max([first, *(after.get(key, 0) for key in keys)])
            while step < len(held) and len(held[step]) >= rooms[step]:
                step += 1
            if step >= len(held):
                left.append(example)
                continue
            held[step].append(example)
            for key in keys:
                after[key] = step + 1
        return left

    def _squeeze(self, left: list[int], held: list[list[int]], size: int) -> None:
        """Put examples that are left into any step that has fewer than `size` and none of their keys."""
        wanted = {key for example in left for key in self.keys[example]}
        there: dict[int, set[int]] = {key: set() for key in wanted}
        for step, examples in enumerate(held):
            for key in (key for example in examples for key in self.keys[example] if key in wanted):
                there[key].add(step)
        place = 0
        for example in left:
            for _ in range(min(len(held), TRIES)):
                place = (place + 1) % len(held)
                if len(held[place]) < size and not any(place in there[key] for key in self.keys[example]):
                    held[place].append(example)
                    for key in self.keys[example]:
                        there[key].add(place)
                    break

    def left_out(self, size: int, *, seed: int = 0) -> int:
        """How many examples the first epoch leaves out."""
        return len(self.keys) - sum(map(len, self.epoch_batches(seed, 0, size)))
