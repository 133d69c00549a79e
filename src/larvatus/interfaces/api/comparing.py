"""Compare recipes, and repeat published ablations.

table = compare(["bert", "gpt"], corpus="judgments/", out="runs/two", tokens=20_000_000, then={"classify": "sst2"})
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from larvatus.evaluation.compare.compare import Comparison
from larvatus.evaluation.compare.compare import compare as train_candidates
from larvatus.evaluation.compare.downstream import Downstream
from larvatus.evaluation.compare.labelled_sets import Sets, parse_sets
from larvatus.evaluation.compare.results import ComparisonResults
from larvatus.evaluation.compare.runs import Candidate, read_ablation, read_candidates
from larvatus.interfaces.settings import (
    BudgetSettings,
    CompareSettings,
    Corpus,
    MachineSettings,
    TextSettings,
    read_settings,
    text_given,
)
from larvatus.training.engine.reporter import Reporter

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import CompareKeywords


class ComparisonSettings(NamedTuple):
    """All settings of a comparison."""

    chosen: CompareSettings
    time: BudgetSettings
    machine: MachineSettings
    text: TextSettings


def compare(
    recipes: str | Sequence[str],
    *,
    corpus: Corpus,
    out: str | Path,
    then: Sets = (),
    quiet: bool = False,
    to_stderr: bool = False,
    **settings: Unpack[CompareKeywords],
) -> ComparisonResults:
    """Train several recipes on the same text under the same budget, and fine-tune them on the same labelled sets.

    Args:
        recipes: Names or TOML files, as a list or with commas between.
        corpus: Text, a built corpus, several, or a mapping from languages to text.
        out: Where the runs and their results go.
        then: Labelled sets to fine-tune every model on: by task a directory with train.* and dev.*, a tuple of examples
            to learn from, to choose by and to test on (as `finetune` takes them), or several by the name that the
            table is to show: `{"classify": {"reviews": (train, dev)}, "tag": "ewt/"}`; or words, as after `--then`.
        quiet: Show no progress.
        to_stderr: Write progress to standard error.
        **settings: Those of `larvatus compare`: `size`, `settings`, `valid`, `seed`, `seeds`, `resume`; the budget, one
            of `steps`, `minutes`, `tokens`, `epochs`; of fine-tuning `then_settings` (`{"classify:epochs": 3}`),
            `then_seeds`, `then_examples`; the machine and the text as in `pretrain`.

    Returns:
        Every run with what it reached; it shows as a table in a notebook.

    Example:
        >>> results = compare(
        ...     ["bert", "spanbert"], corpus=texts, out=folder / "two", size="tiny", steps=1, quiet=True, **small
        ... )
        >>> len(results.runs)
        2
    """
    structs = ComparisonSettings(
        *read_settings(settings, CompareSettings, BudgetSettings, MachineSettings, TextSettings, function="compare")
    )
    reporter = Reporter.on_stream(quiet=quiet, stderr=to_stderr)
    candidates = recipe_candidates(recipes, structs.chosen)
    return run_comparison(candidates, structs, corpus=corpus, out=out, then=then, reporter=reporter)


def recipe_candidates(recipes: str | Sequence[str], chosen: CompareSettings) -> tuple[Candidate, ...]:
    """Recipes by name, as a list or with commas between."""
    names = recipes if isinstance(recipes, str) else ",".join(recipes)
    return read_candidates(names, size=chosen.size, settings=list(chosen.settings))


def ablate(
    name: str,
    *,
    corpus: Corpus,
    out: str | Path,
    recipe: str | None = None,
    then: Sets = (),
    quiet: bool = False,
    to_stderr: bool = False,
    **settings: Unpack[CompareKeywords],
) -> ComparisonResults:
    """Repeat a published ablation on your own text: variants of one recipe, everything else equal.

    Args:
        name: Which one; `larvatus ablate` lists them.
        corpus: Text, a built corpus, several, or a mapping from languages to text.
        out: Where the runs and their results go.
        recipe: Recipe to vary; default: that of the paper.
        then: Labelled sets to fine-tune every variant on, as in `compare`.
        quiet: Show no progress.
        to_stderr: Write progress to standard error.
        **settings: As in `compare`.

    Returns:
        Every variant with what it reached.

    Example:
        >>> ablate("masking-rate", corpus=texts, out=folder / "rates", size="tiny")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        larvatus.core.errors.UsageError: a comparison needs the same budget for all: --tokens, ...
    """
    structs = ComparisonSettings(
        *read_settings(settings, CompareSettings, BudgetSettings, MachineSettings, TextSettings, function="ablate")
    )
    reporter = Reporter.on_stream(quiet=quiet, stderr=to_stderr)
    candidates = ablation_candidates(name, structs.chosen, recipe=recipe, then=then)
    return run_comparison(candidates, structs, corpus=corpus, out=out, then=then, reporter=reporter)


def ablation_candidates(name: str, chosen: CompareSettings, *, recipe: str | None, then: Sets) -> tuple[Candidate, ...]:
    """Variants of a published ablation, which must be able to learn the labelled sets."""
    ablation = read_ablation(name)
    candidates = ablation.candidates(recipe=recipe, size=chosen.size, settings=list(chosen.settings))
    ablation.check_sets(parse_sets(then))
    return candidates


def run_comparison(
    candidates: tuple[Candidate, ...],
    settings: ComparisonSettings,
    *,
    corpus: Corpus,
    out: str | Path,
    then: Sets,
    reporter: Reporter,
) -> ComparisonResults:
    """Run `compare` or `ablate` from structs."""
    chosen, time, machine, text = settings
    downstream = Downstream.read(
        then,
        chosen.then_settings,
        labels=[candidate.label for candidate in candidates],
        seeds=chosen.then_seeds,
        most=chosen.then_examples,
    )
    plan = Comparison(
        candidates=candidates,
        corpus=text_given(corpus),
        out=Path(out),
        budget=time.budget,
        seeds=(chosen.seed,) if chosen.seeds is None else chosen.seeds,
        valid=chosen.valid,
        options=text.options,
        runtime=machine.runtime,
        resume=chosen.resume,
        downstream=downstream,
    )
    return train_candidates(plan, reporter)
