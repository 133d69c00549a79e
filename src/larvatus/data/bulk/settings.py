"""Where the blocks of a long job are carried out, and what becomes of bad rows: options of every such command.

larvatus embed s3://texts/ --model runs/mine --out vectors.parquet --ray 10.0.0.4:6379 --errors bad.jsonl
lv.embed_files(model, "texts/", out="vectors.parquet", ray="auto")
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from larvatus.core.flags import Flag
from larvatus.core.settings import Settings
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.bulk.on_ray import RayExecutor, check_address


class BulkSettings(Settings):
    """Where a long job runs."""

    ray: Annotated[str | None, Flag("--ray", metavar="[ADDRESS]")] = None
    """On a Ray cluster: host:port; without an address, one that runs here, or a new one (extra larvatus[scale])."""
    errors: Annotated[Path | None, Flag(metavar="FILE")] = None
    """Bad rows go here, one line of JSON each, and the job continues."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ray is not None:
            check_address(self.ray)

    def executor(
        self, *, otherwise: Executor = LocalExecutor(), device: str = "cpu", workers: int | None = None
    ) -> Executor:
        """Who carries the blocks out; `device` says whether workers are to take GPUs."""
        return otherwise if self.ray is None else RayExecutor(self.ray, gpus=device != "cpu", workers=workers)
