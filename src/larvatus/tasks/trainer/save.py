"""A fine-tuned model as a directory: Hugging Face's own layout where there is one, with its card and its history.

save_result(Path("runs/mine"), result, parent="bert-base")
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.data.labelled.in_memory import IN_MEMORY
from larvatus.models.bundle.claims import CardText, Data, claim_dicts
from larvatus.models.bundle.directory import architecture_of, save_changed
from larvatus.models.bundle.huggingface import Native, layout_for
from larvatus.models.bundle.weights import find_weights
from larvatus.tasks.multitask.data import TaskDatasets, parts_of
from larvatus.tasks.trainer.card import DataFacts, result_claims, task_card
from larvatus.tasks.trainer.checkpoint import SeedRun
from larvatus.tasks.trainer.finetune import FineTuneResult

HISTORY = "finetuning.json"
"""Scores of every evaluation of every seed, next to the model."""


def contents_hash(data: Any) -> str:
    """SHA-256 of the contents of the examples, independent of their files."""
    digest = hashlib.sha256()
    for example in data.examples:
        digest.update(msgspec.json.encode(example.contents()) + b"\n")
    return digest.hexdigest()


def data_facts(data: Any) -> DataFacts:
    return DataFacts(data.source, len(data), contents_hash(data))


def read_history(out: Path) -> tuple[SeedRun, ...]:
    """Results of the seeds of a finished run."""
    try:
        return msgspec.convert(files.read_json(out / HISTORY)["runs"], tuple[SeedRun, ...])
    except (KeyError, TypeError, msgspec.ValidationError) as fault:
        raise ArtefactError(f"{out / HISTORY} is not the history of a fine-tuning: {fault}") from fault


def source_files(data: Any) -> tuple[str, ...]:
    """Names of the files of the examples; empty for examples in memory."""
    if data.source.endswith(IN_MEMORY):
        return ()
    return tuple(dict.fromkeys(str(example.place.source) for example in data.examples))


def claimed_data(data: Any, files: Sequence[str] | None = None) -> Data:
    """Labelled examples, as claims name them; `files` are those that they are the held-out part of."""
    names = source_files(data) if files is None else tuple(files)
    name = names[0] if len(names) == 1 else data.source
    name = name if files is None else f"{len(data):,} held out of {name}"
    return Data(name=name, sha256=contents_hash(data), kind="examples", files=() if names == (name,) else names)


def claimed_validation(dev: Any, *, given: Any, train: Any) -> Any:
    """Validation examples as claims name them: those that were given, or the held-out part of those for training.

    Of several tasks, by task.
    """
    if isinstance(dev, TaskDatasets):
        before, files = parts_of(given), parts_of(train)
        return {
            task: claimed_validation(part, given=before.get(task), train=files[task])
            for task, part in dev.parts.items()
        }
    return None if dev is None else claimed_data(dev, source_files(train) if given is None else None)


def save_result(
    out: Path,
    result: FineTuneResult,
    *,
    parent: str,
    dev: Data | Mapping[str, Data] | None = None,
    how: Mapping[str, Any] = MappingProxyType({}),
    processes: int = 1,
) -> None:
    """Write the model, its card, and the history of its training.

    `dev` are the held-out examples as they were read (those of `result` may be written in another scheme of tags), and
    `how` says in which columns. Of several tasks, both are by task.
    """
    bundle = result.bundle
    if not isinstance(dev, Mapping):
        parts = {task: part.dev for task, part in result.parts.items() if part.dev is not None}
        dev = {task: claimed_data(part) if dev is None else dev for task, part in parts.items()}
    how = how if result.by_task else {"": how}
    claims = result_claims(result, dev=dev, how=how, processes=processes)
    train, held_out = data_facts(result.train), data_facts(result.dev) if result.dev is not None else None
    architecture = architecture_of(bundle.network, bundle.objectives)
    layout = layout_for(
        architecture, pad=bundle.tokenizer.padding_id, vocabulary=bundle.tokenizer.kind, family=bundle.family
    )
    lineage = {
        "parent": parent,
        "parent_lineage": bundle.lineage,
        "parent_weights": {path.name: files.sha256(path) for path in find_weights(bundle.path)},
        "train": msgspec.to_builtins(train),
        "dev": msgspec.to_builtins(held_out),
        "settings": msgspec.to_builtins(result.config),
        "seeds": [run.seed for run in result.runs],
        "kept": result.kept,
        "metric": result.metric,
        "scores": result.scores.values if result.scores is not None else {},
    } | ({} if result.search is None else {"search": msgspec.to_builtins(result.search)})
    card = task_card(
        result,
        name=out.name,
        parent=parent,
        train=train,
        dev=held_out,
        claims=claims,
        transformers=not isinstance(layout, Native),
    )
    searched = {} if result.search is None else {"search": msgspec.to_builtins(result.search)}
    files.write_json(out / HISTORY, {"runs": msgspec.to_builtins(result.runs), "kept": result.kept} | searched)
    save_changed(bundle, out, lineage=lineage, card=CardText(card, claim_dicts(claims)))
