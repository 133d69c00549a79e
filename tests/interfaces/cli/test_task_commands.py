"""Commands of tasks are made from what tasks say of themselves: a new task needs no edit in cli/."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Size
from larvatus.data.labelled.file_options import FileOptions, TextFiles, WordFiles, as_file_options
from larvatus.interfaces.cli.commands.finetune import command_of, with_settings
from larvatus.interfaces.cli.from_struct import AnyOf, from_structs
from larvatus.tasks.registry import TASKS, parse_file_options
from larvatus.tasks.spans.task import SpansOptions
from larvatus.tasks.tag.task import TagTask


class ChooseOptions(msgspec.Struct, frozen=True, kw_only=True):
    endings: Size = 4
    """How many endings there are."""


class ChooseFiles(FileOptions, frozen=True, kw_only=True):
    things: ClassVar[str] = "choices"

    ending: tuple[str, ...] = ()
    """Columns of the endings; repeatable."""


class Choose(TagTask):
    name = "choose"
    title = "Choose an ending."
    Options = ChooseOptions
    Reading = ChooseFiles


def help_of(command):
    app = typer.Typer(rich_markup_mode="rich")
    app.command()(command)
    return CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output


def test_a_new_task_has_its_command_its_options_and_its_columns():
    shown = help_of(command_of(Choose()))
    assert "Choose an ending." in shown
    assert "How many endings there are." in shown
    assert "Columns of the endings; repeatable." in shown
    for flag in ("--crf", "--word", "--text", "--glue", "--class-weight"):
        assert flag not in shown


@pytest.mark.parametrize("name", TASKS)
def test_what_most_people_need_stands_first(name):
    shown = help_of(command_of(TASKS[name]))
    first = shown[: shown.index("How examples are read")]
    for flag in ("--model", "--train", "--dev", "--out", "--epochs", "--seeds"):
        assert flag in first
    assert "--batch" not in first


def test_flags_and_settings_by_name_are_the_same():
    chosen = SpansOptions(longest=8, decoding="free")
    assert with_settings("spans", SpansOptions(longest=8), ["decoding=free"]) == chosen
    assert with_settings("spans", chosen, []) == chosen
    with pytest.raises(UsageError, match="did you mean longest"):
        with_settings("spans", SpansOptions(), ["longset=8"])


def test_of_fields_of_several_structs_those_given_are_handed_on():
    got = []

    @from_structs
    def look(columns: Annotated[dict[str, str], AnyOf((TextFiles, WordFiles))]) -> None:
        got.append(columns)

    app = typer.Typer()
    app.command()(look)
    assert CliRunner().invoke(app, ["--text", "review", "--no-header"]).exit_code == 0
    assert CliRunner().invoke(app, []).exit_code == 0
    assert got == [{"text": "review", "header": False}, {}]
    assert parse_file_options("classify", got[0]) == TextFiles(text="review", header=False)
    with pytest.raises(UsageError, match="--text and --header are for texts; words have --word and --tag"):
        parse_file_options("tag", got[0])
    assert as_file_options(FileOptions(), WordFiles) == WordFiles()
