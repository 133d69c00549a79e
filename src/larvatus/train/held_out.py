"""A model on held-out shards, as a recipe packs and masks them: pairs and masks are the same every time."""

from __future__ import annotations

from collections.abc import Iterator

from larvatus.batch import Ints, TrainingBatch
from larvatus.corpus import Corpus
from larvatus.corpus.loader import Loader
from larvatus.corrupt import Corruption, CorruptionConfig, MaskVocabulary
from larvatus.objectives import Pretraining
from larvatus.recipes import Recipe
from larvatus.text.tokenizer import Tokenizer
from larvatus.train.evaluation import HeldOut, evaluate
from larvatus.train.settings import Runtime

HELD_OUT_SEED = 0  # pairs and masks of held-out text are the same for every run


def corruption_of(config: CorruptionConfig, tokenizer: Tokenizer, seed: int) -> Corruption:
    """Corruption with a tokenizer's vocabulary."""
    vocabulary = MaskVocabulary(
        mask_id=tokenizer.mask_id, size=tokenizer.size, special_ids=tokenizer.special_ids, counts=tokenizer.counts
    )
    return Corruption(config, vocabulary, seed)


def held_out_batches(
    corpus: Corpus, recipe: Recipe, *, length: int, tokens: int, microbatch: int, corruption: CorruptionConfig
) -> Iterator[TrainingBatch[Ints]]:
    loader = Loader(
        corpus,
        packing=recipe.packing,
        length=length,
        corruption=corruption_of(corruption, corpus.tokenizer, HELD_OUT_SEED),
        tokens=microbatch,
        seed=HELD_OUT_SEED,
        purpose="valid",
    )
    return loader.evaluation(tokens)


def held_out(
    model: Pretraining, corpus: Corpus, recipe: Recipe, *, length: int, tokens: int, runtime: Runtime
) -> HeldOut:
    """All objectives on up to `tokens` tokens of the corpus, in sequences of at most `length`."""
    batches = held_out_batches(
        corpus, recipe, length=length, tokens=tokens, microbatch=runtime.microbatch, corruption=recipe.corruption
    )
    return evaluate(model, batches, runtime=runtime, limit=length, counts=corpus.tokenizer.counts)
