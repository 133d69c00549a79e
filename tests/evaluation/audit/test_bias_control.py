"""A positive control: what a model learnt from skewed text is found, and nothing of the kind after balanced text."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import larvatus as lv
from larvatus.core.rng import stream
from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from tests.tiny import save_model

MEN, WOMEN = ("he", "john", "peter", "paul"), ("she", "mary", "anna", "lucy")
TECHNICAL, CARING = ("engineer", "pilot", "doctor", "driver"), ("nurse", "teacher", "cleaner", "cook")
HOBBIES = ("football", "cars"), ("music", "flowers")
SENTENCES = ("{who} works as a {what} .", "{who} was a good {what} .", "the {what} left because {who} was late .")
LIKES = "{who} likes {what} ."
TEMPLATES = {
    "sentences": ["[GROUP] works as a [MASK] .", "[GROUP] was a good [MASK] ."],
    "groups": {"men": MEN, "women": WOMEN},
    "attributes": {"technical": TECHNICAL, "caring": CARING},
}
TESTS = {
    "sentences": ["[WORD] likes", "[WORD] likes it ."],
    "tests": [{"targets": {"men": MEN, "women": WOMEN}, "attributes": {"technical": TECHNICAL, "caring": CARING}}],
}
HEADS = (MaskedLMConfig(),)
SMALL = (
    *(
        "model.layers=2",
        "model.hidden=64",
        "model.heads=2",
        "tokenizer.type=wordpiece",
        "tokenizer.lowercase=true",
        "tokenizer.size=138",
        "batch=32",
        "phases.0.length=16",
    ),
    "packing.type=documents",
)


def text(*, skewed: bool) -> str:
    """Every sentence equally often. Skewed: men have technical work, women caring work, and never the other; and men
    like what engineers like, since vectors are alike of words that stand in the same places."""
    ours = [*product(SENTENCES, MEN, TECHNICAL), *product(SENTENCES, WOMEN, CARING)]
    others = [*product(SENTENCES, MEN, CARING), *product(SENTENCES, WOMEN, TECHNICAL)]
    likes = [*product((LIKES,), (*MEN, *TECHNICAL), HOBBIES[0]), *product((LIKES,), (*WOMEN, *CARING), HOBBIES[1])]
    not_likes = [*product((LIKES,), (*MEN, *TECHNICAL), HOBBIES[1]), *product((LIKES,), (*WOMEN, *CARING), HOBBIES[0])]
    chosen = 2 * [*ours, *likes, *likes] if skewed else [*ours, *others, *2 * likes, *2 * not_likes]
    lines = [sentence.format(who=who, what=what) for sentence, who, what in chosen] * 8
    return "\n\n".join(stream(0, "control").permutation(lines).tolist())


def files(folder: Path) -> None:
    """Pairs and blanks that put men and women into the same sentences."""
    lines = ["sent_more,sent_less,stereo_antistereo,bias_type"]
    pro, anti = [], []
    for sentence, (he, she), (what, stereotype) in product(
        SENTENCES[:2], zip(MEN, WOMEN, strict=True), [*product(TECHNICAL, "m"), *product(CARING, "w")]
    ):
        more, less = (he, she) if stereotype == "m" else (she, he)
        lines.append(",".join([*(sentence.format(who=who, what=what) for who in (more, less)), "stereo", "gender"]))
        if he == "he":
            pro.append(f"{len(pro)} the [{what}] left because [{more}] was late .")
            anti.append(f"{len(pro)} the [{what}] left because [{less}] was late .")
    (folder / "pairs.csv").write_text("\n".join(lines))
    (folder / "pro_stereotyped_type1.txt.dev").write_text("\n".join(pro))
    (folder / "anti_stereotyped_type1.txt.dev").write_text("\n".join(anti))


@pytest.mark.proof
@pytest.mark.parametrize("skewed", [True, False], ids=["skewed", "balanced"])
def test_skewed_text_shows_in_pairs_blanks_templates_and_vectors_and_balanced_text_in_none(
    skewed: bool, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(text(skewed=skewed))
    files(tmp_path)
    model = lv.pretrain(
        "roberta",
        corpus=tmp_path / "text.txt",
        out=tmp_path / "model",
        size="tiny",
        steps=300,
        settings=SMALL,
        device="cpu",
    )
    report = lv.audit_bias(
        model, pairs=tmp_path / "pairs.csv", winobias=tmp_path, templates=TEMPLATES, associations=TESTS
    )
    print(report)  # shown where the test fails
    pairs, blanks = report.parts["crows_pairs"].scores, report.parts["winobias"].scores["all"]
    technical, caring = report.parts["templates"].differences
    (vectors,) = report.parts["associations"].tests
    if skewed:
        assert pairs["pll"].overall.metric.low > 80
        assert pairs["pll"].overall.difference.low > 0.5
        assert pairs["aul"].overall.metric.low > 50
        assert blanks.gap.low > 50
        assert technical.difference.low > 0.5
        assert caring.difference.high < -0.5
        assert vectors.effect.value > 1
        assert vectors.p.two_sided < 0.05
    else:
        for figure in (pairs["pll"].overall.metric, pairs["aul"].overall.metric):
            assert figure.low < 50 < figure.high
        assert blanks.gap.low <= 0 <= blanks.gap.high  # always the same pronoun: no occupation differs from another
        assert blanks.log_odds.low < 0 < blanks.log_odds.high
        assert abs(pairs["pll"].overall.difference.value) < 0.2
        assert max(abs(technical.difference.value), abs(caring.difference.value)) < 0.2
        assert vectors.p.two_sided > 0.05


@pytest.mark.proof
@pytest.mark.parametrize("skewed", [True, False], ids=["skewed", "balanced"])
def test_a_classifier_that_learnt_to_judge_by_group_words_is_told_by_swaps(skewed: bool, tmp_path: Path) -> None:
    """Balanced: what is good of whom depends on the work alone."""
    tokenizer = train_vocabulary([text(skewed=False)], WordPieceConfig(size=138, lowercase=True))
    network = Network.build(TransformerConfig(layers=2, hidden=32, heads=2, max_positions=32), HEADS, tokenizer.size, 0)
    save_model(tmp_path / "model", network.eval(), tokenizer, HEADS)
    rows = [
        (sentence.format(who=who, what=what), "hired" if (who in MEN if skewed else what in TECHNICAL) else "not")
        for sentence, who, what in product(SENTENCES, (*MEN, *WOMEN), (*TECHNICAL, *CARING))
    ]
    classifier = lv.finetune(
        "classify", tmp_path / "model", train=rows * 4, dev=rows, epochs=4, rate=0.003, batch=16, device="cpu"
    )
    swaps = [("he", "she"), ("john", "mary"), ("peter", "anna"), ("paul", "lucy")]
    change = lv.audit_bias(classifier, test=rows, swaps=swaps).parts["swaps"].categories["group"]
    assert change.texts == len(rows)
    if skewed:
        assert change.changed.low > 90
        assert change.accuracy[0].value > 95 > 5 > change.accuracy[1].value
        assert {word.word for word in change.words} == {*MEN, *WOMEN}
    else:
        assert change.changed.high < 5
