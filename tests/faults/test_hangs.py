"""Row 76: a worker that stops answering is named, and SIGTERM works in every stage. Row 24: workers that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import LarvatusError, Preempted
from larvatus.core.signals import Stopped, handle_signals, resumable
from larvatus.data.corpus import BuildOptions, build_corpus, processes
from larvatus.data.corpus.processes import Workers
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.training.pretraining.prepare import PreparedCorpus
from tests import warm
from tests.faults.test_runs import command, environment
from tests.faults.worker_tasks import working
from tests.patience import WATCHDOG_S, watchdog

ROOT = Path(__file__).parents[2]


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return [child for child in found if name_of(child) != warm.NAME.decode()]


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def first_child(process: subprocess.Popen[str]) -> int:
    while not (found := children(process.pid)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return found[0]


def state_of(pid: int) -> str:
    """As the system names it: R running, S sleeping, T stopped, Z ended but not waited for; nothing: gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


def gone(pid: int, within: float = WATCHDOG_S) -> bool:
    end = time.monotonic() + within
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


@contextlib.contextmanager
def started(arguments: list[Any], **more: Any) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT, "env": environment()}
    process = warm.Popen(list(map(str, arguments)), **{**pipes, **more})
    try:
        yield process
    finally:
        for pid in [process.pid, *children(process.pid)]:  # a stopped child would keep the pipes open
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("stop", r"was stopped by a signal \(SIGSTOP\) and has not gone on for 1 seconds"),
        ("hang", "does not answer: it has done nothing for 1 seconds"),
    ],
    ids=["stop", "hang"],
)
def test_76_a_worker_that_stops_answering_is_named_and_ended(
    monkeypatch: pytest.MonkeyPatch, kind: str, says: str
) -> None:
    for name, seconds in (("LOOK_S", 0.2), ("STOPPED_S", 0.8), ("STILL_S", 0.8)):
        monkeypatch.setattr(processes, name, seconds)
    with watchdog(), working() as workers:
        pids = workers.pids
        with pytest.raises(LarvatusError, match=rf"a worker \(pid \d+\) {says}.*; run it again"):
            list(workers.map([("double", 1), (kind, 0), ("double", 2)]))
    assert not any(map(alive, pids))


def test_76_a_worker_that_works_for_long_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_S", 0.2), ("STOPPED_S", 0.8), ("STILL_S", 0.8)):
        monkeypatch.setattr(processes, name, seconds)
    with working() as workers:
        assert list(workers.map([("work", 3), ("double", 2)])) == [6, 4]


def test_76_the_times_keep_to_a_minute() -> None:
    assert max(processes.STOPPED_S, processes.STILL_S) + 2 * processes.LOOK_S < 60


PARENT = """
import time
from tests.faults.worker_tasks import working
with working() as workers:
    print(*workers.pids, flush=True)
    list(workers.map([("stop", 0), ("work", 10_000)]))
"""


def test_76_workers_end_with_their_parent_even_if_they_were_stopped_or_are_at_work() -> None:
    with started([sys.executable, "-c", PARENT]) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        with watchdog():
            while "T" not in map(state_of, pids):  # one has stopped, one is at work
                time.sleep(0.02)
        assert all(map(alive, pids))
        parent.send_signal(signal.SIGKILL)
        try:
            assert all(gone(pid) for pid in pids)
        finally:
            for pid in filter(alive, pids):
                os.kill(pid, signal.SIGKILL)


def test_76_a_worker_whose_parent_died_while_it_started_ends() -> None:
    """Its input stays open, as a task in the pipe would keep it: only the number of its parent tells."""
    other = os.getppid()
    with started([sys.executable, "-c", processes._START, -1, other, *sys.path], stdin=subprocess.PIPE) as worker:
        assert worker.wait(WATCHDOG_S) == 0


