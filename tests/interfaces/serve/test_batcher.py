"""The batcher: joined batches give the states of each alone; errors and cancellation reach only their own request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.core.batch import TokenBatch
from larvatus.interfaces.serve.batcher import Batcher, cancel_when
from larvatus.interfaces.serve.responses import Cancelled, Closing
from larvatus.interfaces.serve.served_models import batched_encoder
from larvatus.models.nn.device import on_device
from larvatus.models.nn.encoder import Encoder
from tests.interfaces.serve.gate import at_once, held, until
from tests.patience import WATCHDOG_S

TOLERANCE = 2e-6
"""Of states of about 1, in float32: matrix products of other sizes are rounded otherwise."""
POISON = 7


@pytest.fixture(scope="module")
def encoder(tiny_model: Any) -> Encoder:
    network: Encoder = tiny_model(seed=1, layers=3).encoder
    return network


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    made = Batcher(threads=1, queue=1, budget=64)
    yield made
    made.close()


def batch(seed: int, count: int, longest: int = 30) -> TokenBatch[Any]:
    random = np.random.default_rng(seed)
    rows = [random.integers(8, 20, size=random.integers(1, longest + 1)).tolist() for _ in range(count)]
    segments = [random.integers(0, 2, size=len(row)).tolist() for row in rows]
    return on_device(TokenBatch.of(rows, segments=segments), "cpu")


@torch.inference_mode()
def test_ragged_batches_that_are_joined_get_the_states_of_each_alone(encoder: Encoder, batcher: Batcher) -> None:
    view = batched_encoder(encoder, batcher)
    batches = [batch(seed, count) for seed, count in enumerate([1, 5, 2, 9, 1, 3, 1, 1])]
    layers = [None, [3], [0, 2], [1], None, [3, 0], [2], [0, 1, 2, 3]]
    given = at_once(batcher, encoder, [lambda n=n: view(batches[n], layers=layers[n]) for n in range(len(batches))])
    for flat, wanted, states in zip(batches, layers, given, strict=True):
        alone = encoder(flat, layers=wanted)
        pairs = [(alone, states)] if wanted is None else list(zip(alone, states, strict=True))
        assert wanted is None or len(states) == len(wanted)
        for a, b in pairs:
            torch.testing.assert_close(b, a, atol=TOLERANCE, rtol=0)
    assert batcher.counts.tokens == sum(flat.size for flat in batches)
    assert sum(flat.size for flat in batches) / 64 <= batcher.counts.passes - 1 < sum(flat.count for flat in batches)


@torch.inference_mode()
def test_single_tokens_and_whole_states_share_a_pass(encoder: Encoder, batcher: Batcher) -> None:
    view = batched_encoder(encoder, batcher)
    first, second, third = batch(1, 2, 8), batch(2, 2, 8), batch(3, 1, 8)
    places = [torch.cumsum(flat.lengths, 0) - 1 for flat in (first, second)]
    given = at_once(
        batcher, encoder, [lambda: view.at(first, places[0]), lambda: view(third), lambda: view.at(second, places[1])]
    )
    assert batcher.counts.passes == 2  # the gate, and one for all three
    for states, alone in zip(
        given, [encoder.at(first, places[0]), encoder(third), encoder.at(second, places[1])], strict=True
    ):
        torch.testing.assert_close(states, alone, atol=TOLERANCE, rtol=0)
    given = at_once(batcher, encoder, [lambda: view.at(first, places[0]), lambda: view.at(second, places[1])])
    torch.testing.assert_close(given[1], encoder.at(second, places[1]), atol=TOLERANCE, rtol=0)


@torch.inference_mode()
def test_attention_weights_come_through_the_same_thread(encoder: Encoder, batcher: Batcher) -> None:
    flat = batch(4, 3, 9)
    for ours, alone in zip(batched_encoder(encoder, batcher).attention(flat), encoder.attention(flat), strict=True):
        for a, b in zip(ours, alone, strict=True):
            assert torch.equal(a, b)
    assert batcher.counts.passes == 1


def test_a_batched_encoder_has_the_weights_and_the_class_of_its_encoder(encoder: Encoder, batcher: Batcher) -> None:
    view = batched_encoder(encoder, batcher)
    assert type(view) is type(encoder)
    assert view.word_vectors is encoder.word_vectors
    assert [p.data_ptr() for p in view.parameters()] == [p.data_ptr() for p in encoder.parameters()]
    assert list(dict(view.named_modules())) == list(dict(encoder.named_modules()))
    assert view.forward != encoder.forward  # the encoder itself is unchanged


def test_no_sequence_at_all_gives_no_states(encoder: Encoder, batcher: Batcher) -> None:
    empty = on_device(TokenBatch.of([]), "cpu")
    assert batcher.forward(encoder, empty).shape == (0, 16)  # type: ignore[union-attr]
    assert batcher.counts.passes == 0


class _Poisoned(torch.nn.Module):
    """Fails on a batch that holds a token."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder, self.depth, self.width = encoder, encoder.depth, encoder.width

    def forward(self, flat: TokenBatch[Any], **settings: Any) -> Any:
        if bool((flat.ids == POISON).any()):
            raise RuntimeError("poison")
        return self.encoder(flat, **settings)


