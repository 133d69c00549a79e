"""A run with a generator: the same whatever the microbatch, resumed bit for bit, evaluated alike, saved whole."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import larvatus as lv
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.loader import Loader
from larvatus.data.corruption import Corruption, MaskVocabulary
from larvatus.evaluation.compare.languages import held_out_text
from larvatus.interfaces.cli.main import run as command
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.network import Network
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.optimizer import adamw
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.reporter import Reporter, flops_per_token
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.evaluation import ObjectiveScore, evaluate
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.run import train
from larvatus.training.pretraining.step import Stepper, predictions
from tests.shared import SMALL

SETTINGS = (
    *(setting for setting in SMALL if not setting.startswith("phases.1")),
    "model.embedding=16",
    "model.layers=2",
    "objectives.replaced-tokens.generator=0.5",
)


@pytest.fixture
def run_electra(prepared, tmp_path):
    def run(name, *, steps=4, console=None, **options):
        job = PretrainingJob(
            recipe=read_recipe("electra", settings=SETTINGS),
            out=tmp_path / name,
            runtime=Runtime(),
            budget=Budget(steps=steps),
            **options,
        )
        return train(job, lambda: prepared, Reporter(console))

    return run


def batches(prepared, *, tokens, workers=0):
    corpus, recipe = Corpus.open(prepared.train), read_recipe("electra", settings=SETTINGS)
    known = corpus.tokenizer
    vocabulary = MaskVocabulary(mask_id=known.mask_id, size=known.size, special_ids=known.special_ids)
    corruption = Corruption(recipe.corruption, vocabulary, 1)
    return Loader(
        corpus, packing=recipe.packing, length=32, corruption=corruption, tokens=tokens, seed=1, workers=workers
    )


def test_the_microbatch_changes_neither_losses_nor_weights(prepared):
    recipe = read_recipe(
        "electra", settings=[*SETTINGS, "model.dropout=0.0", "model.attention_dropout=0.0", "model.init=0.1"]
    )
    size = Corpus.open(prepared.train).tokenizer.size
    steppers = []
    for microbatch in (16_384, 100):
        model = Network.build(recipe.model, recipe.objectives, size, seed=0)
        runtime = Runtime(microbatch=microbatch)
        optimizer = adamw(model, recipe.optimizer)
        steppers.append(Stepper(model, optimizer, recipe, runtime=runtime, ranks=Ranks(), seed=1, pad_id=0))
    for step, (batch, _) in zip(range(3), batches(prepared, tokens=512).steps(), strict=False):
        a, b = (stepper(batch, step=step, rate=1e-3, limit=32) for stepper in steppers)
        assert a.losses == pytest.approx(b.losses, rel=1e-4)
        assert a.gradient == pytest.approx(b.gradient, rel=1e-3)
        assert a.loss == pytest.approx(a.losses["masked-lm"] + 50 * a.losses["replaced-tokens"])
        assert predictions(steppers[0].model, batch)["replaced-tokens"] == batch.tokens.size
    states = [stepper.model.state_dict() for stepper in steppers]
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor, rtol=1e-3, atol=5e-4)


def test_a_stopped_run_resumed_ends_bit_equal_generator_included(run_electra, tmp_path):
    run_electra("whole", steps=6)
    run_electra("parts", steps=6, save_every=3)
    newest = tmp_path / "parts" / "checkpoints" / "step-00000006"
    stored = load_file(newest / "model.safetensors")
    assert "generator.encoder.blocks.0.attention.qkv.weight" in stored
    assert "generator.encoder.embeddings.words.weight" not in stored  # shared, so kept once
    shutil.rmtree(newest)
    run_electra("parts", steps=6, resume=True)
    for folder in ("", "generator"):
        a, b = (load_file(tmp_path / name / folder / "model.safetensors") for name in ("whole", "parts"))
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_leaves_a_discriminator_a_generator_and_a_card_that_says_so(run_electra, tmp_path):
    results = run_electra("run")
    score = results[32].scores["replaced-tokens"]
    assert score.count == results[32].tokens > score.count * score.guess_accuracy > 0.5 * score.count
    assert "replaced-tokens loss" in str(results[32])
    assert f"(constant guess {score.guess_accuracy:.1%})" in str(results[32])
    config, inner = (json.loads((tmp_path / "run" / f / "config.json").read_text()) for f in ("", "generator"))
    assert (config["architectures"], config["hidden_size"]) == (["ElectraForPreTraining"], 32)
    assert (inner["architectures"], inner["hidden_size"]) == (["ElectraForMaskedLM"], 16)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "pipeline_tag" not in card
    for words in ("AutoModelForPreTraining", "`generator/`", "accuracy of a constant guess", "model.fill("):
        assert words in card
    model = lv.load(tmp_path / "run", device="cpu")
    assert (model.encoder.config.hidden, list(model.network.heads)) == (32, ["masked-lm", "replaced-tokens"])
    assert len(model.fill("The value of the [MASK] is returned.", top=3)) == 3


def test_evaluating_text_gives_the_loss_of_the_generator_as_transformers_computes_it(
    run_electra, prepared, tmp_path, capsys
):
    """`larvatus evaluate DIR --corpus`: the discriminator has no words to predict, the generator beside it has."""
    run_electra("run")
    with pytest.raises(SystemExit) as ended:
        command(["evaluate", str(tmp_path / "run"), "--corpus", str(prepared.valid), "--tokens", "1024", "--json"])
    assert ended.value.code == 0
    row = json.loads(capsys.readouterr().out)[-1]
    generator = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "run" / "generator").eval()
    total = count = 0
    for batch in held_out_text(load_bundle(tmp_path / "run"), Corpus.open(prepared.valid), tokens=1024):
        ids, hidden = torch.tensor(batch.tokens.ids), batch.targets[MaskedTokens]
        with torch.inference_mode():
            logits = torch.cat([generator(part[None]).logits[0] for part in ids.split(batch.tokens.lengths.tolist())])
        total += float(cross_entropy(logits[hidden.places], torch.tensor(hidden.ids), reduction="sum"))
        count += len(hidden.ids)
    assert row["hidden"] == count
    assert row["loss"] == pytest.approx(total / count, rel=1e-4)
    with pytest.raises(SystemExit):
        command(["evaluate", str(tmp_path / "run"), "--corpus", str(prepared.valid), "--tokens", "1024"])
    assert "predicted by the generator" in capsys.readouterr().out


def test_an_evaluation_draws_the_same_samples_every_time(prepared):
    recipe = read_recipe("electra", settings=[*SETTINGS, "model.init=0.1", "model.dropout=0.5"])
    model = Network.build(recipe.model, recipe.objectives, Corpus.open(prepared.train).tokenizer.size, seed=0)
    found = []
    for seed in (1, 2):  # of torch's own generator, which decides nothing here
        torch.manual_seed(seed)
        steps = batches(prepared, tokens=512).evaluation(4_096)
        found.append(evaluate(model, steps, runtime=Runtime(), limit=32))
    assert found[0] == found[1]
    assert 0.1 < 1 - found[0].scores["replaced-tokens"].guess_accuracy < 0.2


def test_the_guess_of_a_yes_or_no_objective_is_the_commoner_answer_and_the_entropy():
    score = ObjectiveScore.of(loss=30.0, right=90, count=100, positive=20.0)
    assert (score.loss, score.accuracy, score.guess_accuracy) == (0.3, 0.9, 0.8)
    assert score.guess_loss == pytest.approx(0.500402)
    assert ObjectiveScore.of(loss=0.0, right=4, count=4, positive=0.0).guess_loss == 0.0
    assert ObjectiveScore.of(loss=1.0, right=1, count=4, positive=None).guess_loss is None


def test_the_generator_counts_in_the_work_of_a_token():
    recipe = read_recipe("electra", settings=SETTINGS)
    model = Network.build(recipe.model, recipe.objectives, 1_000, seed=0)
    generator = model.generator
    whole = flops_per_token(model, recipe, 32)
    model.generator = None
    own = flops_per_token(model, recipe, 32)
    layers = [*generator.encoder.blocks, generator.encoder.embeddings.project]
    weights = sum(parameter.numel() for layer in layers for parameter in layer.parameters())
    assert whole - own == 6 * weights + 12 * 16 * 32 * 2  # and attention: 2 layers of 16 over 32 tokens
