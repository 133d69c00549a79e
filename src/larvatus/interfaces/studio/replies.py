"""Answers of the studio's own routes: JSON in the shape of the server's, never a traceback.

reply({"runs": []})
reply(error_of(fault), status_of(fault))
"""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import Response

FRESH = {"Cache-Control": "no-store"}


def reply(values: Any, status: int = 200) -> Response:
    """What is no number (a loss that went wrong) becomes null: JSON has no word for it."""
    body = json.dumps(_finite(values), ensure_ascii=False, allow_nan=False).encode("utf-8", errors="replace")
    return Response(body, status, FRESH, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
