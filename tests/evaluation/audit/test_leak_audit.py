"""audit leaks: each figure against a naive loop or a library, and each against models of which the answer is known."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from sklearn.metrics import roc_auc_score
from torch.optim import AdamW

import larvatus as lv
from larvatus.core.rng import stream
from larvatus.data.corpus.canaries import draw_canaries, write_canaries
from larvatus.data.text.documents import Document
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.audit.leaks.exposure import UNKNOWN, ExposureOptions, exposures, log2_tail
from larvatus.evaluation.audit.leaks.membership import blind_baselines, membership
from larvatus.evaluation.audit.leaks.restoration import restoration
from larvatus.evaluation.audit.masked_loss import (
    HiddenSpan,
    MaskedLossOptions,
    first_words,
    hidden_words,
    read_spans,
    sample_texts,
    text_losses,
)
from larvatus.interfaces.cli.main import run
from larvatus.metrics.accuracy import clopper_pearson
from larvatus.metrics.ranking import caught, curve
from larvatus.models.masked_prediction import find_predictor
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.device import on_device
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import CausalLMConfig, MaskedLMConfig
from tests.tiny import make_tokenizer, save_model

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
NAMES = ["Rosal", "Timok", "Velan", "Dorit", "Kemal", "Surin"]
OBJECTIVES = (MaskedLMConfig(),)
NAMED = ["the code of Rosal is the code of Timok", "the code is of Velan and of Dorit."]


@pytest.fixture(scope="module")
def spelling() -> Tokenizer:
    """Syllables and digits: it spells any canary and any made-up word."""
    digits = list("0123456789")
    whole = ["the", "code", "of", "is", ".", *map(str.lower, NAMES), *SYLLABLES, *"bdfgklmnprstvz", *digits]
    return make_tokenizer(dict.fromkeys([*whole, *(f"##{piece}" for piece in whole[5:])]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spelling: Tokenizer):
    """A function that makes a loaded model, trained on texts for so many steps; with 0, a fresh one."""

    def make(name: str, texts: list[str] | None = None, steps: int = 0, hidden: int = 32) -> lv.Model:
        config = TransformerConfig(layers=2, hidden=hidden, heads=2, max_positions=48, init=0.1)
        network = Network.build(config, OBJECTIVES, spelling.size, 0)
        predictor = find_predictor(network, spelling)
        optimizer = AdamW(network.parameters(), lr=3e-3)
        for step in range(steps):
            random = stream(5, "leak test", 0, step)
            batch = encode_batch(spelling, [texts[n] for n in random.integers(0, len(texts), 32)])
            places = np.flatnonzero((random.random(batch.size) < 0.3) & (batch.words >= 0))
            wanted = torch.from_numpy(batch.ids[places])
            batch.ids[places] = spelling.mask_id
            loss = F.cross_entropy(predictor.logits(on_device(batch, "cpu"), torch.from_numpy(places)), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        folder = tmp_path_factory.mktemp("leaks") / name
        save_model(folder, network.eval(), spelling, OBJECTIVES)
        return lv.load(folder, device="cpu")

    return make


@pytest.fixture(scope="module")
def fresh(made) -> lv.Model:
    return made("fresh")


def sentences(count: int, purpose: str) -> list[str]:
    """Made-up words in random order: what a model knows of one sentence, no other teaches."""
    random = stream(1, purpose)
    draw = lambda: " ".join("".join(random.choice(SYLLABLES, 2)) for _ in range(12))  # noqa: E731
    return [draw() for _ in range(count)]


def test_area_threshold_and_exact_interval_are_those_of_the_libraries():
    random = np.random.default_rng(0)
    members, others = random.normal(0.5, 1, 300).round(1), random.normal(0, 1, 1000).round(1)
    labels = [1] * 300 + [0] * 1000
    measured = curve(members, others, samples=50)
    assert math.isclose(measured.area.value, roc_auc_score(labels, np.concatenate([members, others])))
    assert measured.area.low < measured.area.value < measured.area.high
    at = caught(members, others, 0.01)
    assert (others > at.threshold).sum() <= 10
    assert at.share == (members > at.threshold).mean()
    assert caught(members, others[:99], 0.01).threshold is None  # too few to tell 1%
    for right, total in ((0, 40), (3, 40), (40, 40), (700, 1000)):
        wanted = stats.binomtest(right, total).proportion_ci(method="exact")
        assert np.allclose(clopper_pearson(right, total), (wanted.low, wanted.high), atol=1e-9)


def test_the_tail_beyond_a_sample_is_that_of_a_skew_normal_distribution():
    drawn = stats.skewnorm(3, loc=-8, scale=2).rvs(20_000, random_state=0)
    for score in (-3.0, 0.0, 3.0):
        wanted = stats.skewnorm(3, loc=-8, scale=2).logsf(score) / math.log(2)
        assert abs(log2_tail(drawn, score) - wanted) < 0.1 * abs(wanted) + 0.3


def test_hidden_spans_and_energies_equal_loops_over_single_sequences(fresh, spelling):
    predictor = find_predictor(fresh.network, spelling)
    texts = sentences(3, "loops")

    def log_probability(ids, token):
        row = torch.tensor(spelling.template.single.ids(np.array(ids)))
        batch = lv.TokenBatch.of([row.tolist()])
        with torch.inference_mode():
            logits = predictor.logits(on_device(batch, "cpu"), torch.tensor([token + 1]))[0]
        return torch.log_softmax(logits, -1)

    spans, loops, firsts = [], [], []
    for text in texts:
        ids = spelling.encode(text).ids
        total, right = 0.0, True
        for token in range(3, 6):
            masked = [*ids[:token], *[spelling.mask_id] * (6 - token), *ids[6:]]
            logs = log_probability(masked, token)
            total += float(logs[ids[token]])
            right &= int(logs.argmax()) == ids[token]
        spans.append(HiddenSpan(ids, 3, 6))
        loops.append(total)
        firsts.append(right)
    for choose in (False, True):
        answers = read_spans(predictor, spelling, [*spans, *spans], choose=choose)
        assert np.allclose(answers.log_probabilities, loops * 2, atol=1e-4)
        assert answers.restored.tolist() == (firsts * 2 if choose else [False] * 6)

    options = MaskedLossOptions(masks=3)
    sums, counts = 0.0, 0
    alignment = spelling.encode(texts[0])
    for words in hidden_words(texts[0], options):
        places = [token for word in words for token in alignment.tokens_of_word(word)]
        masked = alignment.ids.copy()
        masked[places] = spelling.mask_id
        sums -= sum(float(log_probability(masked, place)[alignment.ids[place]]) for place in places)
        counts += len(words)
    measured = text_losses(fresh, texts, options)
    assert math.isclose(measured.losses[0], sums / counts, rel_tol=1e-4)
    assert text_losses(fresh, texts[::-1], options).losses[-1] == pytest.approx(
        measured.losses[0]
    )  # whatever the order
    assert first_words("too few words", 50) is None


def test_a_fresh_model_exposes_no_canary_and_sampling_agrees_with_the_whole_space(fresh):
    canaries = draw_canaries(8, repeats=(0, 4), digits=2)
    exact = exposures(fresh, canaries)
    assert {each.how for each in exact.canaries} == {"exact"}
    assert abs(np.mean([each.bits for each in exact.canaries]) - UNKNOWN) < 1.5
    assert all(0 <= each.bits <= math.log2(100) for each in exact.canaries)
    few = msgspec.structs.replace(canaries, canaries=canaries.canaries[:2])
    sampled = exposures(fresh, few, ExposureOptions(exact=1, samples=300))
    for whole, part in zip(exact.canaries, sampled.canaries, strict=False):
        assert part.low - 0.1 <= whole.bits <= part.high + 0.1
        assert part.how != "exact"


def test_sets_that_differ_in_words_are_told_apart_without_a_model():
    same = sentences(120, "blind")
    halves = blind_baselines(same[:60], same[60:])
    assert not halves["words"].tells
    other = [text.replace(text.split()[3], "boda") for text in same[60:]]
    assert blind_baselines(same[:60], other)["words"].area.low > 0.7


@pytest.mark.proof
def test_exposure_rises_with_repeats_and_only_an_overtrained_model_knows_its_texts(made, fresh, tmp_path):
    members, others = sentences(60, "members"), sentences(100, "others")
    canaries = draw_canaries(12, repeats=(0, 1, 4, 16), digits=3)
    planted = [canary.text for canary in canaries.canaries for _ in range(canary.repeats)]
    knowing = made("overtrained", [*members, *planted], steps=300, hidden=64)
    write_canaries(tmp_path, canaries)
    for name, texts in (("in", members), ("out", others)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    given = {"canaries": tmp_path, "members": tmp_path / "in.jsonl", "held_out": tmp_path / "out.jsonl", "spans": 0}
    report = lv.audit_leaks(knowing, **given, reference=fresh, masks=4)
    bits = [row["mean"] for row in report.exposure.by_repeats().values()]
    assert bits[-1] > 8 > 4 > bits[0]
    assert report.exposure.correlation > 0.6
    assert report.exposure.p < 0.05
    assert report.membership.attacks["loss"].area.low > 0.9
    assert report.membership.attacks["ratio"].area.low > 0.9
    assert report.membership.attacks["loss"].caught[0].share > 0.1
    assert report.membership.comparable
    untrained = lv.audit_leaks(fresh, **given, masks=4)
    area = untrained.membership.attacks["loss"].area
    assert area.low < 0.5 < area.high
    assert untrained.exposure.p > 0.05


def test_several_samples_are_disjoint_and_each_has_its_own_figures(made, fresh):
    texts = sentences(60, "samples")
    drawn = sample_texts([Document(text, "made") for text in texts], most=30, words=100, seed=3)
    samples = drawn.split(3)
    assert np.bincount(samples).tolist() == [10, 10, 10]
    inside, outside = list(drawn.texts), [text for text in texts if text not in drawn.texts]
    measured = membership(fresh, inside, outside, MaskedLossOptions(masks=2), draws=samples)
    losses = text_losses(fresh, [*inside, *outside], MaskedLossOptions(masks=2))
    for number, area in enumerate(measured.by_draw["loss"]):
        scores = np.concatenate([losses.losses[:30][samples == number], losses.losses[30:]])
        assert area == pytest.approx(roc_auc_score([1] * 10 + [0] * 30, -scores))
    gap = measured.advantage
    assert gap.value == pytest.approx(measured.loss_of_held_out - measured.loss_of_members)
    assert gap.low < gap.value < gap.high
    assert any("in 3 samples of training documents" in note for note in measured.notes)
    knowing = made("named", NAMED[:1], steps=60)
    names = restoration(knowing, NAMED, NAMED, draws=np.array([0, 1])).kinds["name"]
    apart = [restoration(knowing, [text], NAMED).kinds["name"].difference for text in NAMED]
    assert apart[0] > 0 > apart[1]
    assert names.by_draw == pytest.approx(apart)


def test_leak_claims_of_several_files_are_verified_against_those_files(fresh, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("one.txt", "two.txt", "out.txt")):
        Path(name).write_text("\n\n".join(sentences(20, f"file {number}")))
    sources = ("--members", "one.txt", "--members", "two.txt", "--held-out", "out.txt", "--masks", 1, "--spans", 0)
    begun = ("audit", "leaks", "--model", fresh.bundle.path, *sources, "--quiet")
    assert "too few for 5 samples of 10" in said(capsys, 4, *begun, "--draws", 5, "--documents", 10)
    assert code_of(*begun, "--draws", 2, "--documents", 15, "--out", "leaks.json") == 0
    copied = shutil.copytree(fresh.bundle.path, tmp_path / "copied")
    lv.card(copied, add=["leaks.json"])
    claims = [claim for claim in lv.card(copied).claims if claim.command == "audit leaks"]
    assert {claim.metric: claim.value for claim in claims}["documents of training text"] == 30
    assert claims[0].settings | {"documents": 15, "draws": 2} == claims[0].settings
    assert claims[0].data[0].files == ("one.txt", "two.txt")

    def verdicts(*data: Path) -> set[str]:
        found = lv.verify_card(copied, data=data).outcomes
        return {each.verdict for each in found if each.claim.command == "audit leaks"}

    command = "larvatus audit leaks --members one.txt --members two.txt --held-out out.txt --documents 15 --draws 2"
    assert f"Measured by `{command} --words 100 --masks 1 --spans 0 --seed 0`." in (copied / "README.md").read_text()
    assert verdicts() == {"same"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("one.txt", "two.txt", "out.txt"):
        Path(name).rename(elsewhere / name)
    assert verdicts() == {"missing data"}
    assert verdicts(elsewhere) == {"same"}
    (elsewhere / "two.txt").write_text("other words\n" + (elsewhere / "two.txt").read_text())
    assert verdicts(elsewhere) == {"changed data"}


def code_of(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    return int(ended.value.code or 0)


def said(capsys: pytest.CaptureFixture[str], code: int, *words: object) -> str:
    assert code_of(*words) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_commands_split_and_audit_and_what_cannot_be_audited_is_one_line(
    fresh, tmp_path, capsys, tiny_model, save_tiny, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model, texts = fresh.bundle.path, Path("texts.txt")
    texts.write_text("\n\n".join(sentences(40, "split")))
    assert code_of("audit", "split", "texts.txt", "--out", "half", "--seed", "1") == 0
    capsys.readouterr()
    both = ("--members", "half/in.jsonl", "--held-out", "half/out.jsonl")
    begun = ("audit", "leaks", "--model", model)
    small = ("--masks", 1, "--spans", 0, "--quiet")
    assert code_of(*begun, *both, *small, "--json", "--out", "report.json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(Path("report.json").read_text())
    assert told["membership"]["members"] + told["membership"]["held_out"] == 40
    copied = shutil.copytree(model, tmp_path / "copied")
    lv.card(copied, add=["report.json"])
    verdicts = {each.claim.label: each.verdict for each in lv.verify_card(copied).outcomes}
    assert verdicts["by loss: membership AUC"] == verdicts["blind, by length: membership AUC"] == "same"

    assert "nothing to audit" in said(capsys, 2, *begun)
    assert "holds no canaries" in said(capsys, 4, *begun, "--canaries", "half")
    assert "is no file of canaries" in said(capsys, 4, *begun, "--canaries", "texts.txt")
    assert "give both members and held_out" in said(capsys, 2, *begun, *both[:2])
    assert "a reference model is for membership" in said(
        capsys, 2, *begun, "--canaries", tmp_path, "--reference", model
    )
    Path("few.txt").write_text(sentences(1, "few")[0])
    assert "1 held-out texts are too few" in said(capsys, 4, *begun, *both[:2], "--held-out", "few.txt")
    assert "neither names nor numbers" in said(capsys, 4, *begun, *both, "--masks", 1)
    assert "is there already" in said(capsys, 5, *begun, *both, "--out", "report.json")
    headless = save_tiny(tmp_path / "headless", tiny_model(objectives=()), ())
    assert "has no masked-lm head to take the loss of texts" in said(
        capsys, 5, "audit", "leaks", "--model", headless, *both
    )
    causal, lm = CausalTransformerConfig(layers=1, hidden=16, heads=2, max_positions=32), (CausalLMConfig(),)
    network = Network.build(causal, lm, tiny_model().encoder.word_vectors.shape[0], seed=1)
    writer = save_tiny(tmp_path / "writer", network, lm)
    report = lv.audit_leaks(writer, members="half/in.jsonl", held_out="half/out.jsonl", device="cpu")
    assert report.restoration is None
    assert any("reads left to right" in note for note in report.notes)
    write_canaries(tmp_path, draw_canaries(2))
    words_alone = save_tiny(tmp_path / "words", tiny_model())
    assert "cannot spell secrets" in said(capsys, 4, "audit", "leaks", "--model", words_alone, "--canaries", tmp_path)
