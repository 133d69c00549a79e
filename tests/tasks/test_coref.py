"""Coreference: a rule that is learned through the commands, long documents, the bits of a saved model, GAP."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.coreference import CoreferenceConfig
from larvatus.tasks.coref import encode
from larvatus.tasks.coref.decoding import ResolvedMentions, document_vectors, predict_documents, word_vectors
from larvatus.tasks.coref.encode import CorefDocuments, encode_documents, form_number, segments
from larvatus.tasks.coref.evaluation import document_counts, evaluate_coref, resampled_scores
from larvatus.tasks.coref.examples import CorefExample
from larvatus.tasks.coref.gap import GapExample, corefers, gap_metrics
from larvatus.tasks.coref.reader import read_documents
from larvatus.tasks.coref.task import CorefOptions, coref_config
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.comparison import compare_evaluations
from larvatus.tasks.examples import read_examples
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, head_of, loss_of
from tests.made_up import Call
from tests.tasks.coref_documents import document, documents, rows, write
from tests.tasks.test_run import check_resumed

QUICK = ("--batch", 4, "--rate", 0.005, "--hidden", 32, "--dropout", 0.0, "--device", "cpu")
LIMIT = WindowOptions(limit=32)


@pytest.fixture(scope="module")
def resolver(tuned: Callable[..., Bundle]) -> Bundle:
    bundle = tuned(CoreferenceConfig(longest=3, hidden=8, singletons=True, dropout=0.0))
    with torch.no_grad():  # not trained, it would find nothing
        head_of(bundle.network).scorer.length_score.weight.fill_(0.3)
    return bundle


def encoded(bundle: Bundle, examples: list[Any], windows: WindowOptions = LIMIT) -> CorefDocuments:
    return encode_documents(bundle.tokenizer, examples, head_of(bundle.network).config, windows)


@pytest.mark.proof
def test_a_rule_is_learned_through_the_commands(finetune: Call, larvatus: Call, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", documents(48))
    dev = write(tmp_path / "dev.jsonl", documents(16, seed=1))
    place = tmp_path / "out"
    code, out, err = finetune("coref", "--train", train, "--dev", dev, "--out", place, "--epochs", 6, *QUICK)
    assert (code, err) == (0, "")
    assert "mentions in 76 clusters; clusters of two mentions or more are learned" in out
    assert "head: clusters of mentions, of two or more, up to 2 words long; new layers" in out
    code, out, _ = larvatus("evaluate", place, "--data", dev, "--json", "--device", "cpu")
    said = json.loads(out)
    assert said["metrics"]["conll-f1"]["value"] > 0.9
    assert said["metrics"]["lea-f1-without-singletons"]["value"] > 0.9
    assert len(said["precision_and_recall"]) == 10
    assert "resolves coreference" in (place / "README.md").read_text()
    text = "the river was wide . your was deep . the bank turn . your in . the river was wide ."
    code, out, _ = larvatus("predict", place, text, "--device", "cpu")
    marked = "[the river]₁ was wide . [your]₁ was deep . [the bank]₂ turn . [your]₂ in . [the river]₁ was wide .\n"
    assert (code, out) == (0, marked)


def test_results_in_python_and_in_files(tiny_directory: Path, larvatus: Call, tmp_path: Path) -> None:
    train, place = rows(documents(6, singletons=True)), tmp_path / "run"
    quick: dict[str, Any] = {"epochs": 1, "batch": 4, "hidden": 8, "device": "cpu", "quiet": True}
    model = lv.finetune("coref", tiny_directory, train=train, dev=train[:2], out=place, mentions=0.6, **quick)
    config = model.network.heads["coreference"].config
    assert (config.singletons, config.longest, config.mentions, config.spacing) == (True, 2, 0.6, "spaced")
    with torch.no_grad():  # few steps teach nothing: all spans become mentions, so that there are clusters
        for each in (model, lv.load(place)):
            each.network.heads["coreference"].scorer.output.bias.fill_(40.0)
    text = "The river was deep. Your bank!"
    found = model.predict(text)
    assert [word.text for word in found.words] == ["The", "river", "was", "deep", ".", "Your", "bank", "!"]
    assert found.clusters
    for cluster in found.clusters:
        for mention in cluster.mentions:
            assert text[mention.start : mention.end] == mention.text
            assert (found.words[mention.first].start, found.words[mention.last].end) == (mention.start, mention.end)
            assert found.cluster_of(mention) is cluster
            assert 0 <= mention.score <= 1
    assert str(found).splitlines()[0].split() == ["cluster", "mentions", "in", "the", "text"]
    assert len(found.to_dicts()) == sum(map(len, found.clusters))
    assert "<sub" in found._repr_html_()
    again = tmp_path / "found.jsonl"
    again.write_text(json.dumps(found.to_dict()) + "\n")
    assert read_documents([str(again)]).examples[0].clusters == tuple(sorted(found.spans))

    for ending in ("conll", "conllu"):
        out = tmp_path / f"found.{ending}"
        plain = tmp_path / "novel.txt"
        plain.write_text("The river was deep.\nYour bank!\n")
        code, _, err = larvatus("predict", place, "--file", plain, "--out", out, "--device", "cpu")
        assert code == 0, err
        (back,) = read_documents([str(out)], labelled=False).examples
        assert (back.words, back.sentences) == (tuple(word.text for word in found.words), (0, 5))
    code, _, err = larvatus("predict", tiny_directory, "--file", plain, "--out", tmp_path / "x.conll")
    assert code != 0
    assert "Traceback" not in err


def test_a_saved_model_predicts_the_same_bits(tiny_directory: Path, tmp_path: Path) -> None:
    train = rows(documents(4))
    model = lv.finetune(
        "coref", tiny_directory, train=train, hold_out=False, epochs=1, out=tmp_path / "run", device="cpu"
    )
    long = encoded(model.bundle, [document(9, sentences=40)])
    first = next(iter(document_vectors(model.network, long, ScoringOptions())))[0]
    again = next(iter(document_vectors(lv.load(tmp_path / "run").network, long, ScoringOptions())))[0]
    assert torch.equal(first, again)
    one, two = (predict_documents(each.network, long, ScoringOptions()) for each in (model, lv.load(tmp_path / "run")))
    assert one == two


def test_a_run_that_was_stopped_resumes_to_the_same_bits(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write(tmp_path / "train.jsonl", documents(12))
    command = ("coref", "--train", train, "--epochs", 2, "--segment", 20, *QUICK)
    check_resumed(finetune, *command, at=2, folder=tmp_path, monkeypatch=monkeypatch)


def test_windows_change_nothing_where_a_document_fits_and_long_ones_are_read_whole(resolver: Bundle) -> None:
    short, long = document(1, sentences=3), document(2, sentences=60)
    for windows in (LIMIT, WindowOptions(limit=32, overlap=2)):
        both = encoded(resolver, [short, long], windows)
        alone = encoded(resolver, [short], windows)
        together, by_itself = (
            word_vectors(resolver.network, both, ScoringOptions()),
            word_vectors(resolver.network, alone, ScoringOptions()),
        )
        np.testing.assert_allclose(together[: len(by_itself)], by_itself, atol=1e-5)
        assert both.sequences.parts.tolist()[1] > 5
        assert both.words.tolist() == [len(short.words), len(long.words)]
        found = predict_documents(resolver.network, both, ScoringOptions())
        assert found[1].coverage.read == found[1].coverage.tokens
        assert [mention for cluster in found[0].clusters for mention in cluster.mentions]
    cut = encoded(resolver, [long], WindowOptions(limit=32, truncate=True))
    assert cut.words[0] < len(long.words)
    assert all(last < cut.words[0] for _, last, _ in cut.mentions[0].tolist())
    one = predict_documents(resolver.network, encoded(resolver, [long], windows), ScoringOptions(tokens=40))
    assert one[0].spans == found[1].spans


@torch.no_grad()
def test_a_batch_holds_whole_documents_and_its_loss_is_that_of_frozen_features(resolver: Bundle) -> None:
    made = [document(number, sentences=size) for number, size in enumerate((3, 30, 8))]
    data = encoded(resolver, made)
    chosen = np.array([2, 1])
    batch = data.batch(chosen)
    parts = list(batch.split(40))
    assert [part.tokens.count for part in parts] == data.sequences.parts[chosen].tolist()
    head = head_of(resolver.network).train(False)
    whole = loss_of(resolver.network, batch.map(torch.from_numpy), head).total
    losses = [loss_of(resolver.network, part.map(torch.from_numpy), head).total for part in parts]
    assert float(whole) == pytest.approx(sum(map(float, losses)), rel=1e-5)
    features = Features.build(resolver.network, data, ScoringOptions())
    assert float(features.loss(head, chosen, batch.map(torch.from_numpy)).total) == pytest.approx(
        float(whole), rel=1e-5
    )
    gold = batch.targets[head.config.needs]
    first = made[2]
    spans = [(a, b - 1) for cluster in first.clusters or () for a, b in cluster]
    assert list(zip(gold.first[: gold.golds[0]].tolist(), gold.last[: gold.golds[0]].tolist(), strict=True)) == spans


@pytest.mark.parametrize("size", [1, 2, 50])
def test_each_epoch_reads_every_document_once(resolver: Bundle, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "WORDS_PER_TEXT", 20)
    data = encoded(resolver, [document(number, sentences=2 + number % 9) for number in range(20)])
    for epoch in range(2):
        steps = data.epoch_batches(7, epoch, size)
        assert len(steps) == data.steps(size)
        assert all(map(len, steps))
        assert sorted(np.concatenate(steps).tolist()) == list(range(20))
    assert [part.tolist() for part in data.epoch_batches(7, 0, size)] == [
        p.tolist() for p in data.epoch_batches(7, 0, size)
    ]


def test_long_training_documents_are_cut_into_parts_that_overlap_by_half() -> None:
    whole = document(3, sentences=40)
    sentence = max(np.diff([*whole.sentences, len(whole.words)]))
    parts = list(segments([whole], 60, singletons=True))
    assert len(parts) > 4
    seen: set[frozenset[tuple[int, int]]] = set()
    begin = 0
    for part in parts:
        begin = next(n for n in whole.sentences if n >= begin and whole.words[n : n + len(part.words)] == part.words)
        assert len(part.words) <= 60 + sentence
        assert part.sentences[0] == 0
        text, places = part.located()
        assert [text[slice(*place)] for place in places] == list(part.words)
        for cluster in part.clusters or ():
            seen |= {
                frozenset([(a + begin, b + begin), (c + begin, d + begin)]) for a, b in cluster for c, d in cluster
            }
    near = {
        frozenset([one, other])
        for cluster in whole.clusters or ()
        for one in cluster
        for other in cluster
        if abs(one[0] - other[0]) <= 30 - 2 * sentence
    }
    assert near <= seen
    assert seen <= {frozenset([one, other]) for cluster in whole.clusters or () for one in cluster for other in cluster}
    kept = list(segments([whole], 30, singletons=False))
    assert all(len(cluster) > 1 for part in kept for cluster in part.clusters or ())
    (same,) = segments([dataclasses.replace(whole, sentences=())], 10_000, singletons=True)
    assert same.clusters == whole.clusters


def test_links_become_clusters_and_singletons_are_mentions_that_are_likely() -> None:
    spans = np.arange(5)
    found = ResolvedMentions(spans, spans, np.array([1.0, -2, 3, -1, 2], np.float32), np.array([-1, 0, -1, 1, -1]))
    assert found.clusters(singletons=False) == [[0, 1, 3]]
    assert found.clusters(singletons=True) == [[0, 1, 3], [2], [4]]
    assert found.spans(singletons=False) == [[(0, 1), (1, 2), (3, 4)]]


def test_the_head_follows_the_documents() -> None:
    def data(examples: list[Any]) -> Dataset[CorefExample]:
        return dataclasses.replace(read, examples=tuple(examples))

    read = read_examples("coref", rows(documents(3)))
    assert not coref_config(read, CorefOptions()).singletons
    assert coref_config(data(documents(3, singletons=True)), CorefOptions()).singletons
    assert coref_config(read, CorefOptions(longest=9, singletons=True)).longest == 9
    with pytest.raises(DataError, match="no mention is marked"):
        coref_config(data([dataclasses.replace(each, clusters=()) for each in documents(2)]), CorefOptions())
    assert form_number("river") == form_number("river") != form_number("bank")


def test_an_evaluation_adds_up_documents_and_compares_models(resolver: Bundle) -> None:
    made = documents(6, singletons=True)
    data = dataclasses.replace(read_examples("coref", rows(made)), examples=tuple(made))
    perfect = document_counts(made, [each.clusters or () for each in made])
    for name, metric in resampled_scores(perfect).items():
        assert metric.interval(samples=20, seed=0).value == 1.0, name
    found = evaluate_coref(resolver, data)
    assert found.headline == "conll-f1"
    assert set(found.metrics) == set(resampled_scores(perfect))
    assert found.to_dict()["precision_and_recall"][0]["metric"] == "muc"
    assert "CEAF-φ4" in str(found)
    compared = compare_evaluations(found, found)
    assert compared.metrics["conll-f1"].difference == 0
    unmarked = dataclasses.replace(made[0], clusters=None)
    with pytest.raises(DataError, match="its mentions are not marked"):
        evaluate_coref(resolver, dataclasses.replace(data, examples=(unmarked,)))


def gap(text: str, pronoun: str, truth: tuple[bool, bool], number: int = 1) -> GapExample:
    at = text.index(f" {pronoun} ") + 1
    names = tuple((text.index(name), text.index(name) + len(name)) for name in ("Ann", "Bea"))
    return GapExample(text, (at, at + len(pronoun)), names, truth, Place("gap.tsv", number), f"g{number}")  # type: ignore[arg-type]


def test_gap_by_the_official_counts(resolver: Bundle, tmp_path: Path) -> None:
    text = "Ann Lee met Bea when she and he ran ."
    she, he = gap(text, "she", (True, False)), gap(text, "he", (False, True), 2)
    assert corefers(she, [[(0, 7), (21, 24)], [(12, 15)]]) == (True, False)
    assert corefers(she, [[(4, 15), (21, 24)]]) == (False, True)  # overlaps the second name only
    assert corefers(she, [[(0, 7), (20, 24)]]) == (False, False)  # the pronoun is no mention
    assert corefers(she, []) == (False, False)
    answers = [(True, True), (False, True), (False, False)]
    scored = gap_metrics([she, he, he], answers)
    values = {name: metric.interval(samples=20, seed=0).value for name, metric in scored.items()}
    # she: 1 right, 1 wrong; he: 1 right, 1 missed
    wanted = {"gap-f1": 2 * 2 / (3 + 3), "gap-f1-masculine": 2 / 3, "gap-f1-feminine": 2 / 3, "gap-bias": 1.0}
    assert values == pytest.approx(wanted)
    head = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
    (tmp_path / "gap.tsv").write_text(f"{head}g1\t{text}\tshe\t21\tAnn\t0\tTRUE\tBea\t12\tFALSE\tpage\n")
    data = read_documents([str(tmp_path / "gap.tsv")])
    found = evaluate_coref(resolver, data)
    assert found.headline == "gap-f1"
    assert "0 masculine and 1 feminine pronouns" in str(found)
    with pytest.raises(DataError, match="GAP marks two names for a pronoun"):
        lv.finetune("coref", resolver.path, train=str(tmp_path / "gap.tsv"), epochs=1, device="cpu", hold_out=False)


def test_inputs_without_words_or_with_odd_ones(resolver: Bundle) -> None:
    odd = [TextExample(text, None, None, Place("text", 1)) for text in ("?", "a", "…", "the river " * 200, " ")]
    found = predict_documents(resolver.network, encoded(resolver, odd), ScoringOptions())
    assert [len(each.words) for each in found] == [1, 1, 1, 400, 0]
    assert all(each.to_dicts() for each in found)
