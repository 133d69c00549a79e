"""Claims of evaluations: `evaluate --json` writes them, and `larvatus card DIR --add` reads them.

claims = task_claims(evaluation, options, columns={"text": "review"})
larvatus evaluate runs/ner --data test.conll --json > test.json; larvatus card runs/ner --add test.json
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from larvatus.data.corpus import Corpus as Shards
from larvatus.data.text.languages import LanguagePath, LanguageSource, path_of
from larvatus.evaluation.cards.claims import interval_fields
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.settings import TextSettings
from larvatus.models.bundle.checksums import model_digest
from larvatus.models.bundle.claims import Claim, Data, make_claim
from larvatus.models.bundle.directory import Bundle
from larvatus.models.network import int8_weights
from larvatus.tasks.evaluation.evaluation import Evaluation, EvaluationOptions
from larvatus.tasks.trainer.save import claimed_data
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.saving import hardware, held_out_claims


def task_claims(
    bundle: Bundle, evaluation: Evaluation, options: EvaluationOptions, columns: Mapping[str, Any], *, task: str = ""
) -> tuple[Claim, ...]:
    """Claims of each metric with its interval and all settings that differ from the defaults; none of int8 weights."""
    if int8_weights(bundle.network):
        return ()
    defaults = EvaluationSettings()
    given = {name: getattr(options, name) for name in defaults.__struct_fields__ if hasattr(options, name)}
    chosen = {name: value for name, value in given.items() if value != getattr(defaults, name) and name != "seed"}
    settings = {"options": chosen, "columns": dict(columns), "task": task}
    return tuple(
        make_claim(
            figure.metric,
            figure.value,
            **interval_fields(figure),
            command="evaluate",
            settings={name: value for name, value in settings.items() if value},
            data=(claimed_data(evaluation.data),),
            seed=options.seed,
            model=model_digest(bundle.path),
            machine=hardware(Runtime(device=str(options.scoring.device))),
        )
        for figure in evaluation.figures()
        if math.isfinite(figure.value)
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
    """Claims of losses and accuracies on text; `how` states how it was read and how much. None of int8 weights."""
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


def changed_reading(reading: TextSettings) -> dict[str, Any]:
    """Settings of reading text that differ from the defaults."""
    defaults = TextSettings()
    return {
        name: getattr(reading, name)
        for name in defaults.__struct_fields__
        if getattr(reading, name) != getattr(defaults, name) and name != "licence"
    }
