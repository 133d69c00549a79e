"""Heads of fine-tuned models as `transformers` writes them: `…ForSequenceClassification`, `…ForTokenClassification`,
`…ForQuestionAnswering`.

What the families share stands here, and what each has of its own is data in its file:

    TASKS = TaskHeads("Bert", {"classification": TaskHead(names={"dense": "bert.pooler.dense", …}, …), …})

Labels are `id2label`, their kind is `problem_type`. Settings of ours that their config.json has no field for (how words
are pooled, temperature, class weights …) stand together in one field of our own, `larvatus_head`, which `transformers`
keeps and does not read; where it is missing, they are as by default.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.bundle import crf_file
from larvatus.bundle.huggingface.layout import convert
from larvatus.errors import ArtefactError
from larvatus.heads import AnsweringConfig, ClassificationConfig, SpansConfig, TaggingConfig
from larvatus.network import ObjectiveConfig, tag
from larvatus.ranges import Size

TaskConfig = ClassificationConfig | TaggingConfig | AnsweringConfig | SpansConfig
CONFIGS: dict[str, type[TaskConfig]] = {
    "classification": ClassificationConfig,
    "tagging": TaggingConfig,
    "answering": AnsweringConfig,
}
SUFFIXES = {
    "classification": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "answering": "ForQuestionAnswering",
}
OWN = "larvatus_head"
KINDS = {
    "multi-class": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
CLS: dict[str, Any] = {"pool": "cls", "dense_norm": False, "mix": False}
"""Classified is the vector of [CLS] of the last layer, as it is in most families."""
TOKENS: dict[str, Any] = {"dense": "none", "dense_norm": False, "mix": False, "lstm": 0}
"""Tagged are the vectors of the last layer as they are."""
ENDS: dict[str, Any] = {"dense": "none", "dense_norm": False, "mix": False}
"""Starts and ends of answers are told from the vectors of the last layer as they are."""
MOST_LABELS = 1 << 20  # that a number may ask for; named ones are as many as the file has


@dataclass(frozen=True, kw_only=True)
class TaskHead:
    """One head of a family."""

    names: Mapping[str, str]
    """Our modules → theirs."""
    fixed: Mapping[str, Any]
    """Settings of ours that are always so in this family."""
    fields: Mapping[str, str]
    """Settings of ours → the field of config.json that says them."""
    dropout: float | None = None
    """Where no field says it; None: that of the encoder."""


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of their config.json that speak of the head."""

    id2label: dict[str, str] | None = None
    label2id: dict[str, int | str] | None = None
    num_labels: Size | None = None
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None
    larvatus_head: dict[str, Any] | None = None


