"""Small vocabularies of every kind, trained once on text that touches many scripts."""

from __future__ import annotations

import pytest

from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from larvatus.data.text.vocabularies.characters import CharactersConfig

SENTENCES = [
    "Mt. Sanitas is in Sunshine Canyon, and the canyon isn't far (they say).",
    "The river was wide; the well-known bank of the river was steep.",
    "Élodie mangeait une crème brûlée à l'hôtel, naïvement.",
    "Die Straße führt über die Brücke — zu spät!",
    "我们在山上看见了太阳。他们没有来，因为下雨了。",
    "日本語のテキストもあります。カタカナとひらがな。",
    "ภาษาไทยไม่มีการเว้นวรรค และ สวย",
    "हिन्दी में लिखा हुआ वाक्य है।",
    "שלום עולם, זה טקסט בעברית.",
    "مرحبا بالعالم، هذا نص عربي.",
    "Привет, мир! Это русский текст.",
    "Emoji 😀 and 👩‍👩‍👧 and numbers 3.14, 1869–1939, 50%.",
]
TEXTS = SENTENCES * 3

CONFIGS = {
    "wordpiece": WordPieceConfig(size=400, coverage=1.0),
    "wordpiece-cased": WordPieceConfig(size=440, coverage=1.0, lowercase=False),
    "byte-bpe": ByteBPEConfig(size=420),
    "bpe": BPEConfig(size=400, coverage=1.0),
    "unigram": UnigramConfig(size=260, coverage=1.0),
}
EVERY = CONFIGS | {"characters": CharactersConfig(size=600, min_count=1)}
"""Those that the aligner must understand."""


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, Tokenizer]:
    return {name: train_vocabulary(TEXTS, config) for name, config in EVERY.items()}
