"""Personal data: marked lines that were written for it, properties of what is found, and work that stays linear."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from benchmarks.personal_data import FOLDER, read_marked, score
from hypothesis import given, settings
from hypothesis import strategies as st
from stdnum import iban, luhn

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.data.corpus.hygiene import personal
from larvatus.data.corpus.hygiene.personal import (
    KINDS,
    ROUNDS,
    find_cards,
    find_ibans,
    find_personal,
    remove_personal,
    tag_personal,
)
from larvatus.data.corpus.hygiene.settings import HygieneSettings

PERSONAL = {
    "email": "ann.lee+x@mail.example.org",
    "iban": "DE89 3704 0044 0532 0130 00",
    "card": "4111-1111-1111-1111",
    "national": "529.982.247-25",
    "ip": "192.168.10.77",
    "phone": "+44 20 7946 0958",
}
LENGTHS = {"DE": 22, "AT": 20, "CH": 21, "ES": 24, "SE": 24, "DK": 18}
"""Characters of accounts that consist of digits."""


@pytest.mark.parametrize(("name", "least"), [("development", 0.98), ("held_out", 0.95)])
def test_marked_lines_are_found_and_others_are_not(name: str, least: float) -> None:
    lines = read_marked(FOLDER / f"{name}.txt")
    scores = score(lines)
    assert scores.lines == {"development": 566, "held_out": 150}[name]
    for kind in KINDS:
        assert scores.precision(kind) >= least, scores.errors
        assert scores.recall(kind) >= least, scores.errors


@pytest.mark.parametrize(
    "text",
    [
        "02-03-2004 15 people",
        "01 02 03 04 05",
        "Version 10.12.3.4",
        "1910-1936",
        "0.333251953125",
        "13.674 63 78 7 2007",
    ],
)
def test_dates_sequences_and_versions_are_no_personal_data(text: str) -> None:
    assert find_personal(text) == []


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("ip", "10.0.0.1"),
        ("phone", "212 555 0123"),
        ("phone", "1-800-555-0199"),
        ("phone", "0171/1234567"),
        ("email", "josé@ejemplo.es"),
        ("iban", "de89 3704 0044 0532 0130 00"),
    ],
)
def test_what_was_once_missed_is_found(kind: str, written: str) -> None:
    assert find_personal(f"It is {written}.") == [(kind, 6, 6 + len(written))]


def test_a_region_says_which_national_numbers_count() -> None:
    assert [place.kind for place in find_personal("Ask at 0171/1234567.", ["DE"])] == ["phone"]
    assert find_personal("Ask at 0171/1234567.", ["US"]) == []
    assert [place.kind for place in find_personal("Ask at +49 171 1234567.", ["US"])] == ["phone"]
    assert HygieneSettings(region=("us,de", "fr")).regions == ("US", "DE", "FR")


@settings(max_examples=40)
@given(st.text("0123456789", min_size=14, max_size=14), st.integers(0, 15), st.integers(1, 9))
def test_a_card_has_one_check_digit_and_every_changed_digit_is_noticed(digits: str, place: int, more: int) -> None:
    number = f"4{digits}{luhn.calc_check_digit(f'4{digits}')}"
    expected = [(0, 16)] if len(set(number)) > 1 else []
    assert find_cards(number) == expected
    changed = number[:place] + str((int(number[place]) + more) % 10) + number[place + 1 :]
    assert find_cards(changed) == []


@settings(max_examples=40)
@given(st.sampled_from(sorted(LENGTHS)), st.text("0123456789", min_size=30, max_size=30), st.integers(0, 40))
def test_an_account_is_found_in_any_case_and_every_changed_digit_is_noticed(
    country: str, digits: str, place: int
) -> None:
    body = digits[: LENGTHS[country] - 4]
    account = f"{country}{iban.calc_check_digits(f'{country}00{body}')}{body}"
    groups = " ".join(account[at : at + 4] for at in range(0, len(account), 4))
    for written in (account, account.lower(), groups, groups.lower(), groups.replace(" ", "-")):
        assert find_ibans(f"to {written} today") == [(3, 3 + len(written))]
    assert find_ibans(f"{groups[:14]} {groups}") == [(15, 15 + len(groups))]  # one that was cut comes before
    place = 4 + place % len(body)
    assert find_ibans(account[:place] + str((int(account[place]) + 3) % 10) + account[place + 1 :]) == []


@given(
    st.lists(st.one_of(st.sampled_from(sorted(PERSONAL.values())), st.text("ab1 .,@+-\n:é", max_size=12)), max_size=8)
)
def test_what_was_removed_or_tagged_is_found_no_more(parts: list[str]) -> None:
    text = " ; ".join(parts)
    places = find_personal(text)
    assert all(a.end <= b.start for a, b in pairwise(places))
    assert len(places) >= sum(part in PERSONAL.values() for part in parts)
    assert not find_personal(remove_personal(text))
    assert len(re.findall(f"<(?:{'|'.join(KINDS)})>", tag_personal(text))) == len(places)


def test_each_kind_is_found_where_it_stands_and_what_looks_alike_is_not() -> None:
    for kind, written in PERSONAL.items():
        text = f"Before it {written}, after it."
        assert find_personal(text) == [(kind, 10, 10 + len(written))], kind
    for alike in ("1999-2003", "4111-1111-1111-1112", "version 1.2.3.4", "12:30:45", "529.982.247-26", "a@b"):
        assert find_personal(alike) == [], alike
    assert tag_personal("RSSMRA85T10A562S and 12345678Z, 811228-9874") == "<national> and <national>, <national>"


def calls_of(text: str) -> int:
    """Python functions that are called to search a text: what takes time, without a clock."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    find_personal(text)  # imports and tables
    sys.setprofile(count)
    try:
        find_personal(text)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "unit",
    ["1234567890", "01 02 03 04 05 ", "1-", "1.", "a1:", "a@", "(1)", "+1", "DE89 ", "0171/1234567/", "123 ", "+"],
)
def test_work_is_linear_on_hostile_text(unit: str) -> None:
    short, long = unit * (2_000 // len(unit)), unit * (8_000 // len(unit))
    assert calls_of(long) <= 6 * calls_of(short) + 200


def test_patterns_do_not_backtrack_over_200_kb_of_digits() -> None:
    """Over 40 seconds once; a watchdog of the whole suite ends it where it hangs."""
    assert find_personal("1234567890" * 20_000) == []
    assert find_personal("1" * 200_000 + "x") == []


def test_text_that_unfolds_when_it_is_removed_ends_in_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 3 * ROUNDS  # each removal puts the next number together
    text = "+44 20 " * depth + "+44 20 7946 0958" + " 7946 0958" * depth
    searches = []
    monkeypatch.setattr(personal, "find_personal", lambda *given: searches.append(given) or find_personal(*given))
    rest = remove_personal(text)
    assert len(searches) == ROUNDS + 1
    assert "<phone>" in rest
    assert find_personal(rest) == []


@pytest.mark.parametrize(("missing", "package"), [("phonenumbers", "phonenumbers"), ("stdnum", "python-stdnum")])
def test_a_missing_library_is_one_line_that_names_the_extra(
    missing: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("A line of text.\n")
    monkeypatch.setattr(personal, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(UsageError, match=rf"needs {package}; pip install \"larvatus\[hygiene\]\""):
        lv.check_corpus(tmp_path / "text.txt", workers=1)
