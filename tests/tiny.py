"""A vocabulary of a few words, a tiny BERT with random weights, and its directory: for tests that need a model at once.

A pytest plugin (see conftest.py): its fixtures are there in every test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import save_bundle
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig

WORDS = "the a river bank of was wide deep and turn your homework in please . , ? ! ##s ##ing ##ed run"
HEADS = (MaskedLMConfig(), NextSentenceConfig())
ABOUT: dict[str, Any] = {"recipe": {"name": "bert"}, "lineage": {"seed": 0}}


def make_tokenizer(words: Iterable[str] = WORDS.split()) -> Tokenizer:
    """A vocabulary of a few words."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    library = Library(models.WordPiece({token: id for id, token in enumerate(tokens)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(tokens[:5])
    return Tokenizer.from_library(library)


def save_model(
    directory: Path,
    network: Network,
    tokenizer: Tokenizer,
    objectives: Sequence[Any] = (MaskedLMConfig(),),
    **about: Any,
) -> Path:
    """The directory of a model, with no recipe and no lineage unless given."""
    about = {"recipe": None, "lineage": {}, "card": "# tiny\n", **about}
    save_bundle(directory, network=network, objective_configs=objectives, tokenizer=tokenizer, **about)
    return directory


def make_tiny(directory: Path) -> Path:
    """A tiny BERT saved in a directory, outside of pytest."""
    tokenizer = make_tokenizer()
    config = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=32, init=0.3)
    network = Network.build(config, HEADS, tokenizer.size, 0).eval()
    return save_model(directory, network, tokenizer, HEADS, **ABOUT)


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer: Tokenizer) -> Callable[..., Network]:
    """A function that makes one: `tiny_model(seed=1, objectives=…, layers=3, …)`."""

    def make(seed: int = 0, objectives: Any = HEADS, **model: Any) -> Network:
        plain = {
            "layers": 2,
            "hidden": 16,
            "heads": 2,
            "max_positions": 32,
            "init": 0.3,
        }  # large, so that outputs differ
        return Network.build(TransformerConfig(**{**plain, **model}), objectives, tiny_tokenizer.size, seed).eval()

    return make


@pytest.fixture(scope="session")
def save_tiny(tiny_tokenizer: Tokenizer) -> Callable[..., Path]:
    """A function that saves a model of `tiny_model`: `save_tiny(directory, model, objectives)`."""

    def save(directory: Path, network: Network, objectives: Any = HEADS) -> Path:
        return save_model(directory, network, tiny_tokenizer, objectives, **ABOUT)

    return save


@pytest.fixture
def hub_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache in place of that of this machine."""
    cache = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    return cache
