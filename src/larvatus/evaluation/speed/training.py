"""The model of a benchmark, its rows, and its training steps next to those of `transformers`.

    subject = model_of_recipe(read_recipe("bert", size="base"), corpus="embedded", folder=folder, reporter=Reporter())
    batches = subject.full_rows(length=512, tokens=65_536)      # as training reads them: packed, corrupted
    ours = LarvatusTraining(subject, runtime, batches, length=512)
    ours.step()                                                 # forward, backward, clipping, optimizer
    theirs = TransformersTraining(subject.directory, runtime, batches, length=512)

The model is a recipe or a model directory, with text in its vocabulary, as in `larvatus pretrain`. `ragged_rows` gives
rows of many lengths up to the given one. The peer is loaded from the directory of the Larvatus model, so that both have
the same weights, and gets the same tokens and targets. It pads rows to the longest, or to one fixed length if compiled.
Rows are prepared in advance for both, as a loader does during the previous step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import DataError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.rng import stream
from larvatus.data.corpus import Corpus, is_corpus
from larvatus.data.corpus.loader import Loader, LoaderOptions
from larvatus.data.corpus.packing import FullSentencesConfig
from larvatus.data.corruption import packed_length
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.readers import read_documents
from larvatus.data.text.words import split_sentences
from larvatus.models.bundle.directory import save_bundle
from larvatus.models.network import Network
from larvatus.models.nn.encoder_base import set_activation_checkpointing
from larvatus.models.recipes import Recipe, recipe_table
from larvatus.training.engine.optimizer import build_optimizer
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.reporter import Reporter, flops_per_token
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.step import autocast
from larvatus.training.pretraining.adapt import ParentVocabulary
from larvatus.training.pretraining.evaluation import build_corruption
from larvatus.training.pretraining.job import ParentModel
from larvatus.training.pretraining.plan import must_recompute
from larvatus.training.pretraining.prepare import TextOptions, prepare
from larvatus.training.pretraining.step import Stepper

EMBEDDED = "embedded"
SEED = 1
RAGGED = 8
"""Number of different lengths of ragged rows, evenly up to the longest."""
FULL = 0.9
"""Smallest length of a full row, as a share of the longest."""
BATCHES = 4
"""Number of different batches that steps use in turn."""


class SmallBlocks(Loader):
    """A loader that packs only as much text as a few batches need."""

    block_tokens = 1 << 17


@dataclass(frozen=True, kw_only=True)
class BenchmarkModel:
    """A network with its text."""

    name: str
    recipe: Recipe
    network: Network
    corpus: Corpus
    text: str
    """Source of the corpus, as the user named it."""
    folder: Path
    """Folder for its files."""

    @cached_property
    def directory(self) -> Path:
        """The model as a directory, which peers also read."""
        path = self.folder / "model"
        save_bundle(
            path,
            network=self.network,
            objective_configs=self.recipe.objectives,
            tokenizer=self.corpus.tokenizer,
            recipe=recipe_table(self.recipe),
            lineage={},
            card="",
        )
        return path

    def loader(self, *, length: int, tokens: int, workers: int = 0, kind: type[Loader] = Loader) -> Loader:
        """A loader that packs and corrupts the text as in the recipe."""
        return make_loader(self.recipe, self.corpus, length=length, tokens=tokens, workers=workers, kind=kind)

    def full_rows(self, *, length: int, tokens: int) -> list[TrainingBatch[Ints]]:
        """Batches of sequences that are nearly full."""
        packings = [self.recipe.packing]
        if not self.recipe.packing.gives:  # documents may be shorter than a row: let rows cross document boundaries
            packings.append(FullSentencesConfig())
        rows: list[TrainingBatch[Ints]] = []
        for packing in packings:
            recipe = msgspec.structs.replace(self.recipe, packing=packing)
            packed = dataclasses.replace(self, recipe=recipe)._rows(length, 2 * BATCHES * tokens)
            rows = max(rows, [row for row in packed if row.tokens.size >= FULL * length], key=len)
            if len(rows) * length >= BATCHES * tokens:
                break
        return self._batches(rows, tokens, length)

    def ragged_rows(self, *, length: int, tokens: int) -> list[TrainingBatch[Ints]]:
        """Batches of sequences of many lengths, as sentences and paragraphs are, in random order."""
        lengths = [max(16, length * part // RAGGED) for part in range(1, RAGGED + 1)]
        each = -(-BATCHES * tokens // sum(lengths))  # as many sequences of every length
        rows = [row for limit in lengths for row in list(self._rows(limit, (each + 1) * limit))[: each + 1]]
        order = stream(SEED, "benchmark rows").permutation(len(rows)).tolist()
        return self._batches([rows[number] for number in order], tokens, length)

    def _rows(self, length: int, tokens: int) -> Iterator[TrainingBatch[Ints]]:
        """Single sequences, of up to `tokens` tokens in total."""
        loader = self.loader(length=length, tokens=max(length, 4096), kind=SmallBlocks)
        for batch in loader.evaluation(tokens):
            for number in range(batch.tokens.count):
                yield batch.cut(number, number + 1)

    def _batches(self, rows: list[TrainingBatch[Ints]], tokens: int, length: int) -> list[TrainingBatch[Ints]]:
        batches: list[TrainingBatch[Ints]] = []
        parts: list[TrainingBatch[Ints]] = []
        size = 0
        for row in rows:
            if size + row.tokens.size > tokens:
                batches.append(TrainingBatch.join(parts))
                parts, size = [], 0
            parts.append(row)
            size += row.tokens.size
        if not batches and size < tokens / 2:
            raise DataError(
                f"{self.text} gives {size:,} tokens in rows of {length:,}, and a step takes {tokens:,}; "
                "give more text with --corpus, or lower --tokens"
            )
        return (batches or [TrainingBatch.join(parts)])[:BATCHES]

    def sentences(self, tokens: int) -> tuple[list[str], int]:
        """The first sentences of the text, of up to `tokens` tokens in total, including special tokens."""
        has_text = self.text != EMBEDDED and not is_corpus(Path(self.text))  # shards hold no text
        documents = read_documents([self.text]) if has_text else embedded_documents()
        chosen: list[str] = []
        size, longest = 0, self.network.encoder.reach - 2
        for document in documents:
            sentences = split_sentences(document.text)
            for sentence, ids in zip(sentences, self.corpus.tokenizer.encode_fast(sentences), strict=True):
                if not 0 < len(ids) <= longest:
                    continue
                if size + len(ids) + 2 > tokens and chosen:
                    return chosen, size
                chosen.append(sentence)
                size += len(ids) + 2
        return chosen, size


def make_loader(
    recipe: Recipe, corpus: Corpus, *, length: int, tokens: int, workers: int = 0, kind: type[Loader] = Loader
) -> Loader:
    """A loader as in a training run."""
    return kind(
        corpus,
        packing=recipe.packing,
        length=packed_length(recipe.corruption, length),
        corruption=build_corruption(recipe.corruption, corpus.tokenizer, SEED, limit=length),
        tokens=tokens,
        seed=SEED,
        workers=workers,
        reading=LoaderOptions(mixture=recipe.mixture, from_text=recipe.from_text),
    )


def model_of_recipe(recipe: Recipe, *, corpus: str, folder: Path, reporter: Reporter) -> BenchmarkModel:
    """A new model of a recipe, with a vocabulary learned from the text and embeddings of the recipe's size."""
    prepared = prepare(recipe, [corpus], out=folder, valid=None, options=TextOptions(), reporter=reporter)
    opened = Corpus.open(prepared.train)
    size = max(opened.tokenizer.size, getattr(recipe.tokenizer, "size", 0))
    network = Network.build(recipe.model, recipe.objectives, vocabulary=size, seed=SEED)
    return BenchmarkModel(name=recipe.name, recipe=recipe, network=network, corpus=opened, text=corpus, folder=folder)


