"""One run of a comparison: train or resume it, measure it, and store the result with it.

`result.json` in the run's directory records the result and its inputs. A resume reuses it only if recipe, seed, text,
budget and model are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, LarvatusError
from larvatus.core.files import sha256
from larvatus.core.run_identity import changed_fields
from larvatus.data.corpus import Corpus
from larvatus.evaluation.compare.results import ComparedObjective, LossPoint, RunResult
from larvatus.evaluation.compare.word_nll import MaskedPassages, measure_word_nll
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.manifest import NAME as MANIFEST
from larvatus.models.network import Network
from larvatus.models.nn.initialise import empty_weights
from larvatus.models.recipes import recipe_table
from larvatus.training.engine.reporter import Reporter
from larvatus.training.pretraining.checkpoint import newest_checkpoint
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import train

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class CandidateRun:
    """One candidate with one seed."""

    label: str
    job: PretrainingJob
    prepared: PreparedCorpus


def run_candidate(trial: CandidateRun, passages: MaskedPassages | None, reporter: Reporter) -> RunResult:
    """Return the result of a finished run, or train and measure."""
    job, corpus = trial.job, Corpus.open(trial.prepared.train)
    identity: dict[str, Any] = {
        "recipe": recipe_table(job.recipe),
        "seed": job.seed,
        "budget": msgspec.to_builtins(job.budget),
        "corpus": corpus.fingerprint,
        "yardstick": passages.fingerprint if passages else None,
    }
    if job.resume and (job.out / RESULT).exists():
        reporter.say(f"{job.out} is finished: reused")
        return _finished(trial, identity)
    try:
        held_out = train(job, lambda: trial.prepared, reporter)
    except LarvatusError as fault:
        raise type(fault)(f"{trial.label}, seed {job.seed}: {fault}") from fault
    result = _measured(trial, corpus, held_out, passages)
    identity["manifest"] = sha256(job.out / MANIFEST)
    write_checksummed(job.out / RESULT, {"of": identity, "result": msgspec.to_builtins(result)})
    return result


def _finished(trial: CandidateRun, identity: dict[str, Any]) -> RunResult:
    """The stored result, if its inputs are the same. The model is checked against its manifest."""
    path = trial.job.out / RESULT
    kept = read_checksummed(path, way="delete it to measure again")
    try:
        of, result = dict(kept["of"]), msgspec.convert(kept["result"], RunResult)
    except (KeyError, TypeError, ValueError) as fault:
        raise ArtefactError(f"{path} is no result of a comparison: {fault}; delete it to measure again") from fault
    manifest = of.pop("manifest", None)
    if changed := changed_fields(of, identity):
        raise ArtefactError(
            f"{trial.job.out} is of something else: {'; '.join(map(str, changed[:8]))}; choose another --out"
        )
    load_bundle(trial.job.out)  # verifies checksums
    if manifest != sha256(trial.job.out / MANIFEST):
        other = f"{trial.job.out / MANIFEST} is of another model than was measured"
        raise ArtefactError(f"{other}; delete {path} to measure it again")
    return result


def _measured(
    trial: CandidateRun, corpus: Corpus, held_out: dict[int, HeldOutScores], passages: MaskedPassages | None
) -> RunResult:
    job = trial.job
    bundle, recipe = load_bundle(job.out), job.recipe
    length = recipe.phases[-1].length
    last = held_out.get(length)
    longest = max(phase.length for phase in recipe.phases)
    room = bundle.tokenizer.template.single.text_length(longest)  # no longer than its training sequences
    with empty_weights():
        shell = Network(recipe.model, recipe.objectives, corpus.tokenizer.size)
    checkpoint = newest_checkpoint(job.out, warn=lambda line: None)
    if checkpoint is None:
        raise ArtefactError(f"{job.out} has no checkpoint that shows its progress; choose another --out")
    progress, score = checkpoint.state.progress, None
    steps, tokens, seconds = progress.step, progress.tokens, progress.seconds
    if passages is not None:
        score = measure_word_nll(bundle.network.to(job.runtime.device), bundle.tokenizer, passages, room=room)
    curve = {point.step: LossPoint(**msgspec.structs.asdict(point)) for point in progress.curve}
    if last and last.guess_loss and last.words in last.scores:
        loss = last.scores[last.words].loss
        curve[steps] = LossPoint(step=steps, tokens=tokens, seconds=seconds, loss=loss, guess=last.guess_loss)
    scores = last.scores if last else {}
    return RunResult(
        label=trial.label,
        seed=job.seed,
        path=str(job.out),
        parameters=sum(parameter.numel() for parameter in shell.parameters()),
        vocabulary=corpus.tokenizer.size,
        tokenizer=corpus.tokenizer.fingerprint,
        cased=not corpus.tokenizer.lowercase,
        steps=steps,
        tokens=tokens,
        seconds=seconds,
        epochs=tokens / corpus.tokens,
        words=tokens / corpus.tokens * corpus.manifest.counts.words,
        length=length,
        objectives={n: ComparedObjective(loss=s.loss, accuracy=s.accuracy, count=s.count) for n, s in scores.items()},
        predicts=last.words if last else "masked-lm",
        guess_loss=last.guess_loss if last else None,
        guess_accuracy=last.guess_accuracy if last else None,
        word_nll=score,
        languages=_languages(last, corpus),
        curve=tuple(curve[step] for step in sorted(curve)),
    )


def _languages(last: HeldOutScores | None, corpus: Corpus) -> dict[str, ComparedObjective]:
    """Masked-lm scores by language."""
    alone = {corpus.languages[0]: last} if last and len(corpus.languages) == 1 else {}
    scores = {name: part.scores.get("masked-lm") for name, part in ((last and last.languages) or alone).items()}
    return {n: ComparedObjective(loss=s.loss, accuracy=s.accuracy, count=s.count) for n, s in scores.items() if s}
