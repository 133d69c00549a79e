"""Settings of the studio: the same struct for Python and for `larvatus studio`.

StudioSettings(port=8400, runs=Path("experiments"))
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from larvatus.core.errors import UsageError
from larvatus.core.settings import Flag
from larvatus.interfaces.serve.settings import ListenSettings, ServeSettings, is_loopback

TAUGHT = "studio"
"""Folder below `runs` with the models that Learn trained."""
EXAMPLES = "studio-examples"
"""Folder below `runs` with the files it trained on: a card names them, and `larvatus card --verify` reads them."""

SEARCHED = "studio-search"
"""Folder below `runs` with the files that Search indexed, and their indexes."""
PROBED = "studio-probes"
"""Folder below `runs` with the files that Probe read, and their reports."""


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where the studio reads training runs, and where it keeps models that it trained.

    folders = Folders(runs=Path("runs"))
    folders.models / "reviews"                # the model that Learn trained on reviews.csv
    folders.examples / "reviews"              # a copy of that file
    """

    runs: Path
    """Folder of training runs, at any depth; it need not exist."""

    @property
    def models(self) -> Path:
        return self.runs / TAUGHT

    @property
    def examples(self) -> Path:
        return self.runs / EXAMPLES

    @property
    def searched(self) -> Path:
        return self.runs / SEARCHED

    @property
    def probes(self) -> ProbeFolders:
        return ProbeFolders(runs=self.runs)


class ProbeFolders(Folders):
    """Where Probe keeps a file and its report: both in one folder."""

    @property
    def models(self) -> Path:
        return self.runs / PROBED

    @property
    def examples(self) -> Path:
        return self.runs / PROBED


class StudioSettings(ListenSettings):
    """Address of the studio, which only this machine can reach, and its folder of runs."""

    runs: Annotated[Path, Flag("--runs", metavar="FOLDER")] = Path("runs")
    """Folder of training runs; Learn saves its models there, too."""
    no_browser: bool = False
    """Print the address without opening a browser."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} can be reached from other machines, and the studio trains and reads files for "
                "anyone who reaches it; leave it at 127.0.0.1, and from elsewhere use: ssh -L 8311:127.0.0.1:8311 HOST"
            )

    @property
    def serve(self) -> ServeSettings:
        return ServeSettings(**{name: getattr(self, name) for name in ListenSettings.__struct_fields__})

    @property
    def folders(self) -> Folders:
        return Folders(runs=self.runs)
