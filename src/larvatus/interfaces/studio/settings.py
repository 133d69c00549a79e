"""What may be set of the studio: the same struct for Python and for `larvatus studio`.

StudioSettings(port=8400, runs=Path("experiments"))
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.core.settings import Settings
from larvatus.interfaces.serve.binding import check_names, is_loopback
from larvatus.interfaces.serve.settings import Port, ServeSettings
from larvatus.interfaces.studio.folders import Folders


class StudioSettings(Settings):
    """Where the studio listens, and what it watches."""

    host: str = "127.0.0.1"
    """Address of this machine to listen on; others reach it by ssh -L."""
    port: Port = 8_311
    """Port; 0: any that is free."""
    host_allowed: Annotated[tuple[str, ...], Flag("--host-allowed", metavar="NAME")] = ()
    """Another name that requests may give as their Host; repeatable."""
    runs: Annotated[Path, Flag("--runs", metavar="FOLDER")] = Path("runs")
    """Training folders for Runs; what Learn makes is saved there, too."""
    senses: Annotated[str | None, Flag("--senses", metavar="DIR")] = None
    """Sense vectors of larvatus senses build, for Senses to name WordNet's senses."""
    wordnet: Annotated[str | None, Flag("--wordnet", metavar="DIR")] = None
    """The folder of WordNet's files, for --senses; by default Debian's."""
    no_browser: bool = False
    """Print the address alone; open no browser."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names(self.host_allowed)
        if not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} can be reached from other machines, and the studio trains and reads files for "
                "whoever reaches it; leave it at 127.0.0.1, and from elsewhere use: ssh -L 8311:127.0.0.1:8311 HOST"
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
