"""On a Ray cluster of two nodes, `corpus build`, `embed`, `predict` and `score` write the bytes of one process."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import LarvatusError
from larvatus.data.bulk.executor import LocalExecutor, RayExecutor
from larvatus.data.corpus.build import BuildOptions, build_corpus
from larvatus.inference.vectors import bulk
from larvatus.interfaces.api.corpora import train_tokenizer
from tests.data.bulk.blocks import deadly, slow_square
from tests.data.bulk.conftest import prose


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


@pytest.mark.proof
def test_a_corpus_built_on_two_nodes_has_the_same_bytes(cluster: str, tiny_tokenizer: Any, tmp_path: Path) -> None:
    text = prose(tmp_path / "text.txt", 300)
    for name, executor in (("here", None), ("ray", RayExecutor(cluster))):
        options = BuildOptions(workers=1, executor=executor, unit_characters=8_000, shard_bytes=20_000)
        summary = build_corpus(text, tiny_tokenizer, tmp_path / name, options)
        assert summary.shards > 2
    assert bytes_of(tmp_path / "here") == bytes_of(tmp_path / "ray")


@pytest.mark.proof
def test_vectors_answers_and_errors_have_the_same_bytes(
    cluster: str,
    larvatus: Any,
    classifier: Path,
    tiny_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "CHARACTERS", 2_000)
    text = prose(tmp_path / "a.txt", 40)
    rows = [{"text": line} for line in text.read_text().split("\n\n")]
    poisoned = [json.dumps(row) for row in rows]
    poisoned[7], poisoned[30] = '{"text": "broken', '{"other": "row"}'
    (tmp_path / "rows.jsonl").write_text("\n".join(poisoned) + "\n")
    lines = tmp_path / "lines.txt"
    lines.write_text("the river\n\u0301\nthe bank\n")  # the vocabulary deletes all of the second
    for name, more in (("here", []), ("ray", ["--ray", cluster])):
        out = tmp_path / name
        out.mkdir()
        errors = ["--errors", out / "bad.jsonl", *more]
        both = ["--model", tiny_directory, "--out", out / "vectors.parquet"]
        assert larvatus("embed", text, tmp_path / "rows.jsonl", *both, *errors)[0] == 0
        file = ["--file", tmp_path / "rows.jsonl", "--out", out / "answers.jsonl", "--resume"]
        given = larvatus("predict", classifier, *file, "--errors", out / "unread.jsonl", *more)
        assert given[0] == 0, given
        score = ["--file", lines, "--out", out / "scores.jsonl", "--errors", out / "unscored.jsonl"]
        assert larvatus("score", "--model", tiny_directory, *score, *more)[0] == 0
    here, there = bytes_of(tmp_path / "here"), bytes_of(tmp_path / "ray")
    assert here == there
    assert [b"rows.jsonl:8" in line for line in here["bad.jsonl"].splitlines()] == [True, False]
    assert len(here["unread.jsonl"].splitlines()) == 2
    assert len(here["answers.jsonl"].splitlines()) == 38
    assert b"has no tokens" in here["unscored.jsonl"]
    assert len(here["scores.jsonl"].splitlines()) == 2


@pytest.mark.proof
def test_a_killed_worker_is_replaced_and_its_tasks_are_done_again(cluster: str) -> None:
    wanted = [task * task + 1 for task in range(40)]
    pids: list[int] = []
    with RayExecutor(cluster).pool(lambda: 1, slow_square, what="a worker", fix="try again") as pool:
        results = []
        for pid, value in pool.map(range(40)):
            pids.append(pid)
            results.append(value)
            if len(results) == 8:
                os.kill(pid, signal.SIGKILL)
    assert results == wanted
    assert len(set(pids)) >= 3  # two workers, and the one that took the place of the killed


@pytest.mark.proof
def test_a_task_that_kills_its_workers_ends_the_job_in_one_line(cluster: str) -> None:
    with (
        pytest.raises(LarvatusError, match=r"a worker on the Ray cluster died 4 times at the same block.*try again"),
        RayExecutor(cluster).pool(lambda: 1, deadly, what="a worker", fix="try again") as pool,
    ):
        list(pool.map(range(6)))


@pytest.mark.proof
def test_tasks_are_drawn_only_as_results_are_taken(cluster: str) -> None:
    drawn: list[int] = []

    def tasks() -> Any:
        for number in range(1_000):
            drawn.append(number)
            yield number

    with RayExecutor(cluster).pool(lambda: 0, slow_square, what="a worker", fix="") as pool:
        results = pool.map(tasks())
        for _ in range(10):
            next(results)
        time.sleep(0.5)
        assert len(drawn) <= 10 + 2 * 3 + 1


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        ("127.0.0.1:9", 1, "no Ray cluster answers at 127.0.0.1:9"),
        ("no/address", 2, "is no address of a Ray cluster"),
    ],
)
def test_an_address_that_does_not_answer_is_one_line(
    larvatus: Any, tiny_directory: Path, tmp_path: Path, address: str, code: int, said: str
) -> None:
    text = prose(tmp_path / "a.txt", 2)
    given = larvatus("embed", text, "--model", tiny_directory, "--out", tmp_path / "v.npy", f"--ray={address}")
    assert (given[0], said in given[2], given[2].count("\n")) == (code, True, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]


def test_a_cluster_that_the_environment_names_must_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with (
        pytest.raises(LarvatusError, match=r"no Ray cluster answers at .*:9 "),
        RayExecutor("auto").pool(lambda: 1, slow_square, what="a worker", fix=""),
    ):
        pass


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("larvatus.data.bulk.executor.find_spec", lambda name: None)
    with pytest.raises(LarvatusError, match=r'pip install "larvatus\[scale\]"'):
        RayExecutor("auto")


def test_here_and_there_are_one_contract() -> None:
    with LocalExecutor().pool(lambda: 1, slow_square, what="a worker", fix="") as pool:
        assert [value for _, value in pool.map(range(3))] == [1, 2, 5]


@pytest.mark.proof
def test_embedding_goes_on_when_its_workers_are_killed(
    cluster: str, larvatus: Any, tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHARACTERS", 400)
    text = prose(tmp_path / "a.txt", 600)
    shared = ["--model", tiny_directory, "--quiet"]
    assert larvatus("embed", text, *shared, "--out", tmp_path / "here.parquet")[0] == 0
    killed: list[int] = []
    stopping = threading.Event()

    def kill() -> None:
        """Kill one worker a while after each has begun, twice."""
        while len(killed) < 2 and not stopping.wait(0.3):
            at_work = [pid for pid in workers() if pid not in killed]
            if at_work and (tmp_path / "ray.parquet.parts" / f"{8 * len(killed) + 3:05d}.arrow").exists():
                killed.append(at_work[0])
                os.kill(at_work[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        code, _, complaint = larvatus("embed", text, *shared, "--out", tmp_path / "ray.parquet", "--ray", cluster)
    finally:
        stopping.set()
        thread.join()
    assert (code, len(killed)) == (0, 2), complaint
    assert (tmp_path / "here.parquet").read_bytes() == (tmp_path / "ray.parquet").read_bytes()


def workers() -> list[int]:
    """Processes of the actors of our own cluster: another test may have one beside it."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::_Worker") and os.getpid() in ancestors(int(path.parent.name)):
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


