"""Train several recipes on the same text with the same budget: `larvatus compare bert,roberta,spanbert`.

    candidates = read_candidates("bert,roberta", size="tiny", settings=["batch=64", "bert:optimizer.rate=5e-4"])
    plan = Comparison(candidates=candidates, corpus=["texts/"], out=Path("runs/compare"), budget=Budget(minutes=10))
    results = compare(plan, Reporter(console))

    runs/compare/compare.json        the plan; a resume with another plan is refused
    runs/compare/texts/…             vocabulary and shards, shared by recipes with the same tokenizer settings
    runs/compare/bert/               an ordinary run and model directory (bert-seed-1/ … with several seeds)
    runs/compare/then/bert/          fine-tuning scores on each labelled set from each seed (`downstream.py`)
    runs/compare/results.json        the contents of the table
    runs/compare/compare.png         the curves

Each run equals a run of `larvatus pretrain` with the same recipe, text, steps and seed. The text is prepared before any
training, so that errors show up early. An error names the run that failed. With `resume`, finished runs are checked and
reused, and unfinished ones continue.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, DataError, LarvatusError, UsageError
from larvatus.core.files import locked, sweep, write_json
from larvatus.core.ranges import SEED
from larvatus.core.regular_files import only_regular
from larvatus.core.run_identity import changed_fields
from larvatus.data.corpus import Corpus
from larvatus.data.text.languages import LanguageSource
from larvatus.evaluation.compare.downstream import FOLDER as THEN
from larvatus.evaluation.compare.downstream import Downstream, PretrainedModel, fine_tune_all
from larvatus.evaluation.compare.fine_tuned import FineTuneRefusal, FineTuneScore
from larvatus.evaluation.compare.results import ComparisonResults, RunResult
from larvatus.evaluation.compare.runs import Candidate, CandidateRun, run_candidate
from larvatus.evaluation.compare.word_nll import MaskedPassages
from larvatus.models.recipes import recipe_table
from larvatus.training.engine.launch import launch
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.budget import known_steps
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus, TextOptions, held_out_documents, longest, prepare
from larvatus.training.pretraining.text_record import kept_input

PLAN, RESULTS, TEXTS = "compare.json", "results.json", "texts"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Candidates, text and budget of a comparison."""

    candidates: tuple[Candidate, ...]
    corpus: Sequence[LanguageSource]
    out: Path
    budget: Budget
    seeds: tuple[int, ...] = (0,)
    valid: str | None = None
    options: TextOptions = field(default_factory=TextOptions)
    runtime: Runtime = field(default_factory=Runtime)
    resume: bool = False
    downstream: Downstream = field(default_factory=Downstream)
    """Labelled sets on which every model is fine-tuned."""

    def __post_init__(self) -> None:
        if not self.candidates:
            raise UsageError("nothing to compare; name recipes, such as bert,roberta")
        if self.budget == Budget():
            raise UsageError("a comparison needs the same budget for all: --tokens, --epochs, --minutes or --steps")
        folders = [candidate.folder for candidate in self.candidates]
        for candidate in self.candidates:
            if folders.count(candidate.folder) > 1:
                raise UsageError(
                    f"{candidate.label} is compared with itself; name each once, and give a variant a file "
                    f'of its own that begins with base = "{candidate.recipe.name}"'
                )
            if candidate.folder in (TEXTS, THEN):
                raise UsageError(f"a recipe called {candidate.folder} would overwrite other files; rename it")
        for seed in self.seeds:
            SEED.check(seed, "--seed")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"--seeds needs different numbers, such as 1,2,3, not {','.join(map(str, self.seeds))}")


