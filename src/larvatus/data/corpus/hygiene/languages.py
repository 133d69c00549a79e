"""Which language a document is in, by its bytes: `py3langid`, whose model comes inside the package.

    identify = Identifier()
    identify.language("Der Bach fließt durch das Tal.")        # ("de", 0.98)
    identify.knows("ee")                                       # False: not judged

A document is judged by its beginning and its middle. Short ones, and languages that the model does not know, are not.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from larvatus.core.errors import UsageError

FEWEST = 40
"""Characters below which nothing can be told."""
_STRETCH = 250  # characters from the beginning, and from the middle


@dataclass(frozen=True)
class Identifier:
    def language(self, text: str) -> tuple[str, float]:
        """Code and confidence; an empty code where the text is too short."""
        if len(text) < FEWEST:
            return "", 0.0
        middle = len(text) // 2
        stretch = text if len(text) <= 2 * _STRETCH else f"{text[:_STRETCH]} {text[middle : middle + _STRETCH]}"
        code, confidence = _model().classify(stretch)
        return str(code), float(confidence)

    def knows(self, language: str) -> bool:
        return base(language) in _labels()


def base(language: str) -> str:
    """Without script or country: ``zh`` of ``zh-Hant``."""
    return language.replace("_", "-").split("-")[0].lower()


def check_can_identify() -> None:
    """Before the work, not after it."""
    if find_spec("py3langid") is None:
        raise UsageError('identifying languages wants py3langid; pip install "larvatus[hygiene]"')


@functools.cache
def _model() -> Any:
    check_can_identify()
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # its model takes a moment

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@functools.cache
def _labels() -> frozenset[str]:
    return frozenset(_model().labels)
