"""The server goes and comes back: the page says so, keeps what was typed, and continues by itself."""

from __future__ import annotations

import pytest

from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.served import Served
from tests.interfaces.studio.browser.test_fill import bars

pytestmark = pytest.mark.proof


def test_the_page_says_that_the_server_is_gone_and_recovers(studio: Guarded, served: Served) -> None:
    studio.allow(
        r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|status of 503"
    )  # chromium's own words
    page = studio.open("fill", model="rivers", text="the river was wide")
    served.stop()
    page.get_by_role("button", name="river", exact=True).click()
    page.get_by_text("The server is gone.").wait_for()
    page.get_by_label("Text", exact=True).fill("a deep [MASK] was wide")
    served.start()
    page.get_by_text("The server is gone.").wait_for(state="hidden")
    assert len(bars(studio)) == 5
    assert page.get_by_label("Text", exact=True).input_value() == "a deep [MASK] was wide"
