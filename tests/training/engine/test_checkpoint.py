"""The checkpoints of a run: two stay, broken ones are passed over aloud, and those of another run named by field."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec import Struct

from larvatus.core.errors import ArtefactError
from larvatus.core.run_identity import FieldChange, changed_fields
from larvatus.training.engine.checkpoint import (
    Checkpoints,
    Provenance,
    refuse_other_kind,
    restore_weights,
)
from larvatus.training.engine.settings import Runtime

MADE = Provenance.here(Runtime())


class Reached(Struct, frozen=True, forbid_unknown_fields=True):
    step: int


def checkpoints(run: Path, told: list[str]) -> Checkpoints[Reached]:
    return Checkpoints(
        run=run,
        kind="a test",
        state=Reached,
        order=lambda name: int(name.removeprefix("at-")) if name.startswith("at-") else None,
        warn=told.append,
    )


def weights(step: int) -> dict[str, dict[str, torch.Tensor]]:
    return {"weights.safetensors": {"w": torch.full((2,), float(step))}}


def test_the_newest_two_stay_and_a_broken_one_makes_way(tmp_path: Path) -> None:
    told: list[str] = []
    kept = checkpoints(tmp_path, told)
    for step in (9, 10, 11):  # by number, not by name
        kept.write(f"at-{step}", weights(step), Reached(step), made=MADE)
    assert [path.name for path in kept.paths()] == ["at-11", "at-10"]
    (kept.folder / "at-11" / "weights.safetensors").write_bytes(b"")
    newest = kept.resume(refuse=lambda checkpoint: None, made=MADE)
    assert newest is not None
    assert newest.state.step == 10
    assert len(told) == 1
    assert "falling back" in told[0]
    kept.write("at-10", weights(10), Reached(10), made=MADE)
    assert [path.name for path in kept.paths()] == ["at-10"]
    kept.clear()
    assert not kept.folder.exists()


def test_what_is_refused_is_refused_before_anything_is_said(tmp_path: Path) -> None:
    told: list[str] = []
    checkpoints(tmp_path, told).write("at-1", weights(1), Reached(1), made=MADE)

    def refuse(checkpoint: object) -> None:
        raise ArtefactError("of another run")

    other = Provenance.here(Runtime(microbatch=8))
    with pytest.raises(ArtefactError, match="of another run"):
        checkpoints(tmp_path, told).resume(refuse=refuse, made=other)
    assert not told
    checkpoints(tmp_path, told).resume(refuse=lambda checkpoint: None, made=other)
    assert told == [MADE.unlike(other)]
    with pytest.raises(ArtefactError, match=r"another kind of run \(at-1\)"):
        refuse_other_kind(tmp_path, lambda name: name.startswith("step-"))


def test_weights_are_put_back_in_place_and_only_where_all_fit(tmp_path: Path) -> None:
    path = checkpoints(tmp_path, []).write("at-3", weights(3), Reached(3), made=MADE) / "weights.safetensors"
    ours = torch.zeros(2)
    restore_weights(path, {"w": ours})
    assert ours.tolist() == [3.0, 3.0]
    with pytest.raises(ArtefactError):
        restore_weights(path, {"w": torch.zeros(3)})
    with pytest.raises(ArtefactError):
        restore_weights(path, {"w": torch.zeros(2), "v": torch.zeros(2)})


def test_what_changed_is_named_by_its_field() -> None:
    before = {"a": {"b": [1, 2]}, "c": [1], "d": 0}
    now = {"a": {"b": [1, 3]}, "c": [1, 2], "d": 0, "e": None}
    assert changed_fields(before, now) == [FieldChange("a.b.1", 2, 3), FieldChange("c", [1], [1, 2])]
