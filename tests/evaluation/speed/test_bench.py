"""`larvatus bench` measures what it says: the same work by peers, rows, memory, growth. No time is held to anything."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from larvatus.core.errors import UsageError
from larvatus.data.text.embedded import embedded_documents
from larvatus.evaluation.speed import runtimes as speed_of_runtimes
from larvatus.evaluation.speed.measure import silence_peers, why_no_training_peer
from larvatus.evaluation.speed.plot import draw, draw_growth
from larvatus.evaluation.speed.results import Benchmark, Machine, lines, tables
from larvatus.evaluation.speed.scaling import ScalingPoint, ScalingResult, scaling_result, table
from larvatus.evaluation.speed.timing import Ceiling, Timing, peak_bytes, process_peak, time_in_turns
from larvatus.evaluation.speed.training import (
    BenchmarkModel,
    LarvatusTraining,
    TransformersTraining,
    flops_of,
    model_of_recipe,
)
from larvatus.inference.model import load, runtime
from larvatus.inference.model.runtime import choices_file
from larvatus.interfaces.api.benchmarking import run_bench
from larvatus.interfaces.cli.main import app
from larvatus.interfaces.settings import BenchSettings, MachineSettings
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import NextSentenceConfig
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.reporter import Reporter, flops_per_token, rich_table
from larvatus.training.engine.settings import Runtime
from tests.shared import SMALL

MACHINE = MachineSettings(device="cpu", workers=0)
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def subject(prepared: Any, tmp_path_factory: pytest.TempPathFactory) -> BenchmarkModel:
    recipe = read_recipe(
        "bert", settings=[*SMALL, "tokenizer.size=1200", "model.dropout=0.0", "model.attention_dropout=0.0"]
    )
    folder = tmp_path_factory.mktemp("bench")
    return model_of_recipe(recipe, corpus=str(prepared.train), folder=folder, reporter=Reporter())


@pytest.fixture(scope="module")
def silence() -> Iterator[None]:
    with silence_peers():
        yield


def settings_of(prepared: Any, **more: Any) -> BenchSettings:
    given = {
        "recipe": "bert",
        "size": "base",
        "settings": (*SMALL, "tokenizer.size=1200"),
        "corpus": str(prepared.train),
        "tokens": 480,
        "seconds": 0.01,
        "length": 48,
    }
    return BenchSettings(**{**given, **more})


@pytest.mark.proof
def test_all_is_measured_and_shown_beside_peers(prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = run_bench(settings_of(prepared), MACHINE, Reporter())
    assert isinstance(result, Benchmark)
    assert [each.peer for each in result.measured] == ["transformers", "transformers", "sentence-transformers"]
    for each in result.measured:
        assert each.theirs is not None
        assert each.ratio == each.larvatus.tokens_per_second / each.theirs.tokens_per_second
        assert each.larvatus.low <= each.larvatus.tokens_per_second <= each.larvatus.high
        assert each.larvatus.mfu is not None
        assert each.larvatus.mfu_of_datasheet is None  # no data sheet of this CPU is known
    full, ragged, _ = result.measured
    assert full.mean_length > 0.9 * 48 > ragged.mean_length
    weights = 4 * result.parameters
    for each in (full, ragged):
        assert each.larvatus.peak_bytes is not None
        assert each.larvatus.peak_bytes > 4 * weights  # weights, two moments, gradients, and what layers leave
    assert [each.workers for each in result.loading] == [0]
    assert json.loads(json.dumps(result.to_dict()))["measured"][0]["ratio"] == full.ratio
    shown = StringIO()
    console = Console(file=shown, width=80)
    for each in (*lines(result), *tables(result)):
        console.print(each)
    assert "training, ragged rows" in shown.getvalue()
    assert "…" not in shown.getvalue()  # all fits a terminal
    draw(result, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(PNG)


def test_runtimes_are_compared_and_the_fastest_is_kept(
    subject: BenchmarkModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(speed_of_runtimes, "time_in_turns", lambda works, **_: {
        name: Timing(median=cost, low=cost, high=cost, rounds=3) for cost, name in enumerate(reversed(works), start=1)
    })  # fmt: skip
    sentences, _ = subject.sentences(200)
    speeds = speed_of_runtimes.runtime_speeds(subject.directory, sentences, seconds=0.0)
    assert [(each.runtime, each.quantise) for each in speeds] == [
        ("torch", ""), ("openvino", ""), ("torch", "int8"), ("openvino", "int8")
    ]  # fmt: skip
    assert [each.cosine for each in speeds] == pytest.approx([1.0] * 4, abs=0.02)
    assert speeds[1].cosine > 1 - 1e-6
    assert min(each.agreement for each in speeds) > 0.98
    kept = msgspec.json.decode(choices_file().read_bytes()).values()
    assert [each["chosen"] for each in kept] == ["openvino", "openvino"]
    result = msgspec.structs.replace(benchmark(), runtimes=speeds)
    shown = StringIO()
    for each in tables(result):
        Console(file=shown, width=80).print(rich_table(each))
    assert "fastest in int8: openvino, now the choice of --runtime auto" in shown.getvalue()
    monkeypatch.setattr(runtime, "encoder_in", lambda *_: pytest.fail("measured again"))
    assert isinstance(load(subject.directory, runtime="auto").encoder, runtime.RuntimeEncoder)


def benchmark() -> Benchmark:
    """Results without any measurement."""
    machine = Machine(
        name="", device="cpu", precision="fp32", compiled=False, cores=1, threads=1, torch="", larvatus=""
    )
    ceiling = Ceiling(flops=1.0, size=1, datasheet=None)
    return Benchmark(
        machine=machine, model="", parameters=0, vocabulary=0, text="", ceiling=ceiling, measured=(), loading=()
    )


def test_the_peer_does_the_same_work(subject: BenchmarkModel, silence: None) -> None:
    """From the directory that ours was saved in: the same masked-lm loss on the same rows."""
    runtime = Runtime()
    for make in (subject.full_rows, subject.ragged_rows):
        batches = make(length=48, tokens=480)
        theirs = TransformersTraining(subject.directory, runtime, batches, length=48)
        with torch.no_grad():
            ours = subject.network.eval()(on_device(batches[0], "cpu"), limit=48)["masked-lm"].mean
            loss = theirs.model(**theirs.padded[0]).loss
        assert float(loss) == pytest.approx(float(ours), rel=1e-5)
        before = [parameter.detach().clone() for parameter in theirs.model.parameters()]
        theirs.step()
        assert any(not torch.equal(a, b) for a, b in zip(before, theirs.model.parameters(), strict=True))


def test_rows_are_full_or_of_many_lengths(subject: BenchmarkModel) -> None:
    full = subject.full_rows(length=48, tokens=480)
    ragged = subject.ragged_rows(length=48, tokens=480)
    assert all(batch.tokens.lengths.min() >= 0.9 * 48 for batch in full)
    lengths = np.concatenate([batch.tokens.lengths for batch in ragged])
    assert len(set(lengths.tolist())) > 4
    assert lengths.max() <= 48
    assert all(240 < batch.tokens.size <= 480 for batch in (*full, *ragged))


def test_operations_count_each_row_by_its_length(subject: BenchmarkModel) -> None:
    (batch, *_) = subject.ragged_rows(length=48, tokens=480)
    each = [length * flops_per_token(subject.network, subject.recipe, length) for length in batch.tokens.lengths]
    assert flops_of(subject.network, subject.recipe, [batch]) == pytest.approx(sum(each) / batch.tokens.size)


def test_memory_is_what_tensors_take() -> None:
    assert peak_bytes(lambda: torch.ones(1000, 1000).sum(), "cpu") == pytest.approx(4e6, rel=0.1)
    assert peak_bytes(lambda: None, "cpu") < 1e5
    taken = process_peak(lambda: np.ones(8_000_000).sum())
    assert taken is None or taken > 50e6


def test_recomputed_layers_take_less_memory(subject: BenchmarkModel) -> None:
    batches = subject.full_rows(length=48, tokens=480)
    taken = {}
    for word in ("never", "always"):
        runtime = Runtime(activation_checkpointing=word)  # type: ignore[arg-type]
        training = LarvatusTraining(subject, runtime, batches, length=48)
        training.step()
        taken[word] = peak_bytes(training.step, "cpu")
    assert taken["always"] < taken["never"]


def test_contenders_take_turns_and_the_first_rounds_do_not_count() -> None:
    calls: list[str] = []
    works = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    times = time_in_turns(works, device="cpu", seconds=0.0, warm=1)
    assert calls == [*"ab", *"ab", *"ba", *"ab"]
    assert times["a"].rounds == 3


def test_who_has_no_peer_says_why(subject: BenchmarkModel) -> None:
    assert why_no_training_peer(subject) == ""
    pairs = Network.build(subject.recipe.model, [NextSentenceConfig()], vocabulary=1200, seed=1)
    recipe = msgspec.structs.replace(subject.recipe, objectives=(NextSentenceConfig(),))
    assert "masked words" in why_no_training_peer(dataclasses.replace(subject, network=pairs, recipe=recipe))


@pytest.mark.proof
@pytest.mark.parametrize("of", ["length", pytest.param("batch", marks=pytest.mark.proof), "layers"])
def test_growth_has_a_point_for_each_doubling(prepared: Any, tmp_path: Path, of: Any) -> None:
    sizes = {"length": [12, 24, 48], "batch": [1, 2, 4, 8], "layers": [1, 2, 4]}[of]
    chosen = settings_of(prepared, grow=of, largest=sizes[-1], length=24 if of != "length" else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("larvatus.interfaces.api.benchmarking.SHORTEST", 12)
        growth = run_bench(chosen, MACHINE, Reporter())
    assert isinstance(growth, ScalingResult)
    assert [point.size for point in growth.points] == sizes
    held = [point.bytes for point in growth.points]
    assert held == sorted(held, key=lambda value: value or 0)  # more needs more
    assert 0 < growth.exponents["bytes"] < 2
    draw_growth(growth, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(PNG)


def test_a_power_is_found_and_shown() -> None:
    points = [ScalingPoint(size=2**n, seconds=1e-3 * 8**n, bytes=1000 * 2**n) for n in range(6)]
    growth = scaling_result("length", points, each="one sequence", runtime=Runtime(), model="made up")
    assert growth.exponents == {"seconds": pytest.approx(3), "bytes": pytest.approx(1)}
    shown = StringIO()
    Console(file=shown, width=80).print(table(growth))
    assert "3.00" in shown.getvalue()
    assert json.loads(json.dumps(growth.to_dict()))["points"][0]["size"] == 1


@pytest.mark.proof
def test_a_corpus_three_times_as_long_is_prepared(tmp_path: Path) -> None:
    documents = itertools.islice(embedded_documents("train"), 60)
    (tmp_path / "text.txt").write_text("\n\n".join(document.text for document in documents), encoding="utf-8")
    small = BenchSettings(
        grow="corpus", size="tiny", largest=3, corpus=str(tmp_path / "text.txt"), settings=("tokenizer.size=600",)
    )
    growth = run_bench(small, MACHINE, Reporter())
    assert isinstance(growth, ScalingResult)
    assert growth.points[1].size == pytest.approx(3 * growth.points[0].size, rel=0.1)
    assert set(growth.exponents) >= {"seconds", "plan_seconds", "plan_bytes"}


@pytest.mark.parametrize(
    "words", [["--model", "x", "--grow", "batch"], ["--largest", "4"], ["--plot", "x.pdf"], ["--length", "4096"]]
)
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", "--device", "cpu", *words])
    assert isinstance(result.exception, UsageError)
