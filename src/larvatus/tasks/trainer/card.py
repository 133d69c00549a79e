"""The card of a fine-tuned model, and its figures as claims: training, cost, scores, limitations.

claims = result_claims(result, dev=Data(name="dev.tsv", sha256="5f2c…", kind="examples"), how={}, processes=1)
text = task_card(result, name="runs/mine", parent="bert-base", claims=claims, …)
"""

from __future__ import annotations

import json
import math
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from larvatus.core.run_identity import VERSION
from larvatus.core.tables import Table
from larvatus.models.bundle.card import STATISTICS, format_number, render_figures, table
from larvatus.models.bundle.claims import (
    STATISTIC,
    Claim,
    Data,
    PowerDraw,
    device_power,
    energy_claims,
    make_claim,
    size_claims,
)
from larvatus.models.network import ObjectiveConfig
from larvatus.tasks.registry import task_of_head
from larvatus.tasks.scoring import head_of
from larvatus.tasks.task import CardTerms
from larvatus.tasks.trainer.finetune import FineTuneResult

TUNING_FACTS = (
    "tasks",
    "what was trained",
    "parameters trained",
    "epochs",
    "batch",
    "rate",
    "steps",
    "seconds of training",
    "seeds",
    "seed of these weights",
    "texts longer than a window",
    "temperature of probabilities",
    "temperature that was fitted",
    "calibration error without a temperature",
    "calibration error with one",
    "held-out loss without a temperature",
    "held-out loss with one",
)
"""Figures that only training gives."""
CHOSEN = "best-"
"""Metrics that begin so are of a threshold that was chosen on the same examples: an evaluation has none of them."""


def result_claims(
    result: FineTuneResult,
    *,
    dev: Mapping[str, Data],
    how: Mapping[str, Mapping[str, Any]],
    processes: int = 1,
) -> list[Claim]:
    """All figures of the card; `dev` are the validation examples as they were read, `how` the options of reading.

    Both are by task, as the results are; a model of one task has no name for it.
    """
    known = {"machine": _machine(result)}
    return [
        *size_claims(result.bundle.network, vocabulary=result.bundle.tokenizer.size),
        *(make_claim(name, fact, command="finetune", **known) for name, fact in _training(result).items()),
        *(
            make_claim(name, fact, command="finetune", settings=_of_task(task), **known)
            for task, part in result.parts.items()
            for name, fact in _calibration(part).items()
        ),
        *energy_claims(_draw(result, processes), **known),
        *(
            claim
            for task, part in result.parts.items()
            if task in dev
            for claim in _results(part, dev[task], how.get(task, {}), task, **known)
        ),
    ]


def _of_task(task: str) -> dict[str, str]:
    """Settings of a claim that name the task, of a model that has several."""
    return {"task": task} if task else {}


def _device(result: FineTuneResult) -> torch.device:
    return next(result.bundle.network.parameters()).device


def _machine(result: FineTuneResult) -> str:
    device = _device(result)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"


def _draw(result: FineTuneResult, processes: int) -> PowerDraw:
    device = _machine(result) if _device(result).type == "cuda" else ""
    watts, source = device_power(device, threads=torch.get_num_threads())
    seconds = math.fsum(run.seconds for run in result.runs)
    return PowerDraw(watts=watts, devices=processes, seconds=round(seconds, 1), source=source)


def _training(result: FineTuneResult) -> dict[str, str | int | float]:
    run = next(run for run in result.runs if run.seed == result.kept)
    config = result.config
    steps = {"epochs": config.epochs or 0, "batch": config.batch, "rate": config.peak, "steps": run.steps}
    facts: dict[str, str | int | float] = {
        **({"tasks": ", ".join(result.by_task)} if result.by_task else {}),
        "what was trained": config.trained.word,
        "parameters trained": result.trained,
        **(steps if run.steps else {}),  # logistic regression of a search is fitted to convergence
        "seconds of training": round(run.seconds, 1),
        "seeds": ", ".join(str(run.seed) for run in result.runs),
        "seed of these weights": result.kept,
    }
    if result.windows[0]:
        facts["texts longer than a window"] = f"{result.windows[0]:,}, read in {result.windows[1]:,} windows"
    return facts


def _calibration(result: FineTuneResult) -> dict[str, str | int | float]:
    """Effect of the temperature, measured on each half of the validation examples with one fitted on the other."""
    fit = result.calibration
    if math.isnan(fit.fitted):
        return {}
    figures = {
        "temperature of probabilities": fit.temperature,
        "temperature that was fitted": fit.fitted,
        "calibration error without a temperature": fit.before,
        "calibration error with one": fit.after,
        "held-out loss without a temperature": fit.loss_before,
        "held-out loss with one": fit.loss_after,
    }
    return {name: round(value, 6) for name, value in figures.items() if math.isfinite(value)}


