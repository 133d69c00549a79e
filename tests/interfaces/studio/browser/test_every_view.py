"""What holds in every view: no serious fault for axe-core in either theme, nothing to scroll sideways on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interfaces.studio.browser.axe import grave
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.states import STATES, show

pytestmark = pytest.mark.proof
GROUND = "getComputedStyle(document.documentElement).backgroundColor"
FITS = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
PHONE = {"width": 360, "height": 740}


@pytest.mark.parametrize("name", STATES)
def test_a_view_can_be_used_by_all_in_light_and_dark_and_on_a_phone(
    name: str, open_studio: Callable[..., Guarded]
) -> None:
    studio = open_studio(color_scheme="light")
    show(studio, name)
    ground = studio.page.evaluate(GROUND)
    assert grave(studio.page) == []
    studio.page.emulate_media(color_scheme="dark")
    studio.page.wait_for_function(f"{GROUND} !== {ground!r}")  # styles follow the scheme with the next frame
    assert grave(studio.page) == []
    studio.page.set_viewport_size(PHONE)
    studio.until(FITS)  # plots follow a moment later
    assert grave(studio.page) == []
    wide = studio.page.evaluate(
        """() => [...document.querySelectorAll("main :is(button, input, select, textarea)")]
            .filter((each) => each.getClientRects().length && getComputedStyle(each).visibility === "visible")
            .map((each) => [each.getBoundingClientRect().right, each.outerHTML.slice(0, 120)])
            .filter(([right]) => right > innerWidth + 1)"""
    )
    assert [text for right, text in wide if right < 10_000] == []


def test_the_theme_can_be_chosen_and_is_kept(open_studio: Callable[..., Guarded]) -> None:
    studio = open_studio(color_scheme="light")
    page = studio.open("fill")
    light = page.evaluate(GROUND)
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate(GROUND)
    assert dark != light
    page.reload()
    page.get_by_role("button", name="Light theme").wait_for()
    assert page.evaluate(GROUND) == dark


def test_the_menu_of_a_phone_shows_that_it_scrolls(open_studio: Callable[..., Guarded]) -> None:
    studio = open_studio(viewport={"width": 390, "height": 844})
    page = studio.open("fill")
    before, after = page.locator(".nav-more-before"), page.locator(".nav-more-after")
    after.wait_for()
    assert not before.is_visible()
    while after.is_visible():
        left = page.evaluate("document.getElementById('nav').scrollLeft")
        after.click()
        studio.until("(left) => document.getElementById('nav').scrollLeft > left", left)
        page.wait_for_timeout(100)
    before.wait_for()
    card = page.get_by_role("navigation").get_by_role("link", name="Card")
    assert card.bounding_box()["x"] + card.bounding_box()["width"] <= 390
    page.set_viewport_size({"width": 1200, "height": 900})
    studio.until("() => ![...document.querySelectorAll('.nav-more')].some((arrow) => arrow.getClientRects().length)")


def test_the_navigation_leads_to_every_view_by_its_own_address(studio: Guarded) -> None:
    studio.allow("422")  # the tiny model lacks the words of the example of Swap
    page = studio.open("fill")
    names = page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert len(names) == len(STATES) == 13
    addresses = set()
    for name in names:
        page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
        page.get_by_role("heading", level=1, name=name).wait_for()
        assert page.title().startswith(name)
        addresses.add(studio.view())
    assert len(addresses) == 13
    page.go_back()
    page.get_by_role("heading", level=1, name=names[-2]).wait_for()


def test_an_address_of_no_view_says_so(studio: Guarded) -> None:
    studio.page.goto(f"{studio.served.page}#/nowhere")
    studio.page.get_by_text("There is no such view").wait_for()
    studio.page.get_by_role("link", name="Go to Fill").click()
    studio.page.get_by_role("heading", level=1, name="Fill").wait_for()
