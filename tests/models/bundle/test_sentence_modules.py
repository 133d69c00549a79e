"""Directories of sentence encoders, ours in `sentence-transformers` and theirs here: equal vectors."""

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
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
from larvatus.models.bundle.checksums import model_checksums
from larvatus.models.bundle.convert import Precision, convert_bundle
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.models.bundle.theirs import scramble
from tests.tiny import WORDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

TEXTS = [
    "the river bank was wide .",
    "turn in your homework",
    "the",
    "please run and run and run , deep in the river !",
]
DENSE = (DenseProjection(size=12), DenseProjection(size=6, activation="none", bias=False))
CASES = {
    "mean": EmbeddingConfig(),
    "cls, normalised": EmbeddingConfig(pool="cls", normalise=True),
    "max": EmbeddingConfig(pool="max"),
    "dense": EmbeddingConfig(projections=DENSE),
    "dense, normalised": EmbeddingConfig(projections=DENSE[:1], normalise=True),
}


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    """Learnt, with the special tokens around a text in its file, as their code needs it."""
    return train_vocabulary([WORDS.replace("##", "") * 3], WordPieceConfig(size=60), allow_smaller=True)


@pytest.fixture(scope="module")
def network(vocabulary: Tokenizer) -> Callable[..., Network]:
    """A function that makes a model with random weights: `network(heads)`."""
    config = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=64, init=0.3)
    return lambda heads=(MaskedLMConfig(),): scramble(Network.build(config, heads, vocabulary.size, 0))


@pytest.fixture(scope="module")
def save(vocabulary: Tokenizer) -> Callable[..., Path]:
    """A function that saves it."""

    def write(directory: Path, network: Network, heads: Any = (MaskedLMConfig(),)) -> Path:
        described = {"tokenizer": vocabulary, "recipe": None, "lineage": {}, "card": "# x"}
        save_bundle(directory, network=network, objective_configs=heads, **described)
        return directory

    return write


