"""All operations by name: routes, /v1/models, JSON lines and the documentation read this list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from larvatus.serve.operations.embed import Embed
from larvatus.serve.operations.fill import Fill
from larvatus.serve.operations.operation import Operation

AnyOperation = Operation[Any]
OPERATIONS: Mapping[str, AnyOperation] = {operation.name: operation for operation in (Fill(), Embed())}
