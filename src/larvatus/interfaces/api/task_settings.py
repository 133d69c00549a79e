"""Settings of fine-tuning, evaluation and prediction apart from a task's own options, for commands and Python.

    lv.finetune("tag", "bert-base", train="train.conll", epochs=3, seeds=3, crf=True, word="1")
    larvatus finetune tag --model bert-base --train train.conll --epochs 3 --seeds 3 --crf --word 1 --out runs/tag

`epochs` is of `TrainConfig`, `seeds` of `RunSettings`, `crf` of the task's `Options`, `word` of its `Reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from larvatus.core.ranges import Count, CountOrNone, Factor, Length, PositiveShare, Seed, Size, whole
from larvatus.core.settings import Flag, Settings
from larvatus.data.labelled.problems import Errors
from larvatus.models.bundle.model_names import model_or_packaged
from larvatus.models.generation.generate import Beams
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.registry import column_names
from larvatus.tasks.trainer.config import scoring_options
from larvatus.training.engine.settings import MICROBATCH, Runtime

SEEDS = whole(1, 10_000)
"""Number of seeds."""
SAMPLES = whole(2, 10_000_000)
"""Samples of a bootstrap."""
TOP = whole(1, 1_000_000)
"""Number of classes or answers."""


def split_columns(keywords: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, object]]:
    """Keywords that name columns of labelled files, and the other keywords."""
    names = column_names() & keywords.keys()
    return (
        {name: keywords[name] for name in names},
        {name: value for name, value in keywords.items() if name not in names},
    )


class ExampleSettings(Settings):
    """Model, examples and output directory of fine-tuning."""

    model: str | None = None
    """Model directory, or a hub model in the local cache (org/name@COMMIT); default: the packaged English model."""
    train: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Labelled training examples; repeatable."""
    dev: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Validation examples, to select and calibrate; default: a tenth of --train."""
    others: Annotated[tuple[str, ...], Flag("--with", metavar="TASK[=FILE]")] = ()
    """Another task to train on the same encoder, with its examples, else those of --train; repeatable."""
    others_dev: Annotated[tuple[str, ...], Flag("--with-dev", metavar="TASK=FILE")] = ()
    """Validation examples of another task; repeatable."""
    out: Path
    """Directory of the fine-tuned model."""
    no_dev: bool = False
    """Use no validation examples: no scores, the last weights."""
    group: Annotated[str | None, Flag(metavar="COLUMN")] = None
    """Without --dev: examples of one group are held out together."""
    errors: Errors = "refuse"
    """Rows that cannot be used, such as those without text or label: refuse with a list of all, or skip them."""

    @property
    def model_name(self) -> str:
        """The named model, or the packaged one."""
        return model_or_packaged(self.model)


class GlueSettings(Settings):
    """Tasks of GLUE instead of files."""

    glue_tasks: Annotated[str | None, Flag("--task", metavar="NAME")] = None
    """A task of GLUE by name, several with commas, or all."""
    glue: Annotated[Path | None, Flag(metavar="DIR")] = None
    """With --task: the directory of GLUE."""


class RunSettings(Settings):
    """Seeds, trainable part, metric and directory of a fine-tuning run."""

    seeds: Annotated[int, SEEDS] = 1
    """Number of models to train, from seeds 0, 1, …; the best is kept."""
    seed: Seed = 0
    """The first seed."""
    resume: bool = False
    """Resume the run in --out, if there is one."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""
    trained: Annotated[str | None, Flag(panel="Training")] = None
    """Trainable part: all (the default), head, last2, bias, lora, lora16, lora16-all."""
    layer_decay: Annotated[PositiveShare, Flag(panel="Training")] = 1.0
    """Rate of a layer as a share of the one above."""
    head_rate: Annotated[Factor, Flag(panel="Training")] | None = None
    """Rate of the head, times --rate; default: by task."""
    metric: str | None = None
    """Metric that selects the best checkpoint; default: by the labels."""
    curve: Annotated[str | None, Flag(metavar="10,30,100%")] = None
    """Scores of smaller shares too."""
    strict: bool = False
    """Refuse labels that the training examples lack, instead of counting them as wrong."""
    settings: Annotated[tuple[str, ...], Flag("--set", metavar="NAME=VALUE")] = ()
    """Options of the task by name, such as longest=8, or of another one, such as classify.text=body; repeatable."""


class TuningMachine(Settings):
    device: str = "auto"
    """auto, cpu or cuda."""
    precision: str = "auto"
    """fp32, bf16 (mixed, on a GPU or a CPU that has it), or auto."""
    microbatch: Annotated[int, MICROBATCH] | None = None
    """Tokens of one forward pass; gradients accumulate to a step."""


class EvaluationSettings(Settings):
    """How a fine-tuned model is evaluated."""

    samples: Annotated[int, SAMPLES] = 1000
    """Samples of the bootstrap."""
    strict: bool = False
    """Refuse labels that the training examples lack, instead of counting them as wrong."""
    repair: bool = False
    """Read illegal sequences of tags as conlleval does, instead of refusing them."""
    merge: Merge = "mean"
    """How the windows of a long text are merged."""
    length: Length | None = None
    """Tokens of a window; default: as many as the model can read."""
    truncate: bool = False
    """Read only the first window of a long text."""
    beams: Beams | None = None
    """Beams of generative models (beam search); default: greedy."""
    seed: Annotated[Seed, Flag(offered=False)] = 0

    def options(self, device: str) -> EvaluationOptions:
        runtime = Runtime.here(device=device, precision="fp32", compile=False)
        return EvaluationOptions(scoring=scoring_options(runtime), **msgspec.structs.asdict(self))


class PredictSettings(Settings):
    """Output of predictions, and how long texts are read."""

    task: Annotated[str | None, Flag(metavar="NAME")] = None
    """Task to predict, of a model that has several; default: all."""
    top: Annotated[int, TOP] | None = None
    """Number of most probable classes or answers to show."""
    probabilities: bool = False
    """Show all classes."""
    beams: Beams | None = None
    """Beams of generative models (beam search); default: greedy."""
    truncate: Annotated[bool, Flag(panel="Long texts")] = False
    """Read only the first window of long texts."""
    merge: Annotated[Literal["mean", "max"], Flag(panel="Long texts")] = "mean"
    """How windows are merged: mean or highest score."""
    length: Annotated[Size, Flag(panel="Long texts")] | None = None
    """Tokens of a window; default: the model's positions."""
    overlap: Annotated[CountOrNone, Flag(panel="Long texts")] | None = None
    """Tokens that windows share; default: a quarter."""
    batch_tokens: Annotated[CountOrNone, Flag(panel="Long texts")] = 0
    """Tokens of a batch; 0: as suits the device."""

    @property
    def options(self) -> PredictOptions:
        top: Count = self.top or 1
        return PredictOptions(
            merge=self.merge, truncate=self.truncate, length=self.length, overlap=self.overlap,
            tokens=self.batch_tokens, top=top, beams=self.beams, task=self.task,
        )  # fmt: skip
