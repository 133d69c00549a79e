"""Texts as the encoder reads them, and targets as the decoder writes them: learning, scored and answering alike.

    pairs = encode_pairs(bundle, examples, config, windows)
    pairs.batch(np.array([3, 0]))           # two texts, and what is to be written for each

A text is one sequence: what is written for it cannot be told from a window. One that is too long is refused with its
place, or cut where that is asked for, and counted. A target is never cut.
E examples, M tokens to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.pretraining_targets import DenoisedText
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import shorten
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle
from larvatus.models.generation.prompts import end_ids
from larvatus.models.heads.writing import TextToTextConfig
from larvatus.tasks.encoding.sequences import Sequences, run_indices, text_sequences
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.write.examples import WritingExample


@dataclass(frozen=True, eq=False)
class EncodedPairs:
    """E texts with what is to be written for them."""

    sequences: Sequences
    ids: Ints  # [M] of all targets, end to end
    lengths: Ints  # [E]

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        chosen = np.asarray(examples, np.int64)
        lengths = self.lengths[chosen]
        ids = self.ids[run_indices(edges(self.lengths)[:-1][chosen], lengths)]
        targets = DenoisedText(ids=ids, lengths=lengths)
        return TrainingBatch(tokens=self.sequences.batch(chosen), targets={DenoisedText: targets})

    @property
    def cut(self) -> int:
        """Texts that are longer than what is read of them."""
        return int((self.sequences.read < self.sequences.tokens).sum())


def encode_sources(
    bundle: Bundle, examples: Sequence[WritingExample], config: TextToTextConfig, windows: WindowOptions
) -> Sequences:
    """What the encoder reads, a sequence for each example."""
    for example in examples:
        _check(example, config)
    texts = [config.read_as(example.text, example.pair) for example in examples]
    sequences = text_sequences(bundle.tokenizer, texts, limit=windows.limit, truncate=True)
    if not windows.truncate:
        long = np.flatnonzero(sequences.read < sequences.tokens)
        if len(long):
            first = int(long[0])
            others = f", and {len(long) - 1:,} others are too long as well" if len(long) > 1 else ""
            raise DataError(
                f"{examples[first].place} has {int(sequences.tokens[first]):,} tokens, and the model reads "
                f"{windows.limit:,} at once, special ones included{others}; shorten it, or read beginnings alone: "
                "--truncate"
            )
    return sequences


def _check(example: WritingExample, config: TextToTextConfig) -> None:
    for text in (example.text, example.pair):
        if text is not None:
            refuse_surrogates(text, str(example.place))
            if not text.strip():
                raise DataError(f"{example.place} is empty: there is nothing to read; leave it out")
    if (example.pair is None) == bool(config.parts):
        learnt, given = ("pairs", "one text") if config.parts else ("single texts", "a pair")
        raise DataError(f"{example.place} is {given}, but the model learnt to read {learnt}")


def encode_pairs(
    bundle: Bundle, examples: Sequence[WritingExample], config: TextToTextConfig, windows: WindowOptions
) -> EncodedPairs:
    """Texts with the first of their targets."""
    for example in examples:
        if not example.targets:
            raise DataError(f"{example.place} has no target: it is not said what is to be written; give one")
    sequences = encode_sources(bundle, examples, config, windows)
    end = end_of(bundle.tokenizer)
    rows = [
        np.append(ids, end).astype(np.int64)
        for ids in bundle.tokenizer.encode_fast([config.word(example.targets[0]) for example in examples])
    ]
    reach = bundle.model.max_positions
    for example, row in zip(examples, rows, strict=True):
        if len(row) > reach:
            raise DataError(
                f"{example.place}: the target has {len(row):,} tokens, and the model writes {reach:,} at most; shorten "
                f"or drop it (it begins {shorten(example.targets[0])})"
            )
    lengths = np.array([len(row) for row in rows], np.int64)
    return EncodedPairs(sequences, np.concatenate([*rows, np.empty(0, np.int64)]), lengths)


def end_of(tokenizer: Tokenizer) -> int:
    """The token by which a target ends."""
    end = next(iter(end_ids(tokenizer)), None)
    if end is None:
        raise ArtefactError("the vocabulary has no token that ends a text; text to text wants one, such as </s> of t5")
    return end


def decode_targets(tokenizer: Tokenizer, text: str) -> str:
    """A text as the vocabulary writes it: unknown characters, spaces and capitals may be lost."""
    return tokenizer.decode(tokenizer.encode_fast([text])[0].tolist(), skip_special_tokens=True).strip()
