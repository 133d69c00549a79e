"""All operations by name: routes, /v1/models, JSON lines and the documentation read this list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from larvatus.interfaces.serve.operations.attention import Attention
from larvatus.interfaces.serve.operations.embed import Embed
from larvatus.interfaces.serve.operations.embeddings import Embeddings
from larvatus.interfaces.serve.operations.fill import Fill
from larvatus.interfaces.serve.operations.operation import Operation
from larvatus.interfaces.serve.operations.predict import PREDICTIONS
from larvatus.interfaces.serve.operations.score import ScoreTexts
from larvatus.interfaces.serve.operations.senses import Senses
from larvatus.interfaces.serve.operations.similar import Similar

AnyOperation = Operation[Any]
_ALL: tuple[AnyOperation, ...] = (
    Fill(),
    Embed(),
    Embeddings(),
    Similar(),
    Senses(),
    ScoreTexts(),
    Attention(),
    *PREDICTIONS,
)
OPERATIONS: Mapping[str, AnyOperation] = {operation.name: operation for operation in _ALL}
