"""A sentence adapter in a model directory: whole texts use it, nothing else does, and broken ones are refused."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from starlette.testclient import TestClient

import larvatus as lv
from larvatus.core import files
from larvatus.core.errors import ArtefactError, LarvatusError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
from larvatus.inference.model.adapters import add_adapter, extract_adapter, merge_adapter
from larvatus.interfaces.cli.main import run
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.checksums import model_digest, sentence_digest
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.bundle.sentence_adapter import SETTINGS, WEIGHTS, rounded_adapter
from larvatus.models.bundle.weights import read_tensors, write_tensors
from larvatus.models.network import Network
from larvatus.models.nn.lora import TARGETS, LoRAConfig, add_lora, extract_lora, lora_shapes, merge_lora, merged_copy
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from larvatus.tasks.embed.mining import load_teacher, teacher_vectors
from larvatus.tasks.scoring import ScoringOptions
from tests.models.bundle.theirs import scramble
from tests.tiny import WORDS

TEXTS = ["the river bank was wide .", "turn in your homework", "the", "please run and run , deep in the river !"]
HIDDEN, RANK = 32, 3


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    return train_vocabulary([WORDS.replace("##", "") * 3], WordPieceConfig(size=60), allow_smaller=True)


@pytest.fixture(scope="module")
def base(vocabulary: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without an adapter."""
    directory = tmp_path_factory.mktemp("adapter") / "base"
    config = TransformerConfig(layers=2, hidden=HIDDEN, heads=2, max_positions=64, init=0.2)
    network = scramble(Network.build(config, (MaskedLMConfig(),), vocabulary.size, 0))
    described: dict[str, Any] = {"tokenizer": vocabulary, "recipe": None, "lineage": {}, "card": "# x"}
    save_bundle(directory, network=network, objective_configs=(MaskedLMConfig(),), **described)
    return directory


@pytest.fixture(scope="module")
def trained(base: Path) -> Path:
    """What a training script leaves: LoRA tensors and a linear layer in half precision."""
    encoder = load_bundle(base).network.encoder
    add_lora(encoder, LoRAConfig(rank=RANK, alpha=6.0, targets=TARGETS), seed=1)
    torch.manual_seed(3)
    tensors = {name: tensor for name, tensor in encoder.state_dict().items() if ".lora." in name}
    tensors = {name: t if name.endswith(".a") else 0.3 * torch.randn_like(t) for name, t in tensors.items()}
    tensors["dense.weight"] = torch.eye(HIDDEN) + 0.1 * torch.randn(HIDDEN, HIDDEN)
    path = base.parent / "trained.safetensors"
    write_tensors(path, {name: tensor.half() for name, tensor in tensors.items()})
    return path


@pytest.fixture(scope="module")
def adapted(base: Path, trained: Path) -> Path:
    """The same model with an adapter."""
    directory = base.parent / "adapted"
    shutil.copytree(base, directory)
    add_adapter(trained, directory, alpha=6.0)
    return directory


@pytest.fixture
def broken(adapted: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(adapted, tmp_path / "broken"))


def sign(directory: Path) -> None:
    """Give changed files of an adapter the checksums that they have, as somebody hostile would."""
    folder = directory / manifests.ADAPTER
    manifests.write_manifest(folder, (SETTINGS, WEIGHTS), recipe=None, lineage={})
    stated = files.read_json(directory / manifests.NAME)
    stored = folder / manifests.NAME
    stated["parts"][manifests.ADAPTER] = {"sha256": files.sha256(stored), "bytes": stored.stat().st_size}
    files.write_json(directory / manifests.NAME, stated)


def naive(base: Path, trained: Path, texts: list[str]) -> np.ndarray:
    """The equation: LoRA as a low-rank product in float32, mean of the tokens, linear layer, length 1."""
    bundle = load_bundle(base)
    encoder = bundle.network.encoder
    add_lora(encoder, LoRAConfig(rank=RANK, alpha=6.0, targets=TARGETS), seed=0)
    tensors = {name: tensor.float() for name, tensor in read_tensors(trained).items()}
    dense = tensors.pop("dense.weight").double().numpy()
    encoder.load_state_dict({**encoder.state_dict(), **tensors})
    model = lv.load(base)
    model.network.encoder = encoder.eval()
    rows = []
    for text in texts:
        mean = model.embed(text, pool="mean").astype(np.float64)
        row = dense @ mean
        rows.append(row / np.sqrt((row**2).sum()))
    return np.stack(rows)