def compare(plan: Comparison, reporter: Reporter) -> ComparisonResults:
    """Train, measure and fine-tune all candidates, and write the results to `results.json`."""
    if launch().count > 1:
        raise UsageError("a comparison runs in one process; start it without torchrun")
    clock = _Clock()
    with locked(plan.out):
        only_regular(plan.out)
        sweep(plan.out)
        _begin(plan)
        plan = replace(plan, corpus=[str(kept_input(plan.out)) if path == "-" else path for path in plan.corpus])
        prepared = {candidate.label: _texts(plan, candidate, reporter) for candidate in plan.candidates}
        for candidate in plan.candidates:
            _check(plan, candidate, Corpus.open(prepared[candidate.label].train))
        passages = _sample_passages(plan)
        clock.end("text")
        runs = _pretrained(plan, prepared, passages, reporter)
        clock.end("pretraining")
        outcomes = fine_tune_all(
            plan.downstream, _models(plan, runs), reporter, runtime=plan.runtime, resume=plan.resume
        )
        clock.end("fine-tuning")
        results = ComparisonResults(
            runs=tuple(runs),
            budget=budget_text(plan.budget),
            sets=plan.downstream.facts,
            tuned=tuple(outcome for outcome in outcomes if isinstance(outcome, FineTuneScore)),
            refusals=tuple(outcome for outcome in outcomes if isinstance(outcome, FineTuneRefusal)),
            seconds=clock.seconds,
        )
        results = msgspec.structs.replace(results, notes=tuple(notes_on(results, passages)))
        write_json(plan.out / RESULTS, as_dict(results))
    return results


