"""Runs that are stopped where tests say."""

from __future__ import annotations

from typing import Any

import pytest

from larvatus.training.pretraining import checkpoint as checkpoints


def stop_after_saving(monkeypatch: pytest.MonkeyPatch, step: int) -> list[int]:
    """Interrupt pretraining just after the checkpoint of a step; the steps of all checkpoints."""
    real, saved = checkpoints.save_checkpoint, []

    def save_then_stop(*args: Any, progress: Any, **kwargs: Any) -> Any:
        path = real(*args, progress=progress, **kwargs)
        saved.append(progress.step)
        if progress.step == step:
            raise KeyboardInterrupt
        return path

    monkeypatch.setattr("larvatus.training.pretraining.run.save_checkpoint", save_then_stop)
    return saved
