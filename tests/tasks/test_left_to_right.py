"""Fine-tuning a left-to-right model as GPT was (Radford et al. 2018): start, delimiter and extract token, the loss of
the language model beside that of the task, and every task through the same calls as for other encoders."""

from __future__ import annotations

import itertools
import json
import signal
import sys

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.pretraining_targets import NextTokens, add_text_targets
from larvatus.core.targets import ClassTargets
from larvatus.data.text.special_tokens import NAMES, add_delimiters, encode_batch, has_delimiters
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, train_vocabulary
from larvatus.interfaces.cli.main import run as command
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import CausalLM, CausalLMConfig
from larvatus.tasks.trainer.causal import task_and_lm_loss, with_delimiters
from tests import made_up, warm
from tests.tasks.test_run import KILLED, assert_bit_equal, signal_at
from tests.tiny import save_model

TEXTS = [f"the {what} was {how} at {n}" for n in range(6) for what in ("river", "bank") for how in ("wide", "deep")]
CLASSES = [(text, "yes" if "wide" in text else "no") for text in TEXTS]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """A directory of a tiny GPT with random weights, whose vocabulary only ends texts."""
    out = tmp_path_factory.mktemp("gpt") / "model"
    tokenizer = train_vocabulary(TEXTS, BPEConfig(size=120, frame="gpt"), allow_smaller=True)
    config = CausalTransformerConfig(layers=2, hidden=32, heads=2, max_positions=48, init=0.1)
    network = Network.build(config, [CausalLMConfig()], tokenizer.size, seed=1)
    save_model(out, network, tokenizer, [CausalLMConfig()])
    return out


def test_the_vocabulary_gets_three_tokens_that_start_where_others_stood(gpt):
    bundle = load_bundle(gpt)
    ready = with_delimiters(bundle)
    start, delimiter, extract = (ready.tokenizer.id(name) for name in NAMES)
    template = ready.tokenizer.template
    assert (start, delimiter, extract) == tuple(range(bundle.tokenizer.size, bundle.tokenizer.size + 3))
    assert template.single.gaps == ((start,), (extract,))
    assert template.pair.gaps == ((start,), (delimiter,), (extract,))
    assert template.single.summary == template.pair.summary == -1
    before, after = (b.network.encoder.word_vectors for b in (bundle, ready))
    assert torch.equal(after[: len(before)], before)
    end = bundle.tokenizer.id("</s>")
    assert torch.equal(after[delimiter], before[end])
    assert torch.equal(after[extract], before[end])
    assert after[start].std() > 0.05  # nothing stood before a text: it is drawn
    assert has_delimiters(ready.tokenizer)
    assert not has_delimiters(bundle.tokenizer)
    assert with_delimiters(ready) is ready
    for text in TEXTS[:3]:
        assert ready.tokenizer.encode(text).ids.tolist() == bundle.tokenizer.encode(text).ids.tolist()


def test_a_byte_level_vocabulary_keeps_its_offsets():
    tokenizer = train_vocabulary(TEXTS, ByteBPEConfig(size=290, frame="gpt"), allow_smaller=True)
    text = "the river — was  wide"
    assert np.array_equal(add_delimiters(tokenizer).tokenizer.encode(text).spans, tokenizer.encode(text).spans)


def test_a_classifier_is_trained_saved_and_predicts_from_its_last_token(gpt, tmp_path):
    tuned = lv.finetune(
        "classify", gpt, train=CLASSES, out=tmp_path / "run", epochs=12, batch=8, rate=3e-3, hold_out=False
    )
    again = lv.load(tmp_path / "run", device="cpu")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["architectures"] == ["OpenAIGPTForSequenceClassification"]
    assert again.bundle.objectives[0].pool == "last"
    assert again.bundle.objectives[0].bias is False
    answers = [result.label for result in again.predict([text for text, _ in CLASSES])]
    assert sum(a == b for a, (_, b) in zip(answers, CLASSES, strict=True)) >= 22
    assert [r.label for r in tuned.predict([text for text, _ in CLASSES])] == answers
    settings = json.loads((tmp_path / "run" / "larvatus.json").read_text())["lineage"]["settings"]
    assert settings["lm_weight"] == 0.5
    more = lv.finetune("classify", again, train=CLASSES, out=tmp_path / "more", epochs=1, hold_out=False)
    assert more.tokenizer.size == again.tokenizer.size  # nothing is added twice