class _Clock:
    """Seconds spent in each stage of a comparison."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}

    def end(self, part: str) -> None:
        now = time.monotonic()
        self.seconds[part], self.began = round(now - self.began, 3), now


def _pretrained(
    plan: Comparison, prepared: dict[str, PreparedCorpus], passages: MaskedPassages | None, reporter: Reporter
) -> list[RunResult]:
    """Pretrain every candidate from every seed. Candidates that differ only in fine-tuning share one run."""
    runs: list[RunResult] = []
    trained = [_first(plan, candidate) for candidate in plan.candidates]
    total = len(plan.seeds) * len({candidate.label for candidate in trained})
    for seed in plan.seeds:
        by_label: dict[str, RunResult] = {}
        for candidate, first in zip(plan.candidates, trained, strict=True):
            if first.label not in by_label:
                job = PretrainingJob(
                    recipe=first.recipe,
                    out=plan.out / _folder_of(plan, first, seed),
                    runtime=plan.runtime,
                    budget=share_of_budget(plan.budget, first.share),
                    seed=seed,
                    resume=plan.resume,
                    brief=True,
                )
                trial = CandidateRun(label=first.label, job=job, prepared=prepared[first.label])
                by_label[first.label] = run_candidate(trial, passages, reporter)
                number = len({run.path for run in [*runs, *by_label.values()]})
                reporter.say(f"{number} of {total}  {run_line(by_label[first.label])}")
            runs.append(msgspec.structs.replace(by_label[first.label], label=candidate.label))
    return runs


def _first(plan: Comparison, candidate: Candidate) -> Candidate:
    """The first candidate that has the same pretraining."""
    return next(other for other in plan.candidates if candidate.pretrained_as(other))


def _folder_of(plan: Comparison, candidate: Candidate, seed: int) -> str:
    return candidate.folder + (f"-seed-{seed}" if len(plan.seeds) > 1 else "")


def share_of_budget(budget: Budget, share: float) -> Budget:
    """A share of a budget, at least one step or token.

    >>> share_of_budget(Budget(steps=1_000), 0.25).steps
    250
    """
    if share == 1:
        return budget
    amounts: dict[str, Any] = msgspec.to_builtins(budget)
    parts = {name: share * amount for name, amount in amounts.items() if amount is not None}
    whole: dict[str, Any] = {name: max(1, round(part)) for name, part in parts.items() if name in ("steps", "tokens")}
    return Budget(**{**parts, **whole})


def _models(plan: Comparison, runs: Sequence[RunResult]) -> list[PretrainedModel]:
    candidates = {candidate.label: candidate for candidate in plan.candidates}
    return [
        PretrainedModel(
            label=run.label,
            seed=run.seed,
            path=Path(run.path),
            out=plan.out / THEN / _folder_of(plan, candidates[run.label], run.seed),
            tuning=candidates[run.label].tuning,
        )
        for run in runs
    ]


def as_dict(results: ComparisonResults) -> dict[str, object]:
    """Runs and rows of the table, for JSON."""
    plain: dict[str, object] = msgspec.to_builtins(results)
    return {**plain, "rows": msgspec.to_builtins(results.rows())}


def _begin(plan: Comparison) -> None:
    """Write the plan, or check it when resuming. A directory with other files is not touched."""
    path = plan.out / PLAN
    identity: dict[str, object] = {
        "contestants": {candidate.label: recipe_table(candidate.recipe) for candidate in plan.candidates},
        "corpus": [str(path) for path in plan.corpus],
        "valid": plan.valid,
        "options": msgspec.to_builtins(plan.options),
        "budget": msgspec.to_builtins(plan.budget),
        "seeds": list(plan.seeds),
    }
    if any(candidate.share != 1 for candidate in plan.candidates):
        identity["shares"] = {candidate.label: candidate.share for candidate in plan.candidates}
    if not path.exists():
        if others := sorted(p.name for p in plan.out.iterdir() if not p.name.startswith(".")):
            raise ArtefactError(f"{plan.out} holds something else ({others[0]}); choose another --out")
        write_checksummed(path, identity)
    elif not plan.resume:
        raise ArtefactError(f"{plan.out} already holds a comparison; continue with --resume, or choose another --out")
    elif changed := changed_fields(read_checksummed(path, way="choose another --out"), identity):
        raise ArtefactError(
            f"{plan.out} holds another comparison: {'; '.join(map(str, changed[:8]))}; resume with the same, "
            "or choose another --out"
        )


def _folder(plan: Comparison, candidate: Candidate) -> Path:
    """Folder of vocabulary and shards, shared by candidates with the same tokenizer settings."""
    recipe = candidate.recipe
    settings = msgspec.json.encode((recipe.tokenizer, recipe.mixture), order="sorted")
    kind = msgspec.to_builtins(recipe.tokenizer)["type"]
    return plan.out / TEXTS / f"{kind}-{hashlib.sha256(settings).hexdigest()[:8]}"


def _texts(plan: Comparison, candidate: Candidate, reporter: Reporter) -> PreparedCorpus:
    folder = _folder(plan, candidate)
    try:
        return prepare(
            candidate.recipe,
            plan.corpus,
            out=folder,
            valid=plan.valid,
            options=plan.options,
            reporter=reporter,
            length=longest(candidate.recipe for candidate in plan.candidates),  # the same text is held out for all
        )
    except LarvatusError as fault:
        raise type(fault)(f"{candidate.label}: {fault}") from fault


def _check(plan: Comparison, candidate: Candidate, corpus: Corpus) -> None:
    """Raise errors now that would otherwise stop the training later."""
    recipe = candidate.recipe
    step = recipe.batch * max(phase.length for phase in recipe.phases)
    try:
        known_steps(recipe, share_of_budget(plan.budget, candidate.share), corpus.tokens)
        recipe.packing.check(corpus.manifest.counts)
    except LarvatusError as fault:
        said = str(fault)
        raise type(fault)(said if candidate.label in said else f"{candidate.label}: {said}") from fault
    if corpus.tokens < step:
        raise DataError(
            f"{candidate.label}: the text has {corpus.tokens:,} tokens, and one step takes {step:,}; give more text, "
            f"or a smaller batch (--set {candidate.label}:batch=…)"
        )


def _sample_passages(plan: Comparison) -> MaskedPassages | None:
    """Masked passages of the validation text, the same for all candidates."""
    folder = _folder(plan, plan.candidates[0])
    documents = held_out_documents(plan.corpus, out=folder, valid=plan.valid, options=plan.options)
    if documents is None:
        return None
    return MaskedPassages.of(documents(), language=plan.options.language, sentences=plan.options.sentences)


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
        notes.append("no held-out text to mask the same words in: give it as text with --valid PATH")
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
        notes.append("vocabularies differ: losses per token do not compare, those of the same masked words do")
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
                f"{label} did not read {', '.join(missing)}, whose words are among the same words masked for all; "
                "compare by language"
            )
    return notes
