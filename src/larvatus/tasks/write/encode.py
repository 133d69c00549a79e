"""Texts as the encoder reads them, targets as the decoder writes them, and the generated texts.

    pairs = encode_pairs(bundle, examples, config, windows)
    pairs.batch(np.array([3, 0]))           # two texts with their targets
    model.predict("summarize: The house is small, and old, and far from here.").written

A text is one sequence, since a target cannot be predicted from a window. A text that is too long is refused with its
place, or truncated and counted. A target is never cut.
E examples, M target tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from larvatus.core import notebook
from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges, runs
from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.pretraining_targets import DenoisedText
from larvatus.core.tables import Tabular
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import shorten
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle
from larvatus.models.generation.decoding import BeamSettings, DecodedSequence, Stopping, beam_search, decode, greedy
from larvatus.models.generation.generator import Generator, end_ids, require_generator
from larvatus.models.heads.writing import TextToTextConfig
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions, run_indices, text_sequences
from larvatus.tasks.results import Coverage, Piece
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.write.reader import WritingExample


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
    """Input of the encoder, a sequence for each example."""
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
                f"{windows.limit:,} at once, special ones included{others}; shorten it, or read only beginnings: "
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
        raise DataError(f"{example.place} is {given}, but the model was trained to read {learnt}")


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
        raise ArtefactError("the vocabulary has no token that ends a text; text to text needs one, such as </s> of t5")
    return end


def decode_targets(tokenizer: Tokenizer, text: str) -> str:
    """A text as the vocabulary writes it: unknown characters, spaces and capitals may be lost."""
    return tokenizer.decode(tokenizer.encode_fast([text])[0].tolist(), skip_special_tokens=True).strip()


@dataclass(frozen=True)
class GeneratedAnswers:
    """The text generated for one input."""

    text: str
    ids: tuple[int, ...]
    log_probability: float
    ended: Literal["end", "length"]


@torch.inference_mode()
def write_texts(
    network: Network, tokenizer: Tokenizer, sequences: Sequences, *, most: int, beams: int = 1, scoring: ScoringOptions
) -> list[GeneratedAnswers]:
    """One generated text for each sequence, of at most `most` tokens."""
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
    under_way = generator.encoder.generation_state(batch, max_new=most, head=generator.head)
    rooms = np.full(len(chosen), most, np.int64)
    if beams == 1:
        return decode(under_way, choose=greedy, limits=rooms, stopping=stopping)
    return [ranked[0] for ranked in beam_search(under_way, BeamSettings(beams), limits=rooms, stopping=stopping)]


def _answered(tokenizer: Tokenizer, unrolled: DecodedSequence, stopping: Stopping) -> GeneratedAnswers:
    ids = unrolled.ids
    text = tokenizer.decode(ids[:-1] if ids and ids[-1] in stopping.ends else ids, skip_special_tokens=True).strip()
    ended: Literal["end", "length"] = "end" if unrolled.reason == "end" else "length"
    return GeneratedAnswers(text, ids, unrolled.log_probability, ended)


@dataclass(frozen=True, kw_only=True)
class Written(Tabular):
    """A text or pair with what the model wrote for it."""

    text: str
    pair: str | None = None
    written: str
    """The generated text, without special tokens."""
    log_probability: float
    """Probability of all generated tokens together."""
    ended: Literal["end", "length"]
    """At the model's end token, or where it had written as many tokens as it may."""
    coverage: Coverage

    def _repr_html_(self) -> str:
        title = self.text if self.pair is None else f"{self.text} ⟷ {self.pair}"
        row = (self.written, f"{self.log_probability:.2f}", self.ended)
        return notebook.table(("written", "log-probability", "ended by"), [row], title=title)

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {"text": self.text}
        if self.pair is not None:
            record["pair"] = self.pair
        return {
            **record,
            "written": self.written,
            "log_probability": self.log_probability,
            "ended": self.ended,
            **self.coverage.to_dict(),
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        yield Piece(self.written, "bold")
        yield Piece(" ⟵ ", "dim")
        yield Piece(self.text if self.pair is None else f"{self.text} ⟷ {self.pair}")

    def __str__(self) -> str:
        return self.written
