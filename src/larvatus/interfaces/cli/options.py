"""Options that several commands share: model, device, and how text is read.

@from_structs
def fill(texts: …, model: ModelName, machine: Machine) -> None:
    loaded = machine.load(model)                          # --device, --quantise, --runtime
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs, require_matplotlib
from larvatus.core.settings import Flag, Settings
from larvatus.data.bulk.executor import BulkSettings
from larvatus.data.bulk.row_files import check_row_file
from larvatus.data.text.languages import LanguagePath, LanguageSource
from larvatus.data.text.streams import labelled_encoding
from larvatus.data.text.words import is_language
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.cli.from_struct import Panel
from larvatus.interfaces.settings import TextSettings
from larvatus.models.bundle.model_names import HELP as PACKAGED
from larvatus.models.bundle.model_names import model_or_packaged

EXAMPLES = "How examples are read"
READING = "How text is read"
MACHINE = "The machine"
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]


def _for_labelled_files(context: typer.Context, given: str | None) -> str | None:
    """Labelled files are opened in many places: the encoding holds for the whole command."""
    context.with_resource(labelled_encoding(given))
    return given


Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        callback=_for_labelled_files,
        rich_help_panel=EXAMPLES,
        help="Encoding of text that is not UTF-8: latin-1, cp1252, utf-16, ….",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
MODEL_HELP = "Model directory, english (the packaged model), or a hub model in the local cache (org/name@COMMIT)."
NamedModel = Annotated[str, typer.Option("--model", help=MODEL_HELP)]
"""Model of a command that writes to it, so that there is no default."""
ModelName = Annotated[
    str, typer.Option("--model", default_factory=model_or_packaged, show_default=PACKAGED, help=MODEL_HELP)
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist; never those that are read.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="field=value, such as model.layers=6.")]
Size = Annotated[
    str | None, typer.Option(help="tiny (its training fits a laptop too), mini, small, medium, base or large.")
]
Standardise = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="z-scores: the name that isotropy fit saved with the model, or its file."),
]


class TextSources(Settings):
    """Text of a command that reads some."""

    corpus: tuple[str, ...] = ()
    """Text (files, folders, globs, -), or a built corpus; repeatable."""
    languages: Annotated[tuple[str, ...], Flag("--language", metavar="xx=PATH")] = ()
    """Text and its language, such as sw=swahili/; repeatable. Only a code: the language of all other text."""

    def read_with(self, settings: TextSettings) -> tuple[list[LanguageSource], TextSettings]:
        """The text, and how it is read: in the language that was given for text without one."""
        return _named_text(self.corpus, self.languages, settings, option="--corpus PATH")


MixedText = Annotated[TextSources, Panel(READING, first=("corpus",))]
"""Text that may be in several languages."""
MixedReading = Annotated[TextSettings, Panel(READING, without=("language",))]
Reading = Annotated[TextSettings, Panel(READING, without=("language_field", "licence"))]
"""How text in one language is read."""
Bulk = Annotated[BulkSettings, Panel("Many machines, bad rows")]
"""Where a long job runs."""
Machine = Annotated[LoadOptions, Panel()]


class CorpusPaths(Settings):
    """Text of a command that builds something from it."""

    paths: Annotated[tuple[str, ...], Flag(argument=True, metavar="PATHS")] = ()
    """Files, directories, globs, or - for stdin."""
    languages: Annotated[tuple[str, ...], Flag("--language", metavar="xx=PATH", panel=READING)] = ()
    """Text and its language, such as sw=swahili/; repeatable. Only a code: the language of all other text."""

    def read_with(self, settings: TextSettings) -> tuple[list[LanguageSource], TextSettings]:
        """The text, and how it is read: in the language that was given for text without one."""
        return _named_text(self.paths, self.languages, settings, option="PATHS")


class TextFileOptions(Settings):
    """Texts in files, and the file of the results."""

    file: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Texts, one per line, or a table (CSV, TSV, JSONL, Parquet), one per row; may be compressed; repeatable."""
    text: Annotated[str | None, Flag(metavar="COLUMN")] = None
    """Column of --file that holds the text, where it is a table; default: guessed and reported."""
    out: Annotated[Path | None, Flag(metavar="FILE")] = None
    """Write results here: .jsonl, .csv, .tsv or .parquet."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""

    def check(self, texts: Sequence[str], model: str, *, nothing: str) -> None:
        """Refuse what cannot work before the model is loaded; `nothing` is the error without texts."""
        if not (texts or self.file):
            raise UsageError(nothing)
        if texts.count("-") > 1:
            raise UsageError("standard input is read once; give - once")
        if self.text is not None and not self.file:
            raise UsageError("--text names a column of --file; leave it out")
        check_outputs(self.out, overwrite=self.overwrite, inputs=[model, *self.file])
        check_row_file(self.out)


def _named_text(
    paths: Sequence[str], languages: Sequence[str], settings: TextSettings, *, option: str
) -> tuple[list[LanguageSource], TextSettings]:
    """All text of a command, and the settings with the language of text without one."""
    named = [LanguagePath.of(word) for word in languages if "=" in word or not paths]
    codes = [word for word in languages if "=" not in word and paths]
    if not (paths or named):
        raise UsageError(f"no text was named; give {option}, or --language xx=PATH")
    if len(codes) > 1:
        raise UsageError(f"--language {codes[1]} names no text; give its path: --language {codes[1]}=PATH")
    for code in codes:
        if not is_language(code):
            raise UsageError(f"--language {code} is no language code; use one such as en, sw or zh-Hant")
    return [*paths, *named], msgspec.structs.replace(settings, language=codes[0] if codes else "en")


def check_plot(plot: Path | None) -> None:
    """Refuse a picture that cannot be plotted, before anything is computed."""
    if plot is not None:
        if plot.suffix != ".png":
            raise UsageError(f"--plot {plot} must end in .png")
        require_matplotlib()
