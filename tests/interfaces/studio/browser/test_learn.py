"""Learn in a browser: a small file is dropped, recognised and learnt; the curve moves, and the result can be tried."""

from __future__ import annotations

import csv
import io
import re

import pytest

from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.models import HOSTILE
from tests.interfaces.studio.browser.served import Served

pytestmark = pytest.mark.proof
LOSS_CURVE = "[role=img][aria-label^=Loss] .scatterlayer .trace path.js-line"
MOVED = "([curve, before]) => document.querySelector(curve).getAttribute('d') !== before"
WET, DRY = (
    ("the river", "a deep river", "river bank", "the bank of a river"),
    ("your homework", "turn in", "please run", "a run"),
)


def table(rows: int = 40, *, wet: str = "wet", dry: str = "dry") -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["text", "label"])
    for number in range(rows):
        texts, label = ((WET, wet), (DRY, dry))[number % 2]
        writer.writerow([f"{texts[number // 2 % 4]} was wide {'and deep ' * (number // 8)}".strip(), label])
    return out.getvalue().encode()


def give(studio: Guarded, name: str, content: bytes) -> None:
    studio.page.get_by_text("Choose a file").wait_for()
    studio.page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "text/csv", "buffer": content})


def test_a_file_is_learnt_with_a_curve_and_the_result_is_tried(studio: Guarded) -> None:
    page = studio.open("learn", model="rivers", trained="all")
    give(studio, "weather.csv", table(wet=HOSTILE))
    page.get_by_role("heading", name="What was recognised").wait_for()
    assert page.get_by_label("Task").input_value() == "classify"
    assert HOSTILE in page.get_by_role("list", name="Labels and how often each occurs").inner_text()
    page.get_by_label("Epochs").fill("12")
    page.get_by_label("Learning rate").fill("0.01")
    page.get_by_role("button", name="Learn", exact=True).click()
    page.get_by_role("heading", name="Done: weather").wait_for()
    page.locator(LOSS_CURVE).first.wait_for()
    page.get_by_text("bag of words: accuracy").wait_for()
    assert page.get_by_role("region", name="Scores").locator("tbody tr").count() == 2
    page.get_by_role("link", name="Try it in Label").click()
    page.get_by_role("heading", level=1, name="Label").wait_for()
    assert studio.params()["model"] == "weather"
    page.get_by_label("Text", exact=True).fill("the river was wide")
    page.locator(".answer", has_text=HOSTILE).wait_for()
    page.get_by_label("Text", exact=True).fill("please run was wide")
    page.locator(".answer", has_text="dry").wait_for()
    page.get_by_role("link", name="Runs").click()
    page.get_by_text("studio/weather").wait_for()


def test_the_code_that_is_copied_teaches_too_and_a_training_can_be_stopped(studio: Guarded, served: Served) -> None:
    page = studio.open("learn", model="rivers", epochs=1, trained="head")
    give(studio, "rain.csv", table(80))
    page.get_by_role("button", name="Copy as Python").wait_for()
    (served.folder / "rain.csv").write_bytes(table(80))
    run_python(studio.copied("Copy as Python"), served.folder)
    assert (served.folder / "runs" / "rain" / "README.md").is_file()
    page.get_by_label("Epochs").fill("1000")
    assert run_curl(studio.copied("Copy as curl"))["phase"] == "training"
    page.get_by_role("heading", name="Training: rain").wait_for()
    page.get_by_text(re.compile(r"^\d+(\.\d)?% · about .* left · step")).wait_for()  # how far, and how long
    before = page.locator(LOSS_CURVE).first.get_attribute("d")
    studio.until(MOVED, [LOSS_CURVE, before])  # in a training of minutes: a short one may end before it is looked at
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("heading", name="Stopped: rain").wait_for()


def test_rows_that_cannot_be_used_are_listed_and_skipped_by_a_click(studio: Guarded) -> None:
    page = studio.open("learn", model="rivers")
    give(studio, "holes.csv", table(16) + f",wet\n{HOSTILE},\n".encode())
    page.get_by_text("2 rows cannot be used.").wait_for()
    places = page.locator(".places li")
    assert [text.partition(": ")[0] for text in places.all_inner_texts()] == ["holes.csv:18", "holes.csv:19"]
    assert page.get_by_role("button", name="Learn", exact=True).count() == 0
    page.get_by_role("button", name="Skip them").click()
    page.get_by_text("2 rows skipped").wait_for()
    assert places.count() == 2
    page.get_by_role("button", name="Learn", exact=True).wait_for()
    assert 'errors="skip"' in studio.copied("Copy as Python")
    page.get_by_role("button", name="Do not skip them").click()
    page.locator(".notice-bad", has_text="Training would stop").wait_for()


def test_several_ways_are_compared_by_default_and_the_best_is_served(studio: Guarded, served: Served) -> None:
    page = studio.open("learn", model="rivers", minutes=2)
    give(studio, "tides.csv", table(40))
    page.get_by_role("button", name="Learn", exact=True).wait_for()
    assert page.get_by_label("Trainable").input_value() == "auto"
    assert page.get_by_label("Epochs").count() == 0
    (served.folder / "tides.csv").write_bytes(table(40))
    assert "auto=True, minutes=2" in studio.copied("Copy as Python")
    page.get_by_role("button", name="Learn", exact=True).click()
    page.get_by_role("heading", name="Done: tides").wait_for()
    assert page.locator(LOSS_CURVE).count() == 0  # a comparison has no curve, and that of an earlier training is gone
    rows = page.get_by_role("region", name="Scores").locator("tbody th").all_inner_texts()
    assert "TF-IDF, logistic regression" in rows
    assert sum(name.endswith("(kept)") for name in rows) == 1
    page.get_by_label("Trainable").select_option("all")
    page.get_by_label("Epochs").wait_for()
    assert "trained" not in studio.copied("Copy as Python")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("latin.csv", "text,label\ncafé,wet\n".encode("latin-1"), "is not UTF-8"),
        ("empty.csv", b"", "the file is empty"),
        ("picture.png", b"\x89PNG", "not UTF-8"),
        ("program.exe", b"MZ", "cannot be used here"),
        ("ragged.csv", b"text,label\nonly one cell\n", "ragged.csv:2"),
        ("big.csv", b"x" * 5_000_001, "5,000,001 bytes"),
    ],
)
def test_a_file_that_cannot_be_learnt_says_why(studio: Guarded, name: str, content: bytes, said: str) -> None:
    studio.allow(r"status of 4\d\d")  # chromium's own words for what the server refused
    studio.open("learn", model="rivers")
    give(studio, name, content)
    notice = studio.page.locator(".notice-bad")
    notice.wait_for()
    assert said in notice.inner_text()
    assert studio.page.get_by_role("button", name="Learn", exact=True).count() == 0
