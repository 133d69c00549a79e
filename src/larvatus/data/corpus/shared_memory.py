"""Arrays between a worker and its parent, through memory that both see: the pipe carries what is left of a message.

    inbox = Inbox()                           # the parent's side; a worker is started with `inbox.handle`
    outbox = Outbox(inbox.handle)             # the worker's side
    message = outbox.pack(batch, inbox.returned())
    batch = inbox.unpack(message)             # its arrays lie where the worker wrote them: nothing is copied

A pipe gives 64 kB at a time, and each time the reader must win the interpreter back from the thread that trains. The
memory is a file without a name (`memfd_create`), which ends with the two processes however they end. An answer takes a
slot of it. The slot returns to its worker once no array of that answer is alive, so that the same few megabytes are
written again and again. Where the system has no such memory, or gives no more of it, arrays go through the pipe.

Nothing is imported that takes time: a worker must end with its parent from the first moment on.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import mmap
import os
import pickle
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

NO_MEMORY = -1
"""The handle where the system has no memory of this kind."""
SMALL = 4096  # bytes: what is smaller goes through the pipe
_LINE = 64  # bytes: arrays begin at a line of the cache
_SLACK = 1.25  # of a new slot: blocks are not all of one size


class ArrayPlacement(NamedTuple):
    """Where in the memory the arrays of a message lie."""

    slot: int
    offset: int  # of the slot
    capacity: int  # of the slot
    edges: tuple[int, ...]  # [arrays + 1] where each begins in the slot, and where the last one ends
    sizes: tuple[int, ...]  # [arrays] in bytes


@dataclass
class _Slot:
    offset: int
    memory: mmap.mmap
    free: bool = False


class Outbox:
    """The worker's side."""

    def __init__(self, handle: int) -> None:
        self._handle, self._end = handle, 0
        self._slots: list[_Slot] = []

    def pack(self, answer: object, returned: Iterable[int] = ()) -> bytes:
        """A message that holds the answer, but for its large arrays; `returned` are slots that nobody reads now."""
        for number in returned:
            self._slots[number].free = True
        arrays: list[memoryview] = []

        def aside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= SMALL:
                arrays.append(raw)
            return raw.nbytes < SMALL

        body = _dumps(answer, None if self._handle == NO_MEMORY else aside)
        try:
            place = self._write(arrays) if arrays else None
        except OSError:  # no more memory is to be had
            body, place = _dumps(answer, None), None
        return pickle.dumps((body, place))

    def _write(self, arrays: Sequence[memoryview]) -> ArrayPlacement:
        sizes = tuple(array.nbytes for array in arrays)
        edges = tuple(accumulate((-(-size // _LINE) * _LINE for size in sizes), initial=0))
        number = self._take(edges[-1])
        slot = self._slots[number]
        with memoryview(slot.memory) as memory:
            for first, array in zip(edges, arrays, strict=False):
                memory[first : first + array.nbytes] = array
        return ArrayPlacement(number, slot.offset, len(slot.memory), edges, sizes)

    def _take(self, size: int) -> int:
        """The number of a free slot that holds so much: the smallest, or a new one."""
        fits = [n for n, slot in enumerate(self._slots) if slot.free and len(slot.memory) >= size]
        if fits:
            number = min(fits, key=lambda n: len(self._slots[n].memory))
            self._slots[number].free = False
            return number
        unit = mmap.ALLOCATIONGRANULARITY
        capacity = -(-int(size * _SLACK) // unit) * unit
        os.ftruncate(self._handle, self._end + capacity)
        self._slots.append(_Slot(self._end, mmap.mmap(self._handle, capacity, offset=self._end)))
        self._end += capacity
        return len(self._slots) - 1


class Inbox:
    """The parent's side of one worker."""

    def __init__(self) -> None:
        self.handle = _new_memory()
        self._memories: dict[int, mmap.mmap] = {}
        self._returned: deque[int] = deque()

    def returned(self) -> list[int]:
        """Slots that are no longer read, each reported once."""
        slots: list[int] = []
        with contextlib.suppress(IndexError):
            while True:
                slots.append(self._returned.popleft())
        return slots

    def unpack(self, message: bytes) -> Any:
        """The answer; while any of its arrays lives, its slot is not written again."""
        body, place = pickle.loads(message)
        if place is None:
            return pickle.loads(body)
        slot, offset, capacity, edges, sizes = place
        if slot not in self._memories:
            self._memories[slot] = mmap.mmap(self.handle, capacity, offset=offset)
        owner = (ctypes.c_ubyte * capacity).from_buffer(self._memories[slot])  # each array of the answer keeps it alive
        weakref.finalize(owner, self._returned.append, slot).atexit = False
        whole = memoryview(owner).cast("B")
        arrays = [whole[first : first + size] for (first, _), size in zip(pairwise(edges), sizes, strict=True)]
        return pickle.loads(body, buffers=arrays)

    def close(self) -> None:
        """No more answers will come; arrays that live stay as they are."""
        if self.handle != NO_MEMORY:
            os.close(self.handle)
            self.handle = NO_MEMORY
        self._memories.clear()


def _new_memory() -> int:
    """A handle of memory without a name; `NO_MEMORY` where there is none of the kind."""
    if not hasattr(os, "memfd_create"):
        return NO_MEMORY
    try:
        return os.memfd_create("larvatus")
    except OSError:
        return NO_MEMORY


def _dumps(answer: object, aside: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=aside).dump(answer)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """An array that repeats a single number travels as that number."""
        if getattr(value, "strides", None) == (0,) and len(value) > 1:
            return sys.modules["numpy"].broadcast_to, (value[0], value.shape)
        return NotImplemented
