"""A run of an encoder–decoder: the same whatever the microbatch or the ranks, resumed bit for bit, saved as a T5."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import larvatus as lv
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import DenoisedText
from larvatus.data.corpus import Corpus, build_corpus
from larvatus.data.corpus.loader import Loader
from larvatus.data.corruption import packed_length
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.special_tokens import sentinel_ids
from larvatus.data.text.vocabularies import UnigramConfig, train_vocabulary
from larvatus.models.network import Network
from larvatus.models.nn.compiling import fill_batch
from larvatus.models.nn.device import on_device
from larvatus.models.recipes import Recipe, read_recipe
from larvatus.training.engine.optimizer import build_optimizer
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.evaluation import UnigramBaseline, build_corruption
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.step import Stepper
from tests import warm
from tests.patience import WATCHDOG_S

SETTINGS = (
    "model.layers=1", "model.hidden=32", "model.heads=2", "model.max_positions=64", "batch=16", "phases.0.length=32",
    "tokenizer.size=400", "model.dropout=0.0",
)  # fmt: skip


@pytest.fixture(scope="module")
def sentinel_shards(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("corpus")
    documents = list(itertools.islice(embedded_documents("train"), 24))
    tokenizer = train_vocabulary((d.text for d in documents[:6]), UnigramConfig(size=400, frame="t5"))
    build_corpus(documents[:20], tokenizer, folder / "train")
    build_corpus(documents[20:], tokenizer, folder / "valid")
    return PreparedCorpus(train=folder / "train", valid=folder / "valid")


def recipe_of(*settings: str) -> Recipe:
    return read_recipe("t5", settings=[*SETTINGS, *settings])


def batches(prepared: PreparedCorpus, *, tokens: int, count: int) -> list[TrainingBatch[np.ndarray]]:
    corpus, recipe = Corpus.open(prepared.train), recipe_of()
    loader = Loader(
        corpus,
        packing=recipe.packing,
        length=packed_length(recipe.corruption, 32),
        corruption=build_corruption(recipe.corruption, corpus.tokenizer, 1, limit=32),
        tokens=tokens,
        seed=1,
    )
    return [batch for batch, _ in itertools.islice(loader.steps(), count)]


def stepper_of(recipe: Recipe, size: int, *, microbatch: int, ranks: Ranks = Ranks()) -> Stepper:
    model = Network.build(recipe.model, recipe.objectives, size, seed=0)
    optimizer = build_optimizer(model, recipe.optimizer)
    return Stepper(model, optimizer, recipe, runtime=Runtime(microbatch=microbatch), ranks=ranks, seed=1, pad_id=0)


def test_sequences_are_full_and_closed_on_both_sides(sentinel_shards: PreparedCorpus) -> None:
    batch = batches(sentinel_shards, tokens=512, count=1)[0]
    targets = batch.targets[DenoisedText]
    ends = np.cumsum(batch.tokens.lengths) - 1, np.cumsum(targets.lengths) - 1
    assert int(batch.tokens.lengths.max()) == 32
    assert len(set(batch.tokens.lengths.tolist())) <= 2  # all alike but the last of a block, so attention is one block
    assert set(batch.tokens.ids[ends[0]].tolist()) == set(targets.ids[ends[1]].tolist()) == {1}
    sentinels = set(sentinel_ids(Corpus.open(sentinel_shards.train).tokenizer).tolist())
    assert {int(targets.ids[0]), int(targets.ids[ends[1][0] - 1])} <= sentinels


def test_the_microbatch_changes_neither_losses_nor_weights(sentinel_shards: PreparedCorpus) -> None:
    recipe, size = recipe_of(), Corpus.open(sentinel_shards.train).tokenizer.size
    steppers = [stepper_of(recipe, size, microbatch=microbatch) for microbatch in (16_384, 100)]
    for step, batch in enumerate(batches(sentinel_shards, tokens=512, count=3)):
        a, b = (stepper(batch, step=step, rate=1e-2, limit=32) for stepper in steppers)
        assert a.losses == pytest.approx(b.losses, rel=1e-5)
        assert a.gradient == pytest.approx(b.gradient, rel=1e-4)
    states = [stepper.model.state_dict() for stepper in steppers]
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor, rtol=1e-3, atol=1e-4)


def test_filler_of_a_compiled_step_changes_no_loss_and_no_gradient(sentinel_shards: PreparedCorpus) -> None:
    recipe, corpus = recipe_of(), Corpus.open(sentinel_shards.train)
    model = Network.build(recipe.model, recipe.objectives, corpus.tokenizer.size, seed=0)
    batch = batches(sentinel_shards, tokens=256, count=1)[0]
    count = batch.targets[DenoisedText].count
    filled = fill_batch(batch, tokens=320, sequences=16, targets=count + 37, limit=32, pad_id=0)
    gradients = []
    for each in (batch, filled):
        model.zero_grad()
        loss, losses = model.loss(on_device(each, "cpu"), {"denoising": count}, limit=32)
        assert int(losses["denoising"].count) == count
        loss.backward()
        gradients.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-4, atol=1e-6)


def test_a_stopped_run_resumed_ends_bit_equal_and_is_saved_as_a_t5(
    sentinel_shards: PreparedCorpus, tmp_path: Path
) -> None:
    def run(name: str, **options: object) -> object:
        job = PretrainingJob(
            recipe=recipe_of("model.dropout=0.1"), out=tmp_path / name, budget=Budget(steps=6), **options
        )
        return train(job, lambda: sentinel_shards, Reporter())

    results = run("whole")
    run("parts", save_every=3)
    newest = tmp_path / "parts" / "checkpoints" / "step-00000006"
    shutil.rmtree(newest)
    run("parts", resume=True)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)

    assert "denoising loss" in str(results[32])  # type: ignore[index]
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert (config["model_type"], config["num_decoder_layers"]) == ("t5", 1)
    model = lv.load(tmp_path / "whole", device="cpu")
    assert model.embed("The value is returned.").shape == (32,)


def test_what_cannot_work_together_is_refused_in_one_line() -> None:
    with pytest.raises(RecipeError, match=r'denoising needs spans behind sentinels.*set corruption.type = "sentinels"'):
        recipe_of("corruption.type=tokens")
    with pytest.raises(RecipeError, match=r'set model.type = "encoder-decoder"'):
        Network.build(read_recipe("bert").model, recipe_of().objectives, 50, seed=0)


def test_sentinels_are_guessed_as_one_kind_by_their_share() -> None:
    """Half of what is seen is known: ln 2 for the kind, and −ln ½ for each of the two words among four tokens."""
    guess = UnigramBaseline(np.array([0, 0, 3, 1]), 1.0, known={0, 1})
    guess.see(np.array([0, 2, 2, 1]))
    assert guess.loss == pytest.approx(np.log(2) + 2 * np.log(2) / 4)
    assert guess.accuracy == 0.5


RANKS = """
import json, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from larvatus.training.engine.ranks import ranks
from larvatus.training.pretraining.prepare import PreparedCorpus
from tests.training.pretraining.test_t5_run import batches, recipe_of, stepper_of

