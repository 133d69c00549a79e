"""What a fine-tuning is about to do, in lines for people: the balance of classes, the head, what learns and how long.

classes: wet 131 (49%), dry 139 (51%)
head: 2 classes; a new classifier, dense from the model
training: all 22,713,986 parameters · 3 epochs of 9 steps, 32 texts each · peak rate 5e-05
"""

from __future__ import annotations

from collections.abc import Iterator

from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.head import HeadConfig
from larvatus.tasks.trainer.config import TrainConfig


def plan(
    bundle: Bundle, head: HeadConfig, config: TrainConfig, *, examples: int, trained: int, windows: tuple[int, int]
) -> Iterator[str]:
    """The head and where it comes from, what learns for how long, and texts that are longer than a window."""
    ready, taken = attach_head(bundle, head, seed=0)
    weights = any(True for _ in ready.network.objectives.parameters())
    yield _head(bundle, head, taken, weights=weights)
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


def _head(bundle: Bundle, head: HeadConfig, taken: tuple[str, ...], *, weights: bool) -> str:
    size = head.describe()
    if head.begins_as is not None and (taken or not weights):
        return f"head: {size}; the model's own {head.begins_as} head"
    parts = sorted({name.split(".")[2] for name in taken})
    if "classifier" in parts:
        return f"head: {size}; the model's own, which has the same labels"
    old = [config for config in bundle.objectives if isinstance(config, HeadConfig)]
    others = f" for {len(old[0].labels):,} other labels" if old and old[0].names_labels else ""
    gone = f" in place of the model's own{others}" if old else ""
    taken_over = f", {' and '.join(parts)} from the model" if parts else ""
    return f"head: {size}; a new classifier{gone}{taken_over}"
