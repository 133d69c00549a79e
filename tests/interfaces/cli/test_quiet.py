"""`--quiet`: results and errors stay, progress and what to do next go; before or after the command's name."""

import pytest

from larvatus.interfaces.cli.output import is_quiet
from tests.shared import SMALL

SENTENCES = "The river ran past the bank of the town. Number {} was seen there. Nobody knew why the boat lay there.\n\n"


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(SENTENCES.format(number) for number in range(60)))
    return path


def test_results_stay_and_chat_goes(larvatus, texts, tmp_path):
    train = ("tokenizer", "train", texts, "--size", 80)
    assert "next: " in larvatus(*train, "--out", tmp_path / "loud")[1]
    for number, words in enumerate([("--quiet", *train), (*train, "--quiet")]):
        code, out, err = larvatus(*words, "--out", tmp_path / f"quiet{number}")
        assert (code, err) == (0, "")
        assert "vocabulary of 80 tokens" in out
        assert "next: " not in out
    assert not is_quiet()


def test_a_quiet_run_says_what_it_reached_and_where_it_is(larvatus, texts, tmp_path):
    settings = [word for setting in (*SMALL, "tokenizer.size=80") for word in ("--set", setting)]
    words = ["pretrain", "bert", "--corpus", texts, "--valid", texts, "--out", tmp_path / "run", "--steps", 2]
    code, out, err = larvatus(*words, *settings, "--quiet")
    assert (code, err) == (0, "")
    *held_out, saved = out.splitlines()
    assert saved.startswith("saved ")
    assert held_out
    assert all(line.startswith("held out, length ") for line in held_out)


def test_errors_stay(larvatus, tmp_path):
    code, out, err = larvatus("corpus", "build", tmp_path / "none", "--tokenizer", "x", "--out", "y", "--quiet")
    assert (code, out) == (5, "")
    assert err.startswith("larvatus: ")


def test_a_quiet_fine_tuning_says_what_it_reached(larvatus, tiny_directory, tmp_path):
    examples = tmp_path / "examples.tsv"
    examples.write_text("text\tlabel\n" + "good fine\tpos\nbad poor\tneg\n" * 10)
    words = ["finetune", "classify", "--model", tiny_directory, "--train", examples, "--epochs", 1, "--device", "cpu"]
    words += ["--dev", examples, "--quiet", "--out", tmp_path / "tuned"]
    code, out, err = larvatus(*words)
    assert (code, err) == (0, "")
    assert out.startswith("held out")
    assert "accuracy" in out
    assert "training:" not in out
    assert "next: " not in out
