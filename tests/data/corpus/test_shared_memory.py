"""Answers of workers through shared memory: the same values, nothing overwritten while it is read, slots used again."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.data.corpus import shared_memory
from larvatus.data.corpus.shared_memory import NO_MEMORY, SMALL, Inbox, Outbox


def both() -> tuple[Outbox, Inbox]:
    """As two processes would have them, in this one."""
    inbox = Inbox()
    return Outbox(inbox.handle), inbox


@given(sizes=st.lists(st.lists(st.integers(0, 3 * SMALL), max_size=4), min_size=1, max_size=12), keep=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_answers_arrive_as_they_were_and_stay_so_while_they_are_held(sizes: list[list[int]], keep: int) -> None:
    outbox, inbox = both()
    held: list[tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]] = []
    for number, parts in enumerate(sizes):
        sent = [np.arange(size, dtype=np.int64) * (number + 1) for size in parts]
        received = inbox.unpack(outbox.pack(sent, inbox.returned()))
        held.append((sent, [array[1:] for array in received]))  # views of views
        held = held[-keep:]
        for before, after in held:
            for a, b in zip(before, after, strict=True):
                assert np.array_equal(a[1:], b)
    inbox.close()


def test_the_same_memory_is_written_again_once_nobody_reads_it() -> None:
    outbox, inbox = both()
    array = np.ones(100_000, np.int64)
    first = inbox.unpack(outbox.pack(array))
    second = inbox.unpack(outbox.pack(array, inbox.returned()))
    grown = os.fstat(inbox.handle).st_size
    del first
    gc.collect()
    for _ in range(20):
        third = inbox.unpack(outbox.pack(array * 3, inbox.returned()))
        assert (third == 3).all()
        assert (second == 1).all()
        del third
    assert os.fstat(inbox.handle).st_size == grown
    inbox.close()
    assert (second == 1).all(), "what was received outlives the worker"


def test_an_array_of_one_number_travels_as_that_number() -> None:
    outbox, inbox = both()
    message = outbox.pack(np.broadcast_to(np.int64(-1), (1_000_000,)))
    assert len(message) < 1000
    assert os.fstat(inbox.handle).st_size == 0
    received = inbox.unpack(message)
    assert received.dtype == np.int64
    assert received.shape == (1_000_000,)
    assert (received == -1).all()


def test_without_such_memory_arrays_go_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(100_000)
    inbox = Inbox()
    assert np.array_equal(inbox.unpack(Outbox(NO_MEMORY).pack(array)), array)
    outbox = Outbox(inbox.handle)

    def full(handle: int, size: int) -> None:
        raise OSError("no more memory")

    monkeypatch.setattr(shared_memory.os, "ftruncate", full)
    assert np.array_equal(inbox.unpack(outbox.pack(array)), array)
    inbox.close()
