"""The map as a web page: hover a point to read its sentence; colours, search, legend, typical words of clusters.

    path.write_text(map_page(result, colour="cluster"))

One file of some hundred kilobytes for a thousand instances; `inference/web_page.py` keeps it safe and offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.inference.maps.instances import CorpusInstance
from larvatus.inference.maps.word_map import WordMap
from larvatus.inference.web_page import asset, build_page

_EITHER_SIDE = 240
"""Characters of a sentence shown before and after the word."""


def map_page(result: WordMap, *, colour: str = "auto", label: str = "label") -> str:
    columns = shown_fields(result, colour=colour, label=label)
    field = chosen_field(columns, colour)
    places = _between_0_and_1(result.points)
    points = [
        {
            "x": x,
            "y": y,
            "text": _parts(instance),
            "at": f"{instance.source}:{instance.line}",
            "fields": {name: values[number] for name, values in columns.items()},
        }
        for number, (instance, (x, y)) in enumerate(zip(result.instances, places.tolist(), strict=True))
    ]
    title = ", ".join(result.words)
    data: dict[str, Any] = {
        "title": title,
        "about": about(result),
        "colour": field,
        "fields": list(columns),
        "clusters": middles(result.clusters, places) if result.clusters is not None else [],
        "points": points,
    }
    package = "larvatus.inference.maps"
    return build_page(f"{title} · map", body=asset(package, "map.html"), script=asset(package, "map.js"), data=data)


def about(result: WordMap) -> str:
    """Summary in one line: instances, documents, method."""
    shown, total = len(result.instances), result.total
    of = f" of {total:,}" if total > shown else ""
    method = "UMAP" if result.method == "umap" else "principal components"
    return " · ".join([f"{shown:,}{of} instances in {result.documents:,} documents", method, *result.notes])


def shown_fields(result: WordMap, *, colour: str, label: str) -> dict[str, list[str]]:
    """Fields whose values differ between points, and always the requested one."""
    everything = result.fields(label)
    if colour != "auto" and colour not in everything:
        raise UsageError(f"the points cannot be coloured by {colour}{did_you_mean(colour, everything)}")
    differing = {name: values for name, values in everything.items() if len(set(values)) > 1 or name == colour}
    return differing or {"word": everything["word"]}


def chosen_field(columns: dict[str, list[str]], colour: str) -> str:
    """The field to colour by: a label of the records first, then languages, words and clusters."""
    if colour != "auto":
        return colour
    known = ("language", "word", "cluster", "source")
    labels = [name for name in columns if name not in known]
    return (labels + [name for name in known if name in columns])[0]


def middles(clusters: Sequence[str], points: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """Name and median point of each cluster; empty if there is only one."""
    names = list(dict.fromkeys(clusters))
    if len(names) < 2:
        return []
    owners = np.array(clusters)
    return [
        dict(
            zip(("x", "y"), np.median(points[owners == name], axis=0).round(4).tolist(), strict=True),
            name=name,
        )
        for name in names
    ]


def _between_0_and_1(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    flat: npt.NDArray[np.float64] = np.where(span > 0, (points - low) / np.where(span > 0, span, 1.0), 0.5)
    return flat.round(4)


def _parts(instance: CorpusInstance) -> list[str]:
    """Text before the word, the word, text after it; split here, because browsers count characters differently."""
    before, after = instance.text[: instance.start], instance.text[instance.end :]
    if len(before) > _EITHER_SIDE:
        before = "… " + before[-_EITHER_SIDE:]
    if len(after) > _EITHER_SIDE:
        after = after[:_EITHER_SIDE] + " …"
    return [before, instance.text[instance.start : instance.end], after]