@pytest.mark.proof
def test_memory_stays_flat_over_ten_times_the_data(
    cluster: str, larvatus: Any, tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHARACTERS", 1 << 15)
    peaks = []
    for times in (1, 10):
        text = prose(tmp_path / f"{times}.txt", 400 * times, words=200)
        rest = ["--model", tiny_directory, "--out", tmp_path / f"{times}.npy", "--unit", "word", "--ray", cluster]
        peak, stopping = [0], threading.Event()

        def watch(peak: list[int] = peak, stopping: threading.Event = stopping) -> None:
            while not stopping.wait(0.1):
                peak[0] = max(peak[0], sum(map(own_memory, [os.getpid(), *workers()])))

        thread = threading.Thread(target=watch)
        thread.start()
        assert larvatus("embed", text, *rest)[0] == 0
        stopping.set()
        thread.join()
        peaks.append(peak[0])
    written = (tmp_path / "10.npy").stat().st_size
    assert written > 40e6  # more than the room that memory may grow by
    assert peaks[1] - peaks[0] < 25e6, peaks


def own_memory(pid: int) -> int:
    """Bytes that a process has to itself: neither mapped from files nor shared."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@pytest.mark.proof
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_a_vocabulary_counted_on_a_cluster_is_the_same(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alpha: float
) -> None:
    monkeypatch.setattr("larvatus.data.text.counting.PORTION", 5_000)
    texts = {"en": prose(tmp_path / "en.txt", 200), "sw": prose(tmp_path / "sw.txt", 60, seed=1)}
    settings = {"size": 40, "alpha": alpha, "sample": 0.5}
    whole = train_tokenizer(texts, size=40, alpha=alpha)
    here = train_tokenizer(texts, **settings)
    there = train_tokenizer(texts, **settings, ray=cluster)
    assert here.tokens == there.tokens
    assert here.counts is not None
    assert there.counts is not None
    assert whole.counts is not None
    assert here.counts.tolist() == there.counts.tolist()
    assert 0.3 < here.counts.sum() / whole.counts.sum() < 0.7  # of half of the documents
