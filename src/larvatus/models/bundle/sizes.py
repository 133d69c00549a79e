"""Whether the files of a model directory belong together, before memory is allocated for what they state.

    check_sizes(architecture, tokenizer, Path("runs/mine/config.json"), tensors=len(file.entries))

A config.json of another model, or a hostile one, states layers, tokens or segments that the other files lack.
"""

from __future__ import annotations

from pathlib import Path

from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.huggingface import Architecture

MAX_SHARED = 1_000
"""Most layers that share one block: no number of tensors limits them, so config.json may not state any number."""


def check_sizes(architecture: Architecture, tokenizer: Tokenizer, source: Path, *, tensors: int) -> None:
    """Refuse a config.json and a tokenizer that do not fit each other, or the number of stored tensors."""
    if architecture.model.layers > (MAX_SHARED if architecture.model.blocks < architecture.model.layers else tensors):
        raise ArtefactError(f"{source} states {architecture.model.layers:,} layers, but has only {tensors:,} tensors")
    if tokenizer.size > architecture.vocabulary:
        raise ArtefactError(
            f"{source} states {architecture.vocabulary:,} tokens, but its tokenizer has {tokenizer.size:,}; they "
            "belong to different models"
        )
    if architecture.model.enclosed and not tokenizer.template.encloses:
        raise ArtefactError(
            f"{source}: the tokenizer adds no special token before a text, or none after it, and the model needs "
            "both; correct post_processor in tokenizer.json, or cls_token and sep_token in tokenizer_config.json"
        )
    if tokenizer.library.post_processor is not None and architecture.model.segments > 1:
        highest = tokenizer.template.highest_segment
        if highest >= architecture.model.segments:
            raise ArtefactError(
                f"{source} states {architecture.model.segments} segments, but its tokenizer numbers them up to "
                f"{highest}; they belong to different models"
            )