def test_76_sigterm_while_a_loader_worker_does_not_answer_saves_and_exits_75(
    prepared: PreparedCorpus, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with started(command(prepared, out, steps=100_000, workers=1), stdout=subprocess.DEVNULL) as run:
        worker = first_child(run)
        while not (out / "metrics.jsonl").exists():
            assert run.poll() is None, run.communicate()
            time.sleep(0.02)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(1)  # until it is waited for, most likely; it must be so at any moment
        run.send_signal(signal.SIGTERM)
        said = run.communicate(timeout=WATCHDOG_S)[1]
        assert run.returncode == 75, said  # 1 if the worker was waited for until it counted as lost
        assert "SIGTERM stopped it; saved at step" in said
        assert gone(worker)


@pytest.mark.proof
def test_76_a_stopped_loader_worker_is_named_within_a_minute(prepared: PreparedCorpus, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(command(prepared, out, steps=1_000_000, workers=1), stdout=subprocess.DEVNULL) as run:
        worker = first_child(run)
        while not (out / "metrics.jsonl").exists():  # a worker that is stopped while it is born is no worker yet
            assert run.poll() is None, run.communicate()
            time.sleep(0.02)
        os.kill(worker, signal.SIGSTOP)
        said = run.communicate(timeout=WATCHDOG_S)[1]
        assert run.returncode == 1
        waited = f"and has not gone on for {processes.STOPPED_S:.0f} seconds"
        assert f"a loader worker (pid {worker}) was stopped by a signal (SIGSTOP) {waited}" in said.replace("\n", " ")
        assert gone(worker)


def test_76_a_signal_acts_at_once_unless_it_is_noted() -> None:
    with handle_signals() as stop:
        with pytest.raises(Preempted, match="SIGTERM stopped it; again"), resumable("again"):
            signal.raise_signal(signal.SIGTERM)
        with stop.noting():
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(Stopped), stop.at_once():
                pytest.fail("it was asked to stop before")
        with pytest.raises(Stopped):
            stop.check()


@pytest.fixture(scope="module")
def stages(
    prepared: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, save_tiny: Any
) -> dict[str, dict[str, Any]]:
    """Commands that got a SIGTERM in the middle of a stage: see `stopped_stages.py`."""
    folder = tmp_path_factory.mktemp("stages")
    model = save_tiny(folder / "model", tiny_model(max_positions=64))
    program = [sys.executable, "-m", "tests.faults.stopped_stages", prepared.train, prepared.valid, model]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with started(program, cwd=folder, env=environment(PYTHONPATH=paths)) as process:
        out, said = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == 0, out + said
    return {one["stage"]: one for one in map(json.loads, out.splitlines())}


@pytest.mark.parametrize(
    ("stage", "code", "says"),
    [
        ("vocabulary", 75, "the same command continues"),
        ("shards", 75, "the same command continues"),
        ("waiting", 75, "saved at step 0"),
        ("evaluating", 75, "saved at step 2 of 6"),
        ("saving", 75, "saved at step"),
        ("at the end", 75, "the same command with --resume continues"),
        ("examples", 75, "the same command starts it again"),
        ("scoring", 75, "where it was saved; the same command with --resume"),
        ("continuing", 75, "with --resume continues"),
        ("building", 75, "run the same command again"),
        ("embedding", 75, "the same command starts it again"),
        ("pairs", 75, "with --resume"),
        ("filling", 143, "stopped by SIGTERM"),
    ],
)
def test_76_sigterm_ends_a_command_in_any_stage(
    stages: dict[str, dict[str, Any]], stage: str, code: int, says: str
) -> None:
    found = stages[stage]
    assert found["code"] == code, found
    assert not found["went_on"], found
    assert "SIGTERM" in found["said"]
    assert says in found["said"].replace("\n", " ")
    assert "Traceback" not in found["said"]


@pytest.mark.parametrize("run", ["pretrained", "finetuned"])
def test_76_what_was_stopped_in_all_its_stages_ends_bit_equal(stages: dict[str, dict[str, Any]], run: str) -> None:
    assert stages[run] == {"stage": run, "codes": [0, 0], "same": True}


def test_24_workers_killed_at_any_moment_are_named() -> None:
    """At the start, before a task, in one, while the answer is under way."""
    for moment in (0.0, 0.05, 0.2, 0.4, 0.6, 0.9):
        with working() as workers:
            victim = workers.pids[0]
            killer = threading.Timer(moment, os.kill, (victim, signal.SIGKILL))
            killer.start()
            with pytest.raises(LarvatusError, match=rf"a worker \(pid {victim}\) was killed \(SIGKILL"):
                for number in range(10_000):
                    list(workers.map([("large", 30_000_000)] * 2 if number % 2 else [("work", 0.02)] * 3))
            killer.join()


def test_24_a_build_whose_worker_was_killed_goes_on_to_the_same_shards(
    prepared: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("The river was wide and deep, and so on.\n\n" * 2_000)
    tokenizer = Tokenizer.load(prepared.train / "tokenizer")
    options = BuildOptions(workers=2, unit_characters=2_000, shard_bytes=10_000)
    real: Callable[..., Any] = Workers.map
    victims: list[int] = []

    def killing(workers: Workers[Any, Any, Any], tasks: Any) -> Iterator[Any]:
        results = real(workers, tasks)
        if not victims:
            victims.append(workers.pids[0])
            yield next(results)
            os.kill(victims[0], signal.SIGKILL)
        yield from results

    monkeypatch.setattr(Workers, "map", killing)
    text = [str(tmp_path / "text.txt")]
    with pytest.raises(LarvatusError, match=r"a corpus worker \(pid \d+\) was killed \(SIGKILL") as fault:
        build_corpus(text, tokenizer, tmp_path / "killed", options)
    assert f"pid {victims[0]}" in str(fault.value)
    build_corpus(text, tokenizer, tmp_path / "killed", options)
    build_corpus(text, tokenizer, tmp_path / "whole", options)
    names = sorted(path.name for path in (tmp_path / "whole").glob("*.arrow"))
    assert len(names) > 1
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