def _results(result: FineTuneResult, dev: Data, how: Mapping[str, Any], task: str, **known: Any) -> Iterator[Claim]:
    """Scores of the kept weights, which an evaluation gives again, and what all seeds came to, which training gives."""
    if result.scores is None:
        return
    window = {"length": result.config.length, "truncate": result.config.truncate}
    settings = {**how, "options": {name: given for name, given in window.items() if given}}
    about = {"data": (dev,), "seed": result.kept, **known}
    for name, value in result.scores.values.items():
        again = not name.startswith(CHOSEN) and math.isfinite(value)
        yield make_claim(
            name,
            value if math.isfinite(value) else str(value),
            command="evaluate" if again else "finetune",
            settings=_of_task(task) | ({name: given for name, given in settings.items() if given} if again else {}),
            **about,
        )
        if len(result.runs) > 1:
            for statistic, figure in zip(STATISTICS, result.spread[name], strict=True):
                spread = figure if math.isfinite(figure) else str(figure)
                yield make_claim(
                    name, spread, command="finetune", settings={**_of_task(task), STATISTIC: statistic}, **about
                )


MOST_LABELS = 40
BY_TASK = "`predict` gives the results of each by its name, and `model.for_task(NAME)` is a model of one of them."


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
        _introduction(result, name=name, parent=parent),
        _usage(config, name, transformers=transformers),
        f"Its tasks are {', '.join(result.by_task)}: {BY_TASK}" if result.by_task else "",
        *(section for task, part in result.parts.items() for section in (_labels(part, task), _relations(part, task))),
        "\n".join(["## Data", "", f"Trained on {train}.", *([f"Held out: {dev}."] if dev else [])]),
        *(_mix(part, task) for task, part in result.parts.items()),
        render_figures(claims),
        "\n".join(_candidates(result)),
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


def _introduction(result: FineTuneResult, *, name: str, parent: str) -> str:
    *others, last = (_words(part.bundle.objectives[0]).what for part in result.parts.values())
    what = f"{', '.join(others)} and {last}" if others else last
    return (
        f"# {name}\n\nAn encoder that {what}: `{parent}`, "
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


def _title(title: str, task: str) -> str:
    return f"{title}: {task}" if task else title


def _labels(result: FineTuneResult, task: str) -> str:
    config = result.bundle.objectives[0]
    names = getattr(config, "labels", ())
    counts = result.train.labels()
    shown = {name: counts.get(name, 0) for name in names[:MOST_LABELS]}
    more = f"and {len(names) - MOST_LABELS} more" if len(names) > MOST_LABELS else ""
    named = getattr(config, "names_labels", False)
    return table(_title("Labels in training", task), shown, note=more) if counts and named else ""


def _relations(result: FineTuneResult, task: str) -> str:
    relations = getattr(result.bundle.objectives[0], "relations", None)
    if relations is None:
        return ""
    counts = Counter(label for example in result.train for _, _, label in example.relations)
    shown = {name: counts[name] for name in relations.labels[:MOST_LABELS]}
    return table(_title("Relations between spans in training", task), shown)


def _mix(result: FineTuneResult, task: str) -> str:
    mix = head_of(result.bundle.network).learnt_mix
    return (
        ""
        if mix is None
        else table(_title("Mix of layers", task), {**mix.by_layer, "γ, the scale of the sum": mix.scale})
    )


def _candidates(result: FineTuneResult) -> Iterator[str]:
    """What a search tried."""
    if result.search is None:
        return
    yield from ("## How this model was chosen", "")
    for part in result.search.parts():
        marked = "\nThe marked candidate was kept; "
        yield part.markdown() if isinstance(part, Table) else f"{marked}{part.removeprefix('* ')}."
    values = ", ".join(f"{name} {value:.4f}" for name, value in result.search.values.items())
    yield f"\nCross-validated scores of its kind on all {result.search.examples:,} examples: {values}."


def _how_chosen(result: FineTuneResult) -> Iterator[str]:
    """Caveats about the validation results."""
    if result.scores is None:
        return
    many = len(result.runs) > 1
    yield from ("## How far the held-out results go", "")
    for task, part in result.parts.items():
        if part.calibration.refused:
            yield f"{_title('Its probabilities have no temperature', task)}: {part.calibration.refused}."
    if any(part.calibration.line for part in result.parts.values()):
        yield "A temperature is fitted on one half of these examples and measured on the other."
    if many and any(part.fitted for part in result.parts.values()):
        yield "These weights are scored with the threshold that was fitted for them, the means of seeds before that."
    if not any(run.steps for run in result.runs):  # nothing was chosen on these examples
        return
    yield (
        f"{'Epoch and seed were' if many else 'The epoch was'} chosen by {result.metric} on the same held-out "
        "examples, so figures are a little flattering; take a test set that nobody has looked at for a claim."
    )


def _limitations(result: FineTuneResult) -> Iterator[str]:
    yield from ("## Limitations", "")
    named = any(getattr(config, "names_labels", False) for config in result.bundle.objectives)
    knows = "It knows the labels above and no others, and repeats" if named else "It repeats"
    yield f"- {knows} the gaps, errors and biases of its examples."
    if result.scores is None and result.search is None:
        yield "- Nothing was measured on held-out examples."
    for task, part in result.parts.items():
        of_task = f" of {task}" if task else ""
        if part.calibration.temperature != 1.0:
            known = "were calibrated on the held-out examples; on other text they may mean less"
            yield f"- Probabilities{of_task} {known}."
        elif getattr(part.bundle.objectives[0], "kind", None) != "regression":
            yield f"- Its probabilities{of_task} are not calibrated."