def test_the_loss_is_the_task_s_and_half_that_of_the_next_tokens(gpt):
    bundle = with_delimiters(load_bundle(gpt))
    head_config = ClassificationConfig(labels=("no", "yes"), pool="last", dense="none", bias=False, dropout=0.0)
    ready, _ = attach_head(bundle, head_config, seed=3)
    network, tokens = ready.network.eval(), encode_batch(ready.tokenizer, TEXTS[:4])
    labels = ClassTargets(labels=np.array([0, 1, 0, 1]), weights=np.ones(4, np.float32))
    batch = on_device(
        add_text_targets(TrainingBatch(tokens=tokens, targets={ClassTargets: labels}), (NextTokens,)), "cpu"
    )
    words = CausalLM(CausalLMConfig(weight=0.5))
    with torch.no_grad():
        of_task, of_words = task_and_lm_loss(network, batch, network.heads["classification"], words, limit=None)
        z = network.encoder(batch.tokens)
        total, of_classes, first = 0.0, 0.0, 0
        for number, length in enumerate(tokens.lengths.tolist()):
            row, states = tokens.ids[first : first + length], z[first : first + length]
            log_p = (states[:-1] @ network.encoder.word_vectors.T).log_softmax(-1)
            total -= float(log_p[range(length - 1), row[1:]].sum())
            scores = network.heads["classification"].classifier.weight @ states[-1]
            of_classes -= float(scores.log_softmax(-1)[int(labels.labels[number])])
            first += length
    assert float(of_task.total) == pytest.approx(of_classes, rel=1e-4)
    assert float(of_words.total) == pytest.approx(total, rel=1e-4)
    assert of_words.weight == 0.5


def test_the_language_model_is_kept_by_its_loss_and_forgotten_without(gpt, tmp_path):
    """Its loss on the texts of the task falls only where it is learnt beside."""
    ends = {}
    for weight in (0.0, 0.5):
        tuned = lv.finetune(
            "classify", gpt, train=CLASSES, out=tmp_path / str(weight), epochs=4, rate=3e-3, lm_weight=weight,
            hold_out=False,
        )  # fmt: skip
        encoder, tokenizer = tuned.encoder, tuned.tokenizer
        tokens = encode_batch(tokenizer, TEXTS)
        targets = NextTokens.of_text(tokens)
        with torch.no_grad():
            z = encoder(on_device(tokens, "cpu"))[torch.from_numpy(targets.places)]
            log_p = (z @ encoder.word_vectors.T).log_softmax(-1)
        ends[weight] = -float(log_p[range(len(targets.ids)), targets.ids].mean())
    assert ends[0.5] < ends[0.0] - 1.0


def test_every_task_runs(gpt, tmp_path):
    quick = {"epochs": 1, "hold_out": False}
    tagged = [(text.split(), ["O", "B-PLACE", "O", "O", "O", "O"]) for text in TEXTS]
    tagger = lv.finetune("tag", gpt, train=tagged, out=tmp_path / "tag", **quick)
    assert len(tagger.predict("the river was wide").tags) == 4
    choices = [("the river was", ("wide", "bank"), 0), ("the bank was", ("river", "deep"), 1)] * 4
    chooser = lv.finetune("choose", gpt, train=choices, out=tmp_path / "choose", **quick)
    assert chooser.bundle.objectives[0].pool == "last"
    assert chooser.bundle.objectives[0].dense == "none"
    assert chooser.predict(("the river was", ("wide", "bank"))).choice in (0, 1)
    found = [{"text": text, "spans": [{"start": 4, "end": 9, "label": "PLACE"}]} for text in TEXTS if "river" in text]
    finder = lv.finetune("spans", gpt, train=found, out=tmp_path / "spans", **quick)
    assert finder.predict("the river was wide").coverage.read == 4
    asked = [
        {"question": "where?", "context": text, "answers": {"text": ["river"], "answer_start": [4]}, "id": str(n)}
        for n, text in enumerate(TEXTS)
        if "river" in text
    ]
    answerer = lv.finetune("answer", gpt, train=asked, out=tmp_path / "answer", **quick)
    assert answerer.predict(("where?", "the river was wide")).question == "where?"
    pairs = [(a, b, "yes" if n % 2 else "no") for n, (a, b) in enumerate(itertools.pairwise(TEXTS))]
    matcher = lv.finetune("classify", gpt, train=pairs, out=tmp_path / "pairs", **quick)
    assert matcher.predict(("the river was wide", "the bank was deep")).label in ("yes", "no")


