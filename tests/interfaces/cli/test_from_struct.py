"""Options from settings structs: type, range, default, choices, help, panel; errors as of any other option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Clip, Run, Seed, Share, Steps, check_ranges
from larvatus.core.settings import Flag, field_docs
from larvatus.interfaces.cli.from_struct import Panel, from_structs


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    clip: Clip = 1.0
    """Largest norm."""


class Base(msgspec.Struct, frozen=True, kw_only=True):
    seed: Seed = 0
    """Seed of all randomness."""


class Chosen(Base, frozen=True, kw_only=True):
    steps: Steps | None = None
    """Train this many
    steps."""
    dropout: Share = 0.1
    kind: Annotated[Literal["bpe", "unigram"], Flag("--type")] = "bpe"
    """What kind of [pieces]."""
    cased: Annotated[bool | None, Flag("--cased/--lowercase")] = None
    file: tuple[str, ...] = ()
    """Repeatable."""
    seeds: tuple[Run, ...] = (1, 2)
    """Several."""
    weights: dict[str, Share] = {}
    """Of classes."""
    encoding: str | msgspec.UnsetType = msgspec.UNSET
    layers: int | str = "last"
    hidden: Annotated[object, Flag(offered=False)] = None
    optimizer: Inner = Inner()

    def __post_init__(self) -> None:
        check_ranges(self, "")


got: list[tuple[Path, Chosen]] = []
app = typer.Typer(rich_markup_mode="rich")


@app.command()
@from_structs
def train(out: Path, chosen: Annotated[Chosen, Panel("Training", first=("steps",))]) -> None:
    """Train it."""
    got.append((out, chosen))


def call(*words: str) -> Chosen:
    got.clear()
    result = CliRunner().invoke(app, ["here", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return got[0][1]


def test_nothing_given_is_the_struct_as_it_is():
    assert call() == Chosen()
    assert got[0][0] == Path("here")


def test_every_kind_of_field_is_read():
    words = "--steps 5 --dropout 0.5 --type unigram --lowercase --file a --file b --seeds 3,4 --weights x=0.5"
    words += " --encoding latin-1 --layers 3 --optimizer-clip 2 --seed 7"
    assert call(*words.split()) == Chosen(
        steps=5, dropout=0.5, kind="unigram", cased=False, file=("a", "b"), seeds=(3, 4), weights={"x": 0.5},
        encoding="latin-1", layers="3", optimizer=Inner(clip=2.0), seed=7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--steps 0", "--steps = 0 must lie between 1 and 1,000,000,000,000"),
        ("--dropout nan", "--dropout = nan must lie between 0 and 1"),
        ("--optimizer-clip -1", "--optimizer-clip = -1.0 must lie between 0 and 1,000,000"),
        (
            "--seeds 1,x",
            "--seeds needs whole numbers with commas between, such as 1,2,3: \
'x' must be a whole number between 1 and 1,000",
        ),
        ("--weights x", "--weights x is not name=value, such as yes=2"),
    ],
)
def test_what_is_out_of_its_range_is_named_by_its_flag(words, said):
    with pytest.raises(UsageError) as fault:
        call(*words.split())
    assert str(fault.value) == said
    assert fault.value.exit_code == 2


def test_a_choice_is_one_of_those_there_are():
    assert CliRunner().invoke(app, ["here", "--type", "words"]).exit_code == 2


def test_help_is_the_docstrings_in_panels():
    help = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert "Train this many steps." in help
    assert "Seed of all randomness." in help
    assert "What kind of [pieces]." in help
    assert help.index("--steps") < help.index("Training") < help.index("--seed")
    assert "hidden" not in help


def test_docstrings_of_a_class_and_of_what_it_extends():
    assert field_docs(Chosen)["seed"] == "Seed of all randomness."
    assert "dropout" not in field_docs(Chosen)


def test_one_name_for_two_fields_is_refused_when_the_command_is_made():
    def double(a: Chosen, b: Base) -> None: ...

    with pytest.raises(TypeError, match="have a field seed"):
        from_structs(double)
