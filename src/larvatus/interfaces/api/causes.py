"""Causes of what a model answers: knockouts of heads and neurons, and sparse features of a layer.

knockout("runs/mine", pairs="blimp.jsonl", phenomena=["anaphor_number_agreement"]).significant
knockout("runs/classifier", data="dev.tsv", layers=[7, 8], ablation="zero").sets
train_features("runs/mine", "texts/", layer=6, out="runs/features").comparison()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack, cast

import msgspec

from larvatus.core.errors import ArtefactError, UsageError, did_you_mean
from larvatus.core.ranges import Count
from larvatus.core.rng import stream
from larvatus.core.settings import Settings
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.text.readers import Skipped
from larvatus.evaluation.compare.minimal_pairs import GROUPS, read_pairs
from larvatus.evaluation.features.autoencoder import FeatureSettings
from larvatus.evaluation.features.results import SparseFeatures, check_new
from larvatus.evaluation.features.train import train_features as train
from larvatus.inference.interpret.importance import NOT_MEASURED, measured_objective
from larvatus.inference.interpret.knockout import KnockoutOptions, KnockoutReport, knock_out
from larvatus.inference.interpret.outcomes import (
    KnockoutOutcome,
    LabelledPair,
    MaskedTextOutcome,
    Measure,
    Method,
    PairOutcome,
    TaskOutcome,
)
from larvatus.inference.model import Model
from larvatus.interfaces.api.evaluating import read_for
from larvatus.interfaces.api.interpretation import read_held_out
from larvatus.interfaces.api.text_evaluation import files_or_sentences
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.scoring import ScoringOptions
from larvatus.training.engine.settings import BUDGETS

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import KnockoutKeywords, TrainFeaturesKeywords

Pairs = str | Path | Sequence[str | Path] | Sequence[tuple[str, str]]


class OutcomeSettings(Settings):
    """What is measured with heads or neurons switched off."""

    measure: Measure = "accuracy"
    """accuracy; or log-probability, which shows small effects too (of pairs, the log-odds of the good sentence)."""
    method: Method = "word"
    """How pairs are compared: by the word in which they differ, or by the pseudo-log-likelihood of the sentence."""
    phenomena: tuple[str, ...] = ()
    """Only pairs of these phenomena (their UID); repeatable."""
    examples: Count | None = None
    """Most pairs of each phenomenon, sampled at random; default: all."""
    metric: str | None = None
    """Metric of a fine-tuned task; default: its first."""
    tokens: Annotated[int, BUDGETS["tokens"]] = 8_192
    """Most tokens of text."""


@dataclass(frozen=True)
class KnockoutSources:
    """What a knockout is measured on: one of these."""

    pairs: Pairs | None = None
    corpus: Texts | None = None
    data: Examples | None = None


def knockout(
    model: str | Path | Model,
    *,
    pairs: Pairs | None = None,
    corpus: Texts | None = None,
    data: Examples | None = None,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
    skipped: Skipped | None = None,
    **settings: Unpack[KnockoutKeywords],
) -> KnockoutReport:
    """Switch off attention heads or neurons, one by one and in greedy sets, and measure what changes.

    Args:
        model: A model directory, a hub name, or a loaded model.
        pairs: Minimal pairs: files of BLiMP's JSONL or of good<TAB>bad[<TAB>phenomenon] lines; or pairs of sentences.
        corpus: Held-out text, or a built corpus: the outcome is the prediction of masked tokens.
        data: Labelled examples for a fine-tuned model: the outcome is the score of its task.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called with the number of knockouts that are done, and of how many.
        skipped: Counts what could not be read.
        **settings: What is switched off: `of` (`heads`, `neurons`), `layers`, `limit`, `ablation` (`mean`, `zero`).
            What is measured: `measure` (`accuracy`, `log-probability`), `method` of pairs (`word`, `sentence`),
            `phenomena`, `examples`, `metric` of a task, `tokens` of text, and how text is read. How changes are
            tested: `correction` (`holm`, `bh`), `greedy`, `random_sets`, `samples`, `seed`.

    Returns:
        `.rows`, the change without each head or neuron with interval and adjusted p, `.significant` of these, and
        `.sets`, the greedy sets next to random ones. It prints as tables.

    Example:
        >>> pairs = [("the river ran", "the river a"), ("the town ran", "the town a")]
        >>> report = knockout(model, pairs=pairs, greedy=0, measure="log-probability")
        >>> len(report.rows) == model.encoder.depth * model.encoder.heads
        True
    """
    options, chosen, reading = read_settings(
        settings, KnockoutOptions, OutcomeSettings, TextSettings, function="knockout"
    )
    sources = KnockoutSources(pairs, corpus, data)
    return run_knockout(
        model, sources, options, chosen, reading, device=device, progress=progress, skipped=skipped or Skipped()
    )


def run_knockout(
    model: str | Path | Model,
    sources: KnockoutSources,
    options: KnockoutOptions,
    chosen: OutcomeSettings,
    reading: TextSettings,
    *,
    device: str,
    progress: Callable[[int, int], None],
    skipped: Skipped,
) -> KnockoutReport:
    """Run `knockout` from structs."""
    pairs, corpus, data = sources.pairs, sources.corpus, sources.data
    if sum(given is not None for given in (pairs, corpus, data)) != 1:
        raise UsageError("a knockout needs one of --pairs FILE, --corpus TEXT and --data FILE to be measured on")
    loaded = loaded_model(model, device)
    network = loaded.network if data is not None else loaded.network.filler or loaded.network
    notes: tuple[str, ...] = ()
    outcome: KnockoutOutcome
    if pairs is not None:
        of_pairs = _pair_outcome(loaded, pairs, chosen, options.seed)
        if of_pairs.skipped:
            notes += (f"{of_pairs.skipped:,} pairs do not differ in exactly one word and were skipped",)
        if long := of_pairs.long(network):
            notes += (f"{long:,} pairs are longer than the model's window and are read in parts that fit into it",)
        outcome = of_pairs
    elif corpus is not None:
        if measured_objective(network) is None:
            raise ArtefactError(f"{loaded.bundle.path} {NOT_MEASURED}")
        batches = read_held_out(loaded, path_names(corpus), chosen.tokens, reading, skipped)
        outcome = MaskedTextOutcome(batches, chosen.measure)
    else:
        scoring = EvaluationOptions(scoring=ScoringOptions(device=str(loaded.device)))
        examples = read_for(loaded.bundle, cast(Examples, data), {})
        outcome = TaskOutcome(loaded.bundle, examples, scoring, metric=chosen.metric)
    report = knock_out(network, outcome, options, progress)
    return msgspec.structs.replace(report, notes=(*notes, *report.notes))


def _pair_outcome(loaded: Model, given: Pairs, chosen: OutcomeSettings, seed: int) -> PairOutcome:
    files, sentences = files_or_sentences(given)
    read = sentences or read_pairs(files)
    name = next(iter(GROUPS))
    if chosen.phenomena:
        known = {pair.groups.get(name, "") for pair in read}
        for each in chosen.phenomena:
            if each not in known:
                raise UsageError(f"no pair has the phenomenon {each!r}{did_you_mean(each, sorted(known))}")
        read = [pair for pair in read if pair.groups.get(name) in chosen.phenomena]
    listed = [LabelledPair(pair.good, pair.bad, pair.groups.get(name), pair.where or "a pair") for pair in read]
    if chosen.examples is not None:
        by_group: dict[str | None, list[int]] = {}
        for number, pair in enumerate(listed):
            by_group.setdefault(pair.group, []).append(number)
        kept = [
            numbers[place]
            for item, numbers in enumerate(by_group.values())
            for place in stream(seed, "knockout-pairs", item=item).permutation(len(numbers))[: chosen.examples].tolist()
        ]
        listed = [listed[number] for number in sorted(kept)]
    return PairOutcome(loaded.tokenizer, listed, chosen.measure, chosen.method, str(loaded.bundle.path))


def train_features(
    model: str | Path | Model,
    corpus: Texts,
    *,
    layer: int,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Callable[[int], None] = lambda done: None,
    skipped: Skipped | None = None,
    **settings: Unpack[TrainFeaturesKeywords],
) -> SparseFeatures:
    """Train sparse features of one layer, with a top-k autoencoder, next to those of an encoder with random weights.

    Args:
        model: A model directory, a hub name, or a loaded model.
        corpus: Files, directories or globs of text.
        layer: Layer whose states are explained, from 1; 0: the embeddings.
        out: New directory for the features.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called with the number of tokens that were trained on.
        skipped: Counts what could not be read.
        **settings: `size` (number of features), `k` (active at once), `tokens`, `epochs`, `buffer`, `batch`,
            `learning_rate`, `auxiliary`, `dead_after`, `contexts`, `seed`; how text is read.

    Returns:
        `.features["trained"]`, each with its strongest contexts, and `.dictionaries`, the comparison of both encoders.
        `SparseFeatures.load(out)` reads them again.

    Example:
        >>> features = train_features(model, texts, layer=1, size=32, k=4, tokens=1000, batch=64)
        >>> len(features.features["trained"]), sorted(features.dictionaries)
        (32, ['random', 'trained'])
    """
    chosen, reading = read_settings(settings, FeatureSettings, TextSettings, function="train_features")
    path = None if out is None else Path(out)
    loaded = partial(loaded_model, model, device)
    return run_feature_training(
        loaded, path_names(corpus), chosen, reading, layer=layer, out=path, progress=progress, skipped=skipped
    )


def run_feature_training(
    model: Callable[[], Model],
    paths: Sequence[str],
    chosen: FeatureSettings,
    reading: TextSettings,
    *,
    layer: int,
    out: Path | None,
    progress: Callable[[int], None],
    skipped: Skipped | None,
) -> SparseFeatures:
    """Run `train_features` from structs; the model is loaded when the output has been checked."""
    if out is not None:
        check_new(out)
    passages = reading.passages
    features = train(model(), paths, layer=layer, settings=chosen, reading=passages, progress=progress, skipped=skipped)
    if out is not None:
        features.save(out)
    return features
