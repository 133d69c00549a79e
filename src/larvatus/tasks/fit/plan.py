"""What a fine-tuning is about to do, in lines for people: the balance of classes, the head, what learns and how long.

classes: wet 131 (49%), dry 139 (51%)
head: 2 classes; a new classifier, dense from the model
training: all 22,713,986 parameters · 3 epochs of 9 steps, 32 texts each · peak rate 5e-05
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from larvatus.bundle.directory import Bundle
from larvatus.bundle.heads import with_head
from larvatus.heads.head import HeadConfig
from larvatus.labelled.records import Dataset, TaggedExample
from larvatus.tasks.fit.settings import FineTuneConfig
from larvatus.text.tag_schemes import Scheme, read_entities

SHOWN = 12
"""Labels of a line."""


def balance(train: Dataset[Any], scheme: Scheme = "none") -> str:
    """How often each class, entity or tag occurs, commonest first."""
    counts, name, whole = train.labels(), "classes", len(train)
    if any(isinstance(one, TaggedExample) for one in train):
        name = "tags" if scheme == "none" else "entities"
        if scheme != "none":
            own = (entity.label for one in train for entity in read_entities(one.tags or (), scheme))
            counts = Counter(own)
        whole = sum(counts.values())
    if not counts:
        return f"{len(train):,} examples, no {name}" if name != "classes" else f"labels: {len(train):,} numbers"
    shares = ", ".join(f"{label} {count:,} ({count / whole:.0%})" for label, count in counts.most_common(SHOWN))
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    return f"{name}: {shares}{more}"


def plan(
    bundle: Bundle, head: HeadConfig, config: FineTuneConfig, *, examples: int, trained: int, windows: tuple[int, int]
) -> Iterator[str]:
    """The head and where it comes from, what learns for how long, and texts that are longer than a window."""
    ready, taken = with_head(bundle, head, seed=0)
    yield _head(bundle, head, taken)
    steps = -(-examples // config.batch)
    whole = "all" if config.trained.what == "all" else f"{config.trained.word},"
    total = sum(p.numel() for p in ready.network.parameters())
    share = "" if config.trained.what == "all" else f" ({trained / total:.1%} of all)"
    yield (
        f"training: {whole} {trained:,} parameters{share} · {config.epochs} epochs of {steps:,} steps, "
        f"{config.batch} texts each · peak rate {config.peak:g}"
    )
    if windows[0]:
        many = "1 text is" if windows[0] == 1 else f"{windows[0]:,} texts are"
        yield f"{many} longer than a window and read in {windows[1]:,} windows"


def _head(bundle: Bundle, head: HeadConfig, taken: tuple[str, ...]) -> str:
    size = head.describe()
    parts = sorted({name.split(".")[2] for name in taken})
    if "classifier" in parts:
        return f"head: {size}; the model's own, which has the same labels"
    old = [one for one in bundle.objectives if isinstance(one, HeadConfig)]
    gone = f" in place of the model's own for {len(old[0].labels):,} other labels" if old else ""
    own = f", {' and '.join(parts)} from the model" if parts else ""
    return f"head: {size}; a new classifier{gone}{own}"
