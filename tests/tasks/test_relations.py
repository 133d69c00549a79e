"""Relations between spans from examples to answers: learnt with the spans, directed, saved; long texts; bad input."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import tracemalloc

import msgspec
import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.core.targets import WordSpans
from larvatus.data.labelled.records import Dataset, Place
from larvatus.data.labelled.span_records import SpannedWords, SpanRelation
from larvatus.data.labelled.tagged import read_spanned
from larvatus.data.text.tag_schemes import EntitySpan
from larvatus.interfaces.cli.commands.predict import shown
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import SpansConfig
from larvatus.models.heads.spans import RelationsConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device, span_scorer
from larvatus.models.nn.span_scorer import distances, gaps
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.decoding import SpanCandidates, predict_relations
from larvatus.tasks.spans.spans import label_spans, spans_head
from larvatus.tasks.spans.task import SpansOptions, spans_config
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.save import contents_hash, save_result
from tests.tasks.conftest import spans_job, tiny_bert
from tests.tasks.tuning import finetune_spans

PEOPLE, PLACES = ("jane", "bob", "ann", "tom", "eve"), ("rome", "paris", "oslo")
FRAMES = {  # a and b are words, and what is said of them
    "{a} follows {b} .": ("follows", 0, 1),
    "{a} is followed by {b} .": ("follows", 1, 0),
    "{a} met {b} .": None,
}
HERE = Place("train.jsonl", 1)


def people(a: str, b: str, frame: str) -> SpannedWords:
    words = tuple(frame.format(a=a, b=b).split())
    spans = (EntitySpan(0, 1, "PER"), EntitySpan(len(words) - 2, len(words) - 1, "PER"))
    found = FRAMES[frame]
    return SpannedWords(
        words, spans, HERE, relations=() if found is None else (SpanRelation(found[1], found[2], found[0]),)
    )


def home(a: str, b: str) -> SpannedWords:
    spans = (EntitySpan(0, 1, "PER"), EntitySpan(3, 4, "LOC"))
    return SpannedWords((a, "lives", "in", b, "."), spans, HERE, relations=(SpanRelation(0, 1, "lives-in"),))


ALL = [people(a, b, frame) for a, b in itertools.permutations(PEOPLE, 2) for frame in FRAMES]
ALL += [home(a, b) for a in PEOPLE for b in PLACES]
ALL += [SpannedWords(("it", "is", "."), (), HERE), SpannedWords(("jane", "is", "."), (EntitySpan(0, 1, "PER"),), HERE)]
DEV = Dataset(tuple(ALL[::6]), "dev.jsonl")
TRAIN = Dataset(tuple(one for n, one in enumerate(ALL) if n % 6), "train.jsonl")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    """A tiny BERT of random weights whose vocabulary has the words of the examples."""
    return tiny_bert(tmp_path_factory.mktemp("relations") / "tiny", sorted({word for one in ALL for word in one.words}))


job = functools.partial(spans_job, epochs=9, batch=8)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def tuned(bundle, said) -> FineTuneResult:
    return finetune_spans(bundle, TRAIN, DEV, job(said), SpansOptions(hidden=32))


@pytest.fixture(scope="module")
def model(tuned, tmp_path_factory) -> lv.Model:
    saved = tmp_path_factory.mktemp("related")
    save_result(saved, tuned, parent="tiny")
    return lv.load(saved)


def test_directed_relations_of_unseen_pairs_are_learnt_with_the_spans(tuned, said) -> None:
    assert tuned.metric == "joint-f1"
    assert tuned.scores is not None
    values = tuned.scores.values
    assert (values["span-f1"], values["relation-f1"], values["relation-f1-given-spans"]) == (1.0, 1.0, 1.0)
    assert said[-1].startswith("threshold of relations 0.")
    assert any(
        "2 types of spans up to 1 words, flat; 2 relations of spans up to 4 words apart" in line for line in said
    )
    own = tuned.bundle.objectives[0].relations
    assert (own.labels, own.reach) == (("follows", "lives-in"), 4)
    assert set(tuned.validation.relations(tuned.bundle.network, ScoringOptions()).by_label) == {"follows", "lives-in"}


def test_answers_of_the_saved_model_know_head_and_tail(tuned, model, tmp_path) -> None:
    texts = [
        "ann follows jane .",
        "ann is followed by jane .",
        "ann met jane .",
        "tom lives in oslo .",
        "jane is .",
        ".",
    ]
    first, second, third, fourth, fifth, sixth = model.predict(texts)
    assert [str(one) for one in first.relations] == ["ann –follows→ jane"]
    assert [str(one) for one in second.relations] == ["jane –follows→ ann"]
    assert second.relations[0].head is second.entities[1]
    assert str(fourth) == "tom [PER], oslo [LOC]; tom –lives-in→ oslo"
    assert [one.relations for one in (third, fifth, sixth)] == [(), (), ()]
    assert (len(fifth.entities), sixth.entities) == (1, ())
    assert "relations" not in third.to_dict()
    assert shown(second).plain == "[ann PER] is followed by [jane PER] .  jane –follows→ ann"
    record = second.to_dict()
    assert record["relations"] == [{"head": 1, "tail": 0, "label": "follows", "score": second.relations[0].score}]
    path = tmp_path / "answers.jsonl"  # an answer is an example
    path.write_text(json.dumps(record) + "\n")
    assert read_spanned(path).examples[0].relations == (SpanRelation(1, 0, "follows"),)


def test_the_saved_model_has_the_same_settings_and_weights(tuned, model) -> None:
    assert model.bundle.objectives == tuned.bundle.objectives
    ours, theirs = (one.network.state_dict() for one in (tuned.bundle, model.bundle))
    assert any("relations" in name for name in ours)
    card = (model.bundle.path / "README.md").read_text()
    assert "## Relations between spans in training" in card
    assert "| relation-f1 | 1.0000 |" in card
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_frozen_features_give_the_loss_of_the_encoder(tuned, bundle) -> None:
    model = tuned.bundle.network.eval()
    data = label_spans(bundle.tokenizer, TRAIN.examples[:9], tuned.bundle.objectives[0], limit=32)
    chosen = np.array([3, 0, 8])
    batch = on_device(data.batch(chosen), "cpu")
    with torch.inference_mode():
        cached = Features.build(model, data, ScoringOptions()).loss(spans_head(model), chosen, batch)
        torch.testing.assert_close(cached.total, model(batch)["spans"].total, rtol=1e-4, atol=1e-5)


def spans_of(count: int, *, apart: int, hidden: int, seed: int = 0) -> SpanCandidates:
    """Spans of one to three words, in no order."""
    draw = np.random.default_rng(seed)
    first = draw.permutation(count) * apart
    sides = draw.normal(size=(count, 2 * hidden)).astype(np.float32)
    return SpanCandidates(
        first, first + draw.integers(1, 4, count), np.zeros(count, np.int64), np.zeros(count), vectors=sides
    )


def head_of(*, reach: int, hidden: int = 8):
    shape = TransformerConfig(layers=1, hidden=8, heads=2, max_positions=16)
    own = RelationsConfig(labels=("in", "of"), reach=reach, hidden=hidden)
    built = Network.build(shape, [SpansConfig(labels=("A",), relations=own)], 9, seed=3)
    return built.heads["spans"]


@pytest.mark.parametrize("reach", [0, 3, 25, 1000])
def test_pairs_that_are_found_are_those_of_a_loop_over_all_pairs(reach, monkeypatch) -> None:
    monkeypatch.setitem(span_scorer.BUDGET, "cpu", 8 * 10)  # ten pairs at a time
    head, spans = head_of(reach=reach), spans_of(30, apart=2, hidden=8)
    found = predict_relations(head, spans, floor=0.0)
    first, last = torch.from_numpy(spans.first), torch.from_numpy(spans.end - 1)
    sides = torch.from_numpy(spans.vectors)
    wanted = {}
    for a, b in itertools.permutations(range(30), 2):
        gap = gaps(first, last, torch.tensor([a]), torch.tensor([b]))
        if int(gap.abs()) <= reach:
            (row,) = head.relations(sides, torch.tensor([a]), torch.tensor([b]), distances(gap)).detach()
            label = int(row[1:].argmax())
            wanted[a, b] = label, float(row[1 + label] - row[0])
    pairs = list(zip(found.first.tolist(), found.end.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) == len(wanted)
    for pair, label, margin in zip(pairs, found.types.tolist(), found.margins.tolist(), strict=True):
        assert wanted[pair] == (label, pytest.approx(margin, abs=1e-5))


def test_two_hundred_spans_are_related_in_little_memory_and_thousands_in_time() -> None:
    head = head_of(reach=10_000, hidden=256)
    spans = spans_of(200, apart=3, hidden=256)
    sizes: list[int] = []
    head.relations.register_forward_hook(lambda _, given, scores: sizes.append(len(given[1])))
    tracemalloc.start()
    found = predict_relations(head, spans)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) == 200 * 199
    assert max(sizes) * 256 <= 2**19  # the hidden layer that is held at a time: 2 MB, not 40
    assert peak < 8e6
    assert 0 < len(found) < 200 * 199
    near = head_of(reach=20, hidden=8)
    near.relations.register_forward_hook(lambda _, given, scores: sizes.append(len(given[1])))
    sizes.clear()
    predict_relations(near, spans_of(20_000, apart=3, hidden=8))
    assert sum(sizes) < 20_000 * 20  # linear in the text


def test_relations_across_windows_are_looked_for_but_not_learnt(tuned, bundle) -> None:
    near, config = people("ann", "jane", "{a} follows {b} ."), tuned.bundle.objectives[0]
    parted = 0
    for before in range(6, 24):
        words = (*("it",) * before, *near.words, *("it",) * (30 - before))
        spans = tuple(EntitySpan(start + before, end + before, label) for start, end, label in near.spans or ())
        far = SpannedWords(words, spans, HERE, relations=near.relations)
        data = label_spans(bundle.tokenizer, [far, near], config, limit=16)
        assert data.related[0] == {((before, before + 1, 1), (before + 2, before + 3, 1), 0)}
        batch = data.batch(np.array([1, 0])).targets[WordSpans]
        assert batch.related[0].tolist() == [0, 1, 0]
        assert len(batch.related) == 2 - data.unrelated
        if data.unrelated:
            assert data.notes(3)[-1].startswith("1 of 2 relations are not trained on")
            parted += 1
        else:
            head, tail, _ = batch.related[1]
            assert batch.first[tail] - batch.first[head] == 2
        held = dataclasses.replace(tuned.validation, data=data)
        given = held._given(tuned.bundle.network, ScoringOptions())[0]
        assert len(predict_relations(spans_head(tuned.bundle.network), given, floor=0.0)) == 2  # either way round
        assert held.relations(tuned.bundle.network, ScoringOptions()).micro.support == 2
    assert 0 < parted < 18


def test_relations_are_learnt_where_the_data_have_them_unless_told_otherwise() -> None:
    assert spans_config(TRAIN, SpansOptions(relations=False)).relations is None
    own = spans_config(TRAIN, SpansOptions(reach=2, relation_weight=0.5)).relations
    assert (own.reach, own.weight) == (2, 0.5)
    bare = Dataset(tuple(dataclasses.replace(one, relations=()) for one in TRAIN), "bare.jsonl")
    assert spans_config(bare, SpansOptions()).relations is None
    with pytest.raises(DataError, match=r"bare\.jsonl: no spans are related"):
        spans_config(bare, SpansOptions(relations=True))
    assert contents_hash(bare) != contents_hash(TRAIN)


def test_bad_input_is_one_line(bundle) -> None:
    unknown = dataclasses.replace(
        home("jane", "rome"), relations=(SpanRelation(0, 1, "live-in"),), place=Place("dev", 9)
    )
    with pytest.raises(DataError, match=r"dev:9: the relation 'live-in' is one that .*did you mean lives-in"):
        finetune_spans(bundle, TRAIN, Dataset((unknown,), "dev"), dataclasses.replace(job(), strict=True))
    bare = Dataset(tuple(dataclasses.replace(one, relations=()) for one in TRAIN), "bare")
    with pytest.raises(UsageError, match="relation-f1 does not score a head that looks for no relations"):
        finetune_spans(bundle, bare, DEV, dataclasses.replace(job(), metric="relation-f1"))
    assert msgspec.json.decode(msgspec.json.encode(SpansOptions(reach=3)), type=SpansOptions).reach == 3
