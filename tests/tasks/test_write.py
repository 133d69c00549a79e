"""Text to text with a tiny encoder–decoder: the loss and the texts of `transformers` from strings on both sides, labels
that are learnt as words, a run that is stopped and continues, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Place
from larvatus.data.text.vocabularies import UnigramConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.heads.writing import TextToTextConfig
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.objectives import CausalLMConfig, DenoisingConfig
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.trainer.trainable import TrainableConfig, trainable
from larvatus.tasks.write.encode import encode_pairs
from larvatus.tasks.write.evaluation import resampled_texts, writing_scores, written_loss
from larvatus.tasks.write.reader import WritingExample, read_pairs
from larvatus.tasks.write.task import check_writes
from tests.made_up import Call
from tests.tasks.test_run import assert_bit_equal, signal_at
from tests.tiny import save_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

RIVERS = [(f"the {what} was {how}", how) for what in ("river", "bank", "rain", "sea") for how in ("wide", "deep")]
LABELLED = [(text, "wet" if how == "deep" else "dry") for text, how in RIVERS] * 6
WORDS = "weather text: the river bank rain sea was wide deep wet dry yes no premise hypothesis question context . , "
QUICK = ("--epochs", 6, "--batch", 8, "--rate", 0.01, "--device", "cpu")


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a tiny T5 with random weights."""
    out = tmp_path_factory.mktemp("t5") / "model"
    unigram = UnigramConfig(size=260, frame="t5")
    tokenizer = train_vocabulary([WORDS] * 4, unigram, allow_smaller=True)
    config = EncoderDecoderConfig(layers=2, hidden=32, heads=2, max_positions=40, dropout=0.0)
    network = Network.build(config, [DenoisingConfig()], tokenizer.size, seed=1)
    save_model(out, network, tokenizer, [DenoisingConfig()])
    return out


