"""A pretrained model with a prompt in place of a head: what it answers without training, and calibrated.

    config = prompt_config(bundle, pattern="{text} It was {blank}.", words={"neg": "terrible", "pos": "great"})
    ready = prompted(bundle, config)                                # the model's own masked-lm head, read at the blank
    ready = calibrated_prompt(ready, ("N/A", ""), scoring)          # Zhao et al. 2021

Calibration asks the prompt about neutral texts. What it says of them is its bias p_cf, and answers are p / p_cf, set to
sum to 1: of scores, their log is subtracted. Zhao et al. write softmax(p / p_cf); the order of labels is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np

from larvatus.arrays import Doubles, Floats
from larvatus.bundle.directory import Bundle
from larvatus.bundle.heads import with_head
from larvatus.errors import ArtefactError
from larvatus.heads.verbaliser import Demonstration, Verbaliser, VerbaliserConfig
from larvatus.labelled.records import TextExample
from larvatus.tasks.prompt.encode import NEUTRAL, encode_prompts
from larvatus.tasks.prompt.in_turn import scores_in_turn
from larvatus.tasks.prompt.pattern import Pattern
from larvatus.tasks.prompt.words import Words, verbaliser
from larvatus.tasks.scoring import Scoring, head_as, score_sequences

NEUTRAL_TEXTS = ("N/A", "")
"""Two of the three of Zhao et al.; their third, a mask token, would be a second blank here."""


def check_fills(bundle: Bundle) -> None:
    """Refuse a model that cannot fill blanks, or whose blanks are filled by another."""
    if "masked-lm" in bundle.network.objectives or "verbaliser" in bundle.network.objectives:
        return
    if bundle.network.generator is not None:
        raise ArtefactError(
            f"{bundle.path} has its masked-lm head in its generator, which is smaller; prompt that: {bundle.path}/generator"
        )
    raise ArtefactError(
        f"{bundle.path} has no masked-lm head to read a blank with, and no language-model head to continue a text with; "
        "prompt a model pretrained with masked-lm, causal-lm or denoising"
    )


def prompt_config(
    bundle: Bundle,
    *,
    pattern: str,
    words: Words,
    labels: Sequence[str] | None = None,
    pair: bool = False,
    demonstrations: Sequence[Demonstration] = (),
) -> VerbaliserConfig:
    """A prompt for a model that fills blanks; `labels` in their order, where the words do not say it."""
    check_fills(bundle)
    read = Pattern.read(pattern, pair=pair)
    config = verbaliser(bundle.tokenizer, read, labels=labels or tuple(words), words=words)
    return msgspec.structs.replace(config, demonstrations=tuple(demonstrations))


def prompted(bundle: Bundle, config: VerbaliserConfig) -> Bundle:
    """The model with the prompt as its head: nothing of it is new."""
    return with_head(bundle, config, seed=0)[0]


def prompt_of(bundle: Bundle) -> Verbaliser:
    """The prompt of a model that has one."""
    return head_as(bundle.network, Verbaliser, "classify through a blank", str(bundle.path))


def prompt_scores(bundle: Bundle, examples: Sequence[TextExample], *, limit: int, scoring: Scoring) -> Floats:
    """[E, K] scores of the labels; words of several tokens are filled in turn."""
    head = prompt_of(bundle)
    if head.config.blanks > 1:
        return scores_in_turn(bundle.network, bundle.tokenizer, examples, limit=limit, scoring=scoring)
    prompts = encode_prompts(bundle.tokenizer, head.config, examples, limit=limit)
    return score_sequences(bundle.network, prompts.sequences, scoring)


def neutral_examples(texts: Sequence[str], *, pair: bool) -> list[TextExample]:
    return [TextExample(text, text if pair else None, None, NEUTRAL) for text in texts]


def neutral_offsets(scores_NK: Floats | Doubles) -> tuple[float, ...]:
    """log of the mean probability that neutral texts give each label.

    >>> [round(offset, 4) for offset in neutral_offsets(np.log([[0.8, 0.2], [0.6, 0.4]]))]
    [-0.3567, -1.204]
    """
    shifted = scores_NK.astype(np.float64) - scores_NK.max(1, keepdims=True)
    p_NK = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    return tuple(np.log(p_NK.mean(0)).tolist())


def calibrated_prompt(bundle: Bundle, neutral: Sequence[str], scoring: Scoring, *, limit: int, pair: bool) -> Bundle:
    """The same prompt with what it says of neutral texts subtracted."""
    head = prompt_of(bundle)
    plain = head.config
    bundle.network.to(scoring.device)
    head.replaced(offsets=())
    scores = prompt_scores(bundle, neutral_examples(neutral, pair=pair), limit=limit, scoring=scoring)
    config = msgspec.structs.replace(plain, offsets=neutral_offsets(scores))
    head.replaced(offsets=config.offsets)
    return dataclasses.replace(bundle, objectives=(config,))
