"""Caveats of a comparison: printed below its table and stored in `results.json`."""

from __future__ import annotations

import msgspec

from larvatus.evaluation.compare.passages import MaskedPassages
from larvatus.evaluation.compare.results import ComparisonResults, RunResult
from larvatus.training.engine.settings import Budget

FEW_STEPS = 100
UNEQUAL = 1.05  # ratio of text amounts that is worth a note


def budget_text(budget: Budget) -> str:
    """
    >>> budget_text(Budget(tokens=1_000_000)), budget_text(Budget(minutes=10))
    ('1,000,000 tokens', '10 minutes')
    """
    name, amount = next((n, a) for n, a in msgspec.to_builtins(budget).items() if a is not None)
    return f"{amount:,g} {name}" if isinstance(amount, float) else f"{amount:,} {name}"


def run_line(run: RunResult) -> str:
    """One line about a finished run."""
    losses = [f"{name} loss {score.loss:.3f}" for name, score in run.objectives.items()]
    guess = [] if run.guess_loss is None else [f"unigram {run.guess_loss:.3f}"]
    effort = f"{run.steps:,} steps, {run.tokens:,} tokens, {run.seconds:,.0f} s"
    return " · ".join([f"{run.label}, seed {run.seed}: {effort}", *losses, *guess])


def _fills_nothing(results: ComparisonResults, label: str) -> bool:
    return all(run.word_nll is None for run in results.runs if run.label == label)


def _unequal_text(results: ComparisonResults) -> str | None:
    """A note if equal numbers of tokens are not equal amounts of text."""
    words = {run.label: run.words for run in results.runs if run.words}
    if not words or max(words.values()) <= UNEQUAL * min(words.values()):
        return None
    most, least = max(words, key=lambda label: words[label]), min(words, key=lambda label: words[label])
    return (
        f"not all saw as much text: {most} {words[most]:,.0f} words, {least} {words[least]:,.0f}; "
        "--epochs gives all the same text"
    )


def notes_on(results: ComparisonResults, passages: MaskedPassages | None) -> list[str]:
    """All caveats, one line each."""
    notes = []
    if passages is None:
        notes.append("no held-out text to hide the same words in: give it as text with --valid PATH")
    else:
        word, share = passages.guess
        notes.append(
            f"same words: {passages.hidden:,} in {len(passages.passages):,} passages, each all masked; "
            f"always guessing “{word}” gets {share:.1%}"
        )
        if none := [label for label in results.labels if _fills_nothing(results, label)]:
            notes.append(f"{', '.join(none)}: no masked-lm head to fill blanks with, so no line of the same words")
    if note := _unequal_text(results):
        notes.append(note)
    if not results.one_vocabulary:
        notes.append("vocabularies differ: losses per token do not compare, those of the same hidden words do")
    folding = sorted({run.label for run in results.runs if not run.cased})
    if folding and any(run.cased for run in results.runs):
        notes.append(f"{', '.join(folding)}: lower-cased, which makes the words easier to guess than in cased ones")
    windowed = {run.label: run.word_nll.windowed for run in results.runs if run.word_nll and run.word_nll.windowed}
    if windowed:
        counts = ", ".join(f"{label} {count:,}" for label, count in windowed.items())
        notes.append(f"passages longer than a recipe's sequences, and read in windows: {counts}")
    notes += _not_read(results)
    few = {run.label: run.steps for run in results.runs if run.steps < FEW_STEPS}
    for steps in sorted(set(few.values())):
        labels = ", ".join(label for label in few if few[label] == steps)
        notes.append(f"{labels}: only {steps:,} steps; a larger budget or a smaller batch (--set batch=…) tells more")
    return notes


def _not_read(results: ComparisonResults) -> list[str]:
    """Languages in which a model was measured but not trained."""
    notes = []
    for label in results.labels:
        read = {name for run in results.runs if run.label == label for name in run.languages}
        if read and (missing := [name for name in results.languages if name not in read]):
            notes.append(
                f"{label} did not read {', '.join(missing)}, whose words are among the same words hidden for all; "
                "compare by language"
            )
    return notes