@torch.inference_mode()
def test_one_poison_batch_among_32_fails_alone(encoder: Encoder, batcher: Batcher) -> None:
    poisoned: Any = _Poisoned(encoder)
    bad = on_device(TokenBatch.of([[8, POISON, 9]]), "cpu")
    batches = [bad if n == 13 else batch(n, 1, 6) for n in range(32)]
    given = at_once(batcher, poisoned, [lambda n=n: batcher.forward(poisoned, batches[n]) for n in range(32)])
    assert isinstance(given[13], RuntimeError)
    for n, flat in enumerate(batches):
        if n != 13:
            torch.testing.assert_close(given[n], encoder(flat), atol=TOLERANCE, rtol=0)
    assert batcher.counts.faults >= 1


def test_a_fault_in_a_long_batch_ends_it_and_nothing_else(encoder: Encoder, batcher: Batcher) -> None:
    poisoned: Any = _Poisoned(encoder)
    rows = [[8] * 30, [8] * 30, [POISON] * 30, [8] * 30]  # read in parts, of a budget of 64
    with pytest.raises(RuntimeError, match="poison"):
        batcher.forward(poisoned, on_device(TokenBatch.of(rows), "cpu"))
    assert batcher.waiting_batches == 0
    assert batcher.forward(poisoned, batch(1, 1)).shape[1] == 16  # type: ignore[union-attr]
    assert batcher.last_error is None


def test_who_is_cancelled_while_waiting_is_never_read(encoder: Encoder, batcher: Batcher) -> None:
    gone, faults = threading.Event(), list[BaseException]()

    def ask() -> None:
        try:
            with cancel_when(gone.is_set):
                batcher.forward(encoder, batch(1, 3))
        except Cancelled as fault:
            faults.append(fault)

    thread = threading.Thread(target=ask)
    with held(batcher, encoder):
        thread.start()
        until(lambda: batcher.waiting_batches == 1)
        gone.set()
    thread.join()
    assert len(faults) == 1
    assert batcher.counts.cancelled == 1
    assert batcher.counts.tokens == 0


def test_a_short_batch_never_waits_for_all_of_a_long_one(encoder: Encoder, batcher: Batcher) -> None:
    long, short, ended = on_device(TokenBatch.of([[8] * 30] * 40), "cpu"), batch(1, 1, 4), list[str]()

    def ask(name: str, flat: TokenBatch[Any]) -> None:
        batcher.forward(encoder, flat)
        ended.append(name)

    threads = [threading.Thread(target=ask, args=each) for each in (("long", long), ("short", short))]
    with held(batcher, encoder):
        threads[0].start()
        until(lambda: batcher.waiting_batches == 1)
        threads[1].start()
        until(lambda: batcher.waiting_batches == 2)
    for thread in threads:
        thread.join()
    assert ended == ["short", "long"]
    assert batcher.counts.passes >= 1 + 20  # 1,200 tokens, 64 at a time at most


def test_long_batches_get_a_quarter_of_a_pass_and_short_ones_do_not_wait_for_them(
    encoder: Encoder, batcher: Batcher
) -> None:
    """By the order and sizes of passes: budget 64, so that more than 16 tokens are long."""
    sizes, ended = list[int](), list[tuple[str, int]]()
    batcher.on_pass = lambda **pass_: sizes.append(pass_["tokens"])

    def ask(name: str, flat: TokenBatch[Any]) -> None:
        batcher.forward(encoder, flat)
        ended.append((name, len(sizes)))

    long = [on_device(TokenBatch.of([[8] * 8] * 20), "cpu") for _ in range(2)]
    short = [on_device(TokenBatch.of([[9] * 8]), "cpu") for _ in range(4)]
    threads = [threading.Thread(target=ask, args=("long", flat)) for flat in long]
    threads += [threading.Thread(target=ask, args=("short", flat)) for flat in short]
    with held(batcher, encoder):
        for count, thread in enumerate(threads, start=1):
            thread.start()
            until(lambda count=count: batcher.waiting_batches == count)
    for thread in threads:
        thread.join()
    sizes = [size for size in sizes if size]
    assert sizes[0] == 4 * 8 + 16  # all short ones, and a quarter of the budget for long ones
    assert set(sizes[1:]) == {16}
    assert sum(sizes) == batcher.counts.tokens == 2 * 160 + 4 * 8
    assert [name for name, _ in ended[:4]] == ["short"] * 4


def test_a_long_batch_is_not_put_off_for_ever(encoder: Encoder, batcher: Batcher) -> None:
    """Short ones keep coming until the long one is done: it is, since waiting counts."""
    done = threading.Event()

    def long() -> None:
        batcher.forward(encoder, on_device(TokenBatch.of([[8] * 30] * 20), "cpu"))
        done.set()

    def short() -> None:
        while not done.is_set():
            batcher.forward(encoder, batch(1, 2, 30))

    threads = [threading.Thread(target=short) for _ in range(6)]
    for thread in threads:
        thread.start()
    last = threading.Thread(target=long)
    last.start()
    assert done.wait(WATCHDOG_S)
    for thread in [*threads, last]:
        thread.join()


def test_who_waits_when_it_closes_is_told(encoder: Encoder) -> None:
    made = Batcher(threads=1, queue=1, budget=64)
    faults = list[BaseException]()

    def ask() -> None:
        try:
            made.forward(encoder, batch(1, 1))
        except Closing as fault:
            faults.append(fault)

    thread = threading.Thread(target=ask)
    closing = threading.Thread(target=made.close)
    with held(made, encoder):
        thread.start()
        until(lambda: made.waiting_batches == 1)
        closing.start()
        until(lambda: made._closed)
    closing.join()
    thread.join()
    assert len(faults) == 1
    with pytest.raises(Closing):
        made.forward(encoder, batch(1, 1))
