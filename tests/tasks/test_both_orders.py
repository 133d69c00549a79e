"""Pairs whose order means nothing, read in both orders by a left-to-right model (Radford et al. 2018, §3.3)."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import ClassTargets
from larvatus.data.labelled.glue import read_glue
from larvatus.data.labelled.records import Place, TextExample
from larvatus.data.text.vocabularies import BPEConfig, train_vocabulary
from larvatus.models.bundle.directory import save_bundle
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import CausalLMConfig
from larvatus.tasks.classify.classify import labelled_texts
from larvatus.tasks.encoding.sequences import WindowOptions, text_sequences
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, loss_of, score_sequences

TEXTS = [f"the {what} was {how} at {n}" for n in range(6) for what in ("river", "bank") for how in ("wide", "deep")]
PAIRS = [(a, b) for a, b in zip(TEXTS, TEXTS[5:] + TEXTS[:5], strict=True)]
SCORED = [(a, b, len({*a.split()} & {*b.split()}) + 0.5) for a, b in PAIRS]
QUICK = {"epochs": 2, "hold_out": False, "rate": 3e-3}


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """A directory of a tiny GPT with random weights and a context of 47 tokens, in which pairs have an odd room."""
    out = tmp_path_factory.mktemp("gpt") / "model"
    tokenizer = train_vocabulary(TEXTS, BPEConfig(size=120, frame="gpt"), allow_smaller=True)
    config = CausalTransformerConfig(layers=2, hidden=32, heads=2, max_positions=48, init=0.2)
    objectives = [CausalLMConfig()]
    network = Network.build(config, objectives, tokenizer.size, seed=1)
    about = {"recipe": None, "lineage": {}, "card": "# gpt\n"}
    save_bundle(out, network=network, objective_configs=objectives, tokenizer=tokenizer, **about)
    return out


@pytest.fixture(scope="module")
def similarity(gpt, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "similarity"
    lv.finetune("classify", gpt, train=SCORED, out=out, **QUICK)
    return lv.load(out, device="cpu")


def vector(model, first, second):
    """The last state of a pair, read by itself."""
    ids = model.tokenizer.template.pair.ids(*(model.tokenizer.encode(text).ids for text in (first, second)))
    with torch.no_grad():
        return model.encoder(on_device(TokenBatch.of([ids.tolist()]), "cpu"))[-1]


def test_a_number_for_a_pair_is_told_from_both_orders_added(similarity):
    assert similarity.bundle.objectives[0].both_orders is True
    assert similarity.bundle.objectives[0].pool == "last"
    (weights,) = similarity.bundle.network.heads["classification"].classifier.weight.detach()
    values = [result.value for result in similarity.predict(PAIRS)]
    assert np.std(values) > 0.01
    for (first, second), value in zip(PAIRS, values, strict=True):
        both = vector(similarity, first, second) + vector(similarity, second, first)
        assert value == pytest.approx(float(weights @ both), abs=1e-5)
    alone = [float(weights @ vector(similarity, *pair)) for pair in (PAIRS[0], PAIRS[0][::-1])]
    assert abs(alone[0] - alone[1]) > 1e-3  # the orders differ, or the test would show nothing


@pytest.mark.parametrize("truncate", [False, True])
def test_the_order_in_which_a_pair_is_given_changes_nothing(similarity, truncate):
    """Also where both texts are longer than fits, one is, or there is one text alone."""
    long = [(" ".join(TEXTS[:4]), " ".join(TEXTS[4:10])), (TEXTS[0], " ".join(TEXTS)), ("a", "at"), ("wide", "deep")]
    given = [*PAIRS, *long]
    there = [r.value for r in similarity.predict(given, truncate=truncate)]
    back = [r.value for r in similarity.predict([pair[::-1] for pair in given], truncate=truncate)]
    assert there == pytest.approx(back, abs=1e-6)
    coverage = similarity.predict([long[0]], truncate=truncate)[0].coverage
    assert (coverage.windows > 1) is not truncate
    assert np.isfinite(similarity.predict(TEXTS[0]).value)


def test_a_directory_that_transformers_would_misread_is_of_our_own_layout(similarity):
    config = json.loads((similarity.bundle.path / "config.json").read_text())
    assert config["model_type"] == "larvatus"


def test_evaluation_gives_the_scores_of_prediction(similarity):
    scores = lv.evaluate(similarity, data=SCORED)
    values = [result.value for result in similarity.predict(PAIRS)]
    error = np.sqrt(np.mean((np.array(values) - [score for *_, score in SCORED]) ** 2))
    assert scores.metrics["rmse"].value == pytest.approx(error, rel=1e-4)


def test_loss_and_size_count_a_pair_once_however_it_is_cut(similarity):
    """The mean squared error of all pairs, in one microbatch or in many, which never part two orders."""
    bundle = similarity.bundle
    head, network = bundle.network.heads["classification"], bundle.network.eval()
    examples = [TextExample(*row, place=Place("rows", number)) for number, row in enumerate(SCORED)]
    data = labelled_texts(bundle, examples, head.config, WindowOptions.of(bundle, length=None))
    batch = data.batch(np.arange(len(data)))
    assert batch.tokens.count == 2 * len(SCORED) == len(batch.targets[ClassTargets].labels)
    assert head.size(batch) == len(SCORED)
    totals = []
    for budget in (100_000, 60):
        parts = list(batch.split(budget))
        assert all(part.tokens.count % 2 == 0 for part in parts)
        with torch.no_grad():
            totals.append(sum(float(loss_of(network, on_device(part, "cpu"), head).total) for part in parts))
    values = np.array([result.value for result in similarity.predict(PAIRS)])
    squared = float(((values - [score for *_, score in SCORED]) ** 2).sum())
    assert totals == pytest.approx([squared, squared], rel=1e-4)
    scored = score_sequences(network, data.sequences, ScoringOptions(tokens=64))
    np.testing.assert_allclose(scored[:, 0], values, atol=1e-5)
    frozen = Features.build(network, data, ScoringOptions(tokens=64), learning=False).scores(head)
    np.testing.assert_allclose(frozen[:, 0], values, atol=1e-5)


def test_entailment_is_read_in_the_order_in_which_it_is_given(gpt, tmp_path):
    ordered = [(a, b, "yes" if n % 2 else "no") for n, (a, b) in enumerate(PAIRS)]
    tuned = lv.finetune("classify", gpt, train=ordered, out=tmp_path / "ordered", **QUICK)
    config = json.loads((tmp_path / "ordered" / "config.json").read_text())
    assert config["architectures"] == ["OpenAIGPTForSequenceClassification"]
    assert "both_orders" not in json.dumps(config)
    assert not tuned.bundle.objectives[0].both_orders
    one, other = (tuned.predict(pair).probabilities["yes"] for pair in (PAIRS[0], PAIRS[0][::-1]))
    assert abs(one - other) > 1e-4


def test_paraphrases_are_read_in_both_where_it_is_asked_and_from_then_on(gpt, tmp_path):
    same = [(a, b, "yes" if n % 2 else "no") for n, (a, b) in enumerate(PAIRS)]
    tuned = lv.finetune("classify", gpt, train=same, out=tmp_path / "a", both_orders=True, trained="head", **QUICK)
    one, other = (tuned.predict(pair).probabilities["yes"] for pair in (PAIRS[0], PAIRS[0][::-1]))
    assert one == pytest.approx(other, abs=1e-6)
    more = lv.finetune("classify", tuned, train=same, out=tmp_path / "b", **QUICK)
    assert more.bundle.objectives[0].both_orders is True
    less = lv.finetune("classify", gpt, train=SCORED, out=tmp_path / "c", both_orders=False, **QUICK)
    assert not less.bundle.objectives[0].both_orders


def test_an_encoder_that_sees_both_sides_does_so_only_where_it_is_asked(tiny_directory, tmp_path):
    plain = lv.finetune("classify", tiny_directory, train=SCORED, out=tmp_path / "plain", **QUICK)
    assert not plain.bundle.objectives[0].both_orders
    both = lv.finetune("classify", tiny_directory, train=SCORED, out=tmp_path / "both", both_orders=True, **QUICK)
    pair = ("the river was wide", "a bank of the river")
    assert both.predict(pair).value == pytest.approx(both.predict(pair[::-1]).value, abs=1e-6)


def test_both_orders_of_single_texts_are_refused(gpt, tmp_path):
    with pytest.raises(UsageError, match=r"both_orders is for pairs of texts, and .* has single ones; leave it out"):
        lv.finetune("classify", gpt, train=[("a", 1.5), ("b", 2.5)], out=tmp_path / "a", both_orders=True, **QUICK)


def test_tasks_of_glue_say_whether_their_order_means_anything(tmp_path):
    for name, symmetric in (("mrpc", True), ("rte", False)):
        rows = "".join(f"a\tb\t{label}\n" for label in ("0", "1") * 4)
        (tmp_path / name).mkdir()
        for split in ("train", "dev"):
            (tmp_path / name / f"{split}.tsv").write_text("sentence1\tsentence2\tlabel\n" + rows)
        assert read_glue(name, tmp_path).train.symmetric is symmetric


def test_sequences_of_one_window_are_neighbours_of_one_length(similarity):
    sequences = text_sequences(similarity.tokenizer, [*PAIRS, (" ".join(TEXTS), TEXTS[0])], limit=48, both_orders=True)
    assert sequences.parts[-1] > 1
    assert (sequences.lengths[0::2] == sequences.lengths[1::2]).all()
    assert (sequences.lengths <= 48).all()
    first = sequences.batch(sequences.of([1]))
    assert first.groups.tolist() == [2]
    assert sorted(first.ids[: first.lengths[0]]) == sorted(first.ids[first.lengths[0] :])
