"""Examples as the model reads them: every text once, and no false negatives in a batch.

    data = encode_sentences(bundle, examples, EncodeOptions(pool="mean", windows=windows))
    data.batch(np.array([3, 0]))            # two examples: their texts end to end, and which tokens count
    text_vectors(network, data, scoring)    # [U, size] a vector for each text, in evaluation mode
    plan = BatchPlan(keys=[[0, 1], [0, 2], [3, 4]])          # texts 0 … 4; the first two examples share text 0
    plan.epoch_batches(seed=0, epoch=0, size=2)              # they are in different steps

**Batches.** With in-batch negatives (`MultipleNegatives`), the positive of another example counts as a negative. If it
is the same text, or of the same group, the model would learn that a text is unlike itself. So no text, and no group, is
in a step twice. The examples of an epoch are permuted, then each goes into the first step that has a free place and no
conflict: a key that was in step n may be in step n + 1 or later. What is left at the end goes wherever a step may still
grow. Steps are as even as possible, and their number is the same in every epoch. Examples that fit in no step of an
epoch (a text of more pairs than there are steps) are skipped in this epoch; another permutation skips others.

**Groups** become pairs of their texts: each text with the next one and the one after it, in a random order of the
group; of a group of five, these are all pairs. E examples, U different texts, S sequences.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges, runs
from larvatus.core.rng import stream
from larvatus.core.targets import SentenceTargets
from larvatus.data.text.template import Template
from larvatus.data.text.windows import windows
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.embedding import TextHead, TextPool
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions, run_indices, text_sequences
from larvatus.tasks.scoring import ScoringOptions, features_of, head_as

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


# Encoded examples.

PARTNERS = 2
"""Pairs of a text of a group, each counted at one of its two texts."""


@dataclass(frozen=True, kw_only=True)
class EncodeOptions:
    """What decides how texts are read, and what makes a step."""

    pool: TextPool
    windows: WindowOptions
    twice: bool = False
    """Every text is read twice, under two dropout masks (SimCSE)."""
    contrasts: bool = False
    """The other texts of a step are negatives, so that none may be in it twice."""


@dataclass(frozen=True, eq=False)
class EncodedSentences:
    """E examples of U different texts."""

    sequences: Sequences
    """Sequences of the different texts."""
    kept: Ints  # [S, 2] tokens that count, see `SentenceTargets`
    texts: Ints  # [all texts of all examples] number of each text
    counts: Ints  # [E] texts of each example
    scores: Floats  # [E] 0 if it is unknown
    groups: Ints  # [E] number of the group; −1 without one
    contrasts: bool = False
    teacher: Floats | None = None
    """[U, K] vectors of a teacher."""

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def plan(self) -> BatchPlan:
        """Which examples may be in one step."""
        if not self.contrasts:
            return BatchPlan([()] * len(self))
        starts, groups = edges(self.counts).tolist(), self.groups.tolist()
        most = len(self.sequences)
        texts = [self.texts[first:last].tolist() for first, last in pairwise(starts)]
        return BatchPlan([(*{*of}, *_group(group, most)) for of, group in zip(texts, groups, strict=True)])

    def steps(self, size: int) -> int:
        return self.plan.steps(size)

    def epoch_batches(self, seed: int, epoch: int, size: int) -> Sequence[Ints]:
        return self.plan.epoch_batches(seed, epoch, size)

    def remarks(self, size: int) -> Sequence[str]:
        """How many examples an epoch leaves out, and steps that are smaller than they should be."""
        if not self.contrasts:
            return ()
        lines, largest = [], max(map(len, self.plan.epoch_batches(0, 0, size)))
        if largest < min(size, len(self)) / 2:
            lines.append(
                f"steps hold {largest} examples at most, not {size}: there are too few different texts or groups that "
                "may be negatives of each other"
            )
        if left := self.plan.left_out(size):
            lines.append(
                f"{left:,} of {len(self):,} examples are left out of an epoch, others in each: their texts or groups "
                "are in more examples than an epoch has steps"
            )
        return lines

    def texts_of(self, examples: Ints) -> Ints:
        """The texts of some examples, in their order."""
        chosen = np.asarray(examples, np.int64)
        return self.texts[run_indices(edges(self.counts)[:-1][chosen], self.counts[chosen])]

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        chosen = np.asarray(examples, np.int64)
        return self._batch(self.texts_of(chosen), self.counts[chosen], self.scores[chosen])

    def alone(self, texts: Ints) -> TrainingBatch[Ints]:
        """Some texts, each an example of its own."""
        return self._batch(texts, np.ones(len(texts), np.int64), np.zeros(len(texts), np.float32))

    def _batch(self, texts: Ints, counts: Ints, scores: Floats) -> TrainingBatch[Ints]:
        sequences, parts = self.sequences.of(texts), self.sequences.parts[texts]
        tokens = self.sequences.batch(sequences)
        groups = np.add.reduceat(parts, edges(counts)[:-1]) if len(counts) else None
        nothing = np.zeros((len(texts), 0), np.float32)
        targets = SentenceTargets(
            windows=parts,
            kept=self.kept[sequences],
            texts=counts,
            scores=scores,
            teacher=nothing if self.teacher is None else np.asarray(self.teacher[texts], np.float32),
        )
        return TrainingBatch(tokens=dataclasses.replace(tokens, groups=groups), targets={SentenceTargets: targets})


def _group(number: int, most: int) -> tuple[int, ...]:
    """The key of a group, beyond those of texts."""
    return () if number < 0 else (most + number,)


def encode_sentences(bundle: Bundle, examples: Sequence[SentenceExample], options: EncodeOptions) -> EncodedSentences:
    """Examples of any kind as the model reads them; groups as pairs of their texts."""
    numbers: dict[str, int] = {}
    names: dict[str, int] = {}
    rows: list[tuple[list[int], float, int]] = []
    members: dict[int, list[int]] = {}
    for example in examples:
        texts = [numbers.setdefault(text, len(numbers)) for text in example.texts]
        group = -1 if example.group is None else names.setdefault(example.group, len(names))
        if group >= 0 and len(texts) == 1:  # a pair of a group has its partner already
            members.setdefault(group, []).append(texts[0])
        else:
            rows.append((texts * 2 if options.twice and len(texts) == 1 else texts, example.score or 0.0, group))
    for group, texts in members.items():
        rows += [([*pair], 0.0, group) for pair in pairs_of(texts, group)]
    sequences = text_sequences(
        bundle.tokenizer,
        list(numbers),
        limit=options.windows.limit,
        truncate=options.windows.truncate,
        overlap=options.windows.overlap,
    )
    return EncodedSentences(
        sequences=sequences,
        kept=kept_tokens(sequences, bundle.tokenizer.template, options),
        texts=np.array([text for texts, _, _ in rows for text in texts], np.int64),
        counts=np.array([len(texts) for texts, _, _ in rows], np.int64),
        scores=np.array([score for _, score, _ in rows], np.float32),
        groups=np.array([group for _, _, group in rows], np.int64),
        contrasts=options.contrasts,
    )


def pairs_of(texts: Sequence[int], group: int) -> list[tuple[int, int]]:
    """Pairs of the different texts of a group, each pair once, about two for each text.

    >>> pairs_of([4, 7], 0), len(pairs_of([1, 2, 3, 4, 5], 0)), pairs_of([3, 3], 0)
    ([(4, 7)], 10, [])
    """
    different = list(dict.fromkeys(texts))
    count = len(different)
    order = different if count <= 2 * PARTNERS + 1 else stream(0, "group pairs", group).permutation(different).tolist()
    pairs: dict[frozenset[int], tuple[int, int]] = {}
    for step in range(1, min(PARTNERS, count - 1) + 1):
        for place in range(count):
            pair = (order[place], order[(place + step) % count])
            pairs.setdefault(frozenset(pair), pair)
    return list(pairs.values())


def kept_tokens(sequences: Sequences, template: Template, options: EncodeOptions) -> Ints:
    """[S, 2] the tokens of each sequence that its text is pooled from: each token once, where it sees most.

    Special tokens before a text count in its first window, those after it in its last; [CLS] counts in every window.
    """
    single, lengths = template.single, sequences.lengths
    if options.pool == "cls":
        places = single.summary_places(lengths)
        return np.stack([places, places + 1], axis=1)
    kept = np.stack([np.zeros_like(lengths), lengths], axis=1)
    starts = edges(sequences.parts)
    for text in np.flatnonzero(sequences.parts > 1).tolist():
        size = single.text_length(options.windows.limit)
        cut = windows(int(sequences.tokens[text]), size=size, overlap=options.windows.overlap)
        numbers = np.arange(len(cut))
        firsts = np.searchsorted(cut.chosen, numbers) - cut.starts + single.opening
        lasts = np.searchsorted(cut.chosen, numbers, side="right") - cut.starts + single.opening
        windows_of_text = slice(int(starts[text]), int(starts[text + 1]))
        kept[windows_of_text, 0], kept[windows_of_text, 1] = firsts, lasts
        kept[windows_of_text.start, 0], kept[windows_of_text.stop - 1, 1] = 0, lengths[windows_of_text.stop - 1]
    return kept


def embedder_of(model: Network, name: str = "the model") -> TextHead:
    """The head of a model that embeds texts."""
    return head_as(model, TextHead, "embed texts", name)


def text_vectors(model: Network, data: EncodedSentences, scoring: ScoringOptions) -> Floats:
    """[U, size] the vector of each text."""
    vectors = np.zeros((len(data.sequences), embedder_of(model).size_of_vector), np.float32)
    for chosen, vectors_of_batch, _ in embedded_batches(model, data, scoring):
        vectors[chosen] = vectors_of_batch.float().cpu().numpy()
    return vectors


@torch.inference_mode()
def embedded_batches(
    model: Network, data: EncodedSentences, scoring: ScoringOptions
) -> Iterator[tuple[Ints, Tensor, SentenceTargets[Tensor]]]:
    """The texts in batches of about equal length: their numbers, the head's vectors, and how they were read."""
    head = embedder_of(model)
    model.eval()
    lengths = np.add.reduceat(data.sequences.lengths, edges(data.sequences.parts)[:-1])
    order = np.argsort(lengths, kind="stable")
    for first, last in runs(lengths[order], scoring.budget):
        chosen = order[first:last]
        part = data.alone(chosen)
        batch = on_device(part, scoring.device)
        targets = batch.targets[SentenceTargets]
        with scoring.autocast():
            x = features_of(model, batch, head, limit=int(part.tokens.lengths.max()))
            vectors = head.vectors(x, targets)
        yield chosen, vectors, targets