def test_lm_weight_is_refused_where_there_is_no_language_model(gpt, tmp_path, tiny_model, save_tiny, capsys):
    bert = save_tiny(tmp_path / "bert", tiny_model())
    with pytest.raises(UsageError, match="lm_weight keeps the language-model loss of a left-to-right model"):
        lv.finetune("classify", bert, train=CLASSES, out=tmp_path / "a", lm_weight=0.5)
    with pytest.raises(UsageError, match="only the head is"):
        lv.finetune("classify", gpt, train=CLASSES, out=tmp_path / "b", lm_weight=0.5, trained="head")
    with pytest.raises(UsageError, match=r"lm_weight = -1"):
        lv.finetune("classify", gpt, train=CLASSES, out=tmp_path / "c", lm_weight=-1)
    head = lv.finetune("classify", gpt, train=CLASSES, out=tmp_path / "d", trained="head", epochs=1, hold_out=False)
    assert head.predict(TEXTS[0]).label in ("yes", "no")
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(f"{t}\t{c}\n" for t, c in CLASSES))
    with pytest.raises(SystemExit) as ended:
        given = ["--model", str(gpt), "--train", str(tmp_path / "train.tsv"), "--out", str(tmp_path / "e")]
        command(["finetune", "classify", *given, "--lm-weight", "0.3", "--epochs", "1", "--no-dev", "--device", "cpu"])
    assert ended.value.code == 0
    settings = json.loads((tmp_path / "e" / "larvatus.json").read_text())["lineage"]["settings"]
    assert settings["lm_weight"] == 0.3


def test_lm_weight_is_refused_for_sentence_vectors(gpt, tmp_path):
    pairs = list(itertools.pairwise(TEXTS))
    quick: dict = {"epochs": 1, "hold_out": False, "rate": 1e-3}
    with pytest.raises(UsageError, match="finetune embed does not add the language-model loss; leave lm_weight out"):
        lv.finetune("embed", gpt, train=pairs, out=tmp_path / "a", lm_weight=0.5, **quick)
    model = lv.finetune("embed", gpt, train=pairs, out=tmp_path / "b", lm_weight=0.0, **quick)
    assert model.embed(TEXTS[:2]).shape[0] == 2
    lv.finetune("embed", gpt, train=pairs, out=tmp_path / "c", **quick)
    settings = json.loads((tmp_path / "c" / "larvatus.json").read_text())["lineage"]["settings"]
    assert "lm_weight" not in settings


def test_other_encoders_are_fine_tuned_as_before(tmp_path, tiny_model, save_tiny):
    """Neither their vocabulary nor what is written of their settings changes."""
    bert = save_tiny(tmp_path / "bert", tiny_model())
    tuned = lv.finetune("classify", bert, train=CLASSES, out=tmp_path / "run", epochs=1, hold_out=False)
    assert tuned.tokenizer.size == load_bundle(bert).tokenizer.size
    assert "lm_weight" not in json.loads((tmp_path / "run" / "larvatus.json").read_text())["lineage"]["settings"]
    assert "bias" not in (tmp_path / "run" / "config.json").read_text()


def test_a_stopped_run_goes_on_to_the_same_bits_with_the_language_model_s_loss(finetune, gpt, tmp_path, monkeypatch):
    """Another weight of it is another run."""
    train = made_up.classes(tmp_path / "train.jsonl")
    command = ("classify", "--train", train, *made_up.QUICK, "--lm-weight", 0.5)
    assert finetune(*command, "--out", tmp_path / "whole", model=gpt)[0] == 0
    with monkeypatch.context() as patched:
        signal_at(patched, 1)
        assert finetune(*command, "--out", tmp_path / "parts", model=gpt)[0] == 75
    code, _, said = finetune(*command[:-1], 0.25, "--out", tmp_path / "parts", "--resume", model=gpt)
    assert (code, "settings.lm_weight 0.5 (now 0.25)" in said) == (5, True)
    assert finetune(*command, "--out", tmp_path / "parts", "--resume", model=gpt)[0] == 0
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.proof
def test_a_killed_run_goes_on_to_the_same_bits_with_the_language_model_s_loss(gpt, tmp_path):
    """Each in a process of its own, as after a kill: what ran before in this one must not matter."""
    data = made_up.classes(tmp_path / "train.jsonl", 80)
    words = ["finetune", "classify", "--model", gpt, "--train", data, *made_up.QUICK, "--epochs", 3, "--out"]

    def run(*how, out, more=()):
        given = [sys.executable, *how, *map(str, (*words, tmp_path / out, *more))]
        return warm.run(given, capture_output=True, check=False)

    killed = run("-c", KILLED, out="parts")
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    for done in (run("-m", "larvatus", out="whole"), run("-m", "larvatus", out="parts", more=("--resume",))):
        assert done.returncode == 0, done.stderr.decode()
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")
