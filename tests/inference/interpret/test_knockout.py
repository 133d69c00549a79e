"""Knockouts find the heads and neurons that a model was built to need, and no others."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError, UsageError
from larvatus.inference.interpret.importance import head_importance, zero_heads
from larvatus.inference.interpret.interventions import capture
from larvatus.inference.interpret.knockout import KnockoutOptions, knock_out
from larvatus.inference.interpret.outcomes import LabelledPair, MaskedTextOutcome, PairOutcome
from larvatus.inference.model import load
from larvatus.interfaces.api.causes import knockout
from larvatus.interfaces.api.evaluating import evaluate
from larvatus.models.heads.classification import ClassificationConfig
from larvatus.models.heads.tagging import TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.inference.interpret.test_importance import made_batches

NOUNS, VERBS = ("river", "bank"), ("was", "turn")


@pytest.fixture
def planted(tiny_tokenizer: Any) -> Network:
    """Two layers of two heads. Head 2 of layer 1 copies a word's number to all tokens, and the blank reads it.

    Of 16 dimensions, 0 holds the number of a noun (+1 or −1), and 8 receives it; the head predicts by 8. All other
    heads and neurons add nothing.
    """
    config = TransformerConfig(
        layers=2, hidden=16, heads=2, max_positions=32, norm="pre", segments=0, positions="rotary"
    )
    network = Network.build(config, (MaskedLMConfig(),), tiny_tokenizer.size, 0).eval()
    encoder, head = network.encoder, network.objectives["masked-lm"]
    with torch.no_grad():
        for block in encoder.blocks:
            block.attention.qkv.weight.zero_()
            block.attention.out.weight.zero_()
            block.feedforward.down.weight.zero_()
            for linear in (block.attention.qkv, block.attention.out, block.feedforward.down):
                linear.bias.zero_()
            block.attention_norm = torch.nn.Identity()
        encoder.embeddings.norm = encoder.final_norm = head.norm = torch.nn.Identity()
        words = encoder.embeddings.words.weight
        words.zero_()
        for noun, verb, number in zip(NOUNS, VERBS, (1.0, -1.0), strict=True):
            words[tiny_tokenizer.id(noun), 0] = number
            words[tiny_tokenizer.id(verb), 9] = number
        block = encoder.blocks[0].attention
        block.qkv.weight[32 + 8, 0] = 1.0  # first value of the second head
        block.out.weight[8, 8] = 8.0
        head.dense.weight.zero_()
        head.dense.bias.zero_()
        head.dense.weight[9, 8] = 4.0
        head.activation = torch.nn.Identity()
        head.bias.zero_()
    return network


@pytest.fixture
def pairs() -> list[LabelledPair]:
    made = []
    adverbs = ("wide", "deep", "please", "in", "your", "run", "homework", "the")
    for adverb in (*adverbs, *(f"{adverb} a" for adverb in adverbs)):
        for noun, good, bad in zip(NOUNS, VERBS, VERBS[::-1], strict=True):
            made.append(LabelledPair(f"the {noun} {adverb} {good}", f"the {noun} {adverb} {bad}", f"of {noun}"))
    return made


@pytest.mark.parametrize("ablation", ["zero", "mean"])
@pytest.mark.parametrize("method", ["word", "sentence"])
def test_the_one_head_that_carries_agreement_is_found_and_no_other(
    planted: Network, tiny_tokenizer: Any, pairs: list[LabelledPair], ablation: Any, method: Any
) -> None:
    outcome = PairOutcome(tiny_tokenizer, pairs, method=method)
    options = KnockoutOptions(ablation=ablation, greedy=2, random_sets=3)
    calls: list[tuple[int, int]] = []
    report = knock_out(planted, outcome, options, lambda *done: calls.append(done))
    assert [(each.group, each.units, each.value) for each in report.baseline] == [
        ("all", 32, 1.0),
        ("of bank", 16, 1.0),
        ("of river", 16, 1.0),
    ]
    assert {row.name for row in report.significant} == {"1:2"}
    assert {(row.group, row.change) for row in report.significant} == {
        ("all", -1.0),  # a tie is no preference
        *((f"of {noun}", -1.0) for noun in NOUNS),
    }
    assert all(row.change == 0 and row.p == row.adjusted == 1 for row in report.rows if row.name != "1:2")
    assert [each.names[0] for each in report.sets] == ["1:2", "1:2"]
    assert [len(each.names) for each in report.sets] == [1, 2]
    assert report.sets[0].change == -1.0
    assert len(report.sets[0].random) == 3
    assert calls[-1] == (calls[-1][1], calls[-1][1])
    assert "1:2" in str(report)
    assert report.to_dict()["rows"][0]["name"] == "1:2"
    assert len(report.to_dicts()) == 12


def test_neurons_are_found_too(tiny_model: Any, tiny_tokenizer: Any, pairs: list[LabelledPair]) -> None:
    network = tiny_model(objectives=(MaskedLMConfig(),), feedforward=12)
    with torch.no_grad():
        network.encoder.blocks[1].feedforward.down.weight[:, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]] = 0
    outcome = PairOutcome(tiny_tokenizer, pairs, measure="log-probability")
    options = KnockoutOptions(of="neurons", layers=(2,), ablation="zero", greedy=0)
    rows = knock_out(network, outcome, options).rows
    assert sorted(row.name for row in rows if row.group == "all") == sorted(f"2:{n}" for n in range(1, 13))
    assert {row.name for row in rows if abs(row.change) > 1e-5} == {"2:8"}
    some = knock_out(network, outcome, KnockoutOptions(of="neurons", limit=5, greedy=0, ablation="zero"))
    assert len([row for row in some.rows if row.group == "all"]) == 5


def test_zero_ablation_equals_heads_without_output_weights(tiny_model: Any, tiny_tokenizer: Any) -> None:
    batches = made_batches(tiny_tokenizer.size)
    outcome = MaskedTextOutcome(batches, "log-probability")
    network = tiny_model(objectives=(MaskedLMConfig(),))
    report = knock_out(network, outcome, KnockoutOptions(ablation="zero", greedy=0))
    assert report.metric == "masked log-probability"
    importance = head_importance(network, batches)
    assert_allclose(report.baseline[0].value, -importance.loss, rtol=1e-5)
    changes = {row.name: row.change for row in report.rows}
    for head in importance.rows:
        assert_allclose(changes[f"{head.layer}:{head.head}"], -head.change, atol=1e-5)
    zero_heads(network.encoder, [(2, 1)])
    after = outcome.rows(network)
    assert_allclose(after.sum(0)[0] / after.sum(0)[1] - report.baseline[0].value, changes["2:1"], atol=1e-5)


def test_the_mean_is_that_of_the_tokens_of_the_outcome(tiny_model: Any, tiny_tokenizer: Any) -> None:
    """Written into the bias instead: the output of a head that is constant is a constant of the layer."""
    batches = made_batches(tiny_tokenizer.size)
    network = tiny_model(objectives=(MaskedLMConfig(),))
    outcome = MaskedTextOutcome(batches, "log-probability")
    row = next(r for r in knock_out(network, outcome, KnockoutOptions(greedy=0)).rows if r.name == "1:2")
    before = outcome.rows(network).sum(0)
    outputs = [
        capture(network.encoder, b.tokens.map(torch.from_numpy), [("heads", 1)])["heads", 1][:, 8:] for b in batches
    ]
    with torch.no_grad():
        out = network.encoder.blocks[0].attention.out
        out.bias += out.weight[:, 8:] @ torch.cat(outputs).mean(0)
        out.weight[:, 8:] = 0
    after = outcome.rows(network).sum(0)
    assert abs(row.change) > 1e-3
    assert_allclose(row.change, after[0] / after[1] - before[0] / before[1], rtol=1e-3)


def test_a_fine_tuned_task_is_an_outcome(tmp_path: Any, tiny_model: Any, save_tiny: Any) -> None:
    head = ClassificationConfig(labels=("no", "yes"))
    model = load(save_tiny(tmp_path / "m", tiny_model(objectives=(head,)), (head,)), device="cpu")
    data = [(f"the {a} {b}", label) for a in ("river", "bank", "run") for b, label in (("deep", "yes"), ("in", "no"))]
    report = knockout(model, data=data, greedy=1, random_sets=2, ablation="zero")
    assert (report.metric, report.units, report.baseline[0].units) == ("accuracy", "examples", 6)
    right = report.baseline[0].value
    zero_heads(model.encoder, [(1, 1)])
    assert_allclose(
        [row.change for row in report.rows if row.name == "1:1"],
        [np.mean([model.predict(text).label == label for text, label in data]) - right],
    )
    with pytest.raises(UsageError, match="'accurac' is not a metric of this task; did you mean accuracy"):
        knockout(model, data=data, metric="accurac")


def test_pairs_are_compared_by_the_word_in_which_they_differ(tiny_model: Any, tiny_tokenizer: Any) -> None:
    network = tiny_model(objectives=(MaskedLMConfig(),))
    good, bad = "the river turned in", "the river turns in"
    outcome = PairOutcome(
        tiny_tokenizer, [LabelledPair(good, bad), LabelledPair(good, "a bank turned in")], "log-probability"
    )
    assert (len(outcome.pairs), outcome.skipped) == (1, 1)
    ids = {
        name: tiny_tokenizer.id(name)
        for name in ("[CLS]", "[SEP]", "[MASK]", "the", "river", "turn", "##ed", "##s", "in")
    }
    encode = [ids[name] for name in ("[CLS]", "the", "river", "[MASK]", "[MASK]", "in", "[SEP]")]
    second = [*encode[:3], ids["turn"], *encode[4:]]

    @torch.no_grad()
    def log_p(row: list[int], place: int) -> torch.Tensor:
        batch = dataclasses.replace(made_batches(9, 1)[0].tokens, ids=np.array(row), lengths=np.array([7]))
        zeros = np.zeros(7, np.int64)
        batch = dataclasses.replace(batch, positions=np.arange(7), segments=zeros, words=zeros).map(torch.from_numpy)
        logits = network.heads["masked-lm"].logits(network.encoder(batch), network.encoder.word_vectors)
        return logits[place].log_softmax(-1)

    expected = log_p(second, 4)[ids["##ed"]] - log_p(second, 4)[ids["##s"]]
    assert_allclose(outcome.rows(network), [[float(expected), 1.0]], rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match="no pair of sentences differs in exactly one word; use --method sentence"):
        PairOutcome(tiny_tokenizer, [LabelledPair(good, good)])


def test_samples_of_phenomena_and_bad_requests(tmp_path: Any, tiny_model: Any, save_tiny: Any) -> None:
    model = load(save_tiny(tmp_path / "m", tiny_model()), device="cpu")
    lines = [
        f"the river {w} was\tthe river {w} of\t{'agreement' if n % 2 else 'islands'}"
        for n, w in enumerate(("in", "a", "deep") * 4)
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    report = knockout(model, pairs=tmp_path / "pairs.tsv", examples=3, greedy=0, layers=[2])
    assert [(each.group, each.units) for each in report.baseline] == [("all", 6), ("agreement", 3), ("islands", 3)]
    assert len(report.rows) == 6
    assert (
        report.to_dict()
        == knockout(model, pairs=[str(tmp_path / "pairs.tsv")], examples=3, greedy=0, layers=[2]).to_dict()
    )
    only = knockout(model, pairs=tmp_path / "pairs.tsv", phenomena=["agreement"], greedy=0)
    assert [(each.group, each.units) for each in only.baseline] == [("all", 6)]
    for pairs, note in (
        ([("the river was", "the river of")] * 3, "no greedy sets: they need 4 pairs or more"),
        ([(f"{'a ' * 40}{end}", f"{'a ' * 40}of") for end in ("was", "in")] * 2, "4 pairs are longer than the model's"),
    ):
        assert note in " ".join(knockout(model, pairs=pairs, layers=[2], greedy=1, random_sets=0).notes)
    with pytest.raises(DataError, match="no minimal pairs in the list; give"):
        knockout(model, pairs=[])
    with pytest.raises(DataError, match="a knockout is tested over pairs, and there is one; give two or more"):
        knockout(model, pairs=[("a river was", "a river of")])
    for wrong, message in (
        (
            {"pairs": tmp_path / "pairs.tsv", "phenomena": ["agrement"]},
            "no pair has the phenomenon 'agrement'; did you mean agreement",
        ),
        ({"pairs": tmp_path / "pairs.tsv", "layers": [3]}, "there is no layer 3: the model has layers 1 to 2"),
        ({"pairs": tmp_path / "pairs.tsv", "corpus": "x"}, "needs one of --pairs FILE, --corpus TEXT and --data FILE"),
        ({}, "needs one of --pairs FILE, --corpus TEXT and --data FILE"),
        ({"pairs": [("a river was", "a river of")], "ablation": "both"}, "both"),
    ):
        with pytest.raises(UsageError, match=message):
            knockout(model, **wrong)  # type: ignore[arg-type]


def test_a_tagger_is_measured_by_its_entities(tmp_path: Any, tiny_model: Any, save_tiny: Any) -> None:
    head = TaggingConfig(labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))
    model = load(save_tiny(tmp_path / "m", tiny_model(objectives=(head,)), (head,)), device="cpu")
    rows = ["the O\nriver B-PER\nran O", "a O\nbank O\nwas O", "the O\ntown B-PER\nbank I-PER"]
    (tmp_path / "gold.conll").write_text("\n\n".join(rows) + "\n")
    report = knockout(model, data=tmp_path / "gold.conll", greedy=1, random_sets=1, ablation="zero")
    assert report.metric == "entity-f1"
    zero_heads(model.encoder, [(2, 2)])
    after = evaluate(model, data=tmp_path / "gold.conll", samples=2).metrics["entity-f1"].value
    change = next(row.change for row in report.rows if row.name == "2:2")
    assert_allclose(change, after - report.baseline[0].value, atol=1e-12)
