"""The operations of a server by name: one file per kind.

Routes, /v1/models, JSON lines and the documentation read this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from larvatus.interfaces.serve.operations.cloze import FillOperation, ScoreOperation
from larvatus.interfaces.serve.operations.embed import AttentionOperation, EmbeddingsOperation, EmbedOperation
from larvatus.interfaces.serve.operations.instances import SensesOperation, SimilarOperation
from larvatus.interfaces.serve.operations.operation import Operation
from larvatus.interfaces.serve.operations.predict import PREDICTIONS, AllTasksOperation
from larvatus.interfaces.serve.operations.search import RerankOperation, SearchOperation

AnyOperation = Operation[Any]
_ALL: tuple[AnyOperation, ...] = (
    FillOperation(),
    EmbedOperation(),
    EmbeddingsOperation(),
    SimilarOperation(),
    SensesOperation(),
    ScoreOperation(),
    AttentionOperation(),
    SearchOperation(),
    *PREDICTIONS,
    AllTasksOperation(),
    RerankOperation(),
)
OPERATIONS: Mapping[str, AnyOperation] = {operation.name: operation for operation in _ALL}