def theirs(directory: Path, **settings: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SentenceTransformer(str(directory), device="cpu", **settings).encode(TEXTS, show_progress_bar=False)


@pytest.mark.parametrize("name", CASES)
def test_what_we_save_they_load_with_equal_vectors(
    name: str, tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    config = CASES[name]
    directory = save(tmp_path / "ours", network((config,)), (config,))
    assert_allclose(theirs(directory), lv.load(directory).embed(TEXTS), atol=1e-5)
    read = load_bundle(directory)
    assert read.objectives == (config,)
    assert [*read.network.objectives] == ["embedding"]


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_sentence_encoder_is_converted(
    dtype: Precision, tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    config = CASES["dense, normalised"]
    directory = save(tmp_path / "ours", network((config,)), (config,))
    result = convert_bundle(directory, tmp_path / "small", dtype=dtype)
    assert (result.architecture, result.kept) == ("BertModel", ("embedding",))
    assert_allclose(lv.load(tmp_path / "small").embed(TEXTS), lv.load(directory).embed(TEXTS), atol=0.05)
    if dtype == "float16":
        assert_allclose(theirs(tmp_path / "small"), lv.load(tmp_path / "small").embed(TEXTS), atol=2e-3)


def test_a_head_for_blanks_may_stay_beside_it(
    tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    heads = (MaskedLMConfig(), EmbeddingConfig(normalise=True))
    directory = save(tmp_path / "both", network(heads), heads)
    model = lv.load(directory)
    assert_allclose(theirs(directory), model.embed(TEXTS), atol=1e-5)
    assert model.fill("the [MASK] was wide .").text


@pytest.mark.parametrize(
    ("pooling", "extra"),
    [*(("mean", extra) for extra in ("", "dense", "dense normalize", "normalize")), ("cls", "dense"), ("max", "")],
)
def test_what_they_save_we_load_with_equal_vectors(
    pooling: str, extra: str, tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    plain = save(tmp_path / "plain", network())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        parts: list[Any] = [modules.Transformer(str(plain)), modules.Pooling(16, pooling)]
        if "dense" in extra:
            parts += [modules.Dense(16, 24, activation_function=torch.nn.GELU()), modules.Dense(24, 8)]
        if "normalize" in extra:
            parts.append(modules.Normalize())
        SentenceTransformer(modules=parts, device="cpu").save(str(tmp_path / "theirs"))
    model = lv.load(tmp_path / "theirs")
    vectors = model.embed(TEXTS)
    assert vectors.shape == (4, 8 if "dense" in extra else 16)
    assert_allclose(vectors, theirs(tmp_path / "theirs"), atol=1e-5)
    assert model.embed([]).shape == (0, vectors.shape[1])
    assert_allclose(model.embed(TEXTS[0]), vectors[0], atol=1e-5)


def test_what_is_requested_goes_before_what_the_model_has(
    tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    config = CASES["dense, normalised"]
    built = network((config,))
    model = lv.load(save(tmp_path / "own", built, (config,)))
    plain = lv.load(save(tmp_path / "plain", network()))
    plain.network.encoder.load_state_dict(built.encoder.state_dict())
    assert_allclose(model.embed(TEXTS, pool="mean"), plain.embed(TEXTS), atol=1e-6)
    assert_allclose(model.embed(TEXTS, layers=1), plain.embed(TEXTS, layers=1), atol=1e-6)
    assert model.embed(TEXTS[0], unit="word").shape[1] == 16
    norms = np.linalg.norm(model.embed(TEXTS, normalise=False), axis=1)
    assert np.linalg.norm(model.embed(TEXTS), axis=1) == pytest.approx(1.0, abs=1e-6)
    assert not np.allclose(norms, 1.0, atol=1e-3)
    assert_allclose(np.linalg.norm(plain.embed(TEXTS, normalise=True), axis=1), 1.0, atol=1e-6)


def test_the_modules_are_part_of_the_model(
    tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    config = CASES["dense"]
    directory = save(tmp_path / "ours", network((config,)), (config,))
    assert {"modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors"} <= model_checksums(directory).keys()
    first = lv.load(directory).fingerprint
    path = directory / "2_Dense" / "config.json"
    before = path.read_text()
    path.write_text(before.replace("Tanh", "GELU"))
    with pytest.raises(ArtefactError, match=r"2_Dense/config\.json"):
        lv.load(directory)
    path.write_text(before)
    assert lv.load(directory).fingerprint == first
    save(directory, network())  # another model in its place leaves nothing of it
    assert not (directory / "modules.json").exists()
    assert not (directory / "2_Dense").exists()


def test_modules_that_we_do_not_have_are_named(
    tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    directory = save(tmp_path / "plain", network())
    (directory / "larvatus.json").unlink()
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("LSTM", "2_LSTM")]
    listed = [{"idx": n, "name": str(n), "path": path, "type": f"x.{kind}"} for n, (kind, path) in enumerate(kinds)]
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (directory / "modules.json").write_text(json.dumps(listed))
    model = lv.load(directory)
    with pytest.raises(UsageError, match="LSTM"):
        model.embed(TEXTS)
    assert model.embed(TEXTS, pool="mean").shape == (4, 16)
    (directory / "modules.json").write_text(json.dumps(listed[:2]))
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "weightedmean"}))
    with pytest.raises(UsageError, match="weightedmean"):
        lv.load(directory).embed(TEXTS)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    (directory / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.raises(UsageError, match="prompt 'query'"):
        lv.load(directory).embed(TEXTS)


def test_a_linear_layer_that_does_not_fit_is_refused(
    tmp_path: Path, network: Callable[..., Network], save: Callable[..., Path]
) -> None:
    config = CASES["dense"]
    directory = save(tmp_path / "ours", network((config,)), (config,))
    (directory / "larvatus.json").unlink()
    path = directory / "2_Dense" / "config.json"
    path.write_text(path.read_text().replace("16", "17"))
    with pytest.raises(ArtefactError, match="17 dimensions, but is given 16"):
        lv.load(directory)
    path.write_text("{}")
    with pytest.raises(ArtefactError, match="does not describe a linear layer"):
        lv.load(directory)
    path.unlink()
    with pytest.raises(ArtefactError, match=r"2_Dense/config\.json is missing"):
        lv.load(directory)
