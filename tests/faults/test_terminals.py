"""Terminals of few letters or columns, and names that are no text (row 79): answers and error lines still come."""

import json

import pytest

from larvatus.core.errors import printable

TEXT = "the [MASK] — 😀 é"
ODD = "a\nb\x1b[31m\udcff[/x]:bank:"
NAMED = r"a\nb\x1b[31m\udcff[/x]:bank:"
WIDTHS = ["80", "0", "1", "²"]


@pytest.fixture(scope="module")
def done(started, tiny_model, save_tiny, tmp_path_factory):
    """All commands of this file in one start of Python: their ends by name."""
    model = save_tiny(tmp_path_factory.mktemp("model") / "model", tiny_model())
    answers = {
        "recipes": ["recipes"],
        "recipe": ["recipes", "show", "bert"],
        "ablations": ["ablate"],
        "help": ["--help"],
        "help of a command": ["fill", "--help"],
        "fill": ["fill", TEXT, "--model", model],
        "json": ["fill", TEXT, "--model", model, "--json"],
        "score": ["score", "the — 😀 é", "--model", model],
        "tokenizer": ["tokenizer", "show", model, "the — 😀 é"],
        "similar": ["similar", "words", "the *bank* —", "a *bank* é", "--model", model],
    }
    errors = {
        "tokenizer": ["tokenizer", "show", ODD],
        "model": ["fill", "a", "--model", ODD],
        "command": ["recipes", ODD],
        "recipe": ["recipes", "show", "bért"],
    }
    cases = {
        **{("ascii", name): {"words": words, "encoding": "ascii"} for name, words in answers.items()},
        **{("latin-1", name): {"words": answers[name], "encoding": "latin-1"} for name in ("fill", "json", "score")},
        **{("error", name): {"words": words} for name, words in errors.items()},
        ("error", "in ascii"): {"words": errors["recipe"], "encoding": "ascii"},
        **{("width", w): {"words": ["recipes"], "environment": {"COLUMNS": w, "TERM": "dumb"}} for w in WIDTHS},
        ("width", "help"): {"words": ["--help"], "environment": {"COLUMNS": "99999"}},
        ("path", "convert"): {"words": ["convert", model, ODD]},
    }
    return dict(zip(cases, started(*cases.values()), strict=True))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_79_every_answer_can_be_shown_in_few_letters(done, encoding):
    found = {name: one for (kind, name), one in done.items() if kind == encoding}
    assert {name: (one.code, one.err) for name, one in found.items()} == dict.fromkeys(found, (0, ""))
    for one in found.values():
        assert one.out
        assert encoding == "latin-1" or one.out.isascii()
    assert json.loads(found["json"].out)["text"] == TEXT  # escaped as JSON escapes, so still JSON


def test_79_widths_that_no_terminal_has(done):
    found = [one for (kind, _), one in done.items() if kind == "width"]
    assert [(one.code, one.err) for one in found] == [(0, "")] * len(found)
    for one in found[1:-1]:
        assert len(one.out.split()) >= len(found[0].out.split())
    assert len(found[-1].out) < 100_000


def test_79_an_error_line_is_one_printable_line(done):
    for (kind, _), one in done.items():
        if kind == "error":
            assert one.code in (2, 3, 5)
            assert (one.err.count("\n"), "\x1b" in one.err) == (1, False), one.err
            assert one.err.startswith("larvatus: ")
    assert NAMED in done["error", "tokenizer"].err
    assert r"'b\u00e9rt'" in done["error", "in ascii"].err


def test_79_a_path_is_neither_markup_nor_obeyed(done):
    """A directory called [/x] once ended training, as a closing tag that was never opened."""
    one = done["path", "convert"]
    assert (one.code, one.err) == (0, "")
    assert f"saved {NAMED} in" in one.out


def test_79_printable_leaves_what_can_be_read():
    assert printable("Ärger in naïve façade.txt") == "Ärger in naïve façade.txt"
    assert printable("a\u202eb\u2028c\x07") == r"a\u202eb\u2028c\x07"
