"""What an evaluation measured, as claims: `evaluate --json` carries them, and a card takes them over.

claims = task_claims(evaluation, options, columns={"text": "review"})
larvatus evaluate runs/ner --data test.conll --json > test.json; larvatus card runs/ner --add test.json
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from larvatus.data.corpus import Corpus as Shards
from larvatus.data.text.languages import LanguagePath, LanguageSource, path_of
from larvatus.inference.model.quantised import int8_weights
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.settings import TextSettings
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.claims import Claim, Data, make_claim
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.evaluation.evaluated import Evaluation
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.trainer.save import claimed_data
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.saving import hardware, held_out_claims


def task_claims(
    bundle: Bundle, evaluation: Evaluation, options: EvaluationOptions, columns: Mapping[str, Any], *, glue: str = ""
) -> tuple[Claim, ...]:
    """Each metric with its interval, under the settings that differ from what is usual; none of weights in int8."""
    if int8_weights(bundle.network):
        return ()
    usual = EvaluationSettings()
    asked = {name: getattr(options, name) for name in usual.__struct_fields__ if hasattr(options, name)}
    chosen = {name: value for name, value in asked.items() if value != getattr(usual, name) and name != "seed"}
    said = {"options": chosen, "columns": dict(columns), "task": glue}
    device = str(options.scoring.device)
    return tuple(
        make_claim(
            name,
            metric.value,
            low=metric.low if math.isfinite(metric.low) else None,
            high=metric.high if math.isfinite(metric.high) and math.isfinite(metric.low) else None,
            command="evaluate",
            settings={setting: value for setting, value in said.items() if value},
            data=(claimed_data(evaluation.data),),
            seed=options.seed,
            model=model_digest(bundle.path),
            machine=hardware(Runtime(device=device)),
        )
        for name, metric in evaluation.metrics.items()
        if math.isfinite(metric.value)
    )


def text_claims(
    bundle: Bundle,
    text: Sequence[LanguageSource],
    shards: Shards,
    result: HeldOutScores,
    *,
    how: Mapping[str, Any],
    runtime: Runtime,
) -> tuple[Claim, ...]:
    """Losses and accuracies on text; `how` says how it was read, and how much of it. None of weights in int8."""
    if int8_weights(bundle.network):
        return ()
    languages = [each.language if isinstance(each, LanguagePath) else "" for each in text]
    names = tuple(str(path_of(each)) for each in text)
    data = Data(name=", ".join(names), sha256=shards.fingerprint, kind="corpus", files=names)
    settings = {**how, **({"languages": languages} if any(languages) else {})}
    claims = held_out_claims(
        result,
        {**{name: value for name, value in settings.items() if value}, "microbatch": runtime.microbatch},
        data=data,
        precision=runtime.precision,
        model=model_digest(bundle.path),
        machine=hardware(runtime),
    )
    return tuple(msgspec.structs.replace(claim, command="evaluate text") for claim in claims)


def reading_said(reading: TextSettings) -> dict[str, Any]:
    """How text is read, as far as it is not as usual."""
    usual = TextSettings()
    return {
        name: getattr(reading, name)
        for name in usual.__struct_fields__
        if getattr(reading, name) != getattr(usual, name) and name != "licence"
    }


def with_claims(evaluation: Evaluation, claims: Sequence[Claim]) -> Evaluation:
    return replace(evaluation, claims=tuple(claims))
