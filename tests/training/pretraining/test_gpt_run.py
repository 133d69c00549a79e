"""A run of gpt: resumed bit for bit, the same on two processes, and what its model can and cannot be asked."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

import larvatus as lv
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError, RecipeError, UsageError
from larvatus.data.corpus import build_corpus
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.vocabularies import BPEConfig, train_vocabulary
from larvatus.interfaces.cli.main import run as command
from larvatus.models.nn import on_device
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import train
from tests import warm
from tests.shared import SMALL

SETTINGS = tuple(setting for setting in SMALL if not setting.startswith("phases.1"))


@pytest.fixture(scope="module")
def running_text(tmp_path_factory):
    """Some documents of the embedded text as shards, in a vocabulary that only ends texts."""
    folder = tmp_path_factory.mktemp("running")
    documents = list(itertools.islice(embedded_documents("train"), 34))
    tokenizer = train_vocabulary((d.text for d in documents), BPEConfig(size=900, frame="gpt"))
    build_corpus(documents[:30], tokenizer, folder / "train")
    build_corpus(documents[30:], tokenizer, folder / "valid")
    return PreparedCorpus(train=folder / "train", valid=folder / "valid")


@pytest.fixture(scope="module")
def run_gpt(running_text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")

    def run(name, *, steps=6, **options):
        job = PretrainingJob(
            recipe=read_recipe("gpt", settings=SETTINGS),
            out=folder / name,
            runtime=Runtime(),
            budget=Budget(steps=steps),
            **options,
        )
        return folder / name, train(job, lambda: running_text, Reporter())

    return run


@pytest.fixture(scope="module")
def trained(run_gpt):
    return run_gpt("whole")


def test_a_stopped_run_resumed_ends_bit_equal(run_gpt, trained):
    whole, _ = trained
    parts, _ = run_gpt("parts", save_every=3)
    newest = parts / "checkpoints" / "step-00000006"
    shutil.rmtree(newest)
    run_gpt("parts", resume=True)
    a, b = (load_file(out / "model.safetensors") for out in (whole, parts))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_held_out_loss_of_next_tokens_is_told_with_its_perplexity(trained):
    _, results = trained
    said = str(results[32])
    assert "causal-lm loss" in said
    assert "perplexity" in said
    assert "unigram guess" in said


@pytest.mark.proof
def test_two_processes_have_the_losses_of_one(running_text, tmp_path):
    losses = []
    for ranks in (1, 2):
        run = [sys.executable, "-m", "larvatus"]
        if ranks == 2:
            run[1:3] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "larvatus"]
        out = tmp_path / str(ranks)
        run += ["pretrain", "gpt", "--corpus", str(running_text.train), "--valid", str(running_text.valid)]
        run += ["--out", str(out), "--steps", "3", "--device", "cpu", "--microbatch", "128"]
        for setting in (*SETTINGS, "model.dropout=0.0", "model.attention_dropout=0.0"):
            run += ["--set", setting]
        done = warm.run(run, env={**os.environ, warm.NESTED: "all"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses.append([line["loss"] for line in lines if line["kind"] == "train"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_text_is_scored_by_its_exact_likelihood_in_windows_too(trained):
    model = lv.load(trained[0], device="cpu")
    text = "the value of the list is returned. " * 20
    score = model.score(text)
    assert score.method == "left-to-right"
    ids = model.tokenizer.encode(text).ids.tolist()
    assert len(ids) > 2 * model.encoder.reach
    end = model.tokenizer.id("</s>")
    row = [end, *ids]

    def loss_of(context, wanted):
        with torch.no_grad():
            z = model.encoder(on_device(TokenBatch.of([context]), "cpu"))[-1]
            return float((z @ model.encoder.word_vectors.T).log_softmax(-1)[wanted])

    for place in (0, 1, 30, 63, 64, 100, len(ids) - 1):
        half = model.encoder.reach // 2  # of a window of 64; the first one that reads the token scores it
        start = max(0, -(-(place + 1 - 63) // half)) * half
        assert score.tokens[place].score == pytest.approx(loss_of(row[start : place + 1], ids[place]), abs=1e-4)
    assert model.score("the").total == pytest.approx(loss_of([end], model.tokenizer.encode("the").ids[0]), abs=1e-4)


def test_what_it_cannot_do_is_said_in_one_line(trained, capsys):
    model = lv.load(trained[0], device="cpu")
    with pytest.raises(ArtefactError, match=r"reads left to right and has no masked-lm head.*larvatus generate"):
        model.fill("the <mask> of the list")
    with pytest.raises(UsageError, match="word-l2r is for masked language models"):
        model.score("the list", method="word-l2r")
    with pytest.raises(SystemExit) as ended:
        command(["fill", "the <mask> of the list", "--model", str(trained[0])])
    assert ended.value.code == 5
    assert "larvatus generate" in capsys.readouterr().err


def test_what_a_text_is_embedded_as_is_its_last_token(trained):
    model = lv.load(trained[0], device="cpu")
    assert model.tokenizer.template.single.gaps == ((), (model.tokenizer.id("</s>"),))
    vectors = model.embed(["the list is returned", "the list"], unit="word")
    assert torch.equal(torch.tensor(vectors[0][:2]), torch.tensor(vectors[1]))  # words do not know what follows


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.type=transformer"], "norm|residual|causal-lm"),
        (['corruption={type="tokens"}'], "causal-lm predicts the text as it is"),
        (["model.max_positions=100"], "length 512 does not fit"),
    ],
)
def test_a_recipe_that_cannot_work_is_refused(settings, said):
    with pytest.raises(RecipeError, match=said):
        read_recipe("gpt", settings=settings)


def test_its_heads_are_worth_what_its_next_tokens_lose(trained, running_text, capsys):
    with pytest.raises(SystemExit) as ended:
        words = ["attention", "importance", "--model", str(trained[0]), "--corpus", str(running_text.valid)]
        command([*words, "--tokens", "512", "--device", "cpu"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("next-token loss ")
    assert "1-2 " in said


def test_it_is_evaluated_on_text_by_its_next_tokens(trained, running_text, capsys):
    with pytest.raises(SystemExit) as ended:
        command(["evaluate", str(trained[0]), "--corpus", str(running_text.valid), "--tokens", "2048", "--json"])
    assert ended.value.code == 0
    row = json.loads(capsys.readouterr().out)[-1]
    assert row["loss"] < 7.5
    assert row["hidden"] > 0.9 * row["tokens"]  # all but the last of each sequence