def test_whole_texts_use_the_adapter(base: Path, trained: Path, adapted: Path) -> None:
    vectors = lv.load(adapted).embed(TEXTS)
    wanted = naive(base, trained, TEXTS)
    assert (1 - (vectors * wanted).sum(1)).max() < 1e-3, "int8"
    assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert_array_equal(lv.load(adapted).embed(TEXTS, unit="document"), vectors)
    plain = lv.load(base).embed(TEXTS)
    assert np.abs(plain / np.linalg.norm(plain, axis=1, keepdims=True) - vectors).max() > 0.01, "they differ"


def test_in_float32_vectors_are_those_of_the_equation(base: Path, trained: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(base, tmp_path / "exact"))
    add_adapter(trained, directory, alpha=6.0, dtype="float32")
    assert_allclose(lv.load(directory).embed(TEXTS), naive(base, trained, TEXTS), atol=1e-5)


def test_everything_else_is_bit_for_bit_what_it_was(base: Path, adapted: Path) -> None:
    plain, model = lv.load(base), lv.load(adapted)
    model.embed(TEXTS)  # makes the second encoder
    for settings in ({"pool": "mean"}, {"layers": "last2"}, {"pool": "cls"}):
        assert_array_equal(model.embed(TEXTS, **settings), plain.embed(TEXTS, **settings))
    for unit in ("word", "token"):
        for ours, theirs in zip(model.embed(TEXTS, unit=unit), plain.embed(TEXTS, unit=unit), strict=True):
            assert_array_equal(ours, theirs)
    assert model.fill("the [MASK] was wide .").to_dict() == plain.fill("the [MASK] was wide .").to_dict()
    assert model.score(TEXTS[0]).to_dict() == plain.score(TEXTS[0]).to_dict()
    assert model.similarity("the *river* ran", "a *river*") == plain.similarity("the *river* ran", "a *river*")
    before, after = plain.network.state_dict(), model.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert before.keys() == after.keys()
    assert manifests.read_manifest(base).digest == manifests.read_manifest(adapted).digest  # type: ignore[union-attr]
    assert model.fingerprint == plain.fingerprint, "word indexes, senses and standardisers stay valid"
    assert model.vector_fingerprint != plain.vector_fingerprint == plain.fingerprint


def test_embeddings_are_shared(adapted: Path) -> None:
    model = lv.load(adapted)
    first, second = model.encoder, model.sentence_encoder
    assert second is model.sentence_encoder is not first
    mine = {name: p.data_ptr() for name, p in first.named_parameters()}
    copied = {name for name, p in second.named_parameters() if p.data_ptr() != mine[name]}
    assert copied == {name for name in mine if name.endswith(("qkv.weight", "out.weight", "up.weight", "down.weight"))}


def test_int8_and_the_server_use_it(adapted: Path) -> None:
    wanted = lv.load(adapted).embed(TEXTS)
    int8 = lv.load(adapted, quantise="int8").embed(TEXTS)
    assert (1 - (int8 * wanted).sum(1)).max() < 0.05
    app = build_app([lv.load(adapted)], ServeSettings(threads=2))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/embeddings", json={"input": TEXTS}).json()
        assert_allclose([row["embedding"] for row in answer["data"]], wanted, atol=1e-6)
        plain = client.post("/v1/embed", json={"texts": TEXTS, "pool": "mean"}).json()
    rows = [row["units"][0]["vector"] for row in plain["results"]]
    assert_allclose(rows, lv.load(adapted).embed(TEXTS, pool="mean"), atol=1e-5)


