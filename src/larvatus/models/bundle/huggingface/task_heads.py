"""Heads of fine-tuned models as `transformers` stores them: `…ForSequenceClassification`, `…ForTokenClassification`,
`…ForQuestionAnswering`.

This file has what the families share. What differs is data: in the file of the family, or in the head itself
(`HeadConfig.families`), as for a new head:

    TASKS = TaskHeads("Bert", {"classification": TaskHead(names={"dense": "bert.pooler.dense", …}, …), …})

Labels are `id2label`, their kind is `problem_type`. Settings of ours that their config.json has no field for (how words
are pooled, temperature, class weights …) are in one field of our own, `larvatus_head`, which `transformers` keeps and
ignores; without it, the defaults apply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Size
from larvatus.models.bundle.huggingface.config_table import convert
from larvatus.models.bundle.weights import CRF_PREFIX
from larvatus.models.heads import HEAD_TYPES
from larvatus.models.heads.head import FamilyHead as TaskHead
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import ObjectiveConfig, tag

__all__ = ["CLS", "ENDS", "TOKENS", "TaskHead", "TaskHeads"]
OWN = "larvatus_head"
CLS: dict[str, Any] = {"pool": "cls", "dense_norm": False, "mix": False}
"""Classifies the vector of [CLS] in the last layer, as most families do."""
LAST: dict[str, Any] = {**CLS, "pool": "last"}
"""Classifies the vector of the last token, as XLNet and GPT do."""
TOKENS: dict[str, Any] = {"dense": "none", "dense_norm": False, "mix": False, "lstm": 0}
"""Tags the vectors of the last layer unchanged."""
ENDS: dict[str, Any] = {"dense": "none", "dense_norm": False, "mix": False}
"""Scores starts and ends of answers from the vectors of the last layer unchanged."""
QA_OUTPUTS = TaskHead(names={"classifier": "qa_outputs"}, fixed=ENDS, fields={}, dropout=0.0)
"""Question answering, as most families have it."""
UNNAMED: dict[str, TaskHead] = {
    "classification": TaskHead(names={}, fixed=CLS | {"dense": "tanh"}),
    "tagging": TaskHead(names={}, fixed=TOKENS),
    "answering": TaskHead(names={}, fixed=ENDS),
}
"""Heads that keep our names, of layouts without classes of their own."""
MAX_LABELS = 1 << 20  # a limit for num_labels; named labels are as many as the file lists


def tagger(dropout_field: str | None = None, *, dropout: float | None = None) -> TaskHead:
    """Tagging as every family has it; `dropout_field` states its dropout, which is `dropout` where it is absent."""
    fields = {"dropout": dropout_field} if dropout_field else {}
    return TaskHead(names={"classifier": "classifier"}, fixed=TOKENS, fields=fields, dropout=dropout)


def three_heads(
    family: str, classification: TaskHead, *, tagging: TaskHead, answering: TaskHead = QA_OUTPUTS
) -> TaskHeads:
    """The heads of most families."""
    return TaskHeads(family, {"classification": classification, "tagging": tagging, "answering": answering})


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of their config.json that describe the head."""

    id2label: dict[str, str] | None = None
    label2id: dict[str, int | str] | None = None
    num_labels: Size | None = None
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None
    larvatus_head: dict[str, Any] | None = None


