"""How each kind of claim is measured again: the only code that a card can make run.

    RERUN["evaluate"](request)                    # the claims of the same evaluation, measured now

A function here takes a request (model, settings and data of some claims) and returns new claims, by the same calls that
made the first ones. Commands that are not listed, such as training, are recorded and not run again. Larvatus reads what
a card says as settings of known names and searches its files; it opens no path, model or standardiser that a card
names. Figures that would need one raise `NotRerunnable`; those that would need training raise `OnlyRecorded`.

To add a command, list it in `COMMANDS` (`models/bundle/claims.py`) and in `RERUN`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from larvatus.core import files
from larvatus.core.errors import ArtefactError, DataError, UsageError, printable
from larvatus.core.ranges import Count, Length, Steps
from larvatus.core.settings import Settings
from larvatus.data.corpus import Corpus as Shards
from larvatus.data.labelled.glue import glue_task
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.split import hold_out
from larvatus.data.text.archives import COMPRESSIONS
from larvatus.data.text.languages import LanguagePath, LanguageSource
from larvatus.evaluation.audit.toxicity.generated import Samples
from larvatus.evaluation.audit.toxicity.generated import Tokens as GeneratedTokens
from larvatus.evaluation.audit.toxicity.measure import NEUTRAL
from larvatus.evaluation.cards.claims import checksum_of_files
from larvatus.evaluation.cards.verify import ChangedData, MissingData, NotRerunnable, OnlyRecorded, RerunRequest
from larvatus.evaluation.suite.language import NAME as LANGUAGE
from larvatus.evaluation.suite.part import SuitePart
from larvatus.evaluation.suite.run import get_suite
from larvatus.interfaces.api.auditing_bias import MOST_PAIRS, PERMUTATIONS, SAMPLES, audit_bias
from larvatus.interfaces.api.evaluating import score_examples, score_glue
from larvatus.interfaces.api.leaks import (
    LeakInputs,
    LeakSettings,
    audit_leaks,
    run_leak_audit,
)
from larvatus.interfaces.api.suite import evaluate_suite
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.api.text_evaluation import score_text
from larvatus.interfaces.api.toxicity import Top, audit_toxicity
from larvatus.interfaces.settings import TextSettings
from larvatus.models.bundle.claims import Claim, PowerDraw, energy_claims, size_claims
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import sentence_bundle
from larvatus.models.recipes import parse_recipe
from larvatus.tasks.examples import read_examples, same_places
from larvatus.tasks.registry import parse_file_options, task_of, tasks_of, with_task
from larvatus.tasks.scoring import head_of
from larvatus.tasks.trainer.save import contents_hash
from larvatus.training.engine.settings import MICROBATCH, Runtime
from larvatus.training.pretraining.evaluation import evaluate_held_out
from larvatus.training.pretraining.saving import corpus_claims, held_out_claims

KEYWORDS: Mapping[str, str] = {"crows_pairs": "pairs", "swaps": "test"}
"""Arguments of `audit_bias`, for parts that have another name."""


class ClaimSettings(Settings, path="settings.", error=ArtefactError, forbid_unknown_fields=False):
    """Base of the settings of claims. Fields that this version does not know are ignored."""


class HeldOutClaimSettings(ClaimSettings, forbid_unknown_fields=False):
    """Settings of claims that a training run made on its validation text."""

    length: Length
    tokens: Steps
    microbatch: Annotated[int, MICROBATCH]
    precision: str


class TextClaimSettings(ClaimSettings, forbid_unknown_fields=False):
    """Settings of claims of `evaluate` on text."""

    tokens: Steps
    languages: tuple[str, ...] = ()
    reading: TextSettings = TextSettings()


class ExamplesClaimSettings(ClaimSettings, forbid_unknown_fields=False):
    """Settings of claims of `evaluate` on labelled examples."""

    options: EvaluationSettings = EvaluationSettings()
    columns: dict[str, Any] = {}
    by: str | None = None
    task: str = ""
    """Task of GLUE, if the examples are from GLUE; or the task, of a model that has several."""


class BiasClaimSettings(ClaimSettings, forbid_unknown_fields=False):
    """Settings of claims of one part of a bias audit."""

    task: Literal["crows_pairs", "stereoset", "winobias", "templates", "associations", "swaps"]
    samples: Annotated[int, SAMPLES]
    permutations: Annotated[int, PERMUTATIONS] = 10_000
    most_pairs: Annotated[int, MOST_PAIRS] | None = None
    layers: str = "last"
    vectors: str = ""
    """Set for standardised vectors, which need a file that is not part of the model."""
    columns: dict[str, Any] = {}
    own_words: bool = False
    """The last file is a list of swaps."""


class LeakClaimSettings(LeakSettings, path="settings.", error=ArtefactError, forbid_unknown_fields=False):
    """Settings of claims of a leak audit, with documents or with canaries."""

    documents: Count | None = None  # type: ignore[assignment]
    """None for canaries."""
    reference: str = ""
    """Checksum of the reference model."""
    reading: TextSettings = TextSettings()


class ToxicityClaimSettings(ClaimSettings, forbid_unknown_fields=False):
    """Settings of claims of a toxicity audit."""

    top: Top | None = None
    samples: Samples | None = None
    max_tokens: GeneratedTokens | None = None
    judge: str = ""
    """Checksum of the classifier that judged."""
    neutral_prompts: str = ""


class SuiteClaimSettings(ClaimSettings, forbid_unknown_fields=False):
    """Settings of claims of one part of a suite."""

    suite: str
    task: str
    quick: bool = False
    layers: str = "last"


def rerun_sizes(request: RerunRequest) -> list[Claim]:
    bundle = request.model.bundle
    return size_claims(bundle.network, vocabulary=bundle.tokenizer.size, word_layers=bundle.word_layers)


def rerun_energy(request: RerunRequest) -> Sequence[Claim]:
    return energy_claims(request.settings(PowerDraw))


def rerun_corpus(request: RerunRequest) -> list[Claim]:
    return corpus_claims(_shards(request), request.data.name)


def rerun_held_out(request: RerunRequest) -> Iterator[Claim]:
    how, shards = request.settings(HeldOutClaimSettings), _shards(request)
    if request.model.bundle.recipe is None:
        raise ArtefactError(
            f"{request.model.bundle.path} has no recipe, which states how its text is packed and masked"
        )
    recipe = parse_recipe(request.model.bundle.recipe, where=str(request.model.bundle.path))
    precision = how.precision if request.model.device.startswith("cuda") else "fp32"  # within the tolerance
    runtime = Runtime.here(device=request.model.device, precision=precision, microbatch=how.microbatch)
    network = request.model.bundle.network.to(runtime.device)
    result = evaluate_held_out(network, shards, recipe, length=how.length, tokens=how.tokens, runtime=runtime)
    settings = {"length": how.length, "tokens": how.tokens, "microbatch": how.microbatch}
    return held_out_claims(result, settings, data=request.data, precision=how.precision)


def _shards(request: RerunRequest) -> Shards:
    (path,) = request.paths()
    shards = Shards.open(path)
    if shards.fingerprint != request.data.sha256:
        raise ChangedData(request.data, shards.fingerprint, path)
    return shards


def rerun_text(request: RerunRequest) -> Sequence[Claim]:
    how = request.settings(TextClaimSettings)
    paths: list[LanguageSource] = [*request.paths()]
    if how.languages:
        named = zip(how.languages, request.paths(), strict=False)
        paths = [LanguagePath(language, str(path)) if language else path for language, path in named]
    claims = score_text(request.model.bundle, paths, how.reading, device=request.model.device, tokens=how.tokens).claims
    if claims[0].data[0].sha256 != request.data.sha256:
        raise ChangedData(request.data, claims[0].data[0].sha256, Path(str(paths[0])))
    return claims


def rerun_examples(request: RerunRequest) -> Sequence[Claim]:
    how = request.settings(ExamplesClaimSettings)
    request.columns(how.columns)
    options = how.options.options(request.model.device)
    bundle, named = sentence_bundle(request.model.bundle), how.task
    if named and named not in tasks_of(bundle):
        return _on_glue(request, how)
    view = with_task(bundle, named or None)
    data = _examples(view, request, how, [*tasks_of(bundle)])
    return score_examples(view, data, options, columns=how.columns, named=named).evaluation.claims


def _on_glue(request: RerunRequest, how: ExamplesClaimSettings) -> Sequence[Claim]:
    (path,) = request.paths()
    task = glue_task(how.task.removesuffix("-mm"))
    for scores in score_glue(request.model.bundle, task, path.parent.parent, how.options.options(request.model.device)):
        if scores.name == how.task:
            claims = scores.evaluation.claims
            if claims[0].data[0].sha256 != request.data.sha256:
                raise ChangedData(request.data, claims[0].data[0].sha256, path)
            return claims
    raise MissingData(request.data)


def _examples(bundle: Bundle, request: RerunRequest, how: ExamplesClaimSettings, tasks: Sequence[str]) -> Dataset[Any]:
    """The measured examples: all examples of the files, or those that fine-tuning held out, maybe of another task."""
    task, head = task_of(bundle), head_of(bundle.network)
    paths = [str(path) for path in request.paths()]
    kind = task.label_kind(head.config)
    data = read_examples(task.name, paths, parse_file_options(task.name, how.columns), kind=kind, group=how.by)
    actual = contents_hash(data)
    if actual == request.data.sha256:
        return data
    for name in [task.name, *tasks]:
        with suppress(DataError, UsageError):  # too few to hold some out, or no examples of this task
            first = data if name == task.name else read_examples(name, paths)
            part = same_places(data, hold_out(first).held_out)
            if contents_hash(part) == request.data.sha256:
                return part
    raise ChangedData(request.data, actual, Path(paths[0]))


def rerun_bias(request: RerunRequest) -> Sequence[Claim]:
    how = request.settings(BiasClaimSettings)
    if how.vectors:
        raise NotRerunnable("needs the standardiser of its vectors, which is not part of the model")
    columns = request.columns(how.columns)
    paths = request.files()
    given: dict[str, Any] = {}
    if how.own_words:
        if len(paths) < 2:
            raise ArtefactError(f"claim {request.claim.metric} names no list of swaps after its examples")
        given["swaps"] = paths.pop()
    with tempfile.TemporaryDirectory() as folder:
        source: Any = paths if how.task == "swaps" else paths[0]
        if how.task == "winobias":
            source = folder
            for path in paths:
                shutil.copyfile(path, Path(folder) / path.name)
        given[KEYWORDS.get(how.task, how.task)] = source
        report = audit_bias(
            request.model.model,
            **given,
            **columns,
            samples=how.samples,
            permutations=how.permutations,
            most_pairs=how.most_pairs,
            layers=how.layers,
            seed=request.claim.seed or 0,
        )
    return report.claims


def rerun_leaks(request: RerunRequest) -> Sequence[Claim]:
    how, seed = request.settings(LeakClaimSettings), request.claim.seed or 0
    if how.reference:
        raise NotRerunnable("needs the reference model that was compared with")
    if how.documents is None:
        (canaries,) = request.files()
        return audit_leaks(
            request.model.model, canaries=canaries, exact=how.exact, samples=how.samples, seed=seed
        ).claims
    members, held_out = _sets(request)
    given = {name: getattr(how, name) for name in ("documents", "draws", "words", "masks", "spans", "prefix", "suffix")}
    sources = LeakInputs(members=tuple(map(str, members)), held_out=tuple(map(str, held_out)))
    report = run_leak_audit(request.model.model, sources, LeakSettings(seed=seed, **given), how.reading)
    # checked above: the same files, possibly found under other names
    return [msgspec.structs.replace(claim, data=request.claim.data) for claim in report.claims]


def _sets(request: RerunRequest) -> list[list[Path]]:
    """Files of the training text and of the held-out text, each set checked against its claimed checksum."""
    sets, missing = [], []
    for data in request.claim.data:
        if data.kind == "files" and not data.files:
            raise NotRerunnable("needs more files than the claim lists")
        try:
            paths = request.finder.paths(data)
        except MissingData:
            missing.append(data)
            continue
        if data.kind == "files":
            actual = checksum_of_files(data.files, [files.sha256(path) for path in paths])
            if actual != data.sha256:
                raise ChangedData(data, actual, paths[0])
        sets.append(paths)
    if missing:
        raise MissingData(*missing)
    if len(sets) != 2:
        raise ArtefactError(f"claim {request.claim.metric} names no training text and held-out text")
    return sets


def rerun_toxicity(request: RerunRequest) -> Sequence[Claim]:
    how = request.settings(ToxicityClaimSettings)
    if how.judge:
        raise NotRerunnable(f"needs the classifier that judged, a model of checksum {printable(how.judge[:64])}")
    words, *prompts = request.files()
    if not prompts and how.neutral_prompts != files.sha256(NEUTRAL):
        raise ArtefactError("the neutral prompts of this Larvatus differ from those that were measured")
    source = prompts[0] if prompts else None
    given: dict[str, Any] = {"top": how.top, "samples": how.samples, "max_tokens": how.max_tokens}
    return audit_toxicity(request.model.model, source, words=words, seed=request.claim.seed or 0, **given).claims


def rerun_suite(request: RerunRequest) -> Sequence[Claim]:
    how = request.settings(SuiteClaimSettings)
    if how.suite == LANGUAGE:
        raise NotRerunnable("comes from a treebank: run larvatus evaluate --suite language with the same files")
    (part,) = get_suite(how.suite).chosen((how.task,))
    if not part.again:
        raise OnlyRecorded(f"{part.name} is fine-tuned")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in zip(_places(request, part), request.files(), strict=True):
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.resolve())
        results = evaluate_suite(
            request.model.directory,
            data=folder,
            suite=how.suite,
            only=[part.name],
            quick=how.quick,
            layers=how.layers,
            device=request.model.device,
            quiet=True,
        )
    if results.unmeasured:
        raise DataError(results.unmeasured[0].why)
    return results.claims


def _places(request: RerunRequest, part: SuitePart) -> list[str]:
    """Places of the files in the folder of a suite; only places that the part reads are allowed."""
    known = {f"{name}{ending}" for name in (*part.files, *part.may_read) for ending in ("", *COMPRESSIONS)}
    for data in request.claim.data:
        if data.name not in known:
            raise ArtefactError(f"claim {request.claim.metric}: {part.name} reads no {printable(data.name)!r}")
    return [data.name for data in request.claim.data]


RERUN: Mapping[str, Callable[[RerunRequest], Iterable[Claim]]] = {
    "model": rerun_sizes,
    "energy": rerun_energy,
    "corpus": rerun_corpus,
    "held-out text": rerun_held_out,
    "evaluate": rerun_examples,
    "evaluate text": rerun_text,
    "evaluate suite": rerun_suite,
    "audit bias": rerun_bias,
    "audit leaks": rerun_leaks,
    "audit toxicity": rerun_toxicity,
}
