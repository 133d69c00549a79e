"""Pictures for the Label view: what the server predicts goes in, elements that the page builds come out."""

from __future__ import annotations

from typing import Any

import pytest

from larvatus.core.drawing import as_html, as_json
from larvatus.tasks.registry import TASKS

RECORD = {"text": "Ann ran", "frames": [], "tokens": 2, "coverage": {"tokens": 2, "read": 2, "windows": 1}}


def test_the_page_gets_the_picture_that_notebooks_show(studio: Any) -> None:
    answer = studio.post("/picture", {"task": "roles", "record": RECORD})
    assert answer.status_code == 200
    tag, _, (style, picture) = answer.json()
    drawn = TASKS["roles"].draw(RECORD)
    assert (tag, style[0]) == ("div", "style")
    assert drawn is not None
    assert picture == as_json(drawn)
    assert ">ran</text>" in as_html(drawn)


@pytest.mark.parametrize(
    ("task", "record", "message"),
    [
        ("classify", {"text": "a"}, "there is no picture"),
        ("roles", {"text": 7}, "the record is no prediction of roles"),
        ("parse", {"sentences": [{"words": [{"text": "a", "head": 3, "relation": "r"}]}]}, "heads are from 0"),
        ("coref", {"text": "a" * 999, "clusters": [[{"start": 0, "end": n} for n in range(1, 999)]]}, "no prediction"),
        ("nothing", {}, "there is no task"),
    ],
)
def test_what_cannot_be_drawn_is_refused(studio: Any, task: str, record: dict[str, Any], message: str) -> None:
    answer = studio.post("/picture", {"task": task, "record": record})
    assert answer.status_code in (400, 422)
    assert message in answer.json()["error"]["message"]


def test_pictures_need_the_token(studio: Any) -> None:
    body = {"task": "roles", "record": RECORD}
    assert studio.client.post("/studio/api/picture", json=body).status_code == 403
