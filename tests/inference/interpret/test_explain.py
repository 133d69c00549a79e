"""Attributions against captum on the same model in `transformers`, against naive loops, and on a planted model."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient, IntegratedGradients
from numpy.testing import assert_allclose

import larvatus as lv
from larvatus.core.batch import NO_WORD
from larvatus.core.errors import ArtefactError, LarvatusError, UsageError
from larvatus.core.rng import stream
from larvatus.evaluation.interpretation.faithfulness import SHARES, check_text, drops, measure_faithfulness
from larvatus.inference.interpret import attributions
from larvatus.inference.interpret.attributions import METHODS, ExplainOptions, attribute, masked_scores
from larvatus.inference.interpret.explain import fill_outcome
from larvatus.models.heads import ClassificationConfig, QuestionAnsweringConfig, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig, MaskedLMConfig
from larvatus.tasks.inputs import InputPlace
from larvatus.tasks.outcome import OutcomeChoice
from larvatus.tasks.registry import task_of
from tests.models.bundle.theirs import transformers
from tests.tiny import save_model

TEXT = "the river bank was wideing and deep."
WORDS = ["the", "river", "bank", "was", "wideing", "and", "deep", "."]
TAGS = ("O", "B-LOC", "I-LOC")
HEADS = {
    "fill": (MaskedLMConfig(), transformers.BertForMaskedLM),
    "class": (ClassificationConfig(labels=("no", "yes")), transformers.BertForSequenceClassification),
    "pair": (ClassificationConfig(labels=("no", "yes")), transformers.BertForSequenceClassification),
    "tag": (TaggingConfig(labels=TAGS, pool="first"), transformers.BertForTokenClassification),
    "answer": (QuestionAnsweringConfig(), transformers.BertForQuestionAnswering),
}
GIVEN = {
    "fill": "the river [MASK] was wideing and deep.",
    "pair": (TEXT, "a run in the river"),
    "answer": ("was the bank deep?", TEXT),
}
CHOICES = {"fill": {"target": "bank"}, "class": {"target": "yes"}, "tag": {"at": "wideing", "target": "B-LOC"}}


@pytest.fixture(scope="module")
def make(tmp_path_factory, tiny_model, tiny_tokenizer):
    def make(config, seed=4, change=None, **shape):
        path, network = tmp_path_factory.mktemp("explain") / "model", tiny_model(seed, (config,), **shape)
        if change is not None:
            change(network)
        save_model(path, network, tiny_tokenizer, (config,))
        return lv.load(path, device="cpu")

    return make


@pytest.fixture(scope="module")
def models(make):
    return {kind: make(config) for kind, (config, _) in HEADS.items() if kind != "pair"} | {}


def model_of(models, kind):
    return models["class" if kind == "pair" else kind]


def outcome_of(model, given, **choice):
    if "masked-lm" in model.network.heads:
        return fill_outcome(model, given, OutcomeChoice(**choice))
    task = task_of(model.bundle)
    return task.outcome(model.bundle, task.example(given, InputPlace("text", 1)), OutcomeChoice(**choice))


def their_score(kind, theirs, ids, segments, outcome):
    """The same log-probability from embeddings, by `transformers`."""
    place = ids.tolist().index(4) if kind == "fill" else int(outcome.reads[0])

    def score(embeds):
        count = len(embeds)
        out = theirs(
            inputs_embeds=embeds, token_type_ids=segments.expand(count, -1), attention_mask=torch.ones(count, len(ids))
        )
        if kind == "fill":
            return out.logits[:, place].log_softmax(-1)[:, 8]  # 5 tokens are special; bank is the fourth word
        if kind == "tag":
            return out.logits[:, place].log_softmax(-1)[:, 1]
        if kind == "answer":
            first, last = int(outcome.reads.min()), int(outcome.reads.max())
            return out.start_logits.log_softmax(-1)[:, first] + out.end_logits.log_softmax(-1)[:, last]
        return out.logits.log_softmax(-1)[:, theirs.config.label2id[outcome.label]]

    return score


@pytest.mark.parametrize("kind", HEADS)
def test_gradients_equal_captums_on_the_model_in_transformers(models, kind):
    model = model_of(models, kind)
    outcome = outcome_of(model, GIVEN.get(kind, TEXT), **CHOICES.get(kind, {}))
    theirs = HEADS[kind][1].from_pretrained(model.bundle.path).eval()
    batch = outcome.copies(1).map(torch.from_numpy).tokens
    score = their_score(kind, theirs, batch.ids, batch.segments[None], outcome)
    words = theirs.bert.embeddings.word_embeddings.weight.detach()
    x = words[batch.ids][None]
    inside = torch.from_numpy(outcome.words != NO_WORD)[:, None]
    assert not inside[0]
    assert not inside[-1]

    def by_word(scores):
        flat = scores[0].sum(-1).detach().double().numpy()
        return [flat[outcome.words == word].sum() for word in range(len(outcome.spans))]

    for baseline, start in (("mask", words[4]), ("zero", torch.zeros_like(words[4]))):
        options = ExplainOptions(baseline=baseline, steps=40, tolerance=1e6)
        ours = attribute(outcome, "integrated-gradients", options, 4)
        base = torch.where(inside, start, x)
        expected = IntegratedGradients(score).attribute(x, base, n_steps=40, method="gausslegendre")
        assert ours.steps == 40
        assert_allclose(ours.scores, by_word(expected), atol=1e-4)
        assert np.abs(ours.scores).max() > 1e-2
        with torch.no_grad():
            assert_allclose(ours.gap, float(expected.sum() - (score(x) - score(base))), atol=1e-4)
    gradient = attribute(outcome, "gradient-x-input", ExplainOptions(baseline="zero"), 4)
    assert_allclose(gradient.scores, by_word(InputXGradient(score).attribute(x.clone().requires_grad_())), atol=1e-4)


@pytest.mark.parametrize("kind", HEADS)
def test_leave_one_out_masks_each_word_in_turn(models, kind):
    model = model_of(models, kind)
    outcome = outcome_of(model, GIVEN.get(kind, TEXT), **CHOICES.get(kind, {}))
    theirs = HEADS[kind][1].from_pretrained(model.bundle.path).eval()
    batch = outcome.copies(1).map(torch.from_numpy).tokens
    score = their_score(kind, theirs, batch.ids, batch.segments[None], outcome)
    words = theirs.bert.embeddings.word_embeddings

    def scored(ids):
        with torch.no_grad():
            return float(score(words(ids)[None])[0])

    expected = []
    for word in range(len(outcome.spans)):
        changed = batch.ids.clone()
        changed[torch.from_numpy(outcome.words == word)] = 4
        expected.append(scored(batch.ids) - scored(changed))
    assert_allclose(attribute(outcome, "leave-one-out", ExplainOptions(), 4).scores, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["fill", "class", "tag"])
def test_rollout_equals_the_naive_product(models, kind):
    model = models[kind]
    outcome = outcome_of(model, GIVEN.get(kind, TEXT), **CHOICES.get(kind, {}))
    batch = outcome.copies(1).map(torch.from_numpy).tokens
    size = len(outcome.words)
    rolled = np.eye(size)
    for (weights,) in model.encoder.attention(batch):
        step = np.zeros((size, size))
        for row in range(size):
            for column in range(size):
                step[row, column] = sum(float(head[row, column]) for head in weights.detach()) / len(weights) / 2
            step[row, row] += 0.5
        rolled = step @ rolled
    row = rolled[outcome.reads].mean(0)
    expected = [row[outcome.words == word].sum() for word in range(len(outcome.spans))]
    ours = attribute(outcome, "attention-rollout", ExplainOptions(), 4).scores
    assert_allclose(ours, expected, rtol=1e-5)
    assert 0.1 < ours.sum() < 1


def test_explained_words_and_scores_are_those_of_the_prediction(models):
    tagged = models["tag"].predict(TEXT)
    explanation = models["tag"].explain(TEXT, at=5, methods="leave-one-out")
    assert [word.text for word in explanation.words] == WORDS
    assert explanation.label == f"{tagged.words[4].tag} of wideing"
    assert explanation.probability == pytest.approx(tagged.words[4].probability, rel=1e-4)
    classified = models["class"].predict((TEXT, "a run"))
    explanation = models["class"].explain((TEXT, "a run"))
    assert [(word.part, word.text) for word in explanation.words][-2:] == [(1, "a"), (1, "run")]
    assert (explanation.label, explanation.probability) == (
        classified.label,
        pytest.approx(classified.probability, rel=1e-4),
    )
    fill = models["fill"].fill(GIVEN["fill"])[0]
    explanation = models["fill"].explain(GIVEN["fill"])
    assert (explanation.label, explanation.probability) == (fill.token, pytest.approx(fill.probability, rel=1e-4))
    assert [word.text for word in explanation.words] == [word for word in WORDS if word != "bank"]
    answer = models["answer"].predict(GIVEN["answer"])
    assert models["answer"].explain(GIVEN["answer"]).label == answer.text


def test_steps_double_until_integrated_gradients_are_complete(models, monkeypatch):
    rough = models["class"].explain(TEXT, steps=1, tolerance=100.0)
    fine = models["class"].explain(TEXT, steps=1, tolerance=1e-3)
    assert rough.steps == 1
    assert fine.steps > 1
    assert abs(fine.gap) <= 1e-3 < abs(rough.gap)
    assert "complete, gap" in fine.notes[0]
    total = sum(word.scores["integrated-gradients"] for word in fine.words)
    outcome = outcome_of(models["class"], TEXT)
    ends = masked_scores(outcome, np.array([[False] * 8, [True] * 8]), 4)
    assert total == pytest.approx(ends[0] - ends[1], abs=2e-3)
    monkeypatch.setattr(attributions, "MOST_STEPS", 4)
    capped = models["class"].explain(TEXT, steps=1, tolerance=1e-9)
    assert capped.steps == 4
    assert "NOT complete (tolerance 1e-09)" in str(capped)


def only_itself(network):
    """A model whose tokens read nothing but themselves."""
    for block in network.encoder.blocks:
        torch.nn.init.zeros_(block.attention.out.weight)
        torch.nn.init.zeros_(block.attention.out.bias)


def test_of_a_model_that_reads_one_word_it_gets_all_attribution(make):
    model = make(HEADS["tag"][0], change=only_itself)
    explanation = model.explain(TEXT, at="deep", methods=METHODS[:3])
    for method in METHODS[:3]:
        scores = {word.text: word.scores[method] for word in explanation.words}
        assert abs(scores.pop("deep")) > 1e-2
        assert set(scores.values()) == {0.0}


def test_a_tag_under_a_crf_is_explained_by_its_marginal(make):
    model = make(TaggingConfig(labels=TAGS, crf=True), change=lambda network: random_crf(network))
    tagged = model.predict(TEXT)
    for at, word in enumerate(tagged.words, start=1):
        explanation = model.explain(TEXT, at=at, target=word.tag)
        assert explanation.probability == pytest.approx(word.probability, rel=1e-3)
        assert abs(explanation.gap) < 0.01


def random_crf(network):
    generator = torch.Generator().manual_seed(0)
    for parameter in network.heads["tagging"].crf.parameters():
        torch.nn.init.normal_(parameter, generator=generator)


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_labels_and_numbers_are_explained(make, kind):
    labels = ("a", "b") if kind == "multi-label" else ("score",)
    model = make(ClassificationConfig(labels=labels, kind=kind, pool="mean"))
    predicted, explanation = model.predict(TEXT), model.explain(TEXT, target=labels[-1])
    if kind == "regression":
        assert (explanation.probability, explanation.score) == (None, pytest.approx(predicted.value, rel=1e-4))
    else:
        assert explanation.probability == pytest.approx(predicted.probabilities["b"], rel=1e-4)


@pytest.mark.parametrize("shape", [{"norm": "pre", "positions": "rotary", "segments": 0}, {"embedding": 8}])
def test_other_encoders_are_complete_too(make, shape):
    explanation = make(MaskedLMConfig(), **shape).explain(GIVEN["fill"], methods=METHODS, tolerance=1e-3)
    assert abs(explanation.gap) <= 1e-3
    assert all(np.isfinite([*word.scores.values()]).all() for word in explanation.words)


def test_comprehensiveness_and_sufficiency_equal_the_naive_loop(models):
    outcome = outcome_of(models["class"], TEXT)
    order = np.array([3, 0, 6, 1, 2, 7, 5, 4])

    def probability(hidden):
        return float(np.exp(masked_scores(outcome, np.isin(np.arange(8), hidden)[None], 4)[0]))

    tops = [order[: int(np.ceil(share * 8))] for share in SHARES]
    assert [len(top) for top in tops] == [1, 1, 1, 2, 4]
    whole = probability([])
    expected = [
        np.mean([whole - probability(top) for top in tops]),
        np.mean([whole - probability(np.setdiff1d(order, top)) for top in tops]),
    ]
    assert_allclose(drops(outcome, [order, order[::-1]], 4)[0], expected, atol=1e-6)


def test_faithful_methods_beat_a_random_order_on_a_planted_model(make):
    model = make(HEADS["tag"][0], change=only_itself)
    texts = ["the river bank was wide and deep", "a river of turn and run", "please run in the homework , a bank"] * 4
    table = lv.measure_faithfulness(model, texts, methods=["leave-one-out", "attention-rollout"])
    rows = {row.method: row for row in table.rows}
    assert table.texts == 12
    assert rows["leave-one-out"].sufficiency.value == pytest.approx(0, abs=1e-6)
    assert rows["leave-one-out"].better
    assert table.best[0] == "leave-one-out"
    assert rows["random"].comprehensiveness.value < rows["leave-one-out"].comprehensiveness.value
    assert {row["metric"] for row in table.to_dicts()} == {"comprehensiveness", "sufficiency"}
    again = lv.measure_faithfulness(model, texts, methods=["leave-one-out", "attention-rollout"])
    assert again.to_dict() == table.to_dict()


def test_no_method_is_trusted_where_words_do_not_matter(make):
    def blind(network):
        torch.nn.init.zeros_(network.heads["tagging"].classifier.weight)

    table = lv.measure_faithfulness(make(HEADS["tag"][0], change=blind), [TEXT, "a river", "the bank was deep"])
    assert table.best == ()
    assert "trust none" in str(table)


def test_texts_without_a_blank_get_one_and_long_ones_are_skipped(models):
    table = lv.measure_faithfulness(
        models["fill"], [TEXT, GIVEN["fill"], "the " * 60, "river", "?"], methods=["leave-one-out"]
    )
    assert (table.texts, table.skipped) == (2, 3)
    with pytest.raises(LarvatusError, match="two texts or more"):
        lv.measure_faithfulness(models["fill"], [TEXT], methods=["leave-one-out"])


def test_what_cannot_be_explained_is_one_line(models, make, tmp_path, tiny_tokenizer):
    fill, tag, classifier = models["fill"], models["tag"], models["class"]
    for call, message in (
        (lambda: fill.explain("the river"), "nothing to fill"),
        (lambda: fill.explain(GIVEN["fill"], at=2), "there is no blank 2"),
        (lambda: fill.explain(GIVEN["fill"], target="wideing"), "is not one token of the vocabulary"),
        (lambda: fill.explain("[MASK] " + "the " * 40), "the model's window has 30; shorten it"),
        (lambda: fill.explain(("a", "b")), "give one text, not tuple"),
        (lambda: fill.explain("[MASK]"), "the text has no word next to its blank to attribute the prediction to"),
        (lambda: fill.explain(GIVEN["fill"], methods="saliency"), "there is no method 'saliency'"),
        (lambda: fill.explain(GIVEN["fill"], baseline="noise"), "there is no baseline 'noise'"),
        (lambda: fill.explain(GIVEN["fill"], tolerance=0), "tolerance = 0 must be above 0"),
        (lambda: classifier.explain(TEXT, target="yess"), "the model has no class 'yess'; did you mean yes"),
        (lambda: classifier.explain(TEXT, at=1), "leave `at` out"),
        (lambda: classifier.explain("the " * 60), "text 1 has 60 tokens, more than the model's window of 32"),
        (lambda: tag.explain(TEXT, at="dry"), "has no word 'dry'"),
        (lambda: tag.explain("the the", at="the"), "has 'the' 2 times; give the number of the word, from 1 to 2"),
        (lambda: tag.explain(TEXT, at=9), "has no word 9: its words are numbered from 1 to 8"),
        (lambda: models["answer"].explain(GIVEN["answer"], target="dry"), "the passage has no 'dry'"),
        (lambda: classifier.explain(TEXT, target="xxxx"), "the model has no class 'xxxx'; there are: no, yes$"),
        (lambda: lv.measure_faithfulness(classifier, []), "holds no text"),
        (lambda: lv.measure_faithfulness(fill, [TEXT, ("a", "b")]), "text 2 is tuple, not text; give texts with or"),
        (lambda: lv.measure_faithfulness(classifier, ["the " * 60] * 3 + [TEXT]), "3 of 4 were skipped, since they"),
    ):
        with pytest.raises(LarvatusError, match=message):
            call()
    causal = CausalTransformerConfig(layers=1, hidden=16, heads=2, max_positions=32, init=0.3)
    network = Network.build(causal, (CausalLMConfig(),), tiny_tokenizer.size, seed=1)
    save_model(tmp_path / "gpt", network, tiny_tokenizer, (CausalLMConfig(),))
    with pytest.raises(ArtefactError, match="reads left to right; explain a masked model"):
        lv.load(tmp_path / "gpt", device="cpu").explain(TEXT)
    number = make(ClassificationConfig(labels=("score",), kind="regression"))
    with pytest.raises(UsageError, match="the model predicts a number"):
        lv.measure_faithfulness(number, [TEXT, TEXT])


def test_the_command_prints_tables_json_and_a_page(larvatus, models, tmp_path):
    path = models["class"].bundle.path
    code, out, err = larvatus("explain", TEXT, "--model", path, "--method", "all", "--target", "yes")
    assert code == 0, err
    assert out.startswith("yes 0.")
    assert [line.split()[0] for line in out.splitlines()[2:10]] == WORDS
    assert "integrated gradients from the mask baseline: complete, gap" in out
    code, out, _ = larvatus("explain", TEXT, "--pair", "a run", "--model", path, "--json")
    record = json.loads(out)
    assert (code, record["pair"], len(record["words"])) == (0, "a run", 10)
    page = tmp_path / "why.html"
    assert larvatus("explain", "a <b> river", TEXT, "--model", path, "--out", page)[0] == 0
    html = page.read_text()
    assert "script" not in html.split("<body>")[1]
    assert "&lt;" in html
    assert html.count("<section") == 2
    rows = tmp_path / "why.csv"
    assert larvatus("explain", TEXT, "--model", path, "--out", rows)[0] == 0
    assert rows.read_text().splitlines()[0] == "label,text,part,start,end,scores.integrated-gradients"
    for words, message in (
        (["explain", "--model", path], "give one of the two"),
        (["explain", TEXT, "--data", page, "--model", path], "give one of the two"),
        (["explain", TEXT, "--text", "1", "--model", path], "name columns of --data"),
        (["explain", "--data", page, "--target", "yes", "--model", path], "are for texts, not for --data"),
        (["explain", TEXT, "a", "--pair", "b", "--model", path], "--pair goes with one TEXT"),
    ):
        code, _, err = larvatus(*words)
        assert code == 2
        assert message in err


def test_the_command_says_which_method_to_trust(larvatus, models, tmp_path):
    data = tmp_path / "reviews.tsv"
    data.write_text("text\tlabel\n" + "".join(f"{TEXT} {n * 'river '}\tyes\n" for n in range(4)))
    code, out, err = larvatus("explain", "--data", data, "--model", models["class"].bundle.path, "--limit", 3)
    assert code == 0, err
    assert out.startswith("3 texts, 95% intervals")
    assert [line.split()[0] for line in out.splitlines()[2:7]] == [*METHODS, "random"]
    assert "on these texts" in out
    code, out, _ = larvatus("explain", "--data", data, "--model", models["class"].bundle.path, "--json", "--quiet")
    record = json.loads(out)
    assert record["texts"] == 4
    assert len(record["rows"]) == 10


def test_a_number_has_no_measure_of_faithfulness(models):
    outcome = dataclasses.replace(outcome_of(models["class"], TEXT), is_number=True)
    with pytest.raises(UsageError, match="measured by probabilities"):
        measure_faithfulness([outcome, outcome], ExplainOptions(), 4)


def test_the_controls_of_one_text_are_those_of_naive_loops(make):
    model = make(MaskedLMConfig())
    outcome = fill_outcome(model, GIVEN["fill"], OutcomeChoice())
    words, mask = len(outcome.spans), model.tokenizer.mask_id
    left_out = attribute(outcome, "leave-one-out", ExplainOptions(), mask).scores
    scores = {"leave-one-out": left_out, "upside down": -left_out, "flat": np.zeros(words)}
    checked = check_text(outcome, scores, mask, orders=7)

    def probability(masked):
        row = np.array([[number in masked for number in range(words)]])
        return float(np.exp(masked_scores(outcome, row, mask)[0]))

    def measures(order):
        tops = [set(order[: int(np.ceil(share * words))]) for share in SHARES]
        fall = [
            (probability(set()) - probability(top), probability(set()) - probability(set(range(words)) - top))
            for top in tops
        ]
        return np.mean(fall, 0)

    random = [measures(stream(0, "random order", 0, item).permutation(words).tolist()) for item in range(7)]
    assert_allclose(checked.random, np.mean(random, 0), atol=1e-6)
    for row in checked.rows:
        comp, suff = measures(np.argsort(-scores[row.method], kind="stable").tolist())
        assert_allclose([row.comprehensiveness, row.sufficiency], [comp, suff], atol=1e-6)
        assert row.beaten == np.mean([comp - suff > a - b for a, b in random])  # no order ties here
    assert [row.agreement for row in checked.rows] == [None, pytest.approx(-1), None]