@dataclass(frozen=True)
class TaskHeads:
    """The heads of one family, both ways."""

    family: str
    """How the names of its classes begin."""
    heads: Mapping[str, TaskHead]
    """By our names for them."""
    beside: tuple[str, ...] = (crf_file.PREFIX,)
    """How the names of our parameters begin that are no part of their model, and stand in a file of their own."""

    @property
    def architectures(self) -> dict[str, tuple[str, ...]]:
        """Their classes, and the head of each."""
        return {f"{self.family}{SUFFIXES[head]}": (head,) for head in self.heads}

    def natural(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """What stands between the encoder and the labels in this family, for a model with this config.json."""
        head = self.heads[name]
        found = {setting: head.fixed[setting] for setting in ("dense", "dense_norm", "pool") if setting in head.fixed}
        return {"pool": config.get(head.fields["pool"], "cls"), **found} if "pool" in head.fields else found

    def refusal(self, objectives: Sequence[ObjectiveConfig]) -> str | None:
        """Why the family has no such head, or not beside others; None if there is no task head, or it has it."""
        own = [config for config in objectives if isinstance(config, TaskConfig)]
        if not own:
            return None
        if len(objectives) > 1:
            return f"{self.family} has no model with the heads {' and '.join(map(tag, objectives))}"
        (config,) = own
        if tag(config) not in self.heads:  # of spans `transformers` has no class
            return f"{self.family} has no model with the head {tag(config)}"
        head = self.heads[tag(config)]
        for name, value in head.fixed.items():
            if (asked := getattr(config, name)) != value:
                return f"{self.family}{SUFFIXES[tag(config)]} has no {name} = {asked!r}, always {value!r}"
        if "pool" in head.fields and not isinstance(config, AnsweringConfig) and config.pool == "max":
            return f"{self.family}{SUFFIXES[tag(config)]} has no pool = 'max'"
        return None

    def config(self, objectives: Sequence[ObjectiveConfig]) -> dict[str, Any]:
        """The fields of config.json for the task head among the objectives; none for other heads."""
        own = [config for config in objectives if isinstance(config, TaskConfig)]
        if not own:
            return {}
        (config,) = own
        head = self.heads[tag(config)]
        settings = msgspec.to_builtins(config)
        stated = {theirs: settings[ours] for ours, theirs in head.fields.items()}
        if isinstance(config, ClassificationConfig):
            stated["problem_type"] = KINDS[config.kind]
        return {
            "architectures": [f"{self.family}{SUFFIXES[tag(config)]}"],
            "id2label": {str(number): label for number, label in enumerate(config.labels)},
            "label2id": {label: number for number, label in enumerate(config.labels)},
            **stated,
            OWN: {name: settings[name] for name in self._unsaid(tag(config))},
        }

    def _unsaid(self, name: str) -> list[str]:
        """Settings of ours that no field of theirs says."""
        head = self.heads[name]
        said = {"labels", "kind", *head.fields, *head.fixed}
        return [field for field in CONFIGS[name].__struct_fields__ if field not in said]

    def objectives(
        self, config: Mapping[str, Any], promised: Collection[str], *, dropout: float, source: Path
    ) -> tuple[ObjectiveConfig, ...]:
        """The task head that a config.json promises, as it describes it; `dropout` is the encoder's."""
        return tuple(self._head(name, config, dropout, source) for name in self.heads if name in promised)

    def _head(self, name: str, config: Mapping[str, Any], dropout: float, source: Path) -> TaskConfig:
        head = self.heads[name]
        theirs: TaskSettings = convert(config, TaskSettings, source)
        labels = _labels(theirs, source)
        own = theirs.larvatus_head or {}
        if unknown := sorted(own.keys() - self._unsaid(name)):
            raise ArtefactError(f"{source}: {OWN} has {unknown[0]!r}, which is no setting that it can hold")
        stated = {ours: config[field] for ours, field in head.fields.items() if config.get(field) is not None}
        if "dropout" not in stated | own:
            absent = head.fields.get("dropout") not in config
            stated["dropout"] = head.dropout if absent and head.dropout is not None else dropout
        if CONFIGS[name] is ClassificationConfig:
            kinds = {theirs: ours for ours, theirs in KINDS.items()}
            usual = "regression" if len(labels) == 1 else "multi-class"
            stated["kind"] = kinds[theirs.problem_type] if theirs.problem_type else usual
        if CONFIGS[name] is AnsweringConfig:
            if len(labels) != len(AnsweringConfig.labels):
                raise ArtefactError(f"{source}: a head for answers has a start and an end, not {len(labels)} labels")
        else:
            stated["labels"] = labels
        found: TaskConfig = convert({**own, **stated, **head.fixed}, CONFIGS[name], source)
        return found

    def theirs(self, head: str, part: str) -> tuple[str]:
        """Their name for a parameter of a head: ``theirs("classification", "dense.weight")``."""
        module, _, kind = part.rpartition(".")
        return (f"{self.heads[head].names[module]}.{kind}",)


def _labels(theirs: TaskSettings, source: Path) -> list[str]:
    """The names of the classes in their order; LABEL_0 … where they have none."""
    if theirs.id2label is None:
        count = 2 if theirs.num_labels is None else theirs.num_labels  # their default, which they did not use to write
        if not 1 <= count <= MOST_LABELS:
            raise ArtefactError(f"{source}: num_labels = {count:,} is not a number of classes")
        return [f"LABEL_{number}" for number in range(count)]
    found = theirs.id2label
    if not found or set(found) != {str(number) for number in range(len(found))}:
        raise ArtefactError(f"{source}: id2label must name the classes 0, 1, 2 …, each once")
    labels = [found[str(number)] for number in range(len(found))]
    if len(set(labels)) < len(labels):
        raise ArtefactError(f"{source}: id2label gives the same name to two classes")
    if theirs.num_labels is not None and theirs.num_labels != len(labels):
        raise ArtefactError(f"{source}: id2label names {len(labels)} classes, but num_labels is {theirs.num_labels}")
    places = theirs.label2id or {}
    if set(places) == set(labels) and any(str(places[label]) != str(n) for n, label in enumerate(labels)):
        raise ArtefactError(f"{source}: label2id says another order of the classes than id2label")
    return labels
