"""What the exported page needs of a tokenizer: whether JavaScript runs it, and the library's classes of characters.

check_offline_tokenizer(tokenizer)         # refuses what page/offline/tokenizer.js has no step for
character_classes()["punctuation"]         # '!"#$%&…'
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from tokenizers import normalizers, pre_tokenizers

from larvatus.core.errors import UsageError
from larvatus.data.text.tokenizer import Tokenizer

NORMALIZERS = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "BertNormalizer", "Replace"})
PRE_TOKENIZERS = frozenset({"BertPreTokenizer", "WhitespaceSplit", "Split", "ByteLevel", "Metaspace"})
PATTERNS = (r" ?\d", " {2,}")
"""Regular expressions that mean the same in JavaScript."""
MODELS: dict[str, tuple[str, ...]] = {
    "WordPiece": (),
    "BPE": ("dropout", "continuing_subword_prefix", "fuse_unk", "byte_fallback"),
    "Unigram": ("byte_fallback",),
}
"""Models, and settings that must be off."""


def check_offline_tokenizer(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that the page would read differently."""
    settings = json.loads(tokenizer.library.to_str())
    if reason := next(_unsupported(settings), None):
        raise UsageError(
            f"the page cannot run this tokenizer: {reason}; export a model whose vocabulary Larvatus trained "
            "(wordpiece, byte-bpe, bpe or unigram)"
        )


def _unsupported(settings: dict[str, Any]) -> Iterator[str]:
    model = settings["model"]
    if model["type"] not in MODELS:
        yield f"its model is {model['type']}"
    yield from (f"{name} is on" for name in MODELS.get(model["type"], ()) if model.get(name))
    for part, known in (("normalizer", NORMALIZERS), ("pre_tokenizer", PRE_TOKENIZERS)):
        for step in _steps(settings.get(part)):
            pattern = step.get("pattern") or {}
            if step["type"] not in known:
                yield f"it has the step {step['type']}"
            elif "Regex" in pattern and pattern["Regex"] not in PATTERNS:
                yield f"it splits by the pattern {pattern['Regex']!r:.60}"
            elif step["type"] == "Split" and (step["behavior"] != "Isolated" or step["invert"]):
                yield f"it splits with {step['behavior']}"
    yield from (
        f"{token['content']!r:.40} is an added token" for token in settings["added_tokens"] if not token["special"]
    )
    yield from ("it trims offsets" for step in _steps(settings.get("post_processor")) if step.get("trim_offsets"))


def _steps(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if step is None:
        return
    inner = [each for name in ("normalizers", "pretokenizers", "processors") for each in step.get(name, ())]
    if not inner:
        yield step
    for each in inner:
        yield from _steps(each)


@cache
def character_classes() -> dict[str, str]:
    """Characters that the library treats as punctuation, as accents of BERT, as marks, as unseen, and as undivided.

    Its tables are those of Unicode 8 and 9; a browser's are new, and would split or drop others.
    """
    cut = pre_tokenizers.BertPreTokenizer()
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    clean = normalizers.BertNormalizer(**{**off, "clean_text": True})
    bare = normalizers.BertNormalizer(**{**off, "strip_accents": True})
    every = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]

    def those(categories: str, holds: Callable[[str], bool]) -> str:
        return "".join(char for char in every if unicodedata.category(char)[0] in categories and holds(char))

    return {
        "punctuation": those("PSM", lambda char: len(cut.pre_tokenize_str(f"x{char}x")) == 3),
        "accents": those("M", lambda char: bare.normalize_str(f"x{char}") == "x"),
        "marks": those("M", lambda char: normalizers.StripAccents().normalize_str(f"x{char}") == "x"),
        "undivided": "".join(
            char
            for char in every
            if unicodedata.normalize("NFKD", char) != char == normalizers.NFKD().normalize_str(char)
        ),
        "unseen": those("CS", lambda char: clean.normalize_str(f"x{char}x") == "xx"),
    }
