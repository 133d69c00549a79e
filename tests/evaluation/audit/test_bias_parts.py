"""The other parts of the bias audit against naive loops, and what is refused in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import larvatus as lv
from larvatus.core.errors import LarvatusError
from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.evaluation.audit.bias.associations import permutation_p, read_associations
from larvatus.evaluation.audit.bias.pairs import read_crows
from larvatus.evaluation.audit.bias.reader import unmasked_scores
from larvatus.evaluation.audit.bias.report import Resampling, number, percent
from larvatus.evaluation.audit.bias.stereoset import read_stereoset
from larvatus.evaluation.audit.bias.swaps import DEFAULT_SWAPS, Swapper, audit_swaps, read_swaps
from larvatus.evaluation.audit.bias.templates import read_templates
from larvatus.evaluation.audit.bias.winobias import read_winobias
from larvatus.inference.cloze.slots import Slot, slot_scores
from larvatus.interfaces.cli.main import run
from larvatus.models.masked_prediction import require_predictor
from larvatus.models.nn.device import on_device

WORDS = {
    "sentences": ["[GROUP] was [MASK].", "a [MASK], [GROUP]!"],
    "groups": {"first": ["the river", "run"], "second": ["bank"]},
    "attributes": {"size": ["wide", "deep"], "long": ["turninged"]},
}
TESTS = {
    "sentences": ["the [WORD] was.", "[WORD] of the bank"],
    "tests": [
        {
            "name": "made up",
            "targets": {"x": ["river", "wide", "run"], "y": ["bank", "homework"]},
            "attributes": {"a": ["deep", "your"], "b": ["turn", "please", "banks"]},
        }
    ],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any, tiny_model: Any, save_tiny: Any) -> lv.Model:
    return lv.load(save_tiny(tmp_path_factory.mktemp("bias") / "tiny", tiny_model(seed=3)), device="cpu")


def naive(model: lv.Model, ids: list[int], place: int) -> Any:
    """log p of every token at a place."""
    predictor = require_predictor(model.network, model.tokenizer, what="test")
    row = np.array(ids)
    batch = on_device(wrap_batch(model.tokenizer, [[(row, row * 0)]]), "cpu")
    with torch.no_grad():
        return predictor.logits(batch, torch.tensor([place + 1])).log_softmax(-1)[0]


def chain(model: lv.Model, text: str, word: str, hide: str = "") -> float:
    """log p of a word where it stands in a text, left to right; `hide` is masked besides."""
    tokenizer, mask = model.tokenizer, model.tokenizer.mask_id
    alignment = tokenizer.encode(text)
    where, total = alignment.tokens_of_chars(text.index(word), text.index(word) + len(word)), 0.0
    for token in where:
        ids = alignment.ids.copy()
        if hide:
            covered = alignment.tokens_of_chars(text.index(hide), text.index(hide) + len(hide))
            ids[covered.start : covered.stop] = mask
        ids[token : where.stop] = mask
        total += float(naive(model, ids.tolist(), token)[alignment.ids[token]])
    return total


def test_words_in_slots_and_unmasked_tokens_equal_a_naive_loop_in_texts_of_any_length(model: lv.Model) -> None:
    predictor = require_predictor(model.network, model.tokenizer, what="test")
    long = "the turninged river was wide . " * 9  # longer than the model's 32 positions
    texts = ["the turninged river was wide.", "a bank", long]
    slots = [Slot(text, (text.rindex(word), text.rindex(word) + len(word))) for text, word in
             [(texts[0], "turninged"), (texts[1], "bank"), (texts[0], "river"), (long, "turninged")]]  # fmt: skip
    for budget in (1, 4096):
        scores = slot_scores(predictor, model.tokenizer, slots, budget=budget)
        assert_allclose([s.total for s in scores[:3]],
                        [chain(model, texts[0], "turninged"), chain(model, texts[1], "bank"),
                         chain(model, texts[0], "river")], atol=1e-4)  # fmt: skip
        assert scores[3].log_probabilities.shape == (3,)
        rows = unmasked_scores(predictor, model.tokenizer, model.tokenizer.encode_many(texts), budget=budget)
        for text, row in zip(texts[:2], rows, strict=False):
            ids = model.tokenizer.encode(text).ids.tolist()
            assert_allclose(row, [float(naive(model, ids, at)[id]) for at, id in enumerate(ids)], atol=1e-4)
        assert len(rows[2]) == len(model.tokenizer.encode(long))
        assert (rows[2] < 0).all()


def test_templates_are_log_probabilities_less_the_prior(model: lv.Model) -> None:
    result = lv.audit_bias(model, templates=WORDS, samples=20).parts["templates"]
    size, long = result.differences

    def association(sentence: str, member: str, attribute: str, *, group: bool) -> float:
        member = member[:1].upper() + member[1:] if sentence.startswith("[GROUP]") else member
        text = sentence.replace("[GROUP]", member).replace("[MASK]", attribute)
        asked, other = (member, attribute) if group else (attribute, member)
        return chain(model, text, asked) - chain(model, text, asked, hide=other)

    def mean(name: str, attributes: str, *, group: bool = False) -> float:
        cells = [(s, m, a) for s in WORDS["sentences"] for a in WORDS["attributes"][attributes]
                 for m in WORDS["groups"][name]]  # fmt: skip
        return float(np.mean([association(*cell, group=group) for cell in cells]))

    assert size.associations == pytest.approx((mean("first", "size"), mean("second", "size")), abs=1e-4)
    assert size.difference.value == pytest.approx(size.associations[0] - size.associations[1], abs=1e-4)
    kurita = mean("first", "size", group=True) - mean("second", "size", group=True)
    assert size.group_asked.value == pytest.approx(kurita, abs=1e-4)
    assert long.associations[1] == pytest.approx(mean("second", "long"), abs=1e-4)
    assert any("one member, 'bank'" in note for note in result.notes)


def test_association_tests_equal_the_formula(model: lv.Model) -> None:
    (result,) = lv.audit_bias(model, associations=TESTS, samples=20).parts["associations"].tests

    def vector(word: str, sentence: str) -> Any:
        written = word[:1].upper() + word[1:] if sentence.startswith("[WORD]") else word
        start = sentence.index("[WORD]")
        text = sentence.replace("[WORD]", written)
        return model.embed(text, unit="span", spans=[(start, start + len(written))])[0]

    test: Any = TESTS["tests"][0]  # type: ignore[index]
    means = {
        word: np.mean([vector(word, sentence) for sentence in TESTS["sentences"]], axis=0)
        for sets in (test["targets"], test["attributes"])
        for words in sets.values()
        for word in words
    }

    def cosine(v: Any, w: Any) -> float:
        return float(v @ w / np.linalg.norm(v) / np.linalg.norm(w))

    def s(word: str) -> float:
        a, b = ([cosine(means[word], means[other]) for other in words] for words in test["attributes"].values())
        return float(np.mean(a) - np.mean(b))

    x, y = ([s(word) for word in words] for words in test["targets"].values())
    assert result.effect.value == pytest.approx((np.mean(x) - np.mean(y)) / np.std([*x, *y], ddof=1), abs=1e-4)
    assert list(result.by_word.values()) == pytest.approx([*x, *y], abs=1e-5)
    assert result.p.exact
    assert result.p.partitions == 10
    wide = permutation_p(np.arange(12.0) + 20, np.arange(12.0), samples=200)  # too many to try all
    assert not wide.exact
    assert wide.one_sided == wide.two_sided == 1 / 201


PRO = "1 [The bank] was wide because [he] run .\n2 a [river] of [her] was [her] .\n"
ANTI = "1 [The bank] was wide because [she] run .\n2 a [river] of [his] was [him] .\n"


def winobias(folder: Path, anti: str = ANTI) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "pro_stereotyped_type1.txt.dev").write_text(PRO)
    (folder / "anti_stereotyped_type1.txt.dev").write_text(anti)
    return folder


def test_winobias_asks_for_the_pronoun_and_hides_the_others(model: lv.Model, tmp_path: Path) -> None:
    first, second = read_winobias(winobias(tmp_path / "wino"))
    assert (first.pronoun, first.other, first.stereotype) == ("he", "she", "male")
    slot = second.slots(prior=True)[1]
    assert slot.text == "a river of his was her ."
    assert slot.text[slice(*slot.span)] == "his"
    assert [slot.text[slice(*span)] for span in slot.hidden] == ["her", "river"]
    scores = lv.audit_bias(model, winobias=tmp_path / "wino", samples=20).parts["winobias"].scores
    assert scores["all"].sentences == 2
    assert scores["type1, male"].sentences == 1
    assert scores["all"].log_odds.value == pytest.approx(0, abs=1e-6)  # to this vocabulary all pronouns are unknown


def test_swaps_change_group_words_both_ways_as_they_are_written() -> None:
    swapper = Swapper(DEFAULT_SWAPS)
    for text, swapped in {
        "He lost his keys; SHE found them.": "She lost her keys; HE found them.",
        "I saw her yesterday with her mother.": "I saw his yesterday with his father.",  # the rule of thumb
        "I gave it to her. Her book is hers": "I gave it to him. His book is his",
        "The other theme was there": "The other theme was there",
    }.items():
        assert swapper.swap(text, "gender").text == swapped
    assert read_swaps([("old man", "young man", "age"), ("man", "woman", "sex")]).swap("An Old man", "age").text == (
        "An Young man"
    )


@dataclass
class _Answer:
    label: str
    probabilities: dict[str, float]
    value: None = None
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.label


@dataclass
class Sexist:
    """Says pos of he, neg of she, and of neither what it likes."""

    bundle: Any = None
    seen: list[Any] = field(default_factory=list)

    def predict(self, texts: Any) -> list[_Answer]:
        self.seen += texts
        shares = [0.9 if "he" in text.lower().split() else 0.2 for text in texts]
        return [_Answer("pos" if share > 0.5 else "neg", {"pos": share, "neg": 1 - share}) for share in shares]


def test_decisions_that_hang_on_group_words_are_counted_with_their_words() -> None:
    texts = [("he ran", "pos"), ("she ran", "neg"), ("she and he", "pos"), ("they ran", "pos"), ("a man ran", "neg")]
    rows = tuple(TextExample(text, None, label, Place("test.tsv", at)) for at, (text, label) in enumerate(texts, 1))
    model = Sexist()
    result = audit_swaps(model, Dataset(rows, "test.tsv"), Swapper(DEFAULT_SWAPS), Resampling(50)).categories["gender"]
    assert len(model.seen) == 8
    assert result.texts == 4
    assert result.changed is not None
    assert result.changed.value == 50
    assert result.changed.low < 50 < result.changed.high
    assert result.moved.value == pytest.approx(0.35)
    assert result.accuracy is not None
    assert [score.value for score in result.accuracy] == [100, 50]
    (he,) = [word for word in result.words if word.word == "he"]
    assert (he.partner, he.texts) == ("she", 2)
    assert he.by_label["pos"].value == pytest.approx(-0.35)
    assert [example["swapped"] for example in result.examples] == ["she ran", "he ran"]


HEADER = "sent_more,sent_less,stereo_antistereo,bias_type\n"
BAD: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "same": (read_crows, HEADER + "a b,a b,stereo,age\n", "x:2: the two sentences are the same"),
    "direction": (read_crows, HEADER + "a b,a c,both,age\n", "stereo_antistereo is 'both'"),
    "column": (read_crows, "sent_more,bias_type\na,age\n", "no column 'sent_less'; CrowS-Pairs has"),
    "json": (read_stereoset, "{", "broken JSON"),
    "shape": (read_stereoset, "[]", "is not in StereoSet's shape"),
    "labels": (
        read_stereoset,
        '{"data": {"intrasentence": [{"target": "a", "bias_type": "b", "context": "BLANK", "sentences": []}]}}',
        "intrasentence 1: needs one sentence each with gold_label stereotype, anti-stereotype, unrelated",
    ),
    "toml": (read_templates, "sentences = [", "broken TOML"),
    "field": (read_templates, "sentence = []", "'sentence' is no field"),
    "marks": (read_templates, 'sentences = ["he is [MASK]"]', "must hold [GROUP] once and [MASK] once"),
    "groups": (
        read_templates,
        'sentences = ["[GROUP] [MASK]"]\ngroups.a = ["x", "y"]\nattributes.b = ["z", "w"]',
        "1 of groups; 2 are needed",
    ),
    "member": (
        read_associations,
        '[[tests]]\ntargets.a = ["x"]\ntargets.b = ["y", "z"]\nattributes.c = ["v", "w"]\nattributes.d = ["t", "u"]',
        "test 1: targets.a has one member, 'x'; a group of one cannot be tested",
    ),
    "swap": (read_swaps, "he,HE", "'he' is swapped with itself"),
    "swaps": (read_swaps, "he", "a swap is two words"),
    "folder": (read_winobias, "", "is no directory; WinoBias is"),
}


@pytest.mark.parametrize(("read", "text", "said"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_told_in_one_line(
    read: Callable[[Any], Any], text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").write_text(text)
    with pytest.raises(LarvatusError) as fault:
        read("x")
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_models_without_the_head_are_refused_in_one_line(
    model: lv.Model, tmp_path: Path, save_tiny: Any, tiny_model: Any
) -> None:
    bare = lv.load(save_tiny(tmp_path / "bare", tiny_model(objectives=()), ()), device="cpu")
    for asked, said in (
        ({"pairs": [("a", "the")]}, "has no masked-lm head to score sentence pairs with"),
        ({"templates": WORDS}, "has no masked-lm head to fill templates with"),
        ({"test": [("he ran", "pos")]}, "has no head to predict with"),
        ({}, "nothing to audit with"),
        ({"swaps": [("a", "b")], "pairs": [("a", "the")]}, "swaps and columns are for labelled examples"),
        ({"winobias": winobias(tmp_path / "w", "1 [the bank] was [he] .\n" * 2)}, "nothing differs"),
    ):
        chosen = model if "winobias" in asked else bare
        with pytest.raises(LarvatusError, match=said):
            lv.audit_bias(chosen, **asked)
    assert lv.audit_bias(bare, associations=TESTS, samples=20).parts["associations"].tests  # needs no head


def test_the_command_prints_tables_and_limits_and_writes_json(
    model: lv.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.csv").write_text(HEADER + "the river was wide,the bank was wide,stereo,age\na b,the b,stereo,age\n")
    words = ["audit", "bias", "--model", model.bundle.path, "--pairs", tmp_path / "p.csv", "--device", "cpu"]
    for more in (["--out", tmp_path / "out"], ["--json"], ["--out", tmp_path / "out"]):
        with pytest.raises(SystemExit) as ended:
            run([*map(str, [*words, "--samples", 20, *more])])
        out, err = capsys.readouterr()
        if more == ["--json"]:
            assert json.loads(out)["parts"]["crows_pairs"]["scores"]["aul"]["overall"]["pairs"] == 2
        elif ended.value.code == 0:
            assert "Blodgett et al. 2021" in out
            assert "sent_more preferred %" in out
            assert "No figure here says" in out
            said = json.loads((tmp_path / "out" / "bias.json").read_text())
            assert said["parts"] == ["crows_pairs.json"]
            assert len(said["data"]["crows_pairs"]) == 64
    assert ended.value.code == 5
    assert "already holds bias.json" in err


def test_one_example_has_no_interval_and_two_that_agree_one_of_no_width() -> None:
    """Any sample of one example is that example again: its figure is not certain for it."""
    alone = Resampling(samples=50).mean([1.0], scale=100)
    assert (percent(alone), number(alone)) == (("100.0", "–"), ("+100.000", "–"))
    assert math.isnan(alone.deviation)
    assert percent(Resampling(samples=50).mean([1.0, 1.0], scale=100)) == ("100.0", "100.0 to 100.0")
