"""How a loaded model is run, as every command that reads with one offers it: --device, --quantise, --runtime.

@from_structs
def fill(texts: …, model: ModelName, machine: Machine) -> None:
    loaded = machine.load(model)
"""

from __future__ import annotations

from typing import Annotated

from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.cli.from_struct import Panel

Machine = Annotated[LoadOptions, Panel()]
