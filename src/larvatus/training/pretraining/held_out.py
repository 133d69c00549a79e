"""A model on held-out shards, as a recipe packs and masks them: pairs and masks are the same every time.

Text that has no pairs (one document alone, or one sentence in each) is read in single segments, and objectives of
pairs are not measured on it; those of tokens are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import TextTargets
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.loader import Loader, Reading
from larvatus.data.corpus.packing import PackingConfig, SingleSegmentConfig
from larvatus.data.corruption import Corruption, CorruptionConfig, Course, MaskVocabulary, packed_length
from larvatus.data.text.special_tokens import sentinel_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.network import Network
from larvatus.models.recipes import Recipe
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import HeldOut, evaluate, together

HELD_OUT_SEED = 0  # pairs and masks of held-out text are the same for every run


def corruption_of(
    config: CorruptionConfig | None, tokenizer: Tokenizer, seed: int, *, limit: int, course: Course | None = None
) -> Corruption | None:
    """Corruption with a tokenizer's vocabulary, of sequences of at most `limit` tokens; None where there is none.

    `course`: which steps of a run the text is for; held-out text has none, and always the same share.
    """
    if config is None:
        return None
    vocabulary = MaskVocabulary(
        mask_id=tokenizer.id(tokenizer.special.mask),
        size=tokenizer.size,
        special_ids=tokenizer.special_ids,
        counts=tokenizer.counts,
        sentinels=sentinel_ids(tokenizer),
    )
    return Corruption(config, vocabulary, seed, limit=limit, course=course)


def packing_for(corpus: Corpus, packing: PackingConfig, language: str | None = None) -> PackingConfig:
    """The packing, where the text (of one language) has the pairs that it makes; else single segments."""
    counts = corpus.manifest.counts if language is None else corpus.manifest.languages[language]
    without_pairs = counts.documents < packing.different_documents or counts.sentences <= counts.documents
    return SingleSegmentConfig() if packing.gives and without_pairs else packing


def measurable(model: Network, packing: PackingConfig, corruption: CorruptionConfig | None) -> Network:
    """The model, or the same weights with those objectives alone whose targets packing and corruption give.

    Where that is none of a model that has a generator, the generator.
    """
    given = {*packing.gives, *(corruption.gives if corruption is not None else ())}
    objectives: dict[str, Any] = dict(model.objectives.items())
    kept = {
        name: head for name, head in objectives.items() if head.needs in given or issubclass(head.needs, TextTargets)
    }
    if len(kept) == len(objectives):
        return model
    if not kept and model.generator is not None:
        return measurable(model.generator, packing, corruption)
    part = Network.__new__(Network)
    nn.Module.__init__(part)
    part.encoder, part.generator = model.encoder, model.generator
    part.objectives = nn.ModuleDict(kept)
    return part.train(model.training)


def held_out_batches(
    corpus: Corpus,
    packing: PackingConfig,
    corruption: CorruptionConfig | None,
    *,
    length: int,
    tokens: int,
    microbatch: int,
    language: str | None = None,
    from_text: tuple[type[TextTargets], ...] = (),
) -> Iterator[TrainingBatch[Ints]]:
    """Up to `tokens` tokens of the corpus, or of one of its languages, in sequences of at most `length`."""
    loader = Loader(
        corpus,
        packing=packing_for(corpus, packing, language),
        length=packed_length(corruption, length),
        corruption=corruption_of(corruption, corpus.tokenizer, HELD_OUT_SEED, limit=length),
        tokens=max(microbatch, length),
        seed=HELD_OUT_SEED,
        reading=Reading(purpose="valid", language=language, from_text=from_text),
    )
    return loader.evaluation(tokens)


def held_out(model: Network, corpus: Corpus, recipe: Recipe, *, length: int, tokens: int, runtime: Runtime) -> HeldOut:
    """All objectives on up to `tokens` tokens of the corpus; of each language as many where there are several."""

    def scored(language: str | None, tokens: int) -> HeldOut:
        batches = held_out_batches(
            corpus,
            recipe.packing,
            recipe.corruption,
            length=length,
            tokens=tokens,
            microbatch=runtime.microbatch,
            language=language,
            from_text=recipe.from_text,
        )
        part = measurable(model, packing_for(corpus, recipe.packing, language), recipe.corruption)
        return evaluate(
            part,
            batches,
            runtime=runtime,
            limit=length,
            counts=corpus.tokenizer.counts,
            known=corpus.tokenizer.special_ids,
        )

    names = corpus.languages
    if len(names) < 2:
        return scored(None, tokens)
    return together({name: scored(name, tokens // len(names)) for name in names})
