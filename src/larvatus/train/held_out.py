"""A model on held-out shards, as a recipe packs and masks them: pairs and masks are the same every time."""

from __future__ import annotations

from collections.abc import Iterator

from larvatus.batch import Ints, TrainingBatch
from larvatus.corpus import Corpus
from larvatus.corpus.loader import Loader
from larvatus.corpus.packing import PackingConfig
from larvatus.corrupt import Corruption, CorruptionConfig, MaskVocabulary
from larvatus.objectives import Pretraining
from larvatus.recipes import Recipe
from larvatus.text.tokenizer import Tokenizer
from larvatus.train.evaluation import HeldOut, evaluate, together
from larvatus.train.settings import Runtime

HELD_OUT_SEED = 0  # pairs and masks of held-out text are the same for every run


def corruption_of(config: CorruptionConfig, tokenizer: Tokenizer, seed: int, *, limit: int) -> Corruption:
    """Corruption with a tokenizer's vocabulary, of sequences of at most `limit` tokens."""
    vocabulary = MaskVocabulary(
        mask_id=tokenizer.mask_id, size=tokenizer.size, special_ids=tokenizer.special_ids, counts=tokenizer.counts
    )
    return Corruption(config, vocabulary, seed, limit=limit)


def held_out_batches(
    corpus: Corpus,
    packing: PackingConfig,
    corruption: CorruptionConfig,
    *,
    length: int,
    tokens: int,
    microbatch: int,
    language: str | None = None,
) -> Iterator[TrainingBatch[Ints]]:
    """Up to `tokens` tokens of the corpus, or of one of its languages, in sequences of at most `length`."""
    loader = Loader(
        corpus,
        packing=packing,
        length=corruption.text_length(length),
        corruption=corruption_of(corruption, corpus.tokenizer, HELD_OUT_SEED, limit=length),
        tokens=max(microbatch, length),
        seed=HELD_OUT_SEED,
        purpose="valid",
        language=language,
    )
    return loader.evaluation(tokens)


def held_out(
    model: Pretraining, corpus: Corpus, recipe: Recipe, *, length: int, tokens: int, runtime: Runtime
) -> HeldOut:
    """All objectives on up to `tokens` tokens of the corpus; of each language as many where there are several."""

    def one(language: str | None, tokens: int) -> HeldOut:
        batches = held_out_batches(
            corpus,
            recipe.packing,
            recipe.corruption,
            length=length,
            tokens=tokens,
            microbatch=runtime.microbatch,
            language=language,
        )
        return evaluate(model, batches, runtime=runtime, limit=length, counts=corpus.tokenizer.counts)

    names = corpus.languages
    return one(None, tokens) if len(names) < 2 else together({name: one(name, tokens // len(names)) for name in names})
