"""A run of xlnet: the same whatever the microbatch and the processes, compiled too, resumed bit for bit, usable after.

Its text, in a vocabulary with <sep> <cls> behind every sequence, is that of the other runs.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import larvatus as lv
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.data.corpus import Corpus, build_corpus
from larvatus.data.corpus.loader import Loader
from larvatus.data.corruption import Corruption, MaskVocabulary
from larvatus.data.corruption.permutation import PermutedTokens
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.vocabularies import UnigramConfig, train_vocabulary
from larvatus.models.network import Network
from larvatus.models.nn import fill_batch, on_device
from larvatus.models.objectives import weighted_sum
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.optimizer import adamw
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.step import Stepper
from tests import warm
from tests.patience import WATCHDOG_S
from tests.shared import SMALL

SETTINGS = (*(s for s in SMALL if not s.startswith(("phases.1", "model.layers"))), "model.layers=2")
STILL = "model.dropout=0.0"


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """Some documents as shards, in a vocabulary like XLNet's."""
    folder = tmp_path_factory.mktemp("closed")
    documents = list(itertools.islice(embedded_documents("train"), 40))
    tokenizer = train_vocabulary((d.text for d in documents[:8]), UnigramConfig(size=300, frame="xlnet"))
    build_corpus(documents[:30], tokenizer, folder / "train")
    build_corpus(documents[30:], tokenizer, folder / "valid")
    return PreparedCorpus(train=folder / "train", valid=folder / "valid")


@pytest.fixture
def run(closed, tmp_path):
    def run(name, *settings, steps=4, **options):
        recipe = read_recipe("xlnet", settings=[*SETTINGS, *settings])
        job = PretrainingJob(
            recipe=recipe, out=tmp_path / name, runtime=Runtime(), budget=Budget(steps=steps), **options
        )
        return train(job, lambda: closed, Reporter())

    return run


def first_batch(closed, *settings) -> tuple:
    corpus, recipe = Corpus.open(closed.train), read_recipe("xlnet", settings=[*SETTINGS, STILL, *settings])
    known = corpus.tokenizer
    vocabulary = MaskVocabulary(mask_id=known.mask_id, size=known.size, special_ids=known.special_ids)
    corruption = Corruption(recipe.corruption, vocabulary, 1)
    loader = Loader(corpus, packing=recipe.packing, length=32, corruption=corruption, tokens=512, seed=1)
    return recipe, known, next(iter(loader.steps()))[0]


def test_sequences_are_running_text_closed_by_sep_and_cls_a_sixth_of_it_predicted(closed):
    recipe, tokenizer, batch = first_batch(closed)
    ends = np.cumsum(batch.tokens.lengths)
    assert (batch.tokens.ids[ends - 1] == tokenizer.cls_id).all()
    assert (batch.tokens.ids[ends - 2] == tokenizer.sep_id).all()
    assert (batch.tokens.segments[ends - 1] == 2).all()
    assert (batch.tokens.lengths == 32).mean() > 0.9
    text = batch.tokens.size - 2 * batch.tokens.count
    assert batch.targets[PermutedTokens].count == pytest.approx(text / 6, rel=0.05)
    assert recipe.words_per_token == pytest.approx(1 / 6, abs=1e-5)


@pytest.mark.parametrize("settings", [(), ("model.memory=16",), ("corruption.context=ordered",)])
def test_the_loss_is_that_of_each_sequence_alone_and_the_microbatch_changes_nothing(settings, closed):
    recipe, tokenizer, batch = first_batch(closed, *settings, "model.init=0.2")
    steppers = []
    for microbatch in (16_384, 100):
        model = Network.build(recipe.model, recipe.objectives, tokenizer.size, seed=0)
        options = {"runtime": Runtime(microbatch=microbatch), "ranks": Ranks(), "seed": 1, "pad_id": 5}
        steppers.append(Stepper(model, adamw(model, recipe.optimizer), recipe, **options))
    model, total = steppers[0].model.eval(), 0.0
    for number in range(batch.tokens.count):
        total += float(model(on_device(batch.cut(number, number + 1), "cpu"))["permutation-lm"].total.detach())
    a, b = (stepper(batch, step=0, rate=1e-3, limit=32) for stepper in steppers)
    assert a.losses["permutation-lm"] == pytest.approx(total / batch.targets[PermutedTokens].count, rel=1e-4)
    assert a.losses == pytest.approx(b.losses, rel=1e-4)
    assert a.gradient == pytest.approx(b.gradient, rel=1e-3)


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler, of itself
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_compiled_step_equals_the_plain_one_and_is_compiled_once(closed):
    """Shapes are fixed but inside attention, where the graph is left."""
    recipe, tokenizer, whole = first_batch(closed, "model.init=0.2")
    model = Network.build(recipe.model, recipe.objectives, tokenizer.size, seed=0)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, dynamic=False)
    seen = []
    for batch in (whole.cut(0, 4), whole.cut(4, 9), whole.cut(9, 11)):
        check_filled(model, compiled, batch)
        seen.append(counter.frame_count)
    assert seen[0] == seen[1] == seen[2]


