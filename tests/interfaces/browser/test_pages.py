"""The pages in a real browser: nothing is asked of the network, points tell their sentence, heads can be chosen.

Wants the extra `browser` and a chromium of the system; without them these tests are skipped, and say so (needs.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from larvatus.data.corpus.hygiene.check import CorpusCheck, Example, PersonalCount, Reason, SharedSet
from larvatus.inference.interpret.attention import TextAttention
from larvatus.inference.maps.instances import CorpusInstance
from larvatus.inference.maps.picture import map_page
from larvatus.inference.maps.word_map import WordMap
from larvatus.interfaces.api.corpora import corpus_page
from larvatus.interfaces.cli.commands.attention import attention_page
from tests.interfaces.browser.needs import started_chromium
from tests.patience import WATCHDOG_S

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with started_chromium() as browser:
        yield browser


class Opened:
    """A page with all that went wrong in it: requests beyond its own file, errors, refusals."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.faults: list[str] = []
        self.page = browser.new_page(viewport={"width": 1200, "height": 900})
        self.page.set_default_timeout(WATCHDOG_S * 1000)
        self.page.route("**/*", lambda route: self._guard(route, path.as_uri()))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.goto(path.as_uri())

    def _guard(self, route: Any, own: str) -> None:
        if route.request.url == own:
            route.continue_()
        else:
            self.faults.append(f"asked for {route.request.url}")
            route.abort()


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    pages = []

    def open_page(html: str) -> Opened:
        path = tmp_path / f"page{len(pages)}.html"
        path.write_text(html, encoding="utf-8")
        pages.append(Opened(chromium, path))
        return pages[-1]

    yield open_page
    for one in pages:
        assert one.faults == []
        assert one.page.evaluate("window.broken") is None  # no sentence ran as a script
        one.page.close()


SENTENCES = [
    "🙂 They sat on the bank of the river.",
    "The bank </script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'> closed.",
    "A bank & <b>nothing</b> else.",
]
CORNERS = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def made_map(count: int = 3) -> WordMap:
    instances = []
    for number in range(count):
        text = SENTENCES[number % 3]
        start = text.index("bank")
        instances.append(
            CorpusInstance("bank", text, start, start + 4, "made.txt", number + 1, ("en", "de")[number % 2])
        )
    draw = np.random.default_rng(0).random((max(0, count - 3), 2))
    return WordMap(
        words=("bank",),
        instances=tuple(instances),
        points=np.concatenate([CORNERS, draw]),
        method="umap",
        clusters=tuple(("river, water", "</script>, money")[number % 2] for number in range(count)),
        total=count,
        documents=1,
        tokens=10,
    )


def hover_corner(page: Any, x: float, y: float) -> str:
    """Move to a point given in the units of the map, and read what is said; the margin is 40 pixels."""
    box = page.locator("#canvas").bounding_box()
    page.mouse.move(box["x"] + 40 + x * (box["width"] - 80), box["y"] + 40 + (1 - y) * (box["height"] - 80))
    page.wait_for_timeout(50)
    return str(page.locator("#tip span").inner_text())


def test_points_hover_with_their_sentence_and_its_word(opened) -> None:
    page = opened(map_page(made_map())).page
    for (x, y), sentence in zip(CORNERS, SENTENCES, strict=True):
        assert hover_corner(page, x, y) == sentence
        assert page.locator("#tip mark").inner_text() == "bank"
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden()


def test_search_legend_and_colours(opened) -> None:
    page = opened(map_page(made_map(), colour="language")).page
    assert page.locator("#count").inner_text() == "3 of 3 instances"
    page.fill("#search", "RIVER sat")
    assert page.locator("#count").inner_text() == "1 of 3 instances"
    assert page.locator("#lines li span").all_inner_texts() == [SENTENCES[0]]
    page.click("#whole")
    assert page.locator("#legend button").all_inner_texts()[0].split() == ["en", "2"]
    page.locator("#legend button").first.click()
    assert page.locator("#legend button").first.get_attribute("aria-pressed") == "false"
    assert page.locator("#count").inner_text() == "1 of 3 instances"
    page.select_option("#colour", "cluster")
    assert "</script>, money" in page.locator("#legend").inner_text()
    assert page.locator("#count").inner_text() == "3 of 3 instances"


def test_thousands_of_points_stay_quick(opened) -> None:
    html = map_page(made_map(5_000))
    assert len(html) < 2_500_000
    page = opened(html).page
    page.mouse.move(400, 400)
    page.mouse.wheel(0, -300)
    page.fill("#search", "river")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator("#count").inner_text() == "1,667 of 5,000 instances"
    assert page.locator("*").count() < 2_000  # points are drawn, and few lines are elements