@pytest.mark.proof  # two exports; `tests/test_running.py` has quick ones, without an adapter
def test_onnx_runtime_uses_it(base: Path, adapted: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = lv.load(adapted, runtime="onnx")
    assert_allclose(model.embed(TEXTS), lv.load(adapted).embed(TEXTS), atol=1e-4)
    assert_allclose(model.embed(TEXTS, pool="mean"), lv.load(base).embed(TEXTS), atol=1e-4)


def test_a_folder_that_is_a_link_is_refused(broken: Path, tmp_path: Path) -> None:
    (broken / manifests.ADAPTER).rename(tmp_path / "elsewhere")
    (broken / manifests.ADAPTER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtefactError, match="link"):
        lv.load(broken)


def test_saving_and_converting_carry_it(adapted: Path, tmp_path: Path) -> None:
    from larvatus.models.bundle.convert import convert_bundle

    wanted = lv.load(adapted).embed(TEXTS)
    assert_allclose(lv.load(lv.load(adapted).save(tmp_path / "saved")).embed(TEXTS), wanted, atol=1e-6)
    convert_bundle(adapted, tmp_path / "int8", dtype="int8")
    int8 = lv.load(tmp_path / "int8").embed(TEXTS)
    assert (1 - (int8 * wanted).sum(1)).max() < 1e-2
    assert not np.array_equal(int8, wanted)


def test_a_merged_model_gives_equal_vectors_in_sentence_transformers(adapted: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        directory = merge_adapter(adapted, tmp_path / "merged")
        theirs = SentenceTransformer(str(directory), device="cpu").encode(TEXTS, show_progress_bar=False)
    wanted = lv.load(adapted).embed(TEXTS)
    assert_allclose(theirs, wanted, atol=1e-5)
    assert_allclose(lv.load(directory).embed(TEXTS), wanted, atol=1e-5)
    with pytest.raises(UsageError, match="has no sentence adapter to merge"):
        merge_adapter(directory, tmp_path / "again")


def test_an_index_of_plain_means_is_refused_by_name(base: Path, adapted: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the river bank was wide .\n")
    moving = Path(shutil.copytree(base, tmp_path / "model"))
    lv.index_documents(str(tmp_path / "a.txt"), out=tmp_path / "index", model=moving)
    shutil.rmtree(moving)
    shutil.copytree(adapted, moving)
    with pytest.raises(ArtefactError, match=r"without its sentence adapter.*with its sentence adapter"):
        lv.Index.open(tmp_path / "index")
    index = lv.index_documents(str(tmp_path / "a.txt"), out=tmp_path / "second", model=moving)
    assert index.search("the river bank was wide .")[0].score == pytest.approx(1, abs=2e-3)
    shutil.rmtree(moving)
    shutil.copytree(base, moving)
    with pytest.raises(ArtefactError, match="was built with the model"):
        lv.Index.open(tmp_path / "second")


def test_an_index_of_the_adapter_is_served(adapted: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the river bank was wide .", encoding="utf-8")
    model = lv.load(adapted)
    index = lv.index_documents(tmp_path / "a.txt", out=tmp_path / "index", model=model)
    with lv.serve_models(model, index=[index.path]) as address, lv.Client(address) as client:
        (hit,) = client.search("the river bank was wide .")["hits"]
    assert hit["score"] == pytest.approx(1.0, abs=1e-3)


def test_a_broken_adapter_is_refused(broken: Path) -> None:
    weights = broken / manifests.ADAPTER / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ArtefactError, match=r"adapter\.safetensors does not match its checksum"):
        lv.load(broken)
    weights.unlink()
    with pytest.raises(ArtefactError, match=r"adapter\.safetensors is missing"):
        lv.load(broken)
    shutil.rmtree(broken / manifests.ADAPTER)
    with pytest.raises(ArtefactError, match=r"sentence.* is missing"):
        lv.load(broken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank": 16_000_000}, "does not fit the model; misshapen"),
        ({"rank": 0}, "adapter.json: rank = 0 must"),
        ({"rank": "much"}, "does not describe an adapter"),
        ({"targets": ["query", "query"]}, "each named once"),
        ({"targets": ["query"]}, "does not fit the model; extra"),
        ({"projections": []}, "does not fit the model; extra: projections.0.weight"),
        ({"projections": [{"size": 2**24, "activation": "none", "bias": False}]}, "misshapen: projections.0.weight"),
        ({"pool": "sum"}, "does not describe an adapter"),
        ({"code": "print()"}, "does not describe an adapter"),
    ],
)
def test_hostile_settings_are_refused_before_anything_is_allocated(
    change: dict[str, Any], said: str, broken: Path
) -> None:
    path = broken / manifests.ADAPTER / SETTINGS
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    sign(broken)
    with pytest.raises(LarvatusError, match=said):
        lv.load(broken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: {name: t for name, t in tensors.items() if "projections" not in name}, "missing: projections"),
        (lambda tensors: tensors | {"more": torch.ones(2)}, "extra: more"),
        (
            lambda tensors: tensors | {"projections.0.weight": torch.full((HIDDEN, HIDDEN), torch.nan)},
            "NaN or infinity",
        ),
        (lambda tensors: tensors | {"projections.0.weight": torch.ones(2, 2)}, "misshapen"),
        (lambda tensors: {name: t for name, t in tensors.items() if not name.endswith(".scale")}, "no scale"),
    ],
)
def test_hostile_tensors_are_refused(
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], said: str, broken: Path
) -> None:
    path = broken / manifests.ADAPTER / WEIGHTS
    write_tensors(path, change(read_tensors(path, integers=True)))
    sign(broken)
    with pytest.raises(ArtefactError, match=said):
        lv.load(broken)


