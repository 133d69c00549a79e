"""The card of a fine-tuned model: what it answers, what it learnt from, what it is worth, and for whom it is not.

text = task_card(result, name="runs/mine", parent="bert-base", claims=claims, …)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from larvatus.core.version import VERSION
from larvatus.models.bundle.card import format_number, render_figures, table
from larvatus.models.bundle.claims import Claim
from larvatus.models.network import ObjectiveConfig
from larvatus.tasks.registry import task_of_head
from larvatus.tasks.scoring import head_of
from larvatus.tasks.task import CardTerms
from larvatus.tasks.trainer.finetune import FineTuneResult

MOST_LABELS = 40


@dataclass(frozen=True)
class DataFacts:
    """A set of examples, as the card names it."""

    name: str
    examples: int
    sha256: str

    def __str__(self) -> str:
        return f"{format_number(self.examples)} examples of `{self.name}`, SHA-256 of their contents `{self.sha256}`"


def task_card(
    result: FineTuneResult,
    *,
    name: str,
    parent: str,
    train: DataFacts,
    dev: DataFacts | None,
    claims: Sequence[Claim],
    transformers: bool,
) -> str:
    """The whole README.md; figures are those of the claims."""
    config = result.bundle.objectives[0]
    parts = [
        _front_matter(config, parent, transformers=transformers),
        _introduction(config, name=name, parent=parent),
        _usage(config, name, transformers=transformers),
        _labels(result, config),
        _relations(result, config),
        "\n".join(["## Data", "", f"Trained on {train}.", *([f"Held out: {dev}."] if dev else [])]),
        _mix(result),
        render_figures(claims),
        "\n".join(_how_chosen(result)),
        "\n".join(_limitations(result)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _words(config: ObjectiveConfig) -> CardTerms:
    task = task_of_head(config)
    assert task is not None, "a fine-tuned model has the head of a task"
    return task.card


def _front_matter(config: ObjectiveConfig, parent: str, *, transformers: bool) -> str:
    return "\n".join(
        [
            "---",
            f"library_name: {'transformers' if transformers else 'larvatus'}",
            f"pipeline_tag: {_words(config).pipeline}",
            f"base_model: {json.dumps(parent, ensure_ascii=False)}",
            "tags:",
            "- larvatus",
            "---",
        ]
    )


def _introduction(config: ObjectiveConfig, *, name: str, parent: str) -> str:
    return (
        f"# {name}\n\nAn encoder that {_words(config).what}: `{parent}`, "
        f"fine-tuned by Larvatus {VERSION}. Settings, lineage and the checksum of every file are in `larvatus.json`."
    )


def _usage(config: ObjectiveConfig, name: str, *, transformers: bool) -> str:
    kind = _words(config)
    lines = ["## How to use it", "", "```python", "import larvatus as lv", ""]
    lines += [f"model = lv.load({json.dumps(name)})", f"print(model.predict({kind.example}))", "```", ""]
    if not transformers:
        return "\n".join([*lines, "No architecture of `transformers` expresses this model; only Larvatus loads it."])
    lines.append(f"`transformers` loads the directory too: `{kind.auto}.from_pretrained`.")
    lines += [kind.also.format(name=name)] if kind.also else []
    temperature = getattr(config, "temperature", 1.0)
    if getattr(config, "crf", False):
        lines.append("It gives the scores of single words, without the CRF of `crf.safetensors`.")
    elif temperature != 1.0:
        lines.append(f"Its scores are not calibrated: divide them by {temperature:.3f} for the same probabilities.")
    return "\n".join(lines)


def _labels(result: FineTuneResult, config: ObjectiveConfig) -> str:
    names = getattr(config, "labels", ())
    counts = result.train.labels()
    shown = {name: counts.get(name, 0) for name in names[:MOST_LABELS]}
    more = f"and {len(names) - MOST_LABELS} more" if len(names) > MOST_LABELS else ""
    named = getattr(config, "names_labels", False)
    return table("Labels in training", shown, note=more) if counts and named else ""


def _relations(result: FineTuneResult, config: ObjectiveConfig) -> str:
    relations = getattr(config, "relations", None)
    if relations is None:
        return ""
    counts = Counter(label for example in result.train for _, _, label in example.relations)
    shown = {name: counts[name] for name in relations.labels[:MOST_LABELS]}
    return table("Relations between spans in training", shown)


def _mix(result: FineTuneResult) -> str:
    mix = head_of(result.bundle.network).learnt_mix
    return "" if mix is None else table("Mix of layers", {**mix.by_layer, "γ, the scale of the sum": mix.scale})


def _how_chosen(result: FineTuneResult) -> Iterator[str]:
    """Caveats about the validation results."""
    if result.scores is None:
        return
    many = len(result.runs) > 1
    yield from ("## How far the held-out results go", "")
    if result.calibration.refused:
        yield f"Its probabilities have no temperature: {result.calibration.refused}."
    if result.calibration.line:
        yield "A temperature is fitted on one half of these examples and measured on the other."
    if many and result.fitted:
        yield "These weights are scored with the threshold that was fitted for them, the means of seeds before that."
    yield (
        f"{'Epoch and seed were' if many else 'The epoch was'} chosen by {result.metric} on the same held-out "
        "examples, so figures are a little flattering; take a test set that nobody has looked at for a claim."
    )


def _limitations(result: FineTuneResult) -> Iterator[str]:
    yield from ("## Limitations", "")
    named = getattr(result.bundle.objectives[0], "names_labels", False)
    knows = "It knows the labels above and no others, and repeats" if named else "It repeats"
    yield f"- {knows} the gaps, errors and biases of its examples."
    if result.scores is None:
        yield "- Nothing was measured on held-out examples."
    if result.calibration.temperature != 1.0:
        yield "- Probabilities were calibrated on the held-out examples; on other text they may mean less."
    elif getattr(result.bundle.objectives[0], "kind", None) != "regression":
        yield "- Its probabilities are not calibrated."
