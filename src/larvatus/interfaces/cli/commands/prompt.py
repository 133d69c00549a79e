"""`larvatus prompt`: classify through a pattern with a blank, without training or with few examples.

larvatus prompt "A dull film." --model DIR --pattern "{text} It was {blank}." --verbaliser pos=good --verbaliser neg=bad
larvatus prompt --model DIR --verbaliser … --data test.tsv --train train.tsv --k 16 --draws 5 --baseline finetune
larvatus prompt --model DIR --verbaliser … --train few.tsv --k 0 --unlabelled texts.txt --out runs/few
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.markup import escape

from larvatus.core.errors import UsageError
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Column, Table
from larvatus.data.labelled.file_options import TextFiles
from larvatus.inference.model import load
from larvatus.interfaces.api.prompting import few_shot_of, pet, prompt_table, read_texts_of
from larvatus.interfaces.api.task_settings import TuningMachine
from larvatus.interfaces.cli.commands.finetune import show_result
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import EXAMPLES, MACHINE, Encoding, Json
from larvatus.interfaces.cli.output import Quiet, is_quiet, show_part
from larvatus.models.bundle.model_names import model_or_packaged
from larvatus.tasks.examples import read_examples
from larvatus.tasks.few_shot.results import FewShotSettings, FewShotTraining, PromptTable
from larvatus.tasks.prompt.pattern import NULL, parse_verbaliser
from larvatus.tasks.trainer.progress import FineTuneProgress
from larvatus.training.engine.reporter import Reporter


class PromptSettings(Settings):
    """Model, pattern, examples and output of `larvatus prompt`."""

    texts: Annotated[tuple[str, ...], Flag(argument=True, metavar="TEXT")] = ()
    """Texts to classify without training."""
    model: str | None = None
    """Model directory, or a hub model in the local cache (org/name@COMMIT); default: the packaged English model."""
    patterns: Annotated[tuple[str, ...], Flag("--pattern", metavar="PATTERN")] = ()
    """The text with a blank, "{text} It was {blank}."; of pairs {first} and {second}; repeatable; default: null, the
    text and a blank only."""
    verbaliser: Annotated[
        Mapping[str, tuple[str, ...]], Flag("--verbaliser", metavar="LABEL=WORD", words=parse_verbaliser)
    ] = {}
    """A word for a label; repeatable, several words per label are possible."""
    calibrate: bool = False
    """With TEXT: divide by the probabilities of neutral texts (contextual calibration)."""
    data: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Labelled test examples: a table of methods; repeatable."""
    train: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Labelled examples to sample from; repeatable."""
    unlabelled: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """PET: texts to label, one a line or a table; default: those of --train that are not sampled; repeatable."""
    out: Path | None = None
    """Instead of --data: save the classifier that PET trains."""
    resume: bool = False
    """Resume the run in --out, if there is one."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""

    @property
    def model_name(self) -> str:
        """The named model, or the packaged one."""
        return model_or_packaged(self.model)

    @property
    def several(self) -> tuple[str, ...]:
        return self.patterns or (NULL,)


@from_structs
def command(
    request: Annotated[PromptSettings, Panel()],
    few: Annotated[FewShotSettings, Panel("Few examples")],
    training: Annotated[FewShotTraining, Panel("Training")],
    reading: Annotated[TextFiles, Panel(EXAMPLES, without=("labels", "separator"))],
    machine: Annotated[TuningMachine, Panel(MACHINE)],
    as_json: Json = False,
    encoding: Encoding = None,  # holds while the command runs
    quiet: Quiet = False,
) -> None:
    """Classify with a prompt: texts without training, a table of methods (--data), or PET (--out)."""
    modes = {"TEXT": bool(request.texts), "--data FILE": bool(request.data), "--out DIR": request.out is not None}
    if sum(modes.values()) != 1:
        raise UsageError("prompt takes one of TEXT (classify it), --data FILE (a table of methods), --out DIR (PET)")
    if request.texts:
        _texts(request, few, machine, as_json=as_json)
    elif request.data:
        _table(request, few, training, reading, machine, as_json=as_json)
    else:
        _pet(request, few, training, reading, machine)


def _texts(request: PromptSettings, few: FewShotSettings, machine: TuningMachine, *, as_json: bool) -> None:
    if len(request.several) > 1:
        raise UsageError("texts are classified through one pattern; give one --pattern, or --data FILE to compare them")
    model = load(request.model_name, device=machine.device)
    answers = model.prompt(
        list(request.texts),
        request.verbaliser,
        pattern=request.several[0],
        calibrate=request.calibrate,
        neutral=few.neutral,
    )
    console = Console(soft_wrap=True, highlight=False)
    for answer in answers:
        if as_json:
            print(json.dumps(answer.to_dict(), ensure_ascii=False))
        else:
            console.print(escape("".join(piece.text for piece in answer.pieces(top=len(answer.probabilities)))))


def _table(
    request: PromptSettings,
    few: FewShotSettings,
    training: FewShotTraining,
    reading: TextFiles,
    machine: TuningMachine,
    *,
    as_json: bool,
) -> None:
    console = Console(highlight=False, stderr=True, quiet=is_quiet())
    loaded = load(request.model_name, device=machine.device)
    table = prompt_table(
        few_shot_of(loaded.bundle, request.verbaliser, request.several, training, machine),
        few,
        reading,
        data=list(request.data),
        train=list(request.train) or None,
        unlabelled=[Path(name) for name in request.unlabelled] or None,
        say=lambda line: console.print(line, markup=False, soft_wrap=True),
    )
    if as_json:
        print(json.dumps(table.to_dict(), ensure_ascii=False, allow_nan=False))
    else:
        _show(table)


def _show(table: PromptTable) -> None:
    console = Console(highlight=False, soft_wrap=True)
    columns = ("method", Column(table.metric), "95% interval", "pattern")
    show_part(console, Table(columns, [row.cells for row in table.rows], title=table.title, left=len(columns)))
    for note in table.notes:
        console.print(f"note: {note}", markup=False)


def _pet(
    request: PromptSettings, few: FewShotSettings, training: FewShotTraining, reading: TextFiles, machine: TuningMachine
) -> None:
    if not request.train or request.out is None:
        raise UsageError("PET learns from few labelled examples: give --train FILE")
    loaded = load(request.model_name, device=machine.device)
    few_shot = few_shot_of(loaded.bundle, request.verbaliser, request.several, training, machine)
    pool = read_examples("prompt", list(request.train), reading)
    texts = read_texts_of([Path(name) for name in request.unlabelled], reading) if request.unlabelled else None
    with FineTuneProgress(Reporter(Console(highlight=False, quiet=is_quiet())), request.out) as show:
        show.say(pool.describe())
        resumed = {"resume": request.resume, "overwrite": request.overwrite}
        tuned = pet(few_shot, few, pool, texts, request.out, watch=show.callbacks, **resumed)
    show_result(Console(highlight=False), tuned, request.out)
