"""Suites by name. A suite is a list of parts with published figures: one file, and its entry here.

get_suite("english").chosen(only=("blimp",))
"""

from __future__ import annotations

from typing import Literal

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.evaluation.suite.english import ENGLISH
from larvatus.evaluation.suite.suite import Suite

SuiteName = Literal["english"]
SUITES: dict[str, Suite] = {suite.name: suite for suite in (ENGLISH,)}


def get_suite(name: str) -> Suite:
    if name not in SUITES:
        raise UsageError(f"there is no suite {name!r}{did_you_mean(name, SUITES)}; there are: {', '.join(SUITES)}")
    return SUITES[name]