def made_attention(layers: int, heads: int, tokens: int) -> TextAttention:
    draw = np.random.default_rng(1)
    few = np.exp(3 * draw.normal(size=(3, tokens, tokens)))
    weights = np.empty((layers, heads, tokens, tokens), dtype=np.float32)
    for layer in range(layers):
        for head in range(heads):
            weights[layer, head] = np.roll(few[(layer + head) % 3], (layer, head), (0, 1))
    weights /= weights.sum(-1, keepdims=True)
    names = ("[CLS]", *(("</script>" if n == 1 else f"token{n}") for n in range(1, tokens - 1)), "[SEP]")
    return TextAttention("a </script> text", names, np.zeros(tokens, dtype=bool), weights)


def test_a_head_can_be_chosen_and_tokens_tell_their_weights(opened) -> None:
    found = made_attention(3, 4, 9)
    page = opened(attention_page(found, layer=2, head=3)).page
    page.wait_for_selector("body[data-shown='2-3']")
    page.select_option("#layer", "3")
    page.wait_for_selector("body[data-shown='3-3']")
    page.click("button[data-name='3-1']")
    page.wait_for_selector("body[data-shown='3-1']")
    assert page.locator("#head").input_value() == "1"
    page.hover("#words span:nth-child(5)")
    said = page.locator("#reading").inner_text()
    best = int(found.head(3, 1)[4].argmax())
    start, _, rest = said.partition(" looks at ")
    name, weight = rest.split(", ")[0].rsplit(" ", 1)
    assert (start, name) == ("token4", found.tokens[best])
    assert abs(float(weight) - found.head(3, 1)[4, best]) < 0.006
    page.focus("#canvas")
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("body[data-shown='2-1']")


def test_the_canvas_shows_the_chosen_head(opened) -> None:
    """Two heads, one that looks at itself, one at the token before: dark where the weight is."""
    tokens = 8
    weights = np.stack([np.eye(tokens), np.eye(tokens, k=-1)])[None].astype(np.float32)
    weights[0, 1, 0, 0] = 1
    names = tuple("abcdefgh")
    page = opened(attention_page(TextAttention("x", names, np.zeros(tokens, dtype=bool), weights))).page
    dark = """(place) => {
      const [i, j] = place, ratio = window.devicePixelRatio || 1;
      const at = (n) => Math.round((edge + (n + 0.5) * cell) * ratio);
      return canvas.getContext("2d").getImageData(at(j), at(i), 1, 1).data[0] < 120;
    }"""
    page.wait_for_selector("body[data-shown='1-1']")
    assert [page.evaluate(dark, [4, j]) for j in (3, 4, 5)] == [False, True, False]
    page.click("button[data-name='1-2']")
    page.wait_for_selector("body[data-shown='1-2']")
    assert [page.evaluate(dark, [4, j]) for j in (3, 4, 5)] == [True, False, False]


def test_512_tokens_with_all_heads_of_bert_base_stay_responsive(opened) -> None:
    page = opened(attention_page(made_attention(12, 12, 512))).page
    page.wait_for_selector("body[data-shown='1-1']")
    for layer, head in ((12, 12), (6, 3), (1, 7)):
        page.click(f"button[data-name='{layer}-{head}']")
        page.wait_for_selector(f"body[data-shown='{layer}-{head}']")
    page.hover("#words span:nth-child(100)")
    assert page.locator("#reading").inner_text().startswith("token99 looks at ")
    assert page.locator("*").count() < 2_000  # 37 million weights are drawn, and none is an element


def test_a_corpus_check_shows_its_tables_and_text_as_text(opened: Any) -> None:
    hostile = "<img src=x onerror='window.broken = 1'></script><b>bold</b>"
    check = CorpusCheck(
        documents=40,
        words=900,
        bytes=5_000,
        reasons={"near": Reason(2, 30, (Example("a.txt:7", hostile, "a.txt:1"),))},
        near={"0.25": 2},
        left_out=2,
        languages={"en": 40},
        personal={"email": PersonalCount(1, 1)},
        lengths={"half": 20.0},
        letters={"half": 0.9},
        sets=(SharedSet("test.jsonl", 3, 2, 1, 1, 13, (hostile,)),),
    )
    page = opened(corpus_page("a.txt", check)).page
    assert "near duplicates" in page.inner_text("#tables")
    assert "5.00%" in page.inner_text("#tables")
    assert page.locator("#examples li").first.inner_text().startswith(hostile)
    assert "a.txt:7 repeats a.txt:1" in page.inner_text("#examples")
