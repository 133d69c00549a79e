"""Few examples drawn from many: k of each class, the same whatever the order of the file; larger draws hold smaller.

    few = draw(train, 16, seed=0, number=2)          # the third draw of 16 a class (LM-BFF, Gao et al. 2021)
    draw(train, 100, seed=0, number=2, total=True)   # 100 in all, classes as even as can be (PET's tables)

Which examples are drawn is f(seed, number, what they say). They come label by label in turn, so that the first few of
them, which demonstrations may be cut to, show all labels.
"""

from __future__ import annotations

import dataclasses
from itertools import chain, zip_longest

import msgspec

from larvatus.core import rng
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Dataset, TextExample


def sample_examples(
    data: Dataset[TextExample], k: int, *, seed: int, number: int, total: bool = False
) -> Dataset[TextExample]:
    """The draw of that number; refused where a class has too few examples that differ."""
    check_classes(data)
    labels = data.label_names()
    if total and k < len(labels):
        raise UsageError(
            f"{k} examples in all do not show each of {len(labels)} classes; give --k {len(labels)} or more"
        )
    wanted = [k // len(labels) + (n < k % len(labels)) if total else k for n in range(len(labels))]
    by_label: dict[str, dict[int, TextExample]] = {label: {} for label in labels}
    for example in data.examples:
        by_label[str(example.label)].setdefault(_key(example, seed, number), example)
    columns = []
    for label, count in zip(labels, wanted, strict=True):
        if count > len(by_label[label]):
            raise DataError(
                f"{data.source}: {count} examples of {label!r} are to be drawn, but there are {len(by_label[label])} "
                "that differ; give a smaller --k"
            )
        columns.append([example for _, example in sorted(by_label[label].items(), key=lambda item: item[0])[:count]])
    examples = tuple(example for example in chain(*zip_longest(*columns)) if example is not None)
    said = f"draw {number}: {k} {'in all' if total else 'a class'}"
    return dataclasses.replace(data, examples=examples, notes=(*data.notes, said))


def unlabelled_rest(
    data: Dataset[TextExample], drawn: Dataset[TextExample], most: int, *, seed: int, number: int
) -> Dataset[TextExample]:
    """Examples that were not drawn, without their labels: at most so many."""
    gone = {_key(example, seed, number) for example in drawn.examples}
    rest = {_key(example, seed, number): example for example in data.examples}
    chosen = [rest[key] for key in sorted(rest.keys() - gone)[:most]]
    return dataclasses.replace(data, examples=tuple(dataclasses.replace(example, label=None) for example in chosen))


def check_classes(data: Dataset[TextExample]) -> None:
    if data.kind not in (None, "multi-class") or len(data.label_names()) < 2:
        kind = data.kind or "none"
        raise UsageError(f"{data.source}: prompts tell two classes or more apart; labels there are {kind}")


def _key(example: TextExample, seed: int, number: int) -> int:
    said = msgspec.json.encode([example.text, example.pair]).decode()
    return rng.derive(seed, f"prompt draw\x00{said}", number)
