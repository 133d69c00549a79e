"""Settings of the studio: the same struct for Python and for `larvatus studio`.

StudioSettings(port=8400, runs=Path("experiments"))
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.core.settings import Settings
from larvatus.interfaces.serve.settings import Port, ServeSettings, check_names, is_loopback

TAUGHT = "studio"
"""Folder below `runs` with the models that Learn trained."""
EXAMPLES = "studio-examples"
"""Folder below `runs` with the files it trained on: a card names them, and `larvatus card --verify` reads them."""


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


class StudioSettings(Settings):
    """Address of the studio, and its folder of runs."""

    host: str = "127.0.0.1"
    """Address of this machine to listen on; other machines connect through ssh -L."""
    port: Port = 8_311
    """Port; 0 for any free one."""
    host_allowed: Annotated[tuple[str, ...], Flag("--host-allowed", metavar="NAME")] = ()
    """Another name that requests may give as their Host; repeatable."""
    runs: Annotated[Path, Flag("--runs", metavar="FOLDER")] = Path("runs")
    """Folder of training runs; Learn saves its models there, too."""
    senses: Annotated[str | None, Flag("--senses", metavar="DIR")] = None
    """Sense vectors of larvatus senses build, for Senses to name WordNet's senses."""
    wordnet: Annotated[str | None, Flag("--wordnet", metavar="DIR")] = None
    """Folder of WordNet's files, for --senses; by default Debian's."""
    no_browser: bool = False
    """Print the address without opening a browser."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names(self.host_allowed)
        if not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} can be reached from other machines, and the studio trains and reads files for "
                "anyone who reaches it; leave it at 127.0.0.1, and from elsewhere use: ssh -L 8311:127.0.0.1:8311 HOST"
            )

    @property
    def serve(self) -> ServeSettings:
        return ServeSettings(
            host=self.host,
            port=self.port,
            host_allowed=self.host_allowed,
            senses=self.senses,
            wordnet=self.wordnet,
        )

    @property
    def folders(self) -> Folders:
        return Folders(runs=self.runs)
