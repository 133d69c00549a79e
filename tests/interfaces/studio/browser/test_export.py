"""The exported page in chromium, served as plain files: Python's numbers, offline, for all, in both themes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import larvatus
from larvatus.interfaces.studio.export import PAGE, export_page
from larvatus.models.bundle.convert import convert_bundle
from tests.interfaces.browser.needs import runtime_folder
from tests.interfaces.studio.browser.axe import grave
from tests.interfaces.studio.browser.guarded import Guarded

pytestmark = pytest.mark.proof
TEXT = "the [MASK] bank of the river."
MARKED = [
    "the river *bank* was wide",
    "a deep river *bank* and",
    "please turn your *homework* in",
    "the *homework* was deep",
]
DRAWN = {
    "fill": ({"text": "the [MASK] was [MASK]"}, ".bar-row"),
    "layers": ({"text": "the river was wide", "blanks": "1"}, ".lens td"),
    "inside": ({"text": "the river was wide", "layer": 2, "token": 2}, ".lines-to .number"),
    "senses": ({"texts": "\n".join(MARKED), "clusters": 2, "at": 1}, ".near-row"),
    "compare": ({"texts": "\n".join(MARKED)}, ".cosines"),
}  # fmt: skip
PHONE = {"width": 390, "height": 844}
CLIPPED = """() => [...document.querySelectorAll("main :is(button, input, select, textarea, a, h1, h2, p)")]
    .filter((each) => each.getClientRects().length && !each.closest(".table-wrap"))
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 99))"""
POST = """async ([path, body]) => {
  const worker = window.tested ??= new Worker("offline/worker.js", { type: "module" });
  return await new Promise((resolve) => {
    worker.addEventListener("message", ({ data }) => ("number" in data || data.failed) && resolve(data));
    worker.postMessage({ number: 1, path, body });
  });
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def model(chromium: Any, tiny_model: Callable[..., Any], save_tiny: Callable[..., Path], tmp_path_factory: Any) -> Path:
    """A model in int8, so that Python reads the weights that the page has."""
    folder: Path = tmp_path_factory.mktemp("model")
    shape = {"norm": "pre", "positions": "rotary", "gated": True, "local_attention": 4, "global_every": 2}
    save_tiny(folder / "float", tiny_model(seed=1, layers=4, segments=0, **shape))
    convert_bundle(folder / "float", folder / "rivers", dtype="int8")
    return folder / "rivers"


@pytest.fixture(scope="module")
def site(model: Path, tmp_path_factory: Any) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("site")
    page = export_page(model, out=folder / "page", runtime=runtime_folder())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder / "page"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        yield SimpleNamespace(address=address, page=f"{address}/", export=page, stop=server.shutdown)
        server.shutdown()


@pytest.fixture
def open_page(chromium: Any, site: Any) -> Iterator[Callable[..., Guarded]]:
    pages: list[Guarded] = []

    def opened(**context: Any) -> Guarded:
        pages.append(Guarded(chromium, site, **context))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()


def show(studio: Guarded, view: str) -> None:
    params, drawn = DRAWN[view]
    studio.open(view, **params)
    studio.page.locator(drawn).first.wait_for()
    studio.until("() => !document.querySelector('[aria-busy]')")


@pytest.mark.parametrize("view", DRAWN)
def test_a_view_can_be_used_by_all_in_light_and_dark_and_on_a_phone(
    view: str, open_page: Callable[..., Guarded]
) -> None:
    studio = open_page(color_scheme="light")
    show(studio, view)
    assert grave(studio.page) == []
    studio.page.emulate_media(color_scheme="dark")
    studio.until("() => document.documentElement.dataset.theme === 'dark'")
    assert grave(studio.page) == []
    studio.page.set_viewport_size(PHONE)
    studio.until("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert grave(studio.page) == []
    assert studio.page.evaluate(CLIPPED) == []
    assert studio.page.get_by_role("button", name="Copy as curl").count() == 0


def test_a_page_that_was_opened_needs_no_network(open_page: Callable[..., Guarded]) -> None:
    studio = open_page()
    show(studio, "inside")
    studio.page.wait_for_load_state("networkidle")
    failed: list[str] = []
    studio.page.on("requestfailed", lambda request: failed.append(request.url.removeprefix(studio.served.page)))
    studio.allow("ERR_INTERNET_DISCONNECTED")  # chromium asks for the icon again
    studio.context.set_offline(True)
    for name in ("Fill", "Layers", "Senses", "Compare words"):
        studio.page.get_by_role("navigation").get_by_role("link", name=name).click()
        studio.page.get_by_role("heading", level=1, name=name).wait_for()
        studio.page.locator(".results:not([aria-busy]) .card").first.wait_for()
    assert set(failed) <= {"icon.svg"}


def test_words_are_blanked_and_layers_read_by_keyboard(open_page: Callable[..., Guarded]) -> None:
    studio = open_page()
    page = studio.open("layers", text="the river was wide")
    page.get_by_text("Nothing is blank yet").wait_for()
    page.locator(".word").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator(".lens").wait_for()
    rows = page.locator(".lens tbody th").all_inner_texts()
    assert [row.split(",")[0].strip() for row in rows] == ["4", "3", "2", "1", "0"]
    assert sum("decided" in row for row in rows) == 1
    assert page.locator(".lens tbody tr").first.locator("td").nth(1).inner_text() == "1"  # the last layer's own answer
    studio.until_address("blanks=1")


@pytest.fixture(scope="module")
def answers(chromium: Any, site: Any) -> Callable[..., Any]:
    page = Guarded(chromium, site)
    page.open("fill")

    def ask(path: str, **body: Any) -> Any:
        data = page.page.evaluate(POST, [path, body])
        return data.get("answer", data)

    yield ask
    page.close()


def test_fills_are_those_of_python(answers: Callable[..., Any], model: Path) -> None:
    loaded = larvatus.load(str(model))
    for text, options in (
        (TEXT, {}),
        ("a [MASK] [MASK] was [MASK]", {}),
        ("un[MASK] river", {"words_only": False}),
        (f"{'the river was wide ' * 20}[MASK] deep", {"joint": False}),
    ):
        wanted = loaded.fill(text, top=8, **options).to_dict()
        (given,) = answers("/v1/fill", texts=[text], top=8, **options)["results"]
        assert (given["read"], given["total"]) == (wanted["read"], wanted["total"])
        for mine, theirs in zip(
            [given["fills"], *given["marginals"]], [wanted["fills"], *wanted["marginals"]], strict=True
        ):
            assert [each["text"] for each in mine] == [each["text"] for each in theirs]
            probabilities = ([each["probability"] for each in some] for some in (mine, theirs))
            np.testing.assert_allclose(*probabilities, atol=1e-3)


def test_the_lens_ends_in_what_the_model_fills_in(answers: Callable[..., Any], model: Path) -> None:
    (blank,) = answers("/studio/api/lens", text=TEXT)["blanks"]
    loaded = larvatus.load(str(model))
    assert blank["layers"][-1]["top"][0]["token"] == loaded.fill(TEXT)[0].token
    assert blank["layers"][-1]["rank"] == 1
    wanted = loaded.lens(TEXT, top=5).blanks[0]
    assert blank["decided"] == wanted.decided
    for mine, theirs in zip(blank["layers"], wanted.layers, strict=True):
        assert (mine["layer"], mine["final"]) == (theirs.layer, pytest.approx(theirs.final, abs=1e-3))
        assert [word["token"] for word in mine["top"]] == [word.token for word in theirs.top]


def test_attention_and_types_of_heads_are_those_of_python(answers: Callable[..., Any], model: Path) -> None:
    from larvatus.inference.interpret.heads import text_statistics

    wanted = larvatus.load(str(model)).attention("the river, was wide.")
    given = answers("/v1/attention", text="the river, was wide.")
    assert given["tokens"] == list(wanted.tokens)
    np.testing.assert_allclose(given["weights"], wanted.weights, atol=1e-3)
    rows = [row.to_dict() for row in text_statistics(wanted)]
    assert [row["type"] for row in given["types"]] == [row["type"] for row in rows]
    for mine, theirs in zip(given["types"], rows, strict=True):
        names = [name for name in theirs if name != "type"]
        np.testing.assert_allclose([mine[name] for name in names], [theirs[name] for name in names], atol=1e-3)


@pytest.mark.parametrize("layers", ["last", "last4", 2, 0])
def test_cosines_are_those_of_python(layers: Any, answers: Callable[..., Any], model: Path) -> None:
    wanted = larvatus.load(str(model)).similarities(MARKED, layers=layers).matrix
    np.testing.assert_allclose(answers("/v1/similar", texts=MARKED, layers=layers)["cosines"], wanted, atol=1e-3)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/fill", {"texts": ["the river"]}, "Nothing to fill: mark each blank"),
        ("/v1/fill", {"texts": [f"[MASK]{' the river was' * 20}[MASK]"]}, "tokens apart and the model's window has"),
        ("/v1/attention", {"text": "the river was wide " * 20}, "this page reads 30; shorten it"),
        ("/v1/attention", {"text": "\u200b"}, "has no token"),
    ],
)
def test_what_cannot_be_answered_is_said(path: str, body: Any, message: str, answers: Callable[..., Any]) -> None:
    assert message in answers(path, **body)["error"]


def test_nothing_of_the_page_is_larger_than_it_needs(site: Any) -> None:
    assert site.export.difference < 1e-3
    assert site.export.size < 20e6  # a tiny model: the runtime, and as little as possible
    assert (PAGE / "offline" / "worker.js").is_file()
