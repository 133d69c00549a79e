"""Plans of pretraining runs: what is counted in a text, what is warned of, and predictions of a fit."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import larvatus as lv
from larvatus.core.errors import DataError
from larvatus.data.text.documents import Document
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, train_vocabulary
from larvatus.evaluation.compare.word_nll import MaskedPassages
from larvatus.evaluation.planning.loss import Amount, LossFit, read_runs, unigram_word_nll
from larvatus.evaluation.planning.plan import PretrainingPlan
from larvatus.evaluation.planning.scan import count_words, pieces, scan_text, script_of
from larvatus.models.recipes import read_recipe

SENTENCES = [
    "The river ran past the old bank of the town in number {}.",
    "Nobody knew why the boat lay there on day {} of the year.",
    "Turn your homework in, please, before lesson {} begins again.",
]


def documents(count, *texts):
    made = [" ".join(line.format(number) for line in SENTENCES) for number in range(count)]
    return [Document(text, "text.txt", line=number) for number, text in enumerate([*made, *texts])]


def scan_of(*given, language="en"):
    return scan_text(lambda: given, language=language)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "text.txt"
    texts = [document.text.replace("\n\n", "\n") for document in itertools.islice(embedded_documents("train"), 34)]
    path.write_text("\n\n".join(text[:4_000] for text in texts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(corpus):
    return lv.plan(corpus, device="cpu")


def test_a_scan_counts_words_and_repeats():
    texts = documents(6)
    scan = scan_of(*texts, texts[0], texts[3])
    each = count_words(texts[0].text)
    assert (scan.documents, scan.words, scan.exact_words) == (8, 8 * each, 2 * each)
    assert any("repeat others" in line for line in scan.warnings())
    assert sum(scan.scripts.values()) == pytest.approx(1)


def test_pieces_keep_every_word_and_their_limits():
    text = "\n".join([f"line {number} of the text" for number in range(95)] + ["word " * 3_000])
    parts = list(pieces(text))
    assert " ".join(parts).split() == text.split()
    assert max(len(part.splitlines()) for part in parts) == 20
    assert max(map(len, parts)) <= 4_000 + 20


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Privet, kak dela u tebya segodnya vecherom doma", "ru", "romanised"),
        ("это предложение написано буквами but half of it is English words", "ru", "romanised"),
        ("the words of this line are plain и несколько слов другого письма", "en", "letters of several scripts"),
        ("cлово пpимер тeкст мoре гoрод дoм", "uk", "mix Latin letters"),
        ("这是一个没有空格的句子", "zh", "scripts without spaces"),
    ],
)
def test_mixed_and_romanised_text_is_warned_of(text, language, expected):
    warned = scan_of(Document(text, "a.txt"), language=language).warnings()
    assert any(expected in line for line in warned), warned


@pytest.mark.parametrize("text", ["漢字とかなはいっしょに書く", "어머니 漢字"])
def test_scripts_that_are_written_together_are_not_mixed(text):
    assert not any("several scripts" in line for line in scan_of(Document(text, "a.txt"), language="ja").warnings())


def test_scripts_are_those_of_unicode():
    assert [script_of(char) for char in "aжλשगก山あ"] == [
        "Latin", "Cyrillic", "Greek", "Hebrew", "Devanagari", "Thai", "Han", "Hiragana",
    ]  # fmt: skip


def test_the_baseline_is_the_code_length_of_tokens_by_their_frequency():
    texts = [document.text for document in documents(40)]
    tokenizer = train_vocabulary(texts, ByteBPEConfig(size=400), allow_smaller=True)
    passages = MaskedPassages.of([Document(text, "a") for text in texts[:5]])
    direct, visible, charged = 0.0, [], []
    for passage in passages.passages:
        alignment = tokenizer.encode_many([passage.text])[0]
        for number, (start, end) in enumerate(passage.words):
            tokens = alignment.marked_tokens_of_chars(start, end)
            if number not in passage.hidden:
                visible.append(len(tokens))
                continue
            charged.append(len(tokens))
            for place in tokens:
                count = tokenizer.counts[alignment.ids[place]]
                direct -= math.log((count + 1) / (tokenizer.counts.sum() + tokenizer.size))
    for length in charged:
        direct -= math.log((visible.count(length) + 0.5 ** (length + 1)) / (len(visible) + 1))
    assert unigram_word_nll(tokenizer, passages) == pytest.approx(direct / len(charged))
    bare = Tokenizer.from_library(tokenizer.library, config=tokenizer.config)
    assert unigram_word_nll(bare, passages) is None


def test_a_token_of_a_later_epoch_is_worth_less():
    amounts = [Amount(words=60, text=100, seen=100 * epochs, parameters=1) for epochs in (1, 2, 4, 40, 4_000)]
    effective = [amount.effective for amount in amounts]
    gains = np.diff(effective) / np.diff([amount.seen for amount in amounts])
    assert effective[0] == 100
    assert effective == sorted(effective)
    assert list(gains) == sorted(gains, reverse=True)
    assert effective[-1] == pytest.approx(100 * 16)


def test_the_packaged_fit_is_that_of_the_packaged_runs():
    """The coefficients are a least-squares fit: moving any of them gives a larger sum of squares."""
    fit, runs = LossFit.packaged(), read_runs()
    assert fit.runs == len(runs)

    def squares(curve):
        return sum((curve.share(run.amount) - run.loss / run.unigram) ** 2 for run in runs)

    best = squares(fit)
    for name in ("floor", "slope", "middle", "size"):
        for step in (-0.01, 0.01):
            assert squares(msgspec.structs.replace(fit, **{name: getattr(fit, name) * (1 + step)})) > best
    for name, attribute in (("words", "words"), ("tokens seen", "seen"), ("parameters", "parameters")):
        values = [getattr(run, attribute) for run in runs]
        assert fit.ranges[name] == (min(values), max(values))


def test_more_text_is_never_predicted_to_be_worse_and_the_range_is_kept():
    fit = LossFit.packaged()
    amount = Amount(words=100_000, text=170_000, seen=1_700_000, parameters=1_000_000)
    more = replace(amount, words=1_000_000, text=1_700_000, seen=17_000_000)
    near, far = (fit.predict(each, unigram=13.0) for each in (amount, more))
    assert far.loss < near.loss < 13.0
    assert near.low < near.loss < near.high
    assert near.outside == ()
    beyond = fit.predict(replace(amount, parameters=10**10), unigram=13.0)
    assert beyond.outside
    assert "parameters" in beyond.outside[0]


def test_a_plan_says_what_to_do_and_its_command_is_one_that_pretrain_takes(made, corpus):
    assert isinstance(made, PretrainingPlan)
    assert (made.size, made.vocabulary) == ("tiny", 1_000)
    assert made.minutes > 0
    words = made.command(str(corpus)).split()
    settings = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    recipe = read_recipe(words[2], size=made.size, settings=settings)
    assert (recipe.batch, recipe.tokenizer.size) == (made.batch, made.vocabulary)
    assert [row["times"] for row in made.to_dicts()] == [1, 2, 10]
    losses = [row["loss"] for row in made.to_dicts()]
    assert losses == sorted(losses, reverse=True)
    assert "nats a word" in str(made)
    assert json.loads(json.dumps(made.to_dict()))["size"] == "tiny"


def test_minutes_limit_the_epochs(made, corpus):
    minutes = made.minutes / 20
    shorter = lv.plan(corpus, minutes=minutes, device="cpu")
    assert shorter.epochs < made.epochs


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--minutes", "3", "--no-measure"], 2, "--minutes needs the speed of this machine"),
        (["--size", "huge"], 3, "huge"),
        (["--epochs", "-1"], 2, "--epochs"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(words, code, expected, corpus, larvatus):
    got, _, said = larvatus("plan", corpus, *words)
    assert got == code
    assert expected in said


def test_text_that_only_repeats_is_too_little(tmp_path, larvatus):
    path = tmp_path / "same.txt"
    path.write_text("\n\n".join(document.text for document in documents(120)), encoding="utf-8")
    code, _, said = larvatus("plan", path)
    assert code == 4
    assert "4,284 more are in documents that repeat others" in said


def test_too_little_text_is_refused(tmp_path, larvatus):
    (tmp_path / "few.txt").write_text("Only a few words.\n", encoding="utf-8")
    code, _, said = larvatus("plan", tmp_path / "few.txt")
    assert code == 4
    assert "too few to plan with" in said
    with pytest.raises(DataError, match="too few"):
        lv.plan(tmp_path / "few.txt")


def test_the_command_prints_tables_json_and_what_to_do_next(corpus, larvatus):
    code, out, _ = larvatus("plan", corpus, "--no-measure")
    assert code == 0
    assert "next: larvatus pretrain modern --size tiny" in out
    code, out, _ = larvatus("plan", corpus, "--no-measure", "--json")
    assert code == 0
    assert json.loads(out)["outlooks"][0]["minutes"] is None
