"""Masked-LM loss, perplexity and accuracy on held-out text by language, compared with the unigram baseline.

    corpus = open_text([LanguagePath("sw", "held_out/")], bundle.tokenizer, Path("shards"))
    result = evaluate_text(bundle, corpus, runtime=Runtime(), tokens=1_048_576)
    result.languages["sw"].scores["masked-lm"].loss

A model of many languages does worse on each of them than a model of few (the curse of multilinguality, Conneau et al.
2020, §5.2). All held-out evaluations use the same masks, so results of two models with one vocabulary compare.
Perplexities of two languages do not: a language with more subwords per word has easier subwords.

The unigram baseline uses the token frequencies of the evaluated text in each language: the best guess without context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels, text_target_kinds
from larvatus.data.corpus import BuildOptions, Corpus, build_corpus, is_corpus
from larvatus.data.corpus.packing import ContiguousConfig, FullSentencesConfig, PackingConfig, SentencePairsConfig
from larvatus.data.corruption import CorruptionConfig, MaskingConfig
from larvatus.data.text.languages import LanguageSource, path_of
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle
from larvatus.models.recipes import parse_recipe
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import (
    HeldOutScores,
    evaluate,
    held_out_batches,
    measurable_network,
    merge_languages,
    packing_for,
)

LONGEST = 512
"""Sequence length for model directories without a recipe."""


class TextSetup(NamedTuple):
    """Packing, masking and sequence length of evaluated text."""

    packing: PackingConfig
    corruption: CorruptionConfig | None
    length: int
    """Tokens of a sequence."""


def open_text(
    text: Sequence[LanguageSource], tokenizer: Tokenizer, folder: Path, options: BuildOptions | None = None
) -> Corpus:
    """The text as shards in the model's vocabulary: a built corpus, or shards built in `folder`."""
    if len(text) == 1 and is_corpus(path := Path(path_of(text[0]))):
        corpus = Corpus.open(path)
        if corpus.tokenizer.tokens != tokenizer.tokens:
            raise UsageError(f"{path} was built with another vocabulary than the model's; give the text itself")
        return corpus
    build_corpus(text, tokenizer, folder, options)
    return Corpus.open(folder)


def evaluate_text(
    bundle: Bundle,
    corpus: Corpus,
    *,
    runtime: Runtime,
    tokens: int,
    how: TextSetup | None = None,
    only_masked: bool = False,
) -> HeldOutScores:
    """Scores of the model's objectives on up to `tokens` tokens, shared equally between languages.

    `how` defaults to packing and masking of the recipe. The generator predicts the masked tokens of an ELECTRA model.
    `only_masked` scores positions that show `[MASK]`, but not those that show another token (80/10/10).
    """
    if bundle.network.filler is None and not text_target_kinds(bundle.objectives):
        raise ArtefactError(
            f"{bundle.path} has no masked-lm head to evaluate, nor a generator/ in it that has one; "
            "use a model pretrained with masked-lm"
        )
    bundle.network.to(runtime.device)
    names, how = corpus.languages, how or _settings(bundle)

    def of(language: str | None, tokens: int) -> HeldOutScores:
        return _evaluate(bundle, corpus, language, runtime=runtime, tokens=tokens, how=how, only_masked=only_masked)

    if len(names) < 2:
        return of(None, tokens)
    return merge_languages({name: of(name, max(1, tokens // len(names))) for name in names})


def _evaluate(
    bundle: Bundle,
    corpus: Corpus,
    language: str | None,
    *,
    runtime: Runtime,
    tokens: int,
    how: TextSetup,
    only_masked: bool,
) -> HeldOutScores:
    packing, corruption, length = how
    batches = _batches(bundle, corpus, how, tokens=tokens, microbatch=runtime.microbatch, language=language)
    if only_masked:
        mask = corpus.tokenizer.id(corpus.tokenizer.special.mask)
        batches = (_only_shown(batch, mask) for batch in batches)
    return evaluate(
        measurable_network(bundle.network, packing_for(corpus, packing, language), corruption),
        batches,
        runtime=runtime,
        limit=length,
        counts=_frequencies(corpus, language),
        smoothing=0,
    )


def _only_shown(batch: TrainingBatch[Ints], token: int | None) -> TrainingBatch[Ints]:
    """The batch with only those targets that show the given token."""
    targets: MaskedTokens[Ints] = batch.targets[MaskedTokens]
    kept = batch.tokens.ids[targets.places] == token
    fewer = MaskedTokens(places=targets.places[kept], ids=targets.ids[kept])
    return TrainingBatch(tokens=batch.tokens, targets={**batch.targets, MaskedTokens: fewer})


def copy_baseline(corpus: Corpus, how: TextSetup, *, tokens: int, microbatch: int) -> float:
    """Accuracy of a rule without a model: copy the shown token, or predict the most frequent one for `[MASK]`."""
    mask, commonest = corpus.tokenizer.id(corpus.tokenizer.special.mask), int(np.argmax(_frequencies(corpus, None)))
    right = total = 0
    for batch in held_out_batches(
        corpus, how.packing, how.corruption, length=how.length, tokens=tokens, microbatch=microbatch
    ):
        targets = batch.targets[MaskedTokens]
        shown = batch.tokens.ids[targets.places]
        right += int((np.where(shown == mask, commonest, shown) == targets.ids).sum())
        total += len(targets.ids)
    return right / max(total, 1)


def _settings(bundle: Bundle) -> TextSetup:
    """Setup of the model's recipe; for a directory without a recipe, what its heads need."""
    if bundle.recipe is not None:
        recipe = parse_recipe(bundle.recipe, where=str(bundle.path))
        return TextSetup(recipe.packing, recipe.corruption, recipe.phases[-1].length)
    if text_target_kinds(bundle.objectives):
        return TextSetup(ContiguousConfig(), None, min(LONGEST, bundle.model.max_positions))
    pairs = any(config.needs is PairLabels for config in bundle.objectives)
    counted = bundle.tokenizer.counts is not None
    return TextSetup(
        SentencePairsConfig() if pairs else FullSentencesConfig(),
        MaskingConfig(replacement="unigram" if counted else "uniform"),
        min(LONGEST, bundle.model.max_positions),
    )


def _frequencies(corpus: Corpus, language: str | None) -> Ints:
    """[V] counts of tokens in the text of a language."""
    counts = np.zeros(corpus.tokenizer.size, np.int64)
    for number, chunk in enumerate(corpus.chunks):
        if language is None or chunk.language == language:
            counts += np.bincount(corpus.block([number]).ids, minlength=len(counts))
    return counts


def held_out_text(bundle: Bundle, corpus: Corpus, *, tokens: int, batch: int = 2_048) -> list[TrainingBatch[Ints]]:
    """The text that `evaluate_text` reads, as small batches in memory, for several passes."""
    return list(_batches(bundle, corpus, _settings(bundle), tokens=tokens, microbatch=batch))


def _batches(
    bundle: Bundle, corpus: Corpus, how: TextSetup, *, tokens: int, microbatch: int, language: str | None = None
) -> Iterator[TrainingBatch[Ints]]:
    return held_out_batches(
        corpus,
        how.packing,
        how.corruption,
        length=how.length,
        tokens=tokens,
        microbatch=microbatch,
        language=language,
        from_text=text_target_kinds(bundle.objectives),
    )