@pytest.fixture(scope="module")
def labeller(t5: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuned to write wet or dry, through Python."""
    out = tmp_path_factory.mktemp("labeller") / "tuned"
    lv.finetune(
        "write", t5, train=LABELLED, dev=LABELLED[:8], prefix="weather:", out=out,
        label_words={"wet": "wet", "dry": "dry"}, epochs=6, batch=8, rate=0.01, device="cpu",
    )  # fmt: skip
    return out


def write_tsv(path: Path, rows: list[tuple[str, ...]], *header: str) -> Path:
    path.write_text("\n".join("\t".join(row) for row in [header, *rows]) + "\n", encoding="utf-8")
    return path


def test_the_loss_is_that_of_transformers_from_the_same_texts(t5: Path) -> None:
    bundle = load_bundle(t5)
    config = TextToTextConfig(prefix="text:")
    examples = [WritingExample(text, None, (target,), Place("pairs", n)) for n, (text, target) in enumerate(LABELLED)]
    ready, taken = attach_head(bundle, config, seed=0)
    pairs = encode_pairs(ready, examples[:6], config, WindowOptions.of(ready))
    assert taken == ()
    assert not list(ready.network.objectives.parameters())
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(t5).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(t5)
    read = tokenizer([f"text: {e.text}" for e in examples[:6]], return_tensors="pt", padding=True)
    labels = tokenizer([e.targets[0] for e in examples[:6]], return_tensors="pt", padding=True)["input_ids"]
    labels[labels == tokenizer.pad_token_id] = -100
    with torch.no_grad():
        loss = theirs(input_ids=read["input_ids"], attention_mask=read["attention_mask"], labels=labels).loss
    assert written_loss(ready.network, pairs, ScoringOptions()) == pytest.approx(float(loss), rel=1e-5)


def test_both_sides_learn_and_a_head_that_reads_leaves_the_decoder(t5: Path) -> None:
    ready, _ = attach_head(load_bundle(t5), TextToTextConfig(), seed=0)
    trainable(ready.network, TrainableConfig.read("all"), decay=0.0, seed=0)
    assert all(parameter.requires_grad for parameter in ready.network.parameters())
    trainable(ready.network, TrainableConfig.read("last1"), decay=0.0, seed=0)
    learning = {name.split(".")[1] for name, p in ready.network.named_parameters() if p.requires_grad}
    assert learning == {"blocks", "decoder", "final_norm"}
    reader, _ = attach_head(load_bundle(t5), ClassificationConfig(labels=("no", "yes")), seed=0)
    trainable(reader.network, TrainableConfig.read("all"), decay=0.0, seed=0)
    assert not any(parameter.requires_grad for parameter in reader.network.encoder.decoder.parameters())  # type: ignore[union-attr]


def test_labels_are_learnt_as_words_and_the_directory_is_a_t5(labeller: Path) -> None:
    model = lv.load(labeller, device="cpu")
    texts = [text for text, _ in RIVERS]
    answers: Any = model(texts)
    assert isinstance(answers[0], lv.Written)
    assert [answer.written for answer in answers] == [label for _, label in LABELLED[:8]]
    assert all(answer.ended == "end" and answer.coverage.share == 1 for answer in answers)
    assert str(answers[0]) == answers[0].to_dict()["written"]
    alone: Any = [model(text) for text in texts]
    np.testing.assert_allclose([a.log_probability for a in alone], [a.log_probability for a in answers], atol=1e-4)
    searched: Any = model(texts, beams=3)
    assert [answer.written for answer in searched] == [answer.written for answer in answers]
    evaluation: Any = lv.evaluate(labeller, data=LABELLED, samples=50, device="cpu")
    assert list(evaluation.metrics) == ["accuracy", "macro-f1"]
    assert evaluation.metrics["accuracy"].value == evaluation.metrics["macro-f1"].value == 1
    config = json.loads((labeller / "config.json").read_text())
    assert config["architectures"] == ["T5ForConditionalGeneration"]
    assert config["larvatus_head"]["prefix"] == "weather:"
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(labeller).eval()
    assert type(theirs).__name__ == "T5ForConditionalGeneration"
    tokenizer = transformers.AutoTokenizer.from_pretrained(labeller)
    ours: Any = model.generate([f"weather: {text}" for text in texts], max_tokens=8)
    for text, generated in zip(texts, ours, strict=True):
        ids = tokenizer(f"weather: {text}", return_tensors="pt")["input_ids"]
        row = theirs.generate(ids, do_sample=False, num_beams=1, max_new_tokens=8)[0, 1:].tolist()
        assert tuple(row) == generated[0].ids
        assert tokenizer.decode(row, skip_special_tokens=True).strip() == model(text).written  # type: ignore[attr-defined]


def test_free_texts_are_written_through_the_commands_and_a_stopped_run_goes_on_to_the_same_weights(
    t5: Path, tmp_path: Path, larvatus: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    nouns, sizes = ("river", "bank", "rain", "sea", "question", "text"), ("wide", "deep", "wet", "dry")
    rows = [(f"the {noun} was {size}", f"{noun} {size}") for noun in nouns for size in sizes]
    train = write_tsv(tmp_path / "train.tsv", rows, "source", "target")
    options = ("finetune", "write", "--model", t5, "--train", train, "--dev", train, *QUICK, "--epochs", 15)
    code, out, err = larvatus(*options, "--out", tmp_path / "whole")
    assert code == 0, err
    assert "text = source, target = target" in out + err
    assert "the model's own denoising head" in out + err
    with monkeypatch.context() as patch:
        signal_at(patch, 5)
        assert larvatus(*options, "--out", tmp_path / "parts")[0] == 75
    assert larvatus(*options, "--out", tmp_path / "parts", "--resume")[0] == 0
    assert_bit_equal(tmp_path / "whole", tmp_path / "parts")
    code, out, err = larvatus("evaluate", tmp_path / "whole", "--data", train, "--json", "--beams", 2)
    assert code == 0, err
    metrics = json.loads(out)["metrics"]
    assert set(metrics) == {"f1", "exact-match", "squad-exact"}
    assert metrics["f1"]["value"] > 0.5
    code, out, err = larvatus("predict", tmp_path / "whole", "--file", train, "--device", "cpu", "--json")
    assert (code, "text = source" in err, "target" in err) == (0, True, False)
    assert [json.loads(line)["text"] for line in out.splitlines()] == [text for text, _ in rows]
    assert larvatus("evaluate", tmp_path / "whole", "--data", train)[0] == 0


def test_pairs_questions_and_lists_are_read_under_the_names_of_their_columns(tmp_path: Path) -> None:
    pairs = write_tsv(
        tmp_path / "mnli.tsv", [("a", "b", "yes"), ("c", "d", "no")] * 4, "premise", "hypothesis", "label"
    )
    data = read_pairs(pairs)
    assert data.label_names() == ("no", "yes")
    example = data.examples[0]
    config = TextToTextConfig(prefix="mnli", parts=example.parts or ())
    assert config.read_as(example.text, example.pair) == "mnli premise: a hypothesis: b"
    answers = [{"text": "river", "answer_start": 4}, {"text": "the river", "answer_start": 0}]
    paragraph = {"context": "the river", "qas": [{"id": "q", "question": "what?", "answers": answers}]}
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": [paragraph]}]}, indent=1))
    (question,) = read_pairs(squad)
    assert (question.text, question.pair, question.targets) == ("what?", "the river", ("river", "the river"))
    assert question.parts == ("question", "context")
    lists = tmp_path / "rows.jsonl"
    lists.write_text('{"document": "a b c", "summary": ["a", "b"]}\n{"document": "d e", "summary": "d"}\n')
    assert [example.targets for example in read_pairs(lists)] == [("a", "b"), ("d",)]


def test_scores_of_texts_and_of_classes_by_hand() -> None:
    texts = writing_scores(resampled_texts([("The cat",), ("a b", "c d")], ["cat.", "c d"], classes=()))
    assert texts == {"f1": 1.0, "exact-match": 0.5, "squad-exact": 1.0}
    golds = [("yes",), ("yes",), ("no",), ("maybe",)]
    classes = writing_scores(resampled_texts(golds, ["yes", "perhaps", "yes", "no"], classes=("no", "yes")))
    # yes: 1 right of 2 written and 2 gold; no: written once, gold once, never right; maybe: gold once
    assert classes == {"accuracy": 0.25, "macro-f1": pytest.approx((0.5 + 0 + 0) / 3)}


def test_what_cannot_be_learnt_is_refused_in_a_line(
    t5: Path, tiny_directory: Path, labeller: Path, tmp_path: Path, larvatus: Call
) -> None:
    train = write_tsv(tmp_path / "train.tsv", RIVERS * 3, "text", "target")

    def refused(path: Path, *options: Any, model: Path = t5) -> str:
        command = ("finetune", "write", "--model", model, "--train", path, "--no-dev", "--out", tmp_path / "out")
        code, _, err = larvatus(*command, *options, *QUICK)
        assert code not in (0, 1)
        assert len(err.strip().splitlines()[-1]) > 20
        return err

    assert "needs an encoder with a decoder, a model of the recipe t5" in refused(train, model=tiny_directory)
    assert "no separate head" in refused(train, "--trained", "head")
    empty = write_tsv(tmp_path / "empty.tsv", [*RIVERS, ("the river", "")], "text", "target")
    assert "empty.tsv:10: target is empty" in refused(empty)
    blank = write_tsv(tmp_path / "blank.tsv", [*RIVERS, (" ", "deep")], "text", "target")
    assert "blank.tsv:10: text is empty" in refused(blank)
    long = write_tsv(tmp_path / "long.tsv", [*RIVERS, ("the river " * 40, "deep")], "text", "target")
    assert "long.tsv:10 has" in refused(long)
    assert "shorten or drop it" in refused(
        write_tsv(tmp_path / "far.tsv", [("the", "river " * 60)] * 8, "text", "target")
    )
    assert "has no word" in refused(train, "--label-word", "wide=yes")
    assert "not LABEL=WORD" in refused(train, "--label-word", "wide")
    words = ("--label-word", "wide=zürich", "--label-word", "deep=no")
    assert "the vocabulary writes the label 'zürich' as" in refused(train, *words)
    code, _, err = larvatus("predict", labeller, "the river", "--pair", "the bank", "--device", "cpu")
    assert code != 0
    assert "the model was trained to read single texts" in err
    problems = Problems()
    assert len(read_pairs(empty, problems=problems)) == len(RIVERS)
    assert problems.counts == {"empty text": 1}
    with pytest.raises(DataError, match="reads 40 at once"):
        lv.load(labeller, device="cpu").predict("the river " * 40)
    cut: Any = lv.load(labeller, device="cpu").predict("the river " * 40, truncate=True)
    assert cut.coverage.read < cut.coverage.tokens


def test_a_left_to_right_model_is_refused(t5: Path) -> None:
    bundle = load_bundle(t5)
    config = CausalTransformerConfig(layers=1, hidden=16, heads=2)
    network = Network.build(config, [CausalLMConfig()], bundle.tokenizer.size, seed=1)
    with pytest.raises(UsageError, match="not fine-tuned from text to text here"):
        check_writes(dataclasses.replace(bundle, network=network))
