"""Prompts of models that write: a label is as likely as its word is where the blank stands (GPT, T5).

    prompts, scores = continuation_prompt_scores(bundle, config, examples, limit=128)

A left-to-right model reads what stands before the blank, and is asked how likely the word and the rest of the pattern
are after it; so the text may stand on either side (after the blank it is the channel model of Min et al. 2022). An
encoder–decoder that learnt to denoise reads the whole pattern with its first sentinel at the blank, and is asked for
sentinel and word. Words of several tokens need nothing more. E examples, W words, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import UsageError
from larvatus.data.labelled.records import TextExample
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle
from larvatus.models.generation.likelihood import continuation_scores
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.tasks.encoding.sequences import Sequences
from larvatus.tasks.prompt.encode import (
    PatternTokens,
    Prompts,
    demonstrations,
    demonstrations_that_fit,
    pattern_of,
    truncated_lengths,
)

WRITES = ("causal-lm", "denoising")
"""Objectives that teach a model to write."""
SENTINELS = ("<extra_id_0>", "<extra_id_1>")
"""Sentinels of T5: the one in place of a masked span, and the one that ends its text."""


def is_generative(bundle: Bundle) -> bool:
    """Whether a model continues texts."""
    return any(name in bundle.network.objectives for name in WRITES)


def continuation_prompt_scores(
    bundle: Bundle, config: VerbaliserConfig, examples: Sequence[TextExample], *, limit: int
) -> tuple[Prompts, Floats]:
    """How the examples are read, and scores of their labels [E, K]."""
    asking = _ContinuationEncoder.of(bundle, config, pair=bool(examples) and examples[0].pair is not None, limit=limit)
    prompts, asked, continuations = asking.pairs(bundle.tokenizer, examples)
    scores = continuation_scores(bundle.network, asked, continuations)
    scores_EW = np.array(scores, np.float64).reshape(len(examples), -1)
    counts = [config.owners.count(label) for label in range(len(config.labels))]
    share_WK = np.array([[(owner == n) / counts[n] for n in range(len(counts))] for owner in config.owners])
    scores_EK = scores_EW @ share_WK - (np.array(config.offsets) if config.offsets else 0.0)
    return prompts, scores_EK.astype(np.float32)


class _ContinuationEncoder:
    """A pattern for one model: what is read before the blank, and what is asked for there."""

    def __init__(self, config: VerbaliserConfig, template: PatternTokens, shots: list[Ints], room: int) -> None:
        self.config, self.template, self.shots, self.room = config, template, shots, room
        self.sentinels: tuple[int, ...] = ()
        self.opening: Ints = np.empty(0, np.int64)
        self.closing: Ints = np.empty(0, np.int64)

    @classmethod
    def of(cls, bundle: Bundle, config: VerbaliserConfig, *, pair: bool, limit: int) -> _ContinuationEncoder:
        tokenizer, encoder = bundle.tokenizer, bundle.network.encoder
        template = PatternTokens.of(tokenizer, pattern_of(config, pair=pair))
        closed = bool(getattr(encoder, "closes_prompts", False))
        gaps = [np.array(gap, np.int64) for gap in tokenizer.template.single.gaps]
        room = limit - len(gaps[0]) - (len(gaps[-1]) if closed else 0)
        asking = cls(config, template, demonstrations(tokenizer, config, template), room)
        asking.opening = gaps[0]
        if closed:
            ids = [tokenizer.id(name) for name in SENTINELS]
            asking.sentinels = tuple(id for id in ids if id is not None)
            asking.closing = gaps[-1]
        if template.fixed + config.blanks + 2 > room:
            raise UsageError(
                f"the pattern takes {template.fixed + config.blanks:,} of the {room:,} tokens that the model reads at "
                "once; give a shorter one"
            )
        return asking

    def pairs(self, tokenizer: Tokenizer, examples: Sequence[TextExample]) -> tuple[Prompts, list[Ints], list[Ints]]:
        """For each example and word what is read and what is asked; and how much of the examples that is."""
        before = self.template.fixed + self.config.blanks
        asked: list[Ints] = []
        continuations: list[Ints] = []
        tokens, read, shown = [], [], []
        for texts in self.template.text_ids(tokenizer, examples):
            sizes = truncated_lengths([len(text) for text in texts], self.room - before)
            cut = [text[:size] for text, size in zip(texts, sizes, strict=True)]
            shots = demonstrations_that_fit(self.shots, self.room - before - sum(sizes))
            for word in self.config.tokens():
                prompt, continuation = self._split(cut, np.array(word, np.int64))
                asked.append(np.concatenate([self.opening, *shots, prompt, self.closing]).astype(np.int64))
                continuations.append(continuation)
            shown.append(len(shots))
            tokens.append(before + sum(map(len, texts)))
            read.append(before + sum(sizes))
        empty, count = np.empty(0, np.int64), len(tokens)
        sequences = Sequences(
            ids=empty, segments=empty, lengths=empty, parts=np.ones(count, np.int64),
            tokens=np.array(tokens, np.int64), read=np.array(read, np.int64),
        )  # fmt: skip
        return Prompts(sequences, np.array(shown, np.int64), len(self.shots)), asked, continuations

    def _split(self, texts: Sequence[Any], word: Ints) -> tuple[Ints, Ints]:
        if len(self.sentinels) == len(SENTINELS):
            first, second = self.sentinels
            return self.template.ids(texts, np.array([first])), np.array([first, *word.tolist(), second], np.int64)
        nothing = np.array([-1], np.int64)  # no token: where the blank stands
        whole = self.template.ids(texts, nothing)
        place = int(np.flatnonzero(whole == -1)[0])
        return whole[:place], np.concatenate([word, whole[place + 1 :]])