def check_filled(model: Network, compiled: torch.nn.Module, batch: TrainingBatch) -> None:
    filled = fill_batch(batch, tokens=224, sequences=12, targets=64, limit=32, pad_id=5)
    gradients = []
    for runner, step in ((model, batch), (compiled, filled)):
        model.zero_grad()
        total = weighted_sum(runner(on_device(step, "cpu"), limit=32), {"permutation-lm": 20.0})
        total.backward()
        gradients.append([total.detach(), *(parameter.grad for parameter in model.parameters())])
    assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_a_stopped_run_resumed_ends_bit_equal(run, tmp_path):
    run("whole", steps=6)
    run("parts", steps=6, save_every=3)
    newest = tmp_path / "parts" / "checkpoints" / "step-00000006"
    shutil.rmtree(newest)
    run("parts", steps=6, resume=True)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_leaves_a_model_that_transformers_reads_and_that_fills_scores_and_is_fine_tuned(run, tmp_path):
    results = run("run")
    assert "permutation-lm loss" in str(results[32])
    assert results[32].guess_loss is not None
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("xlnet", ["XLNetLMHeadModel"])
    model = lv.load(tmp_path / "run", device="cpu")
    assert len(model.fill("The value of the <mask> is returned.", top=3)) == 3
    assert model.score("The value is returned.").perplexity > 1
    assert model.embed(["The value.", "A name of it."]).shape == (2, 32)
    examples = [(f"the {word} is returned", word) for word in ("value", "name") * 8]
    settings = {"dev": None, "epochs": 1, "out": tmp_path / "tuned", "device": "cpu"}
    tuned = lv.finetune("classify", tmp_path / "run", train=examples, **settings)
    assert tuned.bundle.objectives[0].pool == "last"
    assert tuned.predict("the name is returned").label in ("value", "name")


def test_an_encoder_without_two_streams_and_a_packing_without_orders_are_refused_when_read():
    with pytest.raises(RecipeError, match=r'set model\.type = "xlnet"'):
        read_recipe("xlnet", settings=["model.type=transformer"])
    with pytest.raises(RecipeError, match=r'needs an order of the tokens.*set corruption\.type = "permutation"'):
        read_recipe("xlnet", settings=["corruption.type=tokens"])


@pytest.mark.proof
def test_two_processes_give_the_losses_of_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "text.txt").write_text("\n\n".join(d.text for d in itertools.islice(embedded_documents("train"), 40)))
    settings = [*SETTINGS, STILL, "tokenizer.size=600"]
    command = [sys.executable, "-m", "larvatus", "pretrain", "xlnet", "--corpus", "text.txt", "--steps", "4"]
    command += ["--microbatch", "128", *(word for setting in settings for word in ("--set", setting))]
    losses = []
    for count, name in ((1, "one"), (2, "two")):
        world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
        started = [
            warm.Popen(
                [*command, "--out", name],
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(world | {"RANK": str(rank)} if count > 1 else {})},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for rank in range(count)
        ]
        for process in started:
            _, fault = process.communicate(timeout=WATCHDOG_S)
            assert process.returncode == 0, fault.decode()
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        losses.append([line["loss"] for line in lines if "loss" in line and "step" in line])
    assert len(losses[0]) >= 4
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
