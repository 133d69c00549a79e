"""Directories of token vectors and sparse vectors: ours in `sentence-transformers` and theirs here, equal vectors, and
equal losses from the same texts."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import larvatus as lv
from larvatus.core.errors import ArtefactError
from larvatus.core.targets import SentenceTargets
from larvatus.data.labelled.records import Place
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.heads import sparse
from larvatus.models.heads.embedding import LateInteractionConfig
from larvatus.models.heads.sparse import SparseConfig
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from larvatus.models.objectives.late_interaction import Splade
from larvatus.models.objectives.sentence_losses import MultipleNegatives
from larvatus.tasks.embed.compared import reading_of
from larvatus.tasks.embed.encode import embedder_of, encode_sentences
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import features_of
from tests.models.bundle.test_sentence_modules import TEXTS
from tests.models.bundle.theirs import scramble
from tests.tiny import WORDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sentence_transformers import MultiVectorEncoder, SparseEncoder
    from sentence_transformers.multi_vector_encoder.losses import MultiVectorMultipleNegativesRankingLoss
    from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss

LATE = (LateInteractionConfig(size=6),)
SPARSE = (MaskedLMConfig(), SparseConfig())
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[3]), ("a deep river", "wide , the bank")]


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    return train_vocabulary([WORDS.replace("##", "") * 3], WordPieceConfig(size=60), allow_smaller=True)


@pytest.fixture(scope="module")
def save(vocabulary: Tokenizer) -> Callable[..., Path]:
    """A function that saves a model with these heads and random weights."""
    config = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=64, init=0.3, dropout=0.0)

    def write(directory: Path, heads: Any) -> Path:
        network = scramble(Network.build(config, heads, vocabulary.size, 0))
        described = {"tokenizer": vocabulary, "recipe": None, "lineage": {}, "card": "# x"}
        save_bundle(directory, network=network, objective_configs=heads, **described)
        return directory

    return write


def opened(kind: Any, directory: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(str(directory), device="cpu")


def their_weights(directory: Path) -> np.ndarray:
    vectors: np.ndarray = opened(SparseEncoder, directory).encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    return vectors


def our_weights(directory: Path, vocabulary: Tokenizer) -> np.ndarray:
    dense = np.zeros((len(TEXTS), vocabulary.size), np.float32)
    for row, result in enumerate(lv.load(directory).predict(TEXTS)):
        assert list(result.weights.values()) == sorted(result.weights.values(), reverse=True)
        for token, weight in result.weights.items():
            dense[row, vocabulary.id(token)] = weight
    return dense


def our_vectors(directory: Path) -> list[np.ndarray]:
    return [result.vectors for result in lv.load(directory).predict(TEXTS)]


@pytest.mark.parametrize("numbers", [1 << 23, 150])
def test_sparse_vectors_that_we_save_they_load(
    numbers: int, tmp_path: Path, save: Callable[..., Path], vocabulary: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "NUMBERS", numbers)  # 150: a text is several blocks
    directory = save(tmp_path / "ours", SPARSE)
    ours = our_weights(directory, vocabulary)
    assert 0 < (ours > 0).mean() < 1
    assert_allclose(ours, their_weights(directory), atol=1e-5)
    assert [*load_bundle(directory).network.objectives] == ["masked-lm", "sparse"]
    assert lv.load(directory).fill("the [MASK] was wide .").text


def test_sparse_vectors_that_they_save_we_load(
    tmp_path: Path, save: Callable[..., Path], vocabulary: Tokenizer
) -> None:
    plain = save(tmp_path / "plain", (MaskedLMConfig(),))
    opened(SparseEncoder, plain).save(str(tmp_path / "theirs"))
    assert_allclose(our_weights(tmp_path / "theirs", vocabulary), their_weights(tmp_path / "theirs"), atol=1e-5)


@pytest.mark.parametrize("side", ["encode_query", "encode_document"])
def test_token_vectors_that_we_save_they_load(side: str, tmp_path: Path, save: Callable[..., Path]) -> None:
    directory = save(tmp_path / "ours", LATE)
    for ours, theirs in zip(
        our_vectors(directory), getattr(opened(MultiVectorEncoder, directory), side)(TEXTS), strict=True
    ):
        assert_allclose(ours, theirs.numpy(), atol=1e-5)
    assert load_bundle(directory).objectives == LATE


def test_token_vectors_that_they_save_we_load(tmp_path: Path, save: Callable[..., Path]) -> None:
    plain = save(tmp_path / "plain", (MaskedLMConfig(),))
    torch.manual_seed(0)
    opened(MultiVectorEncoder, plain).save(str(tmp_path / "theirs"))
    theirs = opened(MultiVectorEncoder, tmp_path / "theirs").encode_document(TEXTS)
    ours = our_vectors(tmp_path / "theirs")
    assert ours[0].shape[1] == 128
    for mine, other in zip(ours, theirs, strict=True):
        assert_allclose(mine, other.numpy(), atol=1e-5)


def our_loss(directory: Path, loss: Any) -> float:
    """From texts to the loss, as training computes it."""
    bundle = load_bundle(directory)
    head = embedder_of(bundle.network).replaced(loss=loss)
    examples = [SentenceExample(pair, "pairs", Place("test", n)) for n, pair in enumerate(PAIRS)]
    data = encode_sentences(bundle, examples, reading_of(head, WindowOptions.of(bundle)))
    batch = data.batch(np.arange(len(PAIRS))).map(torch.as_tensor)
    x = features_of(bundle.network, batch, head)
    assert head.vector_rows(batch.targets[SentenceTargets]) == len(head.vectors(x, batch.targets[SentenceTargets]))
    return head(x, batch).mean.item()


def their_loss(model: Any, loss: Any) -> float:
    queries, documents = zip(*PAIRS, strict=True)
    columns = [model.preprocess(list(queries), task="query"), model.preprocess(list(documents), task="document")]
    model.eval()
    value = loss(columns, None)
    total: torch.Tensor = sum(value.values()) if isinstance(value, dict) else value
    return total.item()


def test_losses_from_the_same_texts_are_equal(tmp_path: Path, save: Callable[..., Path]) -> None:
    late, spread = save(tmp_path / "late", LATE), save(tmp_path / "sparse", SPARSE)
    model = opened(MultiVectorEncoder, late)
    theirs = their_loss(model, MultiVectorMultipleNegativesRankingLoss(model))
    assert our_loss(late, MultipleNegatives(scale=1.0)) == pytest.approx(theirs, abs=1e-5)
    model = opened(SparseEncoder, spread)
    weights = {"document_regularizer_weight": 0.02, "query_regularizer_weight": 0.03}
    theirs = their_loss(model, SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), **weights))
    ours = our_loss(spread, Splade(inner=MultipleNegatives(scale=1.0), query_weight=0.03, document_weight=0.02))
    assert ours == pytest.approx(theirs, rel=1e-5)


CHANGES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "prompt": (LATE, "config_sentence_transformers.json", {"prompts": {"query": "[Q] ", "document": ""}}),
    "expansion": (LATE, "sentence_bert_config.json", {"query_expansion": {"type": "fixed"}}),
    "skipped tokens": (LATE, "2_MultiVectorMask/config.json", {"skiplist_words": ["."]}),
    "activation": (LATE, "1_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Tanh"}),
    "whole texts": (LATE, "1_Dense/config.json", {"module_input_name": "sentence_embedding"}),
    "sums": (SPARSE, "1_SpladePooling/config.json", {"pooling_strategy": "sum"}),
    "log of log": (SPARSE, "1_SpladePooling/config.json", {"activation_function": "log1p_relu"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_settings_that_we_do_not_have_give_no_head(name: str, tmp_path: Path, save: Callable[..., Path]) -> None:
    heads, file, change = CHANGES[name]
    directory = save(tmp_path / "ours", heads)
    for manifest in directory.rglob("larvatus.json"):  # as a directory of theirs, which has none
        manifest.unlink()
    path = directory / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert not any(getattr(config, "in_modules", False) for config in load_bundle(directory).objectives)


def test_damaged_modules_are_named(tmp_path: Path, save: Callable[..., Path]) -> None:
    directory = save(tmp_path / "sparse", SPARSE)
    (directory / "larvatus.json").unlink()
    (directory / "1_SpladePooling" / "config.json").write_text("[1]")
    with pytest.raises(ArtefactError, match=r"1_SpladePooling/config\.json holds no settings"):
        load_bundle(directory)
    encoder = save(tmp_path / "late", LATE)
    (encoder / "larvatus.json").unlink()
    (encoder / "1_Dense" / "model.safetensors").unlink()
    with pytest.raises(ArtefactError, match=r"1_Dense/model\.safetensors"):
        load_bundle(encoder)
    plain = save(tmp_path / "plain", LATE)
    for name in ("larvatus.json", "modules.json"):
        (plain / name).unlink()
    modules = save(tmp_path / "other", SPARSE)
    for name in ("modules.json", "sentence_bert_config.json"):
        (plain / name).write_text((modules / name).read_text())
    (plain / "1_SpladePooling").mkdir()
    (plain / "1_SpladePooling" / "config.json").write_text((modules / "1_SpladePooling" / "config.json").read_text())
    with pytest.raises(ArtefactError, match="no masked-lm head"):
        load_bundle(plain)