def test_what_cannot_be_added_is_refused_and_changes_nothing(
    base: Path, trained: Path, adapted: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(base, tmp_path / "model"))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(ArtefactError, match="give its alpha"):
        add_adapter(trained, directory)
    tensors = read_tensors(trained)
    cut = {name: t[:, :-1].contiguous() if name.endswith(".a") else t for name, t in tensors.items()}
    write_tensors(tmp_path / "cut.safetensors", cut)
    with pytest.raises(ArtefactError, match="does not fit the model; misshapen"):
        add_adapter(tmp_path / "cut.safetensors", directory, alpha=6.0)
    write_tensors(tmp_path / "none.safetensors", {"dense.weight": torch.ones(2, 2)})
    with pytest.raises(ArtefactError, match="holds no LoRA of one rank"):
        add_adapter(tmp_path / "none.safetensors", directory, alpha=6.0)
    with pytest.raises(UsageError, match="is a sentence encoder"):
        add_adapter(trained, merge_adapter(adapted, tmp_path / "merged"), alpha=6.0)
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()} == before


def test_a_folder_that_the_manifest_does_not_list_is_ignored(base: Path, adapted: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(base, tmp_path / "model"))
    shutil.copytree(adapted / manifests.ADAPTER, directory / manifests.ADAPTER)
    assert load_bundle(directory).adapter is None
    assert_array_equal(lv.load(directory).embed(TEXTS), lv.load(base).embed(TEXTS))