def pretrained_model(
    origin: ParentModel, recipe: Recipe, *, corpus: str, folder: Path, reporter: Reporter
) -> BenchmarkModel:
    """An existing model with its own vocabulary."""
    prepared = prepare(
        recipe,
        [corpus],
        out=folder,
        valid=None,
        options=TextOptions(),
        reporter=reporter,
        vocabulary=ParentVocabulary(origin),
    )
    network = origin.start(recipe, seed=SEED).model
    name = origin.path.name
    return BenchmarkModel(
        name=name, recipe=recipe, network=network, corpus=Corpus.open(prepared.train), text=corpus, folder=folder
    )


def mean_length(batches: list[TrainingBatch[Ints]]) -> float:
    return float(np.mean(np.concatenate([batch.tokens.lengths for batch in batches])))


# Training steps.

RATE = 1e-5
IGNORED = -100
"""Label that `transformers` ignores."""


class TimedTraining:
    """Steps over batches in turn; subclasses define a step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, batches: Sequence[TrainingBatch[Ints]]) -> None:
        self.batches, self.number = batches, 0

    def step(self) -> None:
        self.take(self.number % len(self.batches))
        self.number += 1

    def take(self, number: int) -> None:
        raise NotImplementedError

    @property
    def held_bytes(self) -> int:
        """Bytes of weights and moments, which persist between steps."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = [*self.model.parameters(), *self.model.buffers(), *(m for m in moments if isinstance(m, Tensor))]
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


