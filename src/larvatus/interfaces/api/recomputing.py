"""How each kind of claim is worked out again: the only list of what a card can have run.

    RERUN["evaluate"](asked)                    # the claims of the same evaluation, made now

A function here takes what was asked (the model, settings and data of some claims) and gives claims made anew, by the
same calls that made the first. Commands that are not listed (training, above all) are recorded and not run again; so
is what a function refuses with `Recorded`. Adding one: its name in `models/bundle/claims.py` (`COMMANDS`), and its
line in
`RERUN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.ranges import Length, Steps, check_ranges
from larvatus.data.corpus import Corpus as Shards
from larvatus.data.labelled.glue import glue_task
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.split import hold_out
from larvatus.data.text.languages import LanguagePath, LanguageSource
from larvatus.evaluation.cards.request import RerunRequest
from larvatus.interfaces.api.evaluating import score_examples, score_glue, score_text
from larvatus.interfaces.api.rerunning import rerun_bias, rerun_leaks, rerun_suite, rerun_toxicity
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.settings import TextSettings
from larvatus.models.bundle.claim_data import ChangedData, MissingData
from larvatus.models.bundle.claims import Claim
from larvatus.models.bundle.energy import PowerDraw, energy_claims
from larvatus.models.bundle.sizes import size_claims
from larvatus.models.recipes import parse_recipe
from larvatus.tasks.examples import read_examples
from larvatus.tasks.registry import parse_file_options, task_of
from larvatus.tasks.scoring import head_of
from larvatus.tasks.trainer.save import contents_hash
from larvatus.training.engine.settings import MICROBATCH, Runtime
from larvatus.training.pretraining.evaluation import evaluate_held_out
from larvatus.training.pretraining.saving import corpus_claims, held_out_claims


class HeldOutClaimSettings(Struct, frozen=True, kw_only=True):
    """How a run measured on its held-out text."""

    length: Length
    tokens: Steps
    microbatch: int
    precision: str

    def __post_init__(self) -> None:
        check_ranges(self, "settings.", ArtefactError)
        MICROBATCH.check(self.microbatch, "settings.microbatch", ArtefactError)


class TextClaimSettings(Struct, frozen=True, kw_only=True):
    """How much of a text was read, and in which languages it is."""

    tokens: Steps
    languages: tuple[str, ...] = ()
    reading: TextSettings = TextSettings()

    def __post_init__(self) -> None:
        check_ranges(self, "settings.", ArtefactError)


class ExamplesClaimSettings(Struct, frozen=True, kw_only=True):
    """How labelled examples were read."""

    options: EvaluationSettings = EvaluationSettings()
    columns: dict[str, Any] = {}
    by: str | None = None
    task: str = ""
    """Of GLUE."""


def rerun_sizes(asked: RerunRequest) -> list[Claim]:
    return size_claims(asked.bundle.network, vocabulary=asked.bundle.tokenizer.size)


def rerun_energy(asked: RerunRequest) -> Sequence[Claim]:
    return energy_claims(asked.settings(PowerDraw))


def rerun_corpus(asked: RerunRequest) -> list[Claim]:
    return corpus_claims(_shards(asked), asked.data.name)


def rerun_held_out(asked: RerunRequest) -> Iterator[Claim]:
    how, shards = asked.settings(HeldOutClaimSettings), _shards(asked)
    if asked.bundle.recipe is None:
        raise ArtefactError(f"{asked.bundle.path} has no recipe, which says how its text is packed and masked")
    recipe = parse_recipe(asked.bundle.recipe, where=str(asked.bundle.path))
    runtime = Runtime.here(device=asked.device, precision=_precision(asked, how), microbatch=how.microbatch)
    network = asked.bundle.network.to(runtime.device)
    result = evaluate_held_out(network, shards, recipe, length=how.length, tokens=how.tokens, runtime=runtime)
    settings = {"length": how.length, "tokens": how.tokens, "microbatch": how.microbatch}
    return held_out_claims(result, settings, data=asked.data, precision=how.precision)


def _precision(asked: RerunRequest, how: HeldOutClaimSettings) -> str:
    """bfloat16 as it was on a GPU; a CPU measures in float32, within the tolerance."""
    return how.precision if asked.device.startswith("cuda") else "fp32"


def _shards(asked: RerunRequest) -> Shards:
    (path,) = asked.paths()
    shards = Shards.open(path)
    if shards.fingerprint != asked.data.sha256:
        raise ChangedData(asked.data, shards.fingerprint, path)
    return shards


def rerun_text(asked: RerunRequest) -> Sequence[Claim]:
    how = asked.settings(TextClaimSettings)
    paths: list[LanguageSource] = [*asked.paths()]
    if how.languages:
        named = zip(how.languages, asked.paths(), strict=False)
        paths = [LanguagePath(language, str(path)) if language else path for language, path in named]
    claims = score_text(asked.bundle, paths, how.reading, device=asked.device, tokens=how.tokens).claims
    if claims[0].data[0].sha256 != asked.data.sha256:
        raise ChangedData(asked.data, claims[0].data[0].sha256, Path(str(paths[0])))
    return claims


def rerun_examples(asked: RerunRequest) -> Sequence[Claim]:
    how = asked.settings(ExamplesClaimSettings)
    asked.columns(how.columns)
    options = how.options.options(asked.device)
    if how.task:
        return _on_glue(asked, how)
    return score_examples(asked.bundle, _examples(asked, how), options, columns=how.columns).evaluation.claims


def _on_glue(asked: RerunRequest, how: ExamplesClaimSettings) -> Sequence[Claim]:
    (path,) = asked.paths()
    task = glue_task(how.task.removesuffix("-mm"))
    for scores in score_glue(asked.bundle, task, path.parent.parent, how.options.options(asked.device)):
        if scores.name == how.task:
            claims = scores.evaluation.claims
            if claims[0].data[0].sha256 != asked.data.sha256:
                raise ChangedData(asked.data, claims[0].data[0].sha256, path)
            return claims
    raise MissingData(asked.data)


def _examples(asked: RerunRequest, how: ExamplesClaimSettings) -> Dataset[Any]:
    """The examples that were measured on: all that the files hold, or those of them that fine-tuning held out."""
    task, head = task_of(asked.bundle), head_of(asked.bundle.network)
    paths = [str(path) for path in asked.paths()]
    kind = task.label_kind(head.config)
    data = read_examples(task.name, paths, parse_file_options(task.name, how.columns), kind=kind, group=how.by)
    actual = contents_hash(data)
    if actual == asked.data.sha256:
        return data
    with suppress(DataError):  # too few to hold some out
        part = hold_out(data).held_out
        if contents_hash(part) == asked.data.sha256:
            return part
    raise ChangedData(asked.data, actual, Path(paths[0]))


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
