"""Static models: distillation against a direct computation, and their directories against both other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import larvatus as lv
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.inference.vectors import distil as module
from larvatus.inference.vectors.distil import DistilOptions, distil, sif_weights, token_probabilities, used_tokens
from larvatus.models.heads.embedding import EmbeddingConfig
from tests.tiny import WORDS

TEXTS = ["the river ran", "a bank of the river", "the town", "rivers ran by the bank , wide"]


@pytest.fixture(scope="module")
def teacher(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> lv.Model:
    head = EmbeddingConfig(pool="mean", normalise=True)
    directory = tmp_path_factory.mktemp("teacher") / "model"
    return lv.load(save_tiny(directory, tiny_model(3, (head,)), (head,)), device="cpu")


@pytest.fixture(scope="module")
def static(teacher: lv.Model, tmp_path_factory: pytest.TempPathFactory) -> lv.Model:
    return lv.distil_static(teacher, out=tmp_path_factory.mktemp("static") / "model", size=8, device="cpu")


def test_rows_are_the_components_of_single_tokens_with_sif_weights(teacher: lv.Model) -> None:
    made = distil(teacher, DistilOptions(size=0, sif=1e-2), None)
    tokenizer = teacher.tokenizer
    used = [index for index in range(tokenizer.size) if index not in tokenizer.special_ids]
    words = [index for index in used if not tokenizer.tokens[index].startswith("##")]
    alone = teacher.embed([tokenizer.tokens[index] for index in words], normalise=False).astype(np.float64)
    counts = np.array([1.0 / (rank + 2) for rank in range(len(used))])  # Zipf's law, if there are no counts
    if tokenizer.counts is not None and tokenizer.counts[used].sum():
        counts = tokenizer.counts[used] + 1.0
    weights = dict(zip(used, 1e-2 / (1e-2 + counts / counts.sum()), strict=True))
    rows = np.array([made.rows_VD[index] / weights[index] for index in words])
    # a rotation around the mean keeps the differences between tokens
    wanted = np.linalg.norm(alone[:, None] - alone[None], axis=-1)
    assert np.allclose(np.linalg.norm(rows[:, None] - rows[None], axis=-1), wanted, atol=1e-4)
    assert not made.rows_VD[sorted(tokenizer.special_ids)].any()
    assert made.tokens == len(used)
    assert made.variance == pytest.approx(1.0)


def test_components_are_those_of_a_singular_value_decomposition() -> None:
    x = np.random.default_rng(0).normal(size=(50, 6)) * np.arange(1, 7)
    mean, components, share = module.principal_components(x, 3)
    _, singular, rows = np.linalg.svd(x - x.mean(0))
    assert np.allclose(np.abs(components.T @ rows[:3].T), np.eye(3), atol=1e-9)
    assert share == pytest.approx((singular[:3] ** 2).sum() / (singular**2).sum())
    assert np.allclose(mean, x.mean(0))


def test_embedding_is_the_unit_mean_of_rows(static: lv.Model) -> None:
    rows = static.encoder.word_vectors.detach().numpy().astype(np.float64)
    for text, vector in zip(TEXTS, static.embed(TEXTS), strict=True):
        mean = np.mean([rows[index] for index in static.tokenizer.encode(text).ids], axis=0)
        assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert np.allclose(static.embed("the river ran"), static.embed("ran the river"))  # word order makes no difference
    assert np.allclose(static.embed([["the", "river", "ran"]])[0], static.embed("the river ran"))
    assert np.isnan(static.embed(["the river", ""])[1]).all()
    long = " ".join(WORDS.split()[:8] * 500)
    assert static.vectors(long, unit="document").windows == 1


def test_the_matrix_has_a_row_for_each_text_whatever_the_chunks(
    static: lv.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*TEXTS, ["the", "river"], "", *TEXTS]
    one_by_one = np.stack([vectors.array for vectors in static.vectors(texts, unit="sentence")])
    assert np.array_equal(static.embed(texts), one_by_one, equal_nan=True)
    monkeypatch.setattr("larvatus.inference.vectors.vectors.TEXTS_AT_ONCE", 3)
    assert np.allclose(static.embed(texts), one_by_one, atol=1e-6, equal_nan=True)
    assert static.embed([]).shape == (0, one_by_one.shape[1])


def test_the_general_way_through_an_encoder_gives_the_same(static: lv.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes it."""
    quick = static.embed([*TEXTS, ""])
    monkeypatch.setattr("larvatus.inference.vectors.vectors.TokenTable", int)
    assert np.allclose(quick, static.embed([*TEXTS, ""]), atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    "request_",
    [{"unit": "word"}, {"unit": "token"}, {"pool": "max"}, {"layers": "0"}],
    ids=str,
)
def test_what_a_table_does_not_have_is_refused(static: lv.Model, request_: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a static model has"):
        static.embed(TEXTS, **request_)


def test_a_static_model_cannot_teach(static: lv.Model, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a static model already"):
        lv.distil_static(static, out=tmp_path / "again")


def test_sentence_transformers_loads_it_and_is_loaded(static: lv.Model, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(static.bundle.path), device="cpu")
    ours = static.embed(TEXTS)
    assert np.abs(theirs.encode(TEXTS) - ours).max() < 1e-5
    theirs.save(str(tmp_path / "theirs"))
    again = lv.load(tmp_path / "theirs", device="cpu")
    assert np.abs(again.embed(TEXTS) - ours).max() < 1e-5
    assert again.fingerprint == lv.load(tmp_path / "theirs").fingerprint != static.fingerprint
    modules = json.loads((tmp_path / "theirs" / "modules.json").read_text())
    (tmp_path / "theirs" / "modules.json").write_text(json.dumps(modules[:1]))  # without Normalize
    plain = library.SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    assert np.abs(lv.load(tmp_path / "theirs").embed(TEXTS) - plain.encode(TEXTS)).max() < 1e-5


def test_model2vec_loads_it(static: lv.Model) -> None:
    library = pytest.importorskip("model2vec")
    theirs = library.StaticModel.from_pretrained(str(static.bundle.path))
    assert np.abs(theirs.encode(TEXTS) - static.embed(TEXTS)).max() < 1e-5


def test_mapping_and_weights_of_model2vec_are_read(static: lv.Model, tmp_path: Path) -> None:
    directory = static.save(tmp_path / "copy")
    (directory / "larvatus.json").unlink()
    path = directory / "model.safetensors"
    rows = load_file(path)["embeddings"]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    halves = torch.full((len(rows),), 0.5)
    save_file({"embeddings": 2 * rows[order], "mapping": order.argsort(), "weights": halves}, path)
    assert np.allclose(lv.load(directory).embed(TEXTS), static.embed(TEXTS), atol=1e-6)
    save_file({"embeddings": rows, "mapping": order + 1}, path)
    with pytest.raises(ArtefactError, match="mapping names rows that the table does not have"):
        lv.load(directory)
    save_file({"embeddings": rows[:-1]}, path)
    with pytest.raises(ArtefactError, match="they belong to different models"):
        lv.load(directory)
    save_file({"other": rows}, path)
    with pytest.raises(ArtefactError, match="a static model holds embeddings"):
        lv.load(directory)


def test_a_flipped_byte_is_refused(static: lv.Model, tmp_path: Path) -> None:
    directory = static.save(tmp_path / "copy")
    assert np.array_equal(lv.load(directory).embed(TEXTS), static.embed(TEXTS))
    content = bytearray((directory / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (directory / "model.safetensors").write_bytes(content)
    with pytest.raises(ArtefactError, match="does not match its checksum"):
        lv.load(directory)


def test_a_corpus_weights_the_tokens(teacher: lv.Model, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("the river ran the river\n", encoding="utf-8")
    made = lv.distil_static(teacher, out=tmp_path / "with", corpus=tmp_path / "corpus.txt", size=0, device="cpu")
    plain = lv.distil_static(teacher, out=tmp_path / "without", size=0, sif=3e-4, device="cpu")
    used = used_tokens(teacher.tokenizer)
    counts = np.bincount(teacher.tokenizer.encode("the river ran the river").ids, minlength=len(used))
    counts[~used] = 0  # unknown words
    wanted = 0.5 * token_probabilities(teacher.tokenizer, used) + 0.5 * counts / counts.sum()
    assert np.allclose(token_probabilities(teacher.tokenizer, used, counts), wanted)
    ratios = sif_weights(wanted, 3e-4) / sif_weights(token_probabilities(teacher.tokenizer, used), 3e-4)
    rows, before = (model.encoder.word_vectors.detach().numpy()[used] for model in (made, plain))
    assert np.allclose(rows, before * ratios[used, None], atol=1e-6)
    (tmp_path / "none.txt").write_text(" \n", encoding="utf-8")
    with pytest.raises(DataError, match="the corpus has no token"):
        lv.distil_static(teacher, out=tmp_path / "none", corpus=tmp_path / "none.txt", device="cpu")


def test_frequent_tokens_count_less(teacher: lv.Model) -> None:
    used = used_tokens(teacher.tokenizer)
    probabilities = token_probabilities(teacher.tokenizer, used)
    assert probabilities.sum() == pytest.approx(1.0)
    assert not probabilities[~used].any()
    weights = sif_weights(probabilities, 1e-4)
    order = np.argsort(probabilities[used])
    assert (np.diff(weights[used][order]) <= 0).all()
    assert weights.max() <= 1


def test_search_fine_tuning_and_serving_take_it(static: lv.Model, tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    for number, text in enumerate(TEXTS):
        (documents / f"{number}.txt").write_text(text, encoding="utf-8")
    index = lv.index_documents(documents, out=tmp_path / "index", model=static)
    assert index.search("the town", top=1)[0].text == "the town"
    rows = [(f"the {word}", f"a {word} ran") for word in ("river", "bank", "town", "rivers")] * 3
    tuned = lv.finetune(
        "embed", static, train=rows, dev=rows[:4], out=tmp_path / "tuned", epochs=1, batch=4, rate=0.01, quiet=True
    )
    assert not np.allclose(tuned.embed("the town"), static.embed("the town"))
    assert np.allclose(lv.load(tmp_path / "tuned").embed(TEXTS), tuned.embed(TEXTS))