class LarvatusTraining(TimedTraining):
    def __init__(
        self, subject: BenchmarkModel, runtime: Runtime, batches: Sequence[TrainingBatch[Ints]], *, length: int
    ) -> None:
        super().__init__(batches)
        self.network = self.model = subject.network.to(runtime.device)
        set_activation_checkpointing(self.model, recomputes(subject, runtime))
        self.optimizer = build_optimizer(self.model, subject.recipe.optimizer)
        self.stepper = Stepper(
            subject.network,
            self.optimizer,
            subject.recipe,
            runtime=runtime,
            ranks=Ranks(),
            seed=1,
            pad_id=subject.corpus.tokenizer.id(subject.corpus.tokenizer.special.pad) or 0,
        )
        self.ready = [self.stepper.prepare(batch, limit=length) for batch in batches]

    def take(self, number: int) -> None:
        self.stepper.launch(self.ready[number], step=self.number, rate=RATE)


def recomputes(subject: BenchmarkModel, runtime: Runtime) -> bool:
    """Whether activations are recomputed in the backward pass, as in a run of the same steps."""
    return must_recompute(subject.recipe, runtime, len(subject.network.encoder.word_vectors))


class TransformersTraining(TimedTraining):
    """`AutoModelForMaskedLM` with SDPA attention, fused AdamW and clipping; compiled if Larvatus is."""

    def __init__(
        self, directory: Path, runtime: Runtime, batches: Sequence[TrainingBatch[Ints]], *, length: int
    ) -> None:
        super().__init__(batches)
        from transformers import AutoModelForMaskedLM

        loaded = AutoModelForMaskedLM.from_pretrained(str(directory), attn_implementation="sdpa")
        self.model = loaded.to(runtime.device).train()
        self.runtime = runtime
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, fused=True)
        self._call: Callable[..., Any] = torch.compile(self.model, dynamic=False) if runtime.compile else self.model
        rows = max(batch.tokens.count for batch in batches) if runtime.compile else 0
        self.padded = [padded(batch, rows=rows, length=length if runtime.compile else 0) for batch in batches]
        if runtime.cuda:
            self.padded = [{name: tensor.pin_memory() for name, tensor in inputs.items()} for inputs in self.padded]

    def take(self, number: int) -> None:
        inputs = {
            name: tensor.to(self.runtime.device, non_blocking=True) for name, tensor in self.padded[number].items()
        }
        with autocast(self.runtime):
            loss = self._call(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def padded(batch: TrainingBatch[Ints], *, rows: int = 0, length: int = 0) -> dict[str, Tensor]:
    """Padded rows as in the collator of `transformers`, of at least the given shape."""
    lengths = torch.from_numpy(batch.tokens.lengths.copy())
    shape = max(rows, batch.tokens.count), max(length, int(lengths.max()))
    targets = batch.targets[MaskedTokens]
    labels_N = torch.full((batch.tokens.size,), IGNORED)
    labels_N[torch.from_numpy(targets.places.copy())] = torch.from_numpy(targets.ids.copy())
    inside = torch.zeros(shape, dtype=torch.bool)
    inside[: batch.tokens.count] = torch.arange(shape[1]) < lengths[:, None]
    ids, labels = torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORED)
    ids[inside] = torch.from_numpy(batch.tokens.ids.copy())
    labels[inside] = labels_N
    inputs = {"input_ids": ids, "attention_mask": inside.long(), "labels": labels}
    if batch.tokens.segments.any():
        segments = torch.zeros(shape, dtype=torch.long)
        segments[inside] = torch.from_numpy(batch.tokens.segments.copy())
        inputs["token_type_ids"] = segments
    return inputs


def flops_of(network: Network, recipe: Recipe, batches: Sequence[TrainingBatch[Ints]]) -> float:
    """Training operations per token of these rows, forward and backward, with attention by their lengths."""
    by_length: dict[int, int] = {}
    for batch in batches:
        for length in batch.tokens.lengths.tolist():
            by_length[length] = by_length.get(length, 0) + 1
    tokens = sum(length * count for length, count in by_length.items())
    work = sum(count * length * flops_per_token(network, recipe, length) for length, count in by_length.items())
    return work / tokens
