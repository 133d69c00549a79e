"""Pictures of trees, clusters and roles: they connect the right words, and no text of a user becomes markup."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from larvatus.core.drawing import Element, arc_levels, as_html, as_json
from larvatus.core.errors import UsageError
from larvatus.interfaces.cli.prediction_files import write_page
from larvatus.tasks.coref.picture import draw_clusters
from larvatus.tasks.coref.results import DocumentWord, Mention, MentionCluster, ResolvedDocument
from larvatus.tasks.multitask.results import TaskPredictions
from larvatus.tasks.parse.picture import draw_trees
from larvatus.tasks.registry import TASKS
from larvatus.tasks.results import Coverage
from larvatus.tasks.roles.picture import draw_frames

HOSTILE = '<script>alert("x")</script>&\u202e\x1b'
SAFE = '<script>alert("x")</script>&�'
READ = Coverage(tokens=3, read=3, windows=1)
HEBREW = ["הילדה", "קראה", "ספר"]


def tree(heads: list[int], words: list[str] | None = None) -> dict[str, Any]:
    texts = words or [f"word{number}" for number in range(len(heads))]
    rows = [
        {"text": text, "head": head, "relation": f"r{number}"}
        for number, (text, head) in enumerate(zip(texts, heads, strict=True), start=1)
    ]
    return {"sentences": [{"words": rows}]}


def span(start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, **more}


def parsed(picture: Element) -> ET.Element:
    """The markup as a strict parser reads it."""
    return ET.fromstring(as_html(picture))


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


def number(each: ET.Element, name: str) -> float:
    return float(each.attrib[name])


def arcs(root: ET.Element) -> Iterator[tuple[str, float, float]]:
    """Relation, and where the arc begins and ends."""
    for group in of_class(root, "lv-arc"):
        path = next(each for each in group.iter() if each.tag == "path").attrib["d"]
        begin = float(path.removeprefix("M").split()[0])
        points = next(each for each in group.iter() if each.tag == "polygon").attrib["points"]
        yield "".join(of_class(group, "lv-label")[0].itertext()), begin, float(points.split(",")[0])


@pytest.mark.parametrize(
    ("heads", "words"),
    [([2, 0, 2], None), ([3, 4, 0, 3, 2], None), ([0], None), ([2, 0, 2], HEBREW), ([2, 3, 4, 5, 6, 0, 6, 6], None)],
)
def test_arcs_connect_each_word_with_its_head(heads: list[int], words: list[str] | None) -> None:
    root = parsed(draw_trees(tree(heads, words)))
    places = [number(word, "x") for word in of_class(root, "lv-word")]
    assert (places == sorted(places)) is (words is not HEBREW or len(places) == 1)

    def nearest(x: float) -> int:
        return min(range(len(places)), key=lambda word: abs(places[word] - x))

    drawn = {relation: (nearest(begin) + 1, nearest(end) + 1) for relation, begin, end in arcs(root)}
    assert len(drawn) == len(heads)
    for dependent, head in enumerate(heads, start=1):
        assert drawn[f"r{dependent}"] == (head or dependent, dependent)


def test_labels_of_arcs_do_not_meet() -> None:
    """In a projective tree with long relations over short words."""
    record = tree([2, 4, 2, 0, 4, 5, 6], list("abcdefg"))
    for word in record["sentences"][0]["words"]:
        word["relation"] = f"nsubj:pass:{word['text']}"
    boxes = []
    for each in of_class(parsed(draw_trees(record)), "lv-arc"):
        text = of_class(each, "lv-label")[0]
        boxes.append((number(text, "y"), number(text, "x"), 6.0 * len("".join(text.itertext()))))
    for one, other in product(boxes, boxes):
        if one is not other and one[0] == other[0]:
            assert abs(one[1] - other[1]) >= (one[2] + other[2]) / 2


def test_an_arc_is_above_the_arcs_that_it_covers() -> None:
    assert arc_levels([(0, 1), (0, 3), (1, 3), (3, 4)]) == [1, 2, 1, 1]


def test_a_head_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match="heads are from 0 to that"):
        draw_trees(tree([7, 0]))


def test_a_mention_is_one_mark_with_the_number_of_its_cluster() -> None:
    text = "Ann's own mother said that she would come."
    spans = {(0, 16): 1, (0, 5): 2, (27, 30): 1}  # nested
    clusters = [[span(*place) for place, own in spans.items() if own == cluster] for cluster in (1, 2)]
    root = parsed(draw_clusters({"text": text, "clusters": clusters}))
    box = of_class(root, "lv-text")[0]
    assert re.sub(r"\d", "", "".join(box.itertext())) == text
    marks = [
        (re.sub(r"\d", "", "".join(each.itertext())), each.attrib["class"].split()[1]) for each in of_class(box, "lv-m")
    ]
    assert sorted(marks) == sorted((text[start:end], f"lv-m{own}") for (start, end), own in spans.items())
    assert [sub.text for sub in box.iter("sub")] == ["2", "1", "1"]
    stops = [each for each in of_class(box, "lv-m") if each.get("tabindex") == "0"]
    assert len(stops) == 2  # one of each cluster
    rule = next(root.iter("style")).text or ""
    assert ".lv-m1:focus" in rule
    assert ".lv-m2" not in rule  # it has one mention


def test_mentions_that_cross_are_cut_and_numbered_once() -> None:
    root = parsed(draw_clusters({"text": "aa bb cc", "clusters": [[span(0, 5)], [span(3, 8)]]}))
    box = of_class(root, "lv-text")[0]
    assert "".join(box.itertext()) == "aa bb1 cc2"
    assert [each.text for each in box.iter("sub")] == ["1", "2"]


def test_bars_lie_under_their_words() -> None:
    text = "Ann didn't try to run. Bob slept."
    frames = [
        {
            "predicate": span(11, 14),
            "roleset": "try.01",
            "arguments": [span(0, 3, role="ARG0"), span(7, 10, role="NEG")],
        },
        {"predicate": span(29, 34 - 1), "roleset": "sleep.01", "arguments": [span(23, 26, role="ARG0")]},
    ]
    frames[1]["predicate"] = span(27, 32)
    root = parsed(draw_frames({"text": text, "frames": frames}))
    strips = list(root.iter("svg"))
    assert len(strips) == 2  # sentences
    for strip, frame in zip(strips, frames, strict=True):
        words = [("".join(each.itertext()), number(each, "x")) for each in of_class(strip, "lv-word")]
        bars = {
            "".join(of_class(bar, "lv-label")[0].itertext()): next(bar.iter("rect"))
            for bar in of_class(strip, "lv-bar")
        }
        own = {frame["roleset"]: frame["predicate"], **{each["role"]: each for each in frame["arguments"]}}
        assert bars.keys() == own.keys()
        for name, place in own.items():
            low = number(bars[name], "x")
            high = low + number(bars[name], "width")
            assert "".join(word for word, x in words if low < x < high) == text[place["start"] : place["end"]]


def test_a_bar_outside_its_text_is_refused() -> None:
    with pytest.raises(UsageError, match="of a text of 3"):
        draw_frames({"text": "Ann", "frames": [{"predicate": span(0, 9), "roleset": "x", "arguments": []}]})


RECORDS = {
    "parse": tree([2, 0], [HOSTILE, HOSTILE]),
    "coref": {"text": HOSTILE + " she", "clusters": [[span(0, 5), span(len(HOSTILE) + 1, len(HOSTILE) + 4)]]},
    "roles": {"text": HOSTILE, "frames": [{"predicate": span(0, 3), "roleset": HOSTILE, "arguments": []}]},
}


@pytest.mark.parametrize("task", RECORDS)
def test_hostile_text_stays_text(task: str) -> None:
    drawn = TASKS[task].draw(RECORDS[task])
    assert drawn is not None
    root = parsed(drawn)
    assert "script" not in {each.tag for each in root.iter()}
    assert "\u202e" not in as_html(drawn)
    assert "\x1b" not in as_html(drawn)
    assert SAFE[:5] in "".join(root.itertext())
    assert not any(name.startswith("on") or name == "style" for each in root.iter() for name in each.attrib)
    tag, attributes, children = json.loads(json.dumps(as_json(drawn)))
    assert (tag, attributes["class"], len(children) > 0) == ("div", "lv", True)


def test_long_texts_are_cut_with_a_count() -> None:
    record = {"sentences": tree([2, 0])["sentences"] * 1_500}
    html = as_html(draw_trees(record))
    assert html.count("<svg") == 1_000
    assert "The first 1,000 of 1,500 sentences are drawn." in html


def test_a_page_has_each_prediction_and_no_script(tmp_path: Path) -> None:
    words = (DocumentWord(text="Ann", start=0, end=3),)
    mention = Mention(text="Ann", start=0, end=3, first=0, last=0, score=1.0)
    found = ResolvedDocument(text="Ann", words=words, clusters=(MentionCluster(mentions=(mention,)),), coverage=READ)
    both = TaskPredictions(by_task={"coref": found})
    out = tmp_path / "page.html"
    with write_page(out, f"runs/{HOSTILE}") as (write, _):
        for identifier, result in ((None, found), (HOSTILE, both)):
            write(SimpleNamespace(found=result, example=SimpleNamespace(id=identifier)))  # type: ignore[arg-type]
    html = out.read_text("utf-8")
    assert html.count("<section") == html.count('class="lv-text"') == 2
    assert "<script" not in html
    assert "default-src 'none'" in html
    assert html.count("--k: 205") == 1  # the style, once
