"""A run that has ended as a model directory, with the claims of its card.

Ended(job=job, corpus=corpus, valid=valid, microbatch=8_192, processes=1).save(model, progress, results, rows)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from larvatus.data.corpus import Corpus
from larvatus.models.bundle.card import model_card
from larvatus.models.bundle.claims import CardText, claim_dicts
from larvatus.models.bundle.directory import architecture_of, save_bundle
from larvatus.models.bundle.huggingface import layout_for
from larvatus.models.bundle.huggingface.native import Native
from larvatus.models.network import Network
from larvatus.models.recipes import recipe_table
from larvatus.training.pretraining.adapt import parent_of
from larvatus.training.pretraining.card import RunFigures, card_of, training_facts
from larvatus.training.pretraining.checkpoint import Progress
from larvatus.training.pretraining.domains import Change, facts_of
from larvatus.training.pretraining.evaluation import HeldOut
from larvatus.training.pretraining.job import Job

FINAL_TOKENS = 1_048_576
"""Of held-out text, read at the end."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ended:
    """What the run was."""

    job: Job
    corpus: Corpus
    valid: Corpus | None
    microbatch: int
    """Tokens of one pass, as they were in the end."""
    evaluated: int
    """Held-out tokens read at the end, at most."""
    processes: int

    def save(self, model: Network, progress: Progress, results: Mapping[int, HeldOut], rows: Sequence[Change]) -> None:
        """Write the model, its card and its manifest."""
        job, recipe, tokenizer = self.job, self.job.recipe, self.corpus.tokenizer
        facts = training_facts(progress, seed=job.seed, runtime=job.runtime)
        architecture = architecture_of(model, recipe.objectives)
        claims = RunFigures(
            out=job.out,
            model=model,
            corpus=self.corpus,
            valid=self.valid,
            training=facts,
            results=results,
            tokens=self.evaluated,
            domains=facts_of(rows),
            runtime=dataclasses.replace(job.runtime, microbatch=self.microbatch),
            processes=self.processes,
        ).claims()
        card = card_of(
            job.out.name,
            recipe=recipe,
            model=model,
            corpus=self.corpus,
            claims=claims,
            transformers=layout_for(architecture, pad=tokenizer.padding_id).model_type != Native.model_type,
            parent=str(job.origin.path) if job.origin else None,
        )
        save_bundle(
            job.out,
            network=model,
            objective_configs=recipe.objectives,
            tokenizer=tokenizer,
            recipe=recipe_table(recipe),
            lineage={**facts, "corpus": self.corpus.fingerprint, **parent_of(job.origin, job.out)},
            card=CardText(model_card(card), claim_dicts(claims)),
        )
