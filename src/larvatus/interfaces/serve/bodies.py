"""From the bytes of a request to a checked body: one line says what is wrong with them.

body = read_body(b'{"texts": ["the river"]}', EmbedBody)
"""

from __future__ import annotations

import re
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import Struct

from larvatus.interfaces.serve.refusals import BadRequest, WrongBody

DEEPEST = 32
"""Lists and objects within each other, at most."""
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
ABody = TypeVar("ABody", bound=Struct)


def read_body(raw: bytes, kind: type[ABody]) -> ABody:
    """A body of this kind. What is no JSON is 400, JSON that says something else 422."""
    if raw.count(b"[") + raw.count(b"{") > DEEPEST:
        _refuse_deep(raw)
    try:
        body: ABody = _decoder(kind).decode(raw)
    except msgspec.ValidationError as fault:
        raise WrongBody(f"{fault}; GET /openapi.json says what a body may hold") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        said = "not UTF-8" if isinstance(fault, UnicodeDecodeError) else str(fault)
        raise BadRequest(f"the body is no JSON: {said}") from None
    return body


@cache
def _decoder(kind: type[ABody]) -> msgspec.json.Decoder[ABody]:
    return msgspec.json.Decoder(kind)


def _refuse_deep(raw: bytes) -> None:
    depth = 0
    for match in _BRACKETS.finditer(raw):
        token = match[0][:1]
        depth += 1 if token in b"[{" else -1 if token in b"]}" else 0
        if depth > DEEPEST:
            raise BadRequest(f"the body's lists and objects are more than {DEEPEST} deep; flatten it")
