"""Compare recipes, and repeat published ablations, as one call each.

table = compare(["bert", "gpt"], corpus="judgments/", out="runs/two", tokens=20_000_000, then={"classify": "sst2"})
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from larvatus.evaluation.compare.ablations import read_ablation
from larvatus.evaluation.compare.candidates import Candidate, read_candidates
from larvatus.evaluation.compare.compare import Comparison
from larvatus.evaluation.compare.compare import compare as run_comparison
from larvatus.evaluation.compare.downstream import Downstream
from larvatus.evaluation.compare.labelled_sets import Sets, parse_sets
from larvatus.evaluation.compare.results import ComparisonResults
from larvatus.interfaces.settings import (
    BudgetSettings,
    CompareSettings,
    Corpus,
    MachineSettings,
    TextSettings,
    structs_of,
    text_given,
)
from larvatus.training.engine.watch import Watcher


def compare(
    recipes: str | Sequence[str],
    *,
    corpus: Corpus,
    out: str | Path,
    then: Sets = (),
    quiet: bool = False,
    **settings: Any,
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
        **settings: Those of `larvatus compare`: `size`, `settings`, `valid`, `seed`, `seeds`, `resume`; the budget, one
            of `steps`, `minutes`, `tokens`, `epochs`; of fine-tuning `then_settings` (`{"classify:epochs": 3}`),
            `then_seeds`, `then_examples`; the machine and the text as in `pretrain`; `to_stderr`: progress goes to
            standard error.

    Returns:
        Every run with what it reached; it shows as a table in a notebook.

    Example:
        >>> results = compare(
        ...     ["bert", "spanbert"], corpus=texts, out=folder / "two", size="tiny", steps=1, quiet=True, **small
        ... )
        >>> len(results.runs)
        2
    """
    watcher = Watcher.on_stream(quiet=quiet, stderr=settings.pop("to_stderr", False))
    structs: _Structs = structs_of(settings, CompareSettings, *_OF_RUNS, of="compare")
    chosen: CompareSettings = structs[0]
    names = recipes if isinstance(recipes, str) else ",".join(recipes)
    candidates = read_candidates(names, size=chosen.size, settings=list(chosen.settings))
    return _compare(candidates, structs, corpus=corpus, out=out, then=then, watcher=watcher)


def ablate(
    name: str,
    *,
    corpus: Corpus,
    out: str | Path,
    recipe: str | None = None,
    then: Sets = (),
    **settings: Any,
) -> ComparisonResults:
    """Repeat a published ablation on your own text: variants of one recipe, everything else equal.

    Args:
        name: Which one; `larvatus ablate` lists them.
        corpus: Text, a built corpus, several, or a mapping from languages to text.
        out: Where the runs and their results go.
        recipe: What is varied; else what the paper varied.
        then: Labelled sets to fine-tune every variant on, as in `compare`.
        **settings: As in `compare`, `quiet` among them.

    Returns:
        Every variant with what it reached.

    Example:
        >>> ablate("masking-rate", corpus=texts, out=folder / "rates", size="tiny")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        larvatus.core.errors.UsageError: a comparison needs the same budget for all: --tokens, ...
    """
    watcher = Watcher.on_stream(quiet=settings.pop("quiet", False), stderr=settings.pop("to_stderr", False))
    structs: _Structs = structs_of(settings, CompareSettings, *_OF_RUNS, of="ablate")
    chosen: CompareSettings = structs[0]
    ablation = read_ablation(name)
    candidates = ablation.candidates(recipe=recipe, size=chosen.size, settings=list(chosen.settings))
    ablation.check_sets(parse_sets(then))
    return _compare(candidates, structs, corpus=corpus, out=out, then=then, watcher=watcher)


_OF_RUNS = (BudgetSettings, MachineSettings, TextSettings)
_Structs = tuple[CompareSettings, BudgetSettings, MachineSettings, TextSettings]


def _compare(
    candidates: tuple[Candidate, ...],
    structs: _Structs,
    *,
    corpus: Corpus,
    out: str | Path,
    then: Sets,
    watcher: Watcher,
) -> ComparisonResults:
    chosen, time, machine, text = structs
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
    return run_comparison(plan, watcher)
