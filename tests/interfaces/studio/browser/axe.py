"""Axe-core over a page that is shown: what it calls serious or critical.

assert grave(page) == []
"""

from __future__ import annotations

from typing import Any

from tests.interfaces.browser.needs import axe_script

GRAVE = ("serious", "critical")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def grave(page: Any) -> list[str]:
    """Each as `rule: what is wrong, at which element`."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe_script().read_text(encoding="utf-8"))  # add_script_tag would need a hole in the page's policy
    told = page.evaluate("(tags) => axe.run(document, {runOnly: tags, resultTypes: ['violations']})", RULES)
    return [
        f"{rule['id']}: {rule['help']}, at {node['target']}: {node['failureSummary']}"
        for rule in told["violations"]
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    ]
