"""Fine-tuning for tests: a job, and what is chosen of the task beside it."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune


def _with(job: FineTuneArguments, options: Any) -> FineTuneArguments:
    """Options, with the dropout that the job says."""
    if options is None:
        return job
    if job.options is not None:
        options = msgspec.structs.replace(options, dropout=job.options.dropout, mix=job.options.mix)  # type: ignore[attr-defined]
    return dataclasses.replace(job, options=options)


def finetune_texts(bundle: Any, train: Any, dev: Any, job: FineTuneArguments) -> FineTuneResult:
    return finetune("classify", bundle, train, dev, job)


def finetune_tags(bundle: Any, train: Any, dev: Any, job: FineTuneArguments) -> FineTuneResult:
    return finetune("tag", bundle, train, dev, job)


def finetune_spans(bundle: Any, train: Any, dev: Any, job: FineTuneArguments, options: Any = None) -> FineTuneResult:
    return finetune("spans", bundle, train, dev, _with(job, options))


def finetune_answers(bundle: Any, train: Any, dev: Any, job: FineTuneArguments, options: Any = None) -> FineTuneResult:
    return finetune("answer", bundle, train, dev, _with(job, options))
