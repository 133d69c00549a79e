"""A pretraining run, from a corpus to a model directory: plan, train or resume, evaluate, save.

    larvatus pretrain bert --size tiny --corpus my_texts/ --out runs/mine

The run directory becomes the model directory: a Hugging Face directory at the end, with `metrics.jsonl` and
`checkpoints/` next to it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from contextlib import nullcontext

import msgspec
import torch

from larvatus.core.files import locked, sweep
from larvatus.core.outputs import remove_run
from larvatus.core.regular_files import only_regular
from larvatus.core.rng import derive
from larvatus.core.signals import Stop, handle_signals, resumable
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.loader import Loader, LoaderOptions
from larvatus.data.corpus.mixture import epoch_tokens
from larvatus.data.corruption import RunPosition, packed_length
from larvatus.models.network import Network
from larvatus.models.nn.device import explain_out_of_memory, limit_memory
from larvatus.models.nn.encoder_base import set_activation_checkpointing
from larvatus.models.recipes import recipe_table, steps_of_phases
from larvatus.training.engine.checkpoint import FOLDER, Checkpoint, Provenance
from larvatus.training.engine.launch import launch
from larvatus.training.engine.optimizer import build_optimizer
from larvatus.training.engine.parallel import evaluating
from larvatus.training.engine.ranks import Ranks, check_ranks_agree, ranks
from larvatus.training.engine.reporter import MetricsLog, Reporter, flops_per_token, peak_flops
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining.adapt import start_model
from larvatus.training.pretraining.budget import describe_plan, known_steps, make_plan, measure_steps
from larvatus.training.pretraining.checkpoint import (
    PretrainingState,
    Progress,
    check_run_directory,
    check_same_run,
    newest_checkpoint,
    open_checkpoints,
    restore,
    save_checkpoint,
)
from larvatus.training.pretraining.domains import (
    COMPARED_TOKENS,
    DomainComparison,
    compare_domains,
    metric_records,
    show_domains,
)
from larvatus.training.pretraining.evaluation import HeldOutScores, build_corruption, evaluate_held_out
from larvatus.training.pretraining.job import PretrainingJob, agree_on_job
from larvatus.training.pretraining.loop import Pretraining
from larvatus.training.pretraining.monitor import Monitor, describe_run
from larvatus.training.pretraining.new_vocabulary import read_rows
from larvatus.training.pretraining.plan import FILE as PLAN
from larvatus.training.pretraining.plan import (
    check_memory,
    describe_parallel,
    memory_budget,
    must_recompute,
    place_model,
    whole_model,
)
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.saving import FINAL_TOKENS, FinishedRun
from larvatus.training.pretraining.step import Stepper

KEPT = (FOLDER, "corpus", "vocabulary", "metrics.jsonl", "tensorboard", PLAN)
"""What a run keeps in its directory next to the model: none of it may lead elsewhere."""
LOWER = "lower --microbatch, or train a smaller --size; what was saved stays, and --resume continues from there"
CURVE_TOKENS = 65_536  # read at each evaluation along the way


def train(job: PretrainingJob, texts: Callable[[], PreparedCorpus], reporter: Reporter) -> dict[int, HeldOutScores]:
    """Carry out a job. `texts` builds the shards; it is called once the run is known to own its directory."""
    check_memory(job.recipe, job.runtime, shards=launch().count if job.may_shard else 1)
    with (
        ranks(job.runtime.device, job.runtime.rank_timeout) as group,
        handle_signals() as stop,
        resumable(lambda: _way_on(job)),
        locked(job.out) if group.main else nullcontext(),
        explain_out_of_memory(LOWER),
    ):
        job = agree_on_job(job, group)
        if group.main:
            only_regular(job.out, KEPT)
            inputs = [] if job.origin is None else [job.origin.path]
            check_run_directory(job.out, resume=job.resume, overwrite=job.overwrite, inputs=inputs)
            if job.overwrite:
                remove_run(job.out)
        prepared = group.share(texts)
        run = PretrainingRun(job, prepared, ranks=group, stop=stop, reporter=reporter if group.main else Reporter())
        return run.execute()


def _way_on(job: PretrainingJob) -> str:
    """How a run that was stopped before its first step, or after its last, continues."""
    saved = (job.out / FOLDER).is_dir()
    return f"the same command{' with --resume' if saved else ''} continues from what is in {job.out}"


class PretrainingRun:
    """A job under way on this rank."""

    def __init__(
        self, job: PretrainingJob, prepared: PreparedCorpus, *, ranks: Ranks, stop: Stop, reporter: Reporter
    ) -> None:
        self.job, self.ranks, self.stop, self.reporter = job, ranks, stop, reporter
        self.news = Reporter() if job.brief else reporter  # for what is no warning
        if job.runtime.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
            torch.use_deterministic_algorithms(True)
        verify = launch().local == 0  # once on each machine
        self.corpus = Corpus.open(prepared.train, verify)
        self.valid = Corpus.open(prepared.valid, verify) if prepared.valid else None
        self.tokenizer = self.corpus.tokenizer
        self.model = self._first_model()
        self.sharded, self.job = place_model(self.model, job, ranks, self.reporter.warn)
        self.planned = make_plan(
            self.job,
            self.model,
            loader=self.loader,
            text=self._epoch_tokens(),
            evaluations=2 * len(prepared.domains) + len(job.recipe.phases) if self.valid else 1,
            ranks=ranks,
        )
        self.job = job = self.planned.job
        shards = ranks.count if self.sharded else 1
        self.recomputes = must_recompute(job.recipe, job.runtime, self.tokenizer.size, shards=shards)
        set_activation_checkpointing(self.model, self.recomputes)
        if job.runtime.memory is not None:
            limit_memory(job.runtime.device, memory_budget(job.runtime))
        self.comparison = DomainComparison(
            domains=prepared.domains,
            recipe=job.recipe,
            runtime=job.runtime,
            tokens=self.planned.evaluated(COMPARED_TOKENS),
        )
        self.optimizer = build_optimizer(self.model, job.recipe.optimizer)
        self.stepper = Stepper(
            self.model,
            self.optimizer,
            job.recipe,
            runtime=job.runtime,
            ranks=ranks,
            seed=job.seed,
            pad_id=self.tokenizer.id(self.tokenizer.special.pad) or 0,  # any token does: nobody reads what is filled
            warn=self.reporter.warn,
        )
        if job.stay:
            self.stepper.pull(job.stay, without_rows=read_rows(job.out) is not None)

    def _first_model(self) -> Network:
        """The weights of step 0: initialised, or those of the model to continue from."""
        job = self.job
        if job.origin is None:
            shards = self.ranks.count if job.may_shard else 1
            check_memory(job.recipe, job.runtime, self.tokenizer.size, shards=shards)
            return Network.build(job.recipe.model, job.recipe.objectives, vocabulary=self.tokenizer.size, seed=job.seed)
        started = start_model(job, job.origin)
        self.reporter.say(f"from {job.origin.path}: {started}")
        return started.model

    def execute(self) -> dict[int, HeldOutScores]:
        """Train to the end; held-out results by length, when there is held-out text."""
        self._announce()
        job = self.job
        steps = None if job.resume else self._first_steps()  # refused at once if the budget is too short
        compared = job.origin is not None and self.ranks.main
        before = self.comparison.measure_parent(job, self.model) if compared else {}
        progress = self._begin(steps)
        check_ranks_agree(
            self.ranks, {**self._identity, "step": progress.step, "steps": progress.steps, "phase": progress.phase}
        )
        with self.reporter.metrics(job.out, tensorboard=job.tensorboard) as metrics:
            with self.stop.noting():
                progress = self._train(progress, metrics)
            self.stop.check()
            results = self._final() if self.ranks.main or self.sharded else {}
            for length, result in results.items() if self.ranks.main else ():
                metrics.write("final", progress.step, {"length": length, **result.to_dict()})
            rows = compare_domains(before, self.comparison.measure(self.model)) if before else []
            for record in metric_records(rows):
                metrics.write("domain", progress.step, record)
            with self.stop.noting():
                if (model := whole_model(self.model, job, self.ranks, self.tokenizer.size)) is not None:
                    self._ended().save(model, progress, results, rows)
        if compared:
            show_domains(rows, self.comparison, self.reporter)
        return results

    def _announce(self) -> None:
        """Two lines before the work: what is read, what is trained."""
        again = ", layers computed again in the backward pass" if self.recomputes else ""
        more = f"{again}{describe_parallel(self.ranks, sharded=self.sharded)}"
        for line in describe_run(self.job, self.corpus, self.valid, model=self.model, more=more):
            self.news.say(line)

    def _final(self) -> dict[int, HeldOutScores]:
        """Held-out scores at the length of each phase."""
        results = {}
        for number, phase in enumerate(self.job.recipe.phases):
            result = self._evaluate(number, self.planned.evaluated(FINAL_TOKENS))
            if result is not None:
                results[phase.length] = result
                self.news.say(f"held out, length {phase.length}: {result}")
                for language, part in result.languages.items():
                    self.news.say(f"  {language}: {part}")
        return results

    def _train(self, progress: Progress, metrics: MetricsLog) -> Progress:
        job = self.job
        monitor = self._monitor(progress, metrics) if self.ranks.main else None
        training = Pretraining(
            recipe=job.recipe,
            runtime=job.runtime,
            ranks=self.ranks,
            stepper=self.stepper,
            loader=functools.partial(self.loader, steps=progress.steps),
            held_out=lambda phase: self._evaluate(phase, self.planned.evaluated(CURVE_TOKENS)),
            checkpoint=lambda reached: self._save_checkpoint(reached, monitor),
            back=self._back,
            monitor=monitor,
            evaluates=self.ranks.main or self.sharded,
            stop=self.stop,
            evaluate_every=job.evaluate_every or max(1, progress.steps // 10),
            save_every=job.save_every or max(1, progress.steps // 10),
            progress=progress,
            deadline=job.deadline,
        )
        with monitor or nullcontext():
            return training.run()

    # — where to begin —

    def _begin(self, steps: int | None) -> Progress:
        """From the newest checkpoint when resuming, else from step 0 with a number of steps that is now fixed."""
        job = self.job
        if self.ranks.main:
            sweep(job.out)
            sweep(job.out / FOLDER)
        checkpoints = open_checkpoints(job.out, self.reporter.warn)
        checkpoint = checkpoints.resume(refuse=self._refuse_another_run, made=self._made())
        if checkpoint is None:
            if job.resume:
                self.news.say("no checkpoint yet: starting at step 0")
            steps = steps or self._first_steps()
            if self.ranks.main:
                self.news.say(describe_plan(job, steps, self.planned.plan, self._epoch_tokens()))
            first = round(job.embedding_share * steps)
            self.stepper.begin(first, steps)
            return Progress(steps=steps, embedding_steps=first or msgspec.UNSET)
        progress = self._restore(checkpoint)
        if not job.fork:
            self.stepper.update.lower(progress.microbatch)
        else:
            progress = msgspec.structs.replace(progress, steps=self._steps_asked() or progress.steps)
        self.reporter.say(f"resumed from step {progress.step:,} of {progress.steps:,}")
        return progress

    def _back(self) -> Progress | None:
        """Weights and moments of the newest checkpoint, and how far it had come."""
        checkpoint = newest_checkpoint(self.job.out, self.reporter.warn)
        if checkpoint is None:
            return None
        return self._restore(checkpoint)

    def _restore(self, checkpoint: Checkpoint[PretrainingState]) -> Progress:
        """Restore weights and moments; choose what trains next."""
        progress = checkpoint.state.progress
        self.stepper.begin(progress.embedding_steps or 0, progress.steps)
        self.stepper.stage.resume(progress.step)
        restore(checkpoint, self.model, self.optimizer, steps=self.stepper.stage.optimizer_steps(progress.step))
        return progress

    def _refuse_another_run(self, checkpoint: Checkpoint[PretrainingState]) -> None:
        if not self.job.fork:
            check_same_run(checkpoint, self._identity, steps=self._steps_asked())

    def _made(self) -> Provenance:
        return Provenance.here(self.job.runtime, self.ranks.count)

    def _first_steps(self) -> int:
        """Steps in all: known, or measured, after which the weights are put back to where they began."""
        text = self._epoch_tokens()
        if (steps := known_steps(self.job.recipe, self.job.budget, text)) is not None:
            return steps
        steps = measure_steps(self.planned, self.stepper, loader=self.loader, text=text, sharded=self.sharded)
        self.optimizer.state.clear()
        return self.ranks.agree(steps)

    def _steps_asked(self) -> int | None:
        """The number of steps that the command requests, if any; minutes are not measured again."""
        asked = self.job.budget != Budget()
        return known_steps(self.job.recipe, self.job.budget, self._epoch_tokens()) if asked else None

    def _epoch_tokens(self) -> int:
        """As the languages are mixed, which is the size of the corpus where there is one."""
        return sum(epoch_tokens(self.corpus.manifest.languages, self.job.recipe.mixture).values())

    @functools.cached_property
    def _identity(self) -> dict[str, object]:
        origin: dict[str, object] = {}
        if self.job.origin is not None:
            domains = {
                domain.name: Corpus.open(domain.path, verify=False).fingerprint for domain in self.comparison.domains
            }
            origin = {"from": self.job.origin.fingerprint, "domains": domains}
        return {
            "recipe": recipe_table(self.job.recipe),
            "seed": self.job.seed,
            "corpus": self.corpus.fingerprint,
            "valid": self.valid.fingerprint if self.valid else None,
            **origin,
            **self.job.retention,
        }

    # — what the loop calls —

    def loader(self, phase: int, *, steps: int | None = None, batch: int | None = None) -> Loader:
        """The training text of a phase, packed and masked; `steps` of the run, where they are known already.

        `batch`: sequences of a step, where it is another than the recipe's.
        """
        recipe, length = self.job.recipe, self.job.recipe.phases[phase].length
        tokens = (batch or recipe.batch) * length
        seed = derive(self.job.seed, "phase", phase)  # each phase has its own order and masks
        steps = steps or recipe.schedule.steps
        first = sum(steps_of_phases(recipe.phases, steps)[:phase])
        course = RunPosition(first=first, steps=steps, tokens=tokens)
        return Loader(
            self.corpus,
            packing=recipe.packing,
            length=packed_length(recipe.corruption, length),
            corruption=build_corruption(recipe.corruption, self.tokenizer, seed, limit=length, course=course),
            tokens=tokens,
            seed=seed,
            workers=self.job.runtime.workers,
            reading=LoaderOptions(mixture=recipe.mixture, from_text=recipe.from_text, words=False),
        )

    def _evaluate(self, phase: int, tokens: int) -> HeldOutScores | None:
        """On held-out text, `tokens` in all; of each language as much where there are several."""
        if self.valid is None:
            return None
        job = self.job
        length = job.recipe.phases[phase].length
        runtime = dataclasses.replace(job.runtime, microbatch=self.stepper.update.microbatch)
        with evaluating(self.model):
            return evaluate_held_out(self.model, self.valid, job.recipe, length=length, tokens=tokens, runtime=runtime)

    def _monitor(self, progress: Progress, metrics: MetricsLog) -> Monitor:
        job = self.job
        return Monitor(
            metrics,
            self.reporter,
            brief=job.out.name if job.brief else None,
            steps=progress.steps,
            start=progress.step,
            flops=flops_per_token(self.model, job.recipe, job.recipe.phases[progress.phase].length),
            peak=peak_flops(job.runtime.device),
        )

    def _save_checkpoint(self, progress: Progress, monitor: Monitor | None) -> None:
        if not self.ranks.main and not self.sharded:
            return
        path = save_checkpoint(
            self.job.out,
            model=self.model,
            optimizer=self.optimizer,
            progress=progress,
            identity=self._identity,
            made=self._made(),
            warn=self.reporter.warn,
            main=self.ranks.main,
        )
        if monitor and path:
            monitor.saved(progress.step, path)

    def _ended(self) -> FinishedRun:
        return FinishedRun(
            job=self.job,
            corpus=self.corpus,
            valid=self.valid,
            microbatch=self.stepper.update.microbatch,
            evaluated=self.planned.evaluated(FINAL_TOKENS),
            processes=self.ranks.count,
        )
