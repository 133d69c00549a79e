"""Card: a summary, the sections of the text and the claims as rows; a model that is not served has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from larvatus.interfaces.api.cards import card
from larvatus.interfaces.studio.card_view import arrange, card_of, headlines, split_sections
from larvatus.models.bundle.card import with_figures
from larvatus.models.bundle.claims import Claim, Data

TEXT = """---
license: "CC0"
---

# Law

An encoder of statutes.

Read it first.

```python
# Not a heading
## nor this
```

## How to use it

Load it.

## Limitations

- Statutes only.

## Corpus

All of them.
"""


def claim(metric: str, command: str, low: float | None = 0.1, **settings: Any) -> Claim:
    return Claim(
        metric=metric, value=0.5, low=low, high=None if low is None else 0.9, command=command, settings=settings
    )


CLAIMS = [
    Claim(metric="parameters", value=1_234_567, command="model"),
    claim("gap", "audit bias", task="pairs"),
    claim("loss", "evaluate", low=None, task="sst2"),
    *(claim(metric, "evaluate", task=task) for task in ("sst2", "cola", "rte") for metric in ("accuracy", "macro-f1")),
]


def test_the_card_of_a_served_model(studio: Any) -> None:
    card(studio.shelf.models["tiny"])
    shown = studio.get("/card", model="tiny").json()
    assert shown["text"].startswith("# tiny")
    assert shown["ours"]
    layers = next(claim for claim in shown["claims"] if claim["figure"] == "layers")
    assert (layers["value"], layers["section"], layers["command"]) == ("2", "Model", "model")
    assert shown["summary"]["title"] == "tiny"
    assert {"name": "layers", "value": "2"} in shown["summary"]["facts"]
    assert studio.get("/card").json() == shown
    assert studio.get("/card", model="../tiny").status_code == 404


def test_a_directory_of_others_has_its_readme_and_no_claims(tmp_path: Path) -> None:
    empty = card_of(tmp_path)
    assert (empty["text"], empty["claims"], empty["sections"], empty["ours"]) == ("", [], [], False)
    assert not any(empty["summary"].values())
    (tmp_path / "README.md").write_text("# theirs <script>")
    theirs = card_of(tmp_path)
    assert theirs["text"] == "# theirs <script>"
    assert theirs["summary"]["title"] == "theirs <script>"


def test_the_summary_and_the_sections_hold_the_text_once() -> None:
    shown = arrange(with_figures(TEXT, CLAIMS), CLAIMS)
    assert shown["front_matter"] == 'license: "CC0"'
    summary = shown["summary"]
    assert (summary["title"], summary["about"], summary["limits"]) == (
        "Law", "An encoder of statutes.", "- Statutes only.",
    )  # fmt: skip
    assert summary["facts"] == [{"name": "parameters", "value": "1,234,567"}]
    assert [each["title"] for each in shown["sections"]] == ["Introduction", "How to use it", "Corpus"]
    assert "## nor this" in shown["sections"][0]["text"]  # code is not cut
    assert not any("accuracy" in each["text"] for each in shown["sections"])  # the claims have a table


def test_a_card_without_claims_keeps_all_its_sections() -> None:
    sections = split_sections(TEXT.partition("---\n\n")[2])
    assert [section.title for section in sections] == ["Law", "How to use it", "Limitations", "Corpus"]
    assert sections[-1].text == "\n\nAll of them.\n"


def test_the_headlines_are_one_of_each_task_and_results_before_audits() -> None:
    named = [(each.settings["task"], each.metric) for each in headlines(CLAIMS)]
    accuracies = [(task, "accuracy") for task in ("sst2", "cola", "rte")]
    assert named == [*accuracies, ("sst2", "macro-f1"), ("cola", "macro-f1")]
    assert [each.metric for each in headlines([CLAIMS[1], CLAIMS[2]])] == ["loss", "gap"]
    data = [claim("accuracy", "evaluate") for _ in range(2)]
    assert headlines(data) == data
    assert headlines([CLAIMS[0]]) == []


def test_figures_of_two_files_are_two_groups() -> None:
    def on(name: str, metric: str) -> Claim:
        data = (Data(name=name, sha256="0" * 64, kind="examples"),)
        return Claim(metric=metric, value=0.5, low=0.1, high=0.9, command="evaluate", data=data)

    listed = [on(name, metric) for name in ("dev.csv", "test.csv") for metric in ("accuracy", "macro-f1")]
    assert [(each.data[0].name, each.metric) for each in headlines(listed, 3)] == [
        ("dev.csv", "accuracy"), ("test.csv", "accuracy"), ("dev.csv", "macro-f1"),
    ]  # fmt: skip
