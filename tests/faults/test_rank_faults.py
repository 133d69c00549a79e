"""Rows 29, 30, 35, 36 and 37: of two ranks one dies, is stopped, hangs, fails, has no memory, sees NaN, or differs.

Each run ends, for both ranks, with one line from one of them that names the rank, its machine and the step.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from larvatus.training.engine import ranks as rank_activity
from tests import warm
from tests.faults.test_runs import environment
from tests.shared import SMALL

ROOT = Path(__file__).parents[2]
HOST = platform.node()
SOON = ["--rank-timeout", "15"]
"""Where nothing but silence tells; the others keep to the minute that is usual, on machines however busy."""
CASES: dict[str, dict[str, Any]] = {
    "rank 1 killed": {"act": "kill", "of": 1},
    "rank 1 stopped": {"act": "stop", "of": 1, "words": SOON},
    "rank 1 hangs": {"act": "hang", "of": 1, "words": SOON},
    "rank 1 fails": {"act": "fail", "of": 1},
    "rank 1 nan": {"act": "nan", "of": 1},
    "rank 1 without memory": {"act": "memory", "of": 1, "words": ["--microbatch", "256"]},
    "little memory told": {},
    "both spike": {"act": "spike", "of": "both", "at": 3},
    "rank 1 slow": {"act": "slow", "of": 1, "at": 0},
    "other command": {"rank_words": [[], ["--seed", "7", "--microbatch", "64"]]},
    "other text": {"act": "text", "of": 1},
}
OF_RANK_0: dict[str, dict[str, Any]] = {
    "rank 0 killed": {"act": "kill", "of": 0},
    "rank 0 stopped": {"act": "stop", "of": 0, "words": SOON},
    "rank 0 fails": {"act": "fail", "of": 0},
}
"""Rank 0 keeps the store at which they meet."""


class Ended(NamedTuple):
    codes: list[int]
    said: list[str]
    folder: Path

    @property
    def line(self) -> str:
        """The only line that any rank has said."""
        (line,) = "".join(self.said).splitlines()
        return line


def run_cases(cases: dict[str, dict[str, Any]], prepared: Any, folder: Path) -> Callable[[str], Ended]:
    settings = [word for setting in SMALL for word in ("--set", setting)]
    words = ["pretrain", "bert", *settings, "--corpus", prepared.train, "--steps", 6]
    words += ["--save-every", 2, "--evaluate-every", 1000, "--device", "cpu"]
    told = [
        {**case, "name": name, "words": [*map(str, words), "--microbatch", "128", *case.get("words", [])]}
        for name, case in cases.items()
    ]
    done = warm.run(
        [sys.executable, "-m", "tests.faults.rank_group", str(folder)],
        input=json.dumps(told),
        text=True,
        capture_output=True,
        env=environment(TORCH_CPP_LOG_LEVEL="ERROR"),  # as `larvatus` itself sets it, before torch is loaded
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr

    def of(name: str) -> Ended:
        return Ended(**json.loads((folder / name / "results.json").read_text()), folder=folder / name)

    return of


@pytest.fixture(scope="module")
def ended(
    prepared: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str], Ended]:
    """All cases at once; where one test was chosen, as for a defence, those that it looks at."""
    if len(request.session.items) == 1:
        return lambda name: run_cases({name: CASES[name]}, prepared, tmp_path_factory.mktemp("ranks"))(name)
    return run_cases(CASES, prepared, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def ended_by_rank_0(prepared: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ended]:
    return run_cases(OF_RANK_0, prepared, tmp_path_factory.mktemp("ranks"))


def test_row_35_a_rank_that_is_killed_ends_the_run_by_name(ended: Callable[[str], Ended]) -> None:
    assert_killed(ended("rank 1 killed"), 1)


@pytest.mark.proof
def test_row_35_so_does_rank_0(ended_by_rank_0: Callable[[str], Ended]) -> None:
    assert_killed(ended_by_rank_0("rank 0 killed"), 0)


def assert_killed(result: Ended, rank: int) -> None:
    assert result.codes[rank] == -9
    assert result.codes[1 - rank] == 75, result.said
    assert result.line.startswith(f"larvatus: rank {rank} on {HOST} died (process ")
    assert "in step 4; the run ends for all ranks; the same command with --resume continues" in result.line
    assert (result.folder / "run" / "checkpoints" / "step-00000002").is_dir()


def test_row_37_a_rank_that_is_stopped_ends_the_run_by_name(ended: Callable[[str], Ended]) -> None:
    """SIGSTOP: its connections stand, and a collective would wait for it for ever."""
    assert_stopped(ended("rank 1 stopped"), 1)


@pytest.mark.proof
def test_row_37_so_does_rank_0(ended_by_rank_0: Callable[[str], Ended]) -> None:
    """The store that it keeps no longer answers either."""
    assert_stopped(ended_by_rank_0("rank 0 stopped"), 0)


def assert_stopped(result: Ended, rank: int) -> None:
    assert result.codes[1 - rank] == 75, result.said
    assert re.match(rf"larvatus: rank {rank} on {HOST} was stopped by a signal \d+ s ago in step 4;", result.line)


def test_row_37_a_rank_that_hangs_ends_the_run_by_name(ended: Callable[[str], Ended]) -> None:
    """Its process lives and says so, but no step gets on: those that do not wait for others are named."""
    result = ended("rank 1 hangs")
    assert result.codes[0] == 75, result.said
    assert re.match(rf"larvatus: rank 1 on {HOST} has not got on in step 4 for \d+ s;", result.line)


def test_a_rank_that_fails_by_itself_says_why_for_all(ended: Callable[[str], Ended]) -> None:
    assert_failed(ended("rank 1 fails"), 1)


@pytest.mark.proof
def test_so_does_rank_0(ended_by_rank_0: Callable[[str], Ended]) -> None:
    assert_failed(ended_by_rank_0("rank 0 fails"), 0)


def assert_failed(result: Ended, rank: int) -> None:
    assert result.codes == [4, 4], result.said
    assert result.line == f"larvatus: rank {rank} on {HOST} in step 4: shard 7 cannot be read; build it again"


def test_row_29_a_loss_that_leaps_rolls_both_ranks_back(ended: Callable[[str], Ended]) -> None:
    """To the checkpoint of step 2; the text of steps 3 and 4 is left out, so that nothing leaps again."""
    result = ended("both spike")
    assert result.codes == [0, 0], result.said
    said = (result.folder / "1-0.txt").read_text()
    assert said.count("the loss spiked from ") == said.count("rolled back to step 2, skipping the text read since") == 1
    lines = [json.loads(line) for line in (result.folder / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == [1, 2, 3, 4, 3, 4, 5, 6]
    assert max(losses[4:]) < 9


def test_row_30_nan_on_one_rank_stops_both_before_the_update_by_name(ended: Callable[[str], Ended]) -> None:
    """Not after twenty steps in a row, but at the first."""
    result = ended("rank 1 nan")
    assert result.codes == [6, 6], result.said
    assert result.line.startswith(f"larvatus: rank 1 on {HOST}: step 4: masked-lm loss nan")
    assert "the weights were not touched" in result.line


def test_row_36_memory_that_runs_out_on_one_rank_halves_the_microbatch_of_all(ended: Callable[[str], Ended]) -> None:
    """The same global batch: as if both had been told the smaller microbatch."""
    short, told = ended("rank 1 without memory"), ended("little memory told")
    assert (short.codes, told.codes) == ([0, 0], [0, 0]), (short.said, told.said)
    assert "memory ran out with 256 tokens at once" in (short.folder / "1-0.txt").read_text()
    weights = [(result.folder / "run" / "model.safetensors").read_bytes() for result in (short, told)]
    assert weights[0] == weights[1]


def test_a_slow_rank_is_seen_in_the_metrics_and_named_once(ended: Callable[[str], Ended]) -> None:
    result = ended("rank 1 slow")
    assert result.codes == [0, 0], result.said
    lines = map(json.loads, (result.folder / "run" / "metrics.jsonl").read_text().splitlines())
    records = [record for record in lines if record["kind"] == "ranks"]
    behind = [record["slowest"] == 1 and record["behind"] >= rank_activity.BEHIND for record in records]
    last = [record for record, slow in zip(records, behind, strict=True) if slow][-1]
    assert (last["host"], set(last["each"])) == (HOST, {"0", "1"})
    assert last["seconds"] > 0.2
    named = (result.folder / "1-0.txt").read_text().count(f": rank 1 on {HOST} computes ")
    assert named == sum(
        now and not before for before, now in pairwise([False, *behind])
    )  # once each time it falls behind


def test_ranks_with_different_commands_are_refused_by_name(ended: Callable[[str], Ended]) -> None:
    result = ended("other command")
    assert result.codes == [2, 2], result.said
    differs = f"larvatus: rank 1 on {HOST} differs from rank 0 on {HOST}: microbatch: 128 → 64; seed: 0 → 7; start all"
    assert result.line.startswith(differs)


def test_ranks_with_different_text_are_refused_by_name(ended: Callable[[str], Ended]) -> None:
    """At the same path, on disks of their own: no rank has taken a step."""
    result = ended("other text")
    assert result.codes == [2, 2], result.said
    assert f"larvatus: rank 1 on {HOST} differs from rank 0 on {HOST}: corpus: " in result.line
    assert not (result.folder / "run" / "metrics.jsonl").exists()
