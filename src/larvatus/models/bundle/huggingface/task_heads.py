"""Heads of fine-tuned models as `transformers` writes them: `…ForSequenceClassification`, `…ForTokenClassification`,
`…ForQuestionAnswering`.

What the families share stands here, and what each has of its own is data: in its file, or brought by the head itself
(`HeadConfig.families`), as a new head does:

    TASKS = TaskHeads("Bert", {"classification": TaskHead(names={"dense": "bert.pooler.dense", …}, …), …})

Labels are `id2label`, their kind is `problem_type`. Settings of ours that their config.json has no field for (how words
are pooled, temperature, class weights …) stand together in one field of our own, `larvatus_head`, which `transformers`
keeps and does not read; where it is missing, they are as by default.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core.errors import ArtefactError
from larvatus.core.ranges import Size
from larvatus.models.bundle import crf_file
from larvatus.models.bundle.huggingface.settings import convert
from larvatus.models.heads.head import FamilyHead as TaskHead
from larvatus.models.heads.head import HeadConfig
from larvatus.models.heads.registry import HEAD_TYPES
from larvatus.models.network import ObjectiveConfig, tag

__all__ = ["CLS", "ENDS", "TOKENS", "TaskHead", "TaskHeads"]
OWN = "larvatus_head"
CLS: dict[str, Any] = {"pool": "cls", "dense_norm": False, "mix": False}
"""Classified is the vector of [CLS] of the last layer, as it is in most families."""
LAST: dict[str, Any] = {**CLS, "pool": "last"}
"""Classified is the vector of the last token, as in XLNet and GPT."""
TOKENS: dict[str, Any] = {"dense": "none", "dense_norm": False, "mix": False, "lstm": 0}
"""Tagged are the vectors of the last layer as they are."""
ENDS: dict[str, Any] = {"dense": "none", "dense_norm": False, "mix": False}
"""Starts and ends of answers are told from the vectors of the last layer as they are."""
MOST_LABELS = 1 << 20  # that a number may ask for; named ones are as many as the file has


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
    listed: Mapping[str, TaskHead]
    """By our names for them."""
    beside: tuple[str, ...] = (crf_file.PREFIX,)
    """How the names of our parameters begin that are no part of their model, and stand in a file of their own."""

    usual: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What suits the family in heads that it has no class for."""

    @property
    def heads(self) -> Mapping[str, TaskHead]:
        """Those that stand in the family's file, and those that heads bring themselves (`HeadConfig.families`)."""
        brought = {
            name: kind.families[self.family] for name, kind in HEAD_TYPES.items() if self.family in kind.families
        }
        return {**self.listed, **brought}

    @property
    def architectures(self) -> dict[str, tuple[str, ...]]:
        """Their classes, and the head of each."""
        return {self._class(head): (head,) for head in self.heads}

    def _class(self, head: str) -> str:
        return f"{self.family}{HEAD_TYPES[head].suffix}"

    def natural(self, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """What stands between the encoder and the labels in this family, for a model with this config.json."""
        head = self.heads.get(name)
        if head is None:
            return dict(self.usual.get(name, {}))
        settings = ("dense", "dense_norm", "pool", "bias")
        usual = {setting: head.fixed[setting] for setting in settings if setting in head.fixed}
        return {"pool": config.get(head.fields["pool"], "cls"), **usual} if "pool" in head.fields else usual

    def refusal(self, objectives: Sequence[ObjectiveConfig]) -> str | None:
        """Why the family has no such head, or not beside others; None if there is no task head, or it has it."""
        configs = [config for config in objectives if isinstance(config, HeadConfig)]
        if not configs:
            return None
        if len(objectives) > 1:
            return f"{self.family} has no model with the heads {' and '.join(map(tag, objectives))}"
        (config,) = configs
        if tag(config) not in self.heads:  # of spans `transformers` has no class
            return f"{self.family} has no model with the head {tag(config)}"
        head = self.heads[tag(config)]
        for name, value in head.fixed.items():
            if (asked := getattr(config, name)) != value:
                return f"{self._class(tag(config))} has no {name} = {asked!r}, always {value!r}"
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
            **config.stated(),
            OWN: {name: settings[name] for name in self._unsaid(tag(config)) if name in settings},
        }

    def _unsaid(self, name: str) -> list[str]:
        """Settings of ours that no field of theirs says."""
        head, kind = self.heads[name], HEAD_TYPES[name]
        said = {*kind.said_by_stated(), *head.fields, *head.fixed}
        return [field for field in kind.__struct_fields__ if field not in said]

    def objectives(
        self, config: Mapping[str, Any], promised: Collection[str], *, dropout: float, source: Path
    ) -> tuple[ObjectiveConfig, ...]:
        """The task head that a config.json promises, as it describes it; `dropout` is the encoder's."""
        return tuple(self._head(name, config, dropout, source) for name in self.heads if name in promised)

    def _head(self, name: str, config: Mapping[str, Any], dropout: float, source: Path) -> HeadConfig:
        head = self.heads[name]
        theirs: TaskSettings = convert(config, TaskSettings, source)
        ours = theirs.larvatus_head or {}
        if unknown := sorted(ours.keys() - self._unsaid(name)):
            raise ArtefactError(f"{source}: {OWN} has {unknown[0]!r}, which is no setting that it can hold")
        stated = {setting: config[field] for setting, field in head.fields.items() if config.get(field) is not None}
        if "dropout" not in stated | ours:
            absent = head.fields.get("dropout") not in config
            stated["dropout"] = head.dropout if absent and head.dropout is not None else dropout
        try:
            stated |= HEAD_TYPES[name].read_stated(_labels(theirs, source), theirs.problem_type)
        except ValueError as fault:
            raise ArtefactError(f"{source}: {fault}") from fault
        read: HeadConfig = convert({**ours, **stated, **head.fixed}, HEAD_TYPES[name], source)
        return read

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
        raise ArtefactError(f"{source}: label2id says another order of the classes than id2label")
    return labels
