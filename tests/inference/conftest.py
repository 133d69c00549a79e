"""Tiny random encoders over vocabularies of every kind, learnt from sentences in many scripts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import train_vocabulary
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.network import Network
from larvatus.models.nn.transformer import Transformer, TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.data.text.conftest import CONFIGS, SENTENCES, TEXTS

KINDS = ("wordpiece", "byte-bpe", "unigram")


@dataclass(frozen=True)
class Tiny:
    tokenizer: Tokenizer
    network: Network

    @property
    def encoder(self) -> Transformer:
        return self.network.encoder

    def vectors(self, texts, spans=None, **options):
        return list(embed_texts(self.encoder, self.tokenizer, texts, EmbedOptions(**options), spans=spans))


def tiny(tokenizer: Tokenizer, **model) -> Tiny:
    shape = {"layers": 3, "hidden": 16, "heads": 2, "max_positions": 64, "init": 0.3, **model}
    built = Network.build(TransformerConfig(**shape), (MaskedLMConfig(),), tokenizer.size, seed=5)
    return Tiny(tokenizer, built.eval())


@pytest.fixture(scope="session")
def prose() -> list[str]:
    """Texts of some 1,200 characters, no two alike."""
    return [" ".join([*SENTENCES[n:], *SENTENCES[:n], *SENTENCES[n:]]) for n in range(6)]


@pytest.fixture(scope="session")
def vocabularies() -> dict[str, Tokenizer]:
    return {name: train_vocabulary(TEXTS, CONFIGS[name]) for name in KINDS}


@pytest.fixture(scope="session")
def wordpiece(vocabularies) -> Tiny:
    return tiny(vocabularies["wordpiece"])


@pytest.fixture(scope="session", params=[*KINDS, "modern"])
def model(request, vocabularies) -> Tiny:
    """One model of each kind of vocabulary; the last is pre-norm with rotary positions and local attention."""
    if request.param == "modern":
        modern = {"norm": "pre", "positions": "rotary", "local_attention": 4, "global_every": 2, "segments": 0}
        return tiny(vocabularies["byte-bpe"], **modern)
    return tiny(vocabularies[request.param])


@pytest.fixture(scope="session")
def texts(prose) -> list[str]:
    """Ragged: nothing, a word, odd characters, sentences of many lengths; all fit into a window of 64."""
    odd = ["", "a", "Mt. Sanitas, naïve 山水 \U0001f642!", "isn't well-known\t(they  say)…", "[MASK] *is* text </s>"]
    words = [word for word in prose[0].split() if len(word.encode()) < 12]
    return odd + [" ".join(words[n : n + n % 5 + 1]) for n in range(0, 60, 3)]
