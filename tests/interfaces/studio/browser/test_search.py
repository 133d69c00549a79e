"""Search: files that are dropped become an index; passages, marked words and the map answer a question."""

from __future__ import annotations

from typing import Any

import pytest

import larvatus as lv
from larvatus.inference.search.late_index import match_words
from tests.interfaces.studio.browser.copied import run_curl, run_python
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.served import Served

pytestmark = pytest.mark.proof
RIVERS = "The river was wide 🌊 and deep. The <b>bank</b> of the river."
TABLE = "title,body\nOne,please turn your homework in\nTwo,a wide river bank\n"


def dropped(studio: Guarded, **params: Any) -> Any:
    """The view, with the chooser of documents open."""
    page = studio.open("search", **params)
    page.locator(".drop, details").first.wait_for()
    if page.get_by_text("Index other documents").count():
        page.get_by_text("Index other documents").click()
    return page


def files(*given: tuple[str, bytes]) -> list[dict[str, Any]]:
    return [{"name": name, "mimeType": "text/plain", "buffer": content} for name, content in given]


def test_files_become_an_index_and_a_question_is_answered_with_marks_and_a_map(studio: Guarded, served: Served) -> None:
    page = dropped(studio, model="rivers")
    page.set_input_files("input[type=file]", files(("notes.md", RIVERS.encode()), ("rows.csv", TABLE.encode())))
    page.get_by_label("Name of the index").fill("My rivers")
    page.get_by_label("Text column of tables").fill("body")
    page.get_by_role("button", name="Build the index").click()
    page.get_by_text("my-rivers can be searched now").wait_for()
    page.get_by_label("Question").fill("the wide river")
    page.get_by_role("button", name="Search", exact=True).click()
    page.locator(".hit-map [data-index]").first.wait_for()
    index = lv.Index.open(served.folder / "runs" / "studio-search" / "my-rivers" / "index", device="cpu")
    hits = list(index.search("the wide river", top=5))
    assert page.locator(".hit .passage").all_inner_texts() == [hit.text for hit in hits]  # the markup stays text
    expected = match_words(index.model, "the wide river", [hit.text for hit in hits], rarity=index.rarity)
    words = [
        hit.text[word.start : word.end] for hit, each in zip(hits, expected.passages, strict=True) for word in each
    ]
    assert page.locator("mark.match").all_inner_texts() == words
    assert page.locator(".hit-map [data-index]").count() == len(hits) == 3
    page.locator(".hit-map [data-index='2']").click()
    assert page.locator(".hit.chosen .hit-rank").inner_text() == "3"
    page.keyboard.press("ArrowLeft")
    assert page.locator(".hit.chosen .hit-rank").inner_text() == "2"
    studio.until_address("index=my-rivers", "query=the+wide+river")
    code = studio.copied("Copy as Python")
    assert run_python(code, served.folder).count("notes.md") == 1
    assert len(run_curl(studio.copied("Copy as curl"))["results"][0]["hits"]) == 3


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b" \n", "empty.txt is empty"),
        ("latin.txt", b"caf\xe9", "latin.txt is not UTF-8"),
        ("book.pdf", b"%PDF", "book.pdf cannot be indexed here"),
        ("large.txt", b"a" * 2_000_001, "Use larvatus search build for it"),
    ],
)
def test_a_file_that_cannot_be_indexed_says_why_and_the_others_stay(
    studio: Guarded, name: str, content: bytes, said: str
) -> None:
    page = dropped(studio)
    page.set_input_files("input[type=file]", files((name, content), ("good.txt", b"a river")))
    page.get_by_role("alert").get_by_text(said).wait_for()
    assert page.locator(".file-name").all_inner_texts() == ["good.txt"]
    page.get_by_role("button", name="Leave out good.txt").click()
    assert page.get_by_role("button", name="Build the index").count() == 0


def test_a_table_without_the_column_fails_in_words_and_an_empty_question_is_not_sent(studio: Guarded) -> None:
    page = dropped(studio)
    page.set_input_files("input[type=file]", files(("rows.csv", TABLE.encode())))
    page.get_by_label("Text column of tables").fill("boddy")
    page.get_by_role("button", name="Build the index").click()
    page.get_by_role("alert").get_by_text("boddy").wait_for()
    assert page.get_by_role("button", name="Continue").count() == 1
    if page.get_by_label("Question").count():
        before = len([url for url in studio.asked if url.endswith("/v1/search")])
        page.get_by_label("Question").fill("  ")
        page.get_by_role("button", name="Search", exact=True).click()
        page.get_by_text("Ask a question").wait_for()
        assert len([url for url in studio.asked if url.endswith("/v1/search")]) == before
