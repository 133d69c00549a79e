"""Counter-based streams: known answers, and independence of everything but (seed, purpose, epoch, item)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.rng import derive, philox, random_bits, stream

# Known answers published with Random123 (Salmon et al. 2011) for philox4x32-10.
KNOWN = [
    ([0, 0, 0, 0], (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "wanted"), KNOWN)
def test_philox_gives_the_published_known_answers(counter, key, wanted):
    words = philox(np.array(counter, dtype=np.uint64)[:, None], key)
    assert words[:, 0].tolist() == wanted


@given(st.integers(0, 2**40), st.integers(0, 2**31), st.integers(0, 2**40))
def test_a_draw_depends_on_its_own_item_alone(seed, epoch, item):
    items = np.array([3, item, 2**33 + 1], dtype=np.int64)
    draws = np.array([0, 5, 7], dtype=np.int64)
    together = random_bits(seed, "mask", epoch, items=items, draws=draws)
    alone = random_bits(seed, "mask", epoch, items=items[1:2], draws=draws[1:2])
    assert together[:, 1].tolist() == alone[:, 0].tolist()


def test_streams_differ_in_every_coordinate_and_repeat():
    base = stream(1, "a", 0, 0).integers(2**62, size=4).tolist()
    assert base == stream(1, "a", 0, 0).integers(2**62, size=4).tolist()
    others = [stream(2, "a", 0, 0), stream(1, "b", 0, 0), stream(1, "a", 1, 0), stream(1, "a", 0, 1)]
    assert all(base != other.integers(2**62, size=4).tolist() for other in others)
    assert len({derive(1, "a", 0, 0), derive(2, "a"), derive(1, "b"), derive(1, "a", 1), derive(1, "a", 0, 1)}) == 5


def test_an_item_of_numpy_is_the_item():
    """Shifted by 128 bits, one of 64 became 0, so that all items had one stream."""
    assert stream(1, "order", 2, np.int64(3)).random() == stream(1, "order", 2, 3).random()
    assert stream(1, "order", 2, np.int64(3)).random() != stream(1, "order", 2, 0).random()


def test_uniform_bits_are_uniform():
    bits = random_bits(0, "mask", 0, items=np.zeros(200_000, np.int64), draws=np.arange(200_000))
    for word in bits:
        counts = np.bincount((word >> np.uint64(28)).astype(int), minlength=16)
        expected = len(word) / 16
        assert ((counts - expected) ** 2 / expected).sum() < 45  # χ² with 15 degrees of freedom: p ≈ 1e-4
