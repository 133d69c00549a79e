"""A pretrained model with a prompt in place of a head.

config = prompt_config(bundle, pattern="{text} It was {blank}.", words={"neg": "terrible", "pos": "great"})
ready = with_prompt_head(bundle, config)                # the model's own masked-lm head, read at the blank
prompt_scores(ready, examples, limit=128, scoring=ScoringOptions())
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from larvatus.core.arrays import Floats
from larvatus.core.errors import ArtefactError
from larvatus.data.labelled.records import TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.verbaliser import Verbaliser, VerbaliserConfig
from larvatus.tasks.prompt.continuations import is_generative
from larvatus.tasks.prompt.encode import encode_prompts
from larvatus.tasks.prompt.in_turn import multi_mask_scores
from larvatus.tasks.prompt.pattern import Pattern
from larvatus.tasks.prompt.words import LabelWords, verbaliser, words_by_label
from larvatus.tasks.scoring import ScoringOptions, head_as, score_sequences

NO_BLANK = 0
"""In place of the token of a blank, of models that write."""


def check_fills(bundle: Bundle) -> None:
    """Refuse a model that cannot fill blanks, or whose blanks are filled by another."""
    if "masked-lm" in bundle.network.objectives or "verbaliser" in bundle.network.objectives:
        return
    if bundle.network.generator is not None:
        raise ArtefactError(
            f"{bundle.path} fills blanks by its generator, which is a model of its own; prompt {bundle.path}/generator"
        )
    raise ArtefactError(
        f"{bundle.path} has no masked-lm head to read a blank with, nor a head that continues texts; prompt a model "
        "pretrained with masked-lm, causal-lm or denoising"
    )


def check_trains(bundle: Bundle) -> None:
    """Refuse a model that a prompt cannot be trained of: one that writes is asked, or fine-tuned to classify."""
    if is_generative(bundle):
        raise ArtefactError(
            f"{bundle.path} continues texts: it is prompted without training, or fine-tuned by finetune classify; a "
            "prompt is trained of a model pretrained with masked-lm"
        )
    check_fills(bundle)


def prompt_config(
    bundle: Bundle, *, pattern: str, words: LabelWords, labels: Sequence[str] | None = None, pair: bool = False
) -> VerbaliserConfig:
    """A prompt for a model that fills blanks, or writes; `labels` in their order, where the words do not say it."""
    if not is_generative(bundle):
        check_fills(bundle)
    read = Pattern.read(pattern, pair=pair)
    mask = NO_BLANK if is_generative(bundle) else None
    config = verbaliser(bundle.tokenizer, read, labels=labels or tuple(words_by_label(words)), words=words, mask=mask)
    return msgspec.structs.replace(config, in_turn=config.blanks > 1)


def with_prompt_head(bundle: Bundle, config: VerbaliserConfig) -> Bundle:
    """The model with the prompt as its head: nothing of it is new."""
    return attach_head(bundle, config, seed=0)[0]


def prompt_of(bundle: Bundle) -> Verbaliser:
    """The prompt of a model that has one."""
    return head_as(bundle.network, Verbaliser, "classify through a blank", str(bundle.path))


def prompt_scores(bundle: Bundle, examples: Sequence[TextExample], *, limit: int, scoring: ScoringOptions) -> Floats:
    """[E, K] scores of the labels."""
    head = prompt_of(bundle)
    if head.config.in_turn and head.config.blanks > 1:
        return multi_mask_scores(bundle.network, bundle.tokenizer, examples, limit=limit, scoring=scoring)
    prompts = encode_prompts(bundle.tokenizer, head.config, examples, limit=limit)
    return score_sequences(bundle.network, prompts.sequences, scoring)
