"""Ranks meet under a name of their own, whatever an earlier meeting has left at the store."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch.distributed as dist

from larvatus.training.engine.launch import Rendezvous, join_store
from larvatus.training.engine.watchdog import Heartbeat, ProcessLocation, blocking_ranks
from larvatus.training.pretraining.loop import SpikeDetector


def met(store: Any, count: int, restarts: list[int]) -> list[Rendezvous]:
    meetings: dict[int, Rendezvous] = {}

    def come(rank: int) -> None:
        meetings[rank] = join_store(store, rank=rank, count=count, restarts=restarts[rank], limit_s=20)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [meetings[rank] for rank in range(count)]


def test_each_meeting_has_a_store_of_its_own() -> None:
    """The second is one rank less, and of its agents one does not count membership changes as restarts."""
    store = dist.HashStore()
    first = met(store, 3, [0, 0, 0])
    first[0].store.set("address", "of the dead")
    assert [meeting.restarted for meeting in first] == [False] * 3
    assert first[2].store.get("address") == b"of the dead"
    second = met(store, 2, [0, 1])
    assert [meeting.restarted for meeting in second] == [True, True]
    assert not second[1].store.check(["address"])
    assert [meeting.restarted for meeting in met(store, 2, [0, 0])] == [True, True]  # another machine came


def test_who_does_not_come_is_named() -> None:
    store = dist.HashStore()
    store.set("larvatus/hello/1", "one-that-died 0")
    with pytest.raises(TimeoutError, match="rank 1 did not come"):
        join_store(store, rank=0, count=2, restarts=0, limit_s=0.1)
    with pytest.raises(TimeoutError, match="rank 0 did not answer"):
        join_store(store, rank=1, count=2, restarts=0, limit_s=0.1)


def test_who_holds_up_the_others() -> None:
    where = ProcessLocation(host="a", machine="", pid=1)

    def computes(step: int, *, still: float = 9.0) -> Heartbeat:
        return Heartbeat(where=where, step=step, still=still)

    def waits(step: int) -> Heartbeat:
        return Heartbeat(where=where, step=step, waiting=True, still=9.0)

    def names(*states: Heartbeat) -> list[int]:
        return sorted(blocking_ranks(dict(enumerate(states)), 5.0))

    assert names(waits(3), computes(3), waits(3)) == [1]
    assert names(waits(3), waits(2)) == [1]  # a step behind
    assert names(waits(3), waits(3)) == [0, 1]  # for each other
    assert names(waits(3), computes(3, still=1.0)) == []
    assert names(Heartbeat(where=where, step=3, doing="saving", still=9.0), waits(3)) == []  # which may take long
    assert names(computes(3)) == []  # nobody waits


def test_a_spike_is_five_times_the_usual_loss_and_counts_for_nothing() -> None:
    spikes = SpikeDetector()
    losses = [10.0] * 8 + [2.0] * 16 + [9.9, 40.0, 41.0, 2.0]
    assert [spikes.look(loss) for loss in losses][-4:] == [None, 2.0, 2.0, None]
    small = SpikeDetector()
    assert [small.look(loss) for loss in (*[0.1] * 20, 1.0)] == [None] * 21
    assert SpikeDetector().look(1e9) is None  # nothing is usual yet
