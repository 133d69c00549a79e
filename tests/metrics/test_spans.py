"""F1 of nested spans by depth, against plain loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.metrics.entities import depths, entity_f1, span_f1

span = st.tuples(st.integers(0, 8), st.integers(1, 5), st.sampled_from("AB")).map(lambda s: (s[0], s[0] + s[1], s[2]))
texts = st.lists(st.tuples(st.sets(span, max_size=7), st.sets(span, max_size=7)), min_size=1, max_size=4)


def naive_depth(one, spans) -> int:
    return 1 + sum(s <= one[0] and one[1] <= e and (s, e) != one[:2] for s, e, _ in spans)


@given(pairs=texts)
def test_by_depth_precision_and_recall_are_those_of_plain_counting(pairs) -> None:
    gold, guess = [a for a, _ in pairs], [b for _, b in pairs]
    score = span_f1(gold, guess)
    assert score.all == entity_f1(gold, guess)
    for depth, found in score.by_depth.items():
        wanted = [(a in q, p) for p, q in pairs for a in p if naive_depth(a, p) == depth]
        given = [(b in p, q) for p, q in pairs for b in q if naive_depth(b, q) == depth]
        assert found.support == len(wanted)
        assert found.recall == pytest.approx(sum(hit for hit, _ in wanted) / max(1, len(wanted)))
        assert found.precision == pytest.approx(sum(hit for hit, _ in given) / max(1, len(given)))
    assert sum(one.support for one in score.by_depth.values()) == sum(map(len, gold))


@given(spans=st.sets(span, max_size=9))
def test_depth_is_one_more_than_the_spans_that_hold_it(spans) -> None:
    assert depths(spans) == {one: naive_depth(one, spans) for one in spans}