with ranks("cpu", timeout_s=60) as group:
    shards = PreparedCorpus(train=Path({train!r}), valid=Path({train!r}))
    stepper = stepper_of(recipe_of(), 400, microbatch=100, ranks=group)
    reports = [
        stepper(batch, step=step, rate=1e-2, limit=32).losses["denoising"]
        for step, batch in enumerate(batches(shards, tokens=512, count=3))
    ]
    if group.main:
        Path({out!r}).write_text(json.dumps(reports))
"""


@pytest.mark.proof
def test_two_processes_give_the_losses_of_one(sentinel_shards: PreparedCorpus, tmp_path: Path) -> None:
    script, out = tmp_path / "ranks.py", tmp_path / "losses.json"
    tests = str(Path(__file__).parents[3])
    script.write_text(RANKS.format(tests=tests, train=str(sentinel_shards.train), out=str(out)))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", warm.NESTED: "all"}
    done = warm.run(launch, env=environment, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert out.exists(), done.stderr
    stepper = stepper_of(recipe_of(), 400, microbatch=100)
    alone = [
        stepper(batch, step=step, rate=1e-2, limit=32).losses["denoising"]
        for step, batch in enumerate(batches(sentinel_shards, tokens=512, count=3))
    ]
    assert json.loads(out.read_text()) == pytest.approx(alone, rel=1e-5)
