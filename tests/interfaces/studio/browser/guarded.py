"""A page of the studio under guard: what leaves this machine, errors in the console, dialogs and markup are faults.

studio = Guarded(browser, address)
studio.open("fill", text="the [MASK] was wide")
studio.page.get_by_role("button", name="Copy as curl").click()
studio.close()                                    # fails if anything of that happened
"""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tests.interfaces.studio.browser.served import Served
from tests.patience import WATCHDOG_S

HOSTILE_MARKS = "img[onerror], main script, [onclick], iframe, object"


class Guarded:
    def __init__(self, browser: Any, served: Served, **context: Any) -> None:
        self.served = served
        self.faults: list[str] = []
        self.allowed: list[str] = []
        self.asked: list[str] = []
        given = {"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce", **context}
        self.context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **given)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WATCHDOG_S * 1000)
        self.page.route("**/*", self._guard)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", self._listen)
        self.page.on("dialog", self._dialog)

    def _guard(self, route: Any) -> None:
        url = route.request.url
        self.asked.append(url)
        if url.startswith((f"{self.served.address}/", "data:", "blob:")):
            route.continue_()
        else:
            self.faults.append(f"asked for {url}")
            route.abort()

    def _listen(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def allow(self, pattern: str) -> None:
        """Errors like this are what the test is about: chromium itself reports refused and lost requests."""
        self.allowed.append(pattern)

    def open(self, view: str, **params: Any) -> Any:
        """The view in a state, as if its address had been opened; waits until it is drawn."""
        query = f"?{urlencode(params)}" if params else ""
        self.page.goto("about:blank")
        self.page.goto(f"{self.served.page}#/{view}{query}")
        self.page.locator("main h1").first.wait_for()
        return self.page

    def params(self) -> dict[str, str]:
        """What the address says now."""
        return dict(parse_qsl(self.page.url.partition("#")[2].partition("?")[2]))

    def view(self) -> str:
        return self.page.url.partition("#/")[2].partition("?")[0]

    def copied(self, name: str, *, within: Any = None) -> str:
        """What a button such as `Copy as curl` puts on the clipboard."""
        self.page.evaluate("navigator.clipboard.writeText('')")
        (within or self.page).get_by_role("button", name=name).first.click()
        self.until("async () => (await navigator.clipboard.readText()) !== ''")
        return str(self.page.evaluate("navigator.clipboard.readText()"))

    def until(self, truth: str, argument: Any = None) -> None:
        """Wait until a function of the page gives something true; playwright's own wait needs eval, which is barred."""
        end = time.monotonic() + WATCHDOG_S
        while not self.page.evaluate(truth, argument):
            assert time.monotonic() < end, f"never true: {truth}, {argument}; {self.page.url[:300]}"
            self.page.wait_for_timeout(50)

    def until_address(self, *parts: str) -> None:
        """Wait until the address holds these, which it does a moment after the view."""
        self.until("(parts) => parts.every((part) => decodeURIComponent(location.hash).includes(part))", list(parts))

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def check(self) -> None:
        """Nothing happened that should not."""
        unexpected = [fault for fault in self.faults if not any(re.search(each, fault) for each in self.allowed)]
        assert unexpected == []
        assert self.page.locator(HOSTILE_MARKS).count() == 0, self.page.locator(HOSTILE_MARKS).first.inner_html()

    def close(self) -> None:
        try:
            self.check()
        finally:
            self.context.close()