@dataclass(frozen=True)
class TaskHeads:
    """The heads of one family, for reading and writing."""

    family: str
    """How the names of its classes begin."""
    listed: Mapping[str, TaskHead]
    """Heads that the family's file lists, by our names."""
    separate: tuple[str, ...] = (CRF_PREFIX,)
    """Beginnings of our parameter names that are not part of their model and are stored in a separate file."""

    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that suit the family in heads for which it has no class."""

    @property
    def heads(self) -> Mapping[str, TaskHead]:
        """The heads that the family's file lists, and those that heads define themselves (`HeadConfig.families`)."""
        brought = {
            name: kind.families[self.family] for name, kind in HEAD_TYPES.items() if self.family in kind.families
        }
        shared = {
            name: self.listed[kind.stored_as]
            for name, kind in HEAD_TYPES.items()
            if kind.stored_as is not None and kind.stored_as in self.listed
        }
        return {**self.listed, **brought, **shared}

    @property
    def architectures(self) -> dict[str, tuple[str, ...]]:
        """Their classes, with the head of each."""
        return {self._class(head): (head,) for head in self.heads if HEAD_TYPES[head].stored_as is None}

    def _class(self, head: str) -> str:
        return f"{self.family}{HEAD_TYPES[head].suffix}"

    def default_settings(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the layers between encoder and labels in this family, for a model with this config.json."""
        head = self.heads.get(name)
        if head is None:
            return dict(self.defaults.get(name, {}))
        settings = ("dense", "dense_norm", "pool", "bias")
        usual = {setting: head.fixed[setting] for setting in settings if setting in head.fixed}
        return {"pool": config.get(head.fields["pool"], "cls"), **usual} if "pool" in head.fields else usual

    def unsupported(self, objectives: Sequence[ObjectiveConfig]) -> str | None:
        """Why the family has no such head, or not with the others; None if it has it, or without a task head."""
        configs = [config for config in objectives if isinstance(config, HeadConfig)]
        if not configs:
            return None
        if len(objectives) > 1:
            return f"{self.family} has no model with the heads {' and '.join(map(tag, objectives))}"
        (config,) = configs
        if tag(config) not in self.heads:  # `transformers` has no class for spans
            return f"{self.family} has no model with the head {tag(config)}"
        head = self.heads[tag(config)]
        for name, value in head.fixed.items():
            if (value_of_head := getattr(config, name)) != value:
                return f"{self._class(tag(config))} has no {name} = {value_of_head!r}, always {value!r}"
        if getattr(config, "lstm", 0):
            return f"{self._class(tag(config))} has no BiLSTM"
        if getattr(config, "both_orders", False):
            return f"{self._class(tag(config))} does not read pairs in both orders"
        if "pool" in head.fields and getattr(config, "pool", None) == "max":
            return f"{self._class(tag(config))} has no pool = 'max'"
        return None

    def config(self, objectives: Sequence[ObjectiveConfig]) -> dict[str, Any]:
        """The fields of config.json for the task head among the objectives; none for other heads."""
        configs = [config for config in objectives if isinstance(config, HeadConfig)]
        if not configs:
            return {}
        (config,) = configs
        settings = msgspec.to_builtins(config)
        return {
            "architectures": [self._class(tag(config))],
            **{theirs: settings[ours] for ours, theirs in self.heads[tag(config)].fields.items()},
            **config.hf_fields(),
            OWN: {name: settings[name] for name in self._own_settings(tag(config)) if name in settings},
        }

    def _own_settings(self, name: str) -> list[str]:
        """Settings of ours that no field of theirs states."""
        head, kind = self.heads[name], HEAD_TYPES[name]
        stated = {*kind.settings_in_hf_fields(), *head.fields, *head.fixed}
        return [field for field in kind.__struct_fields__ if field not in stated]

    def objectives(
        self, config: Mapping[str, Any], promised: Collection[str], *, dropout: float, source: Path
    ) -> tuple[ObjectiveConfig, ...]:
        """The task head that a config.json promises, as it describes it; `dropout` is the encoder's."""
        return tuple(
            self._head(self._marked(name, config, source), config, dropout, source)
            for name in self.heads
            if name in promised
        )

    def _marked(self, name: str, config: Mapping[str, Any], source: Path) -> str:
        """The head that is meant where several are stored in the same class: of one label, by its mark."""
        theirs: TaskSettings = convert(config, TaskSettings, source)
        if len(theirs.id2label or range(theirs.num_labels or 2)) != 1:
            return name
        meant = (other for other, kind in HEAD_TYPES.items() if kind.stored_as == name)
        return next((other for other in meant if _mark(other, config, source) is not None), name)

    def _head(self, name: str, config: Mapping[str, Any], dropout: float, source: Path) -> HeadConfig:
        head = self.heads[name]
        theirs: TaskSettings = convert(config, TaskSettings, source)
        ours = theirs.larvatus_head or {}
        if unknown := sorted(ours.keys() - self._own_settings(name)):
            raise ArtefactError(f"{source}: {OWN} has {unknown[0]!r}, which is not one of its settings")
        stated = {setting: config[field] for setting, field in head.fields.items() if config.get(field) is not None}
        if "dropout" not in stated | ours:
            absent = head.fields.get("dropout") not in config
            stated["dropout"] = head.dropout if absent and head.dropout is not None else dropout
        try:
            stated |= HEAD_TYPES[name].from_hf_fields(_labels(theirs, source), theirs.problem_type)
        except ValueError as fault:
            raise ArtefactError(f"{source}: {fault}") from fault
        stated |= _mark(name, config, source) or {}
        read: HeadConfig = convert({**ours, **stated, **head.fixed}, HEAD_TYPES[name], source)
        return read

    def tensor_names(self, head: str, part: str) -> tuple[str]:
        """Their name for a parameter of a head: ``tensor_names("classification", "dense.weight")``."""
        module, _, kind = part.rpartition(".")
        return (f"{self.heads[head].names[module]}.{kind}",)


def _mark(name: str, config: Mapping[str, Any], source: Path) -> dict[str, Any] | None:
    """The settings in the mark of a head; None without it."""
    try:
        return HEAD_TYPES[name].marked(config)
    except ValueError as fault:
        raise ArtefactError(f"{source}: {fault}") from fault


def _labels(theirs: TaskSettings, source: Path) -> list[str]:
    """Names of the classes in order; LABEL_0 … if they have none."""
    if theirs.id2label is None:
        count = 2 if theirs.num_labels is None else theirs.num_labels  # 2 is their default, not written by old versions
        if not 1 <= count <= MAX_LABELS:
            raise ArtefactError(f"{source}: num_labels = {count:,} is not a number of classes")
        return [f"LABEL_{number}" for number in range(count)]
    names = theirs.id2label
    if not names or set(names) != {str(number) for number in range(len(names))}:
        raise ArtefactError(f"{source}: id2label must name the classes 0, 1, 2 …, each once")
    labels = [names[str(number)] for number in range(len(names))]
    if len(set(labels)) < len(labels):
        raise ArtefactError(f"{source}: id2label gives the same name to two classes")
    if theirs.num_labels is not None and theirs.num_labels != len(labels):
        raise ArtefactError(f"{source}: id2label names {len(labels)} classes, but num_labels is {theirs.num_labels}")
    places = theirs.label2id or {}
    if set(places) == set(labels) and any(str(places[label]) != str(n) for n, label in enumerate(labels)):
        raise ArtefactError(f"{source}: label2id has another order of the classes than id2label")
    return labels
