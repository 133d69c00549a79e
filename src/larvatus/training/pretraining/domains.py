"""What adaptation gained and what it forgot: one table of losses on the new domain and the old, before and after.

                       loss         accuracy
    domain  objective  before  after    before  after
    new     masked-lm   7.183  5.745      4.1%  11.1%
    old     masked-lm   6.010  7.158     10.7%   7.5%

Masks are the same before and after. With an extended or another vocabulary they cannot be: the text has other tokens,
and a loss per token says little (Cotterell et al. 2018). Then whole words are hidden as well, each with the same
probability however many pieces it has, and what the model pays for a word is the sum over its pieces: words are the
same in both vocabularies, so nats a word compare. They are also measured where text is replayed, to compare with runs
in other vocabularies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.tables import Cell, Column, Table
from larvatus.data.corpus import Corpus
from larvatus.data.corruption import WholeWordConfig
from larvatus.models.network import Network
from larvatus.models.recipes import Recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import (
    HeldOutScores,
    evaluate,
    evaluate_held_out,
    held_out_batches,
    network_part,
)
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import TextDomain

COMPARED_TOKENS = 131_072  # of each domain, before and after
MASKED_LM = "masked-lm"


@dataclass(frozen=True)
class DomainScores:
    """A model on one domain."""

    result: HeldOutScores
    word_loss: float | None = None
    """Nats for a hidden whole word; measured where vocabularies differ, or text is replayed."""


@dataclass(frozen=True, kw_only=True)
class DomainChange:
    """One objective on one domain."""

    domain: str
    objective: str
    before: DomainScores
    after: DomainScores

    def figures(self) -> dict[str, float]:
        """All that was measured, by name."""
        figures = {}
        for when in ("before", "after"):
            measured: DomainScores = getattr(self, when)
            score = measured.result.scores[self.objective]
            figures[f"loss {when}"], figures[f"accuracy {when}"] = score.loss, score.accuracy
            if measured.word_loss is not None and self.objective == MASKED_LM:
                figures[f"nats a word {when}"] = measured.word_loss
        return figures


@dataclass(frozen=True, kw_only=True)
class DomainComparison:
    """How to measure: the same way before and after."""

    domains: Sequence[TextDomain]
    recipe: Recipe
    runtime: Runtime
    tokens: int = COMPARED_TOKENS
    """Tokens of each domain, before and after."""

    @property
    def extended(self) -> bool:
        return any(domain.path != domain.before for domain in self.domains)

    @property
    def per_word(self) -> bool:
        """Whether nats a word are measured."""
        return self.extended or self.recipe.mixture.replay_share > 0

    def measure_parent(self, job: PretrainingJob, model: Network) -> dict[str, DomainScores]:
        """The model that a job continues from, in the vocabulary that it had; `model` is that of step 0."""
        assert job.origin is not None
        if self.extended:
            model = job.origin.start(job.recipe, seed=job.seed).model.to(job.runtime.device)
        return self.measure(model, before=True)

    def measure(self, model: Network, *, before: bool = False) -> dict[str, DomainScores]:
        """A model on every domain; `before`, in the vocabulary that it had."""
        measured = {}
        length = self.recipe.phases[-1].length
        for domain in self.domains:
            corpus = Corpus.open(domain.before if before else domain.path)
            result = evaluate_held_out(
                model, corpus, self.recipe, length=length, tokens=self.tokens, runtime=self.runtime
            )
            wanted = self.per_word and MASKED_LM in result.scores
            words = (
                word_loss(model, corpus, self.recipe, length=length, runtime=self.runtime, tokens=self.tokens)
                if wanted
                else None
            )
            measured[domain.name] = DomainScores(result, words)
        return measured


def word_loss(
    model: Network, corpus: Corpus, recipe: Recipe, *, length: int, runtime: Runtime, tokens: int = COMPARED_TOKENS
) -> float:
    """Nats for a hidden word: whole words are hidden at the recipe's rate, and the losses of their pieces added up."""
    assert recipe.corruption is not None  # a masked-lm head was trained, so something was masked
    whole = WholeWordConfig(rate=recipe.corruption.rate, mask=1.0, random=0.0, keep=0.0)
    batches = held_out_batches(
        corpus, recipe.packing, whole, length=length, tokens=tokens, microbatch=runtime.microbatch
    )
    words = 0

    def counted() -> Iterator[TrainingBatch[Ints]]:
        nonlocal words
        for batch in batches:
            words += hidden_words(batch)
            yield batch

    filler = model.filler or model
    part = network_part(filler, {MASKED_LM: filler.objectives[MASKED_LM]})  # other heads need other targets
    score = evaluate(part, counted(), runtime=runtime, limit=length).scores[MASKED_LM]
    return score.loss * score.count / max(words, 1)


def hidden_words(batch: TrainingBatch[Ints]) -> int:
    """How many words the hidden tokens of a batch belong to."""
    places = batch.targets[MaskedTokens].places
    sequence = np.repeat(np.arange(batch.tokens.count), batch.tokens.lengths)[places]
    word = batch.tokens.words[places]
    return int(((np.diff(sequence, prepend=-1) != 0) | (np.diff(word, prepend=-1) != 0)).sum())


def compare_domains(before: Mapping[str, DomainScores], after: Mapping[str, DomainScores]) -> list[DomainChange]:
    return [
        DomainChange(domain=domain, objective=objective, before=before[domain], after=after[domain])
        for domain in after
        for objective in after[domain].result.scores
    ]


def card_facts(rows: Sequence[DomainChange]) -> dict[str, float]:
    """For the model card."""
    return {
        f"{row.domain} domain: {row.objective} {name}": value for row in rows for name, value in row.figures().items()
    }


def metric_records(rows: Sequence[DomainChange]) -> list[dict[str, Any]]:
    """For `metrics.jsonl`."""
    return [{"domain": row.domain, "objective": row.objective, **row.figures()} for row in rows]


def show_domains(rows: Sequence[DomainChange], comparison: DomainComparison, reporter: Reporter) -> None:
    """Show the table, and what a reader of it must know."""
    if rows:
        reporter.show(_table(rows, per_word=comparison.per_word))
    for line in _notes(comparison):
        reporter.say(line)


def _table(rows: Sequence[DomainChange], *, per_word: bool) -> Table:
    names = ["loss", "accuracy", *(["nats a word"] if per_word else [])]  # as `figures` calls them
    columns = [Column("domain", right=False), Column("objective", right=False)]
    for name in names:
        columns += [Column(f"{name}\nbefore"), Column("\nafter")]
    lines = []
    for row in rows:
        figures = row.figures()
        cells = [figures.get(f"{name} {when}") for name in names for when in ("before", "after")]
        shown = ["" if f is None else f"{f:.1%}" if 2 <= place < 4 else f"{f:.3f}" for place, f in enumerate(cells)]
        lines.append([Cell(text) for text in (row.domain, row.objective, *shown)])
    return Table(title="held out, before and after", columns=columns, rows=lines)


def _notes(comparison: DomainComparison) -> list[str]:
    lines = []
    if not any(domain.name == "old" for domain in comparison.domains):
        lines.append("what was forgotten is not seen here: give text of the old domain with --old PATH")
    if not any(domain.name == "new" for domain in comparison.domains):
        lines.append("the new domain has no held-out text: give some with --valid PATH")
    if comparison.extended:
        lines.append(
            "the vocabulary changed, so losses and accuracies are over other tokens before and after: "
            "compare nats a word"
        )
    return lines
