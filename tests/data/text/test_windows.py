"""Windows cover a long text to its end, and each token is taken from where it sees most on either side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import UsageError
from larvatus.data.text.windows import windows


@st.composite
def cases(draw):
    size = draw(st.integers(1, 40))
    return draw(st.integers(0, 300)), size, draw(st.integers(0, size - 1))


@given(cases())
def test_every_token_has_one_window_that_holds_it_with_the_most_context(case):
    total, size, overlap = case
    found = windows(total, size=size, overlap=overlap)
    assert len(found.chosen) == total
    for token, chosen in enumerate(found.chosen.tolist()):
        context = {  # by the definition, over all windows
            number: min(token - start, end - 1 - token)
            for number, (start, end) in enumerate(zip(found.starts.tolist(), found.ends.tolist(), strict=True))
            if start <= token < end
        }
        assert chosen in context
        assert context[chosen] == max(context.values())
        assert chosen == min(number for number, seen in context.items() if seen == context[chosen])


@given(cases())
def test_windows_are_full_overlap_as_asked_and_are_as_few_as_that_allows(case):
    total, size, overlap = case
    found = windows(total, size=size, overlap=overlap)
    assert found.starts[0] == 0
    assert found.ends[-1] == total
    assert (found.ends - found.starts == min(size, total)).all()
    shared = found.ends[:-1] - found.starts[1:]
    assert (shared >= overlap).all()
    assert np.ptp(shared) <= 1 if len(shared) else True  # evenly spread
    assert (np.diff(found.chosen) >= 0).all()
    if len(found) > 1:
        assert size + (len(found) - 2) * (size - overlap) < total  # one window less would not reach the end


def test_a_quarter_is_shared_by_default():
    found = windows(1_000, size=100)
    assert (found.ends[:-1] - found.starts[1:]).min() >= 25
    assert len(found) == 13


@pytest.mark.parametrize(
    ("size", "overlap", "said"), [(0, None, "at least one token"), (8, 8, "from 0 to 7"), (8, -1, "from 0 to 7")]
)
def test_windows_that_cannot_be_are_refused(size, overlap, said):
    with pytest.raises(UsageError, match=said):
        windows(100, size=size, overlap=overlap)