def test_an_adapter_is_extracted_from_a_run_with_lora(base: Path, tmp_path: Path) -> None:
    """The whole way of a user: fine-tune, extract, add, and the vectors are those of the run."""
    pairs = [(f"{a} {b}", f"{b} {a}") for a in ("river", "bank", "run", "deep") for b in ("the", "wide", "turn")]
    settings: dict[str, Any] = {"batch": 4, "epochs": 4, "rate": 1e-2, "dense": 8, "hold_out": False, "device": "cpu"}
    lv.finetune("embed", base, train=pairs, out=tmp_path / "run", trained=f"lora{RANK}-all", **settings)
    done = extract_adapter(tmp_path / "run", base, tmp_path / "adapter")
    assert done.rank == RANK
    assert done.missed < 1e-3
    directory = Path(shutil.copytree(base, tmp_path / "model"))
    added = add_adapter(tmp_path / "adapter", directory, dtype="float32")
    assert added.moved < 1e-9
    wanted = lv.load(tmp_path / "run").embed(TEXTS)
    assert_allclose(lv.load(directory).embed(TEXTS), wanted, atol=1e-5)
    assert (1 - (lv.load(base).embed(TEXTS, normalise=True)[:, :8] * wanted).sum(1)).max() > 1e-3, "it learnt"
    with pytest.raises(UsageError, match="gives no vectors of texts"):
        extract_adapter(base, base, tmp_path / "other")
    other = load_bundle(base).network
    torch.nn.init.zeros_(other.encoder.embeddings.words.weight)  # type: ignore[union-attr,arg-type]
    described: dict[str, Any] = {"tokenizer": lv.load(base).tokenizer, "recipe": None, "lineage": {}, "card": "# x"}
    save_bundle(tmp_path / "base", network=other, objective_configs=(MaskedLMConfig(),), **described)
    with pytest.raises(ArtefactError, match=r"differs from .* in embeddings\.words\.weight"):
        extract_adapter(tmp_path / "run", tmp_path / "base", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_fine_tuning_begins_with_the_adapter(adapted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [("the river bank was wide .", "deep in the river !"), ("turn in your homework", "please run and run")] * 4
    lv.finetune("embed", adapted, train=pairs, out=tmp_path / "run", epochs=1, rate=1e-12, hold_out=False, device="cpu")
    assert "begins with the model's sentence adapter" in "".join(capsys.readouterr())
    expected = lv.load(adapted).embed(TEXTS, unit="sentence")
    assert_allclose(lv.load(tmp_path / "run").embed(TEXTS, unit="sentence"), expected, atol=1e-5)


def test_pairs_are_found_exactly_and_shapes_agree(base: Path) -> None:
    first, second = load_bundle(base).network.encoder, load_bundle(base).network.encoder
    config = LoRAConfig(rank=2, alpha=2.0, targets=("key", "down"))
    add_lora(second, config, seed=0)
    torch.manual_seed(0)
    tensors = {name: torch.randn_like(t) for name, t in second.state_dict().items() if ".lora." in name}
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == lora_shapes(first, config)
    second.load_state_dict({**second.state_dict(), **tensors})
    merge_lora(second)
    pairs, missed = extract_lora(first, second, config)
    assert missed < 1e-5
    third = merged_copy(first, config, pairs)
    for name, tensor in second.state_dict().items():
        assert_allclose(third.state_dict()[name].numpy(), tensor.numpy(), atol=1e-5, err_msg=name)
    assert extract_lora(first, second, LoRAConfig(rank=1, alpha=1.0, targets=("key", "down")))[1] > 0.1


def test_what_is_rounded_in_memory_is_what_the_file_gives(adapted: Path, trained: Path) -> None:
    from larvatus.models.bundle.sentence_adapter import trained_adapter

    stored = load_bundle(adapted).adapter
    assert stored is not None
    exact = trained_adapter(read_tensors(trained), 6.0, source=trained)
    rounded = rounded_adapter(exact, "int8")
    assert rounded.config == stored.config
    assert rounded.tensors.keys() == stored.tensors.keys()
    for name, tensor in rounded.tensors.items():
        assert_array_equal(tensor.numpy(), stored.tensors[name].numpy(), err_msg=name)


def test_teachers_and_evaluation_use_it(base: Path, adapted: Path, tmp_path: Path) -> None:
    teacher = load_teacher(str(adapted))
    vectors = np.asarray(teacher_vectors(teacher, TEXTS, ScoringOptions(device="cpu")))
    assert_allclose(vectors, lv.load(adapted).embed(TEXTS), atol=1e-5)
    assert sentence_digest(adapted) != sentence_digest(base) == model_digest(base) == model_digest(adapted)
    scored = [(0, 1, 0.1), (0, 3, 0.7), (1, 2, 0.3), (2, 3, 0.4)]
    data = tmp_path / "scores.jsonl"
    rows = [{"sentence1": TEXTS[a], "sentence2": TEXTS[b], "score": score} for a, b, score in scored]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = lv.evaluate(adapted, data=data, samples=20, device="cpu")
    cosines = [float(vectors[a] @ vectors[b]) for a, b, _ in scored]
    wanted = np.corrcoef(cosines, [score for *_, score in scored])[0, 1]
    assert evaluation.metrics["pearson"].value == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(ArtefactError, match="has no head"):
        lv.evaluate(base, data=data, samples=20, device="cpu")


def test_files_of_vectors_and_commands(
    base: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, text = Path(shutil.copytree(base, tmp_path / "model")), tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": line}) + "\n" for line in TEXTS))
    assert command(capsys, "adapter", "add", trained, "--model", directory, "--alpha", "6", "--json")["dtype"] == "int8"
    lv.embed_files(directory, text, out=tmp_path / "vectors.npy", unit="document")
    assert_allclose(np.load(tmp_path / "vectors.npy"), lv.load(directory).embed(TEXTS), atol=1e-6)
    lv.embed_files(directory, text, out=tmp_path / "means.npy", unit="document", pool="mean")
    assert_allclose(np.load(tmp_path / "means.npy"), lv.load(base).embed(TEXTS), atol=1e-6)
    merged = command(capsys, "adapter", "merge", directory, "--out", tmp_path / "merged", "--json")["path"]
    done = command(
        capsys, "adapter", "extract", merged, "--base", base, "--out", tmp_path / "a", "--rank", RANK, "--json"
    )
    assert done["missed"] < 1e-3
    assert command(capsys, "adapter", "add", tmp_path / "a", "--model", directory, "--json")["rank"] == RANK
    assert_allclose(lv.load(directory).embed(TEXTS), lv.load(merged).embed(TEXTS), atol=2e-2)


def command(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """What a command prints with --json."""
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    return json.loads(printed.out)
