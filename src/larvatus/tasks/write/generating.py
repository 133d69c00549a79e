"""What a model writes for texts: many at a time, in batches of nearly equal length, greedily or by beam search.

    for answer in write_texts(network, tokenizer, sequences, most=20, beams=4, scoring=ScoringOptions()):
        answer.text, answer.ended

What is written for a text does not depend on what else is in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from larvatus.core.arrays import Ints
from larvatus.core.batch import runs
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.generation.beam_search import BeamSettings, beam_search
from larvatus.models.generation.decoding import DecodedSequence, Stopping, decode, greedy
from larvatus.models.generation.generator import Generator, require_generator
from larvatus.models.generation.prompts import end_ids
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.encoding.sequences import Sequences
from larvatus.tasks.scoring import ScoringOptions


@dataclass(frozen=True)
class GeneratedAnswers:
    """What was written for one text."""

    text: str
    ids: tuple[int, ...]
    log_probability: float
    ended: Literal["end", "length"]


@torch.inference_mode()
def write_texts(
    network: Network, tokenizer: Tokenizer, sequences: Sequences, *, most: int, beams: int = 1, scoring: ScoringOptions
) -> list[GeneratedAnswers]:
    """One text for each sequence, of at most so many tokens."""
    generator = require_generator(network)
    network.eval()
    stopping = Stopping(end_ids(tokenizer))
    order = np.argsort(sequences.lengths, kind="stable")
    answers: dict[int, GeneratedAnswers] = {}
    for first, last in runs(beams * (sequences.lengths[order] + most), max(scoring.budget, most)):
        chosen = order[first:last]
        for number, unrolled in zip(
            chosen.tolist(), _written(generator, sequences, chosen, stopping, most=most, beams=beams), strict=True
        ):
            answers[number] = _answered(tokenizer, unrolled, stopping)
    return [answers[number] for number in range(len(sequences.lengths))]


def _written(
    generator: Generator, sequences: Sequences, chosen: Ints, stopping: Stopping, *, most: int, beams: int
) -> list[DecodedSequence]:
    batch = on_device(sequences.batch(chosen), generator.encoder.device)
    under_way = generator.encoder.continuing(batch, room=most, head=generator.head)
    rooms = np.full(len(chosen), most, np.int64)
    if beams == 1:
        return decode(under_way, choose=greedy, most=rooms, stopping=stopping)
    return [ranked[0] for ranked in beam_search(under_way, BeamSettings(beams), most=rooms, stopping=stopping)]


def _answered(tokenizer: Tokenizer, unrolled: DecodedSequence, stopping: Stopping) -> GeneratedAnswers:
    ids = unrolled.ids
    text = tokenizer.decode(ids[:-1] if ids and ids[-1] in stopping.ends else ids, skip_special_tokens=True).strip()
    ended: Literal["end", "length"] = "end" if unrolled.reason == "end" else "length"
    return GeneratedAnswers(text, ids, unrolled.log_probability, ended)
