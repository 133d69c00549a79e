"""Entity F1 against `seqeval`, on legal and illegal tags, and the sorting of errors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from seqeval.metrics import classification_report
from seqeval.scheme import IOB2, IOBES

from larvatus.core.errors import DataError
from larvatus.data.text.tag_schemes import read_entities
from larvatus.metrics.entities import EntityErrors, entity_counts, entity_errors, entity_f1, tag_f1

THEIRS = {"BIO": IOB2, "BIOES": IOBES}
TAGS = {
    "BIO": ["O", "B-A", "I-A", "B-B", "I-B"],
    "BIOES": ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B"],
}


@st.composite
def two_taggings(draw, scheme):
    """Random tags, most of them illegal somewhere; the guess keeps many of them."""
    one = st.sampled_from(TAGS[scheme])
    gold = draw(st.lists(st.lists(one, min_size=1, max_size=9), min_size=1, max_size=5))
    guess = [[draw(one) if draw(st.integers(0, 2)) == 0 else tag for tag in tags] for tags in gold]
    return gold, guess


def same(ours, theirs):
    assert_allclose(
        (ours.precision, ours.recall, ours.f1, ours.support),
        [theirs[name] for name in ("precision", "recall", "f1-score", "support")],
    )


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
@pytest.mark.parametrize("reading", ["strict", "lenient"])
def test_entity_f1_equals_seqeval_on_random_tags(scheme, reading):
    @settings(max_examples=40)
    @given(case=two_taggings(scheme))
    def check(case):
        mode = {"mode": "strict", "scheme": THEIRS[scheme]} if reading == "strict" else {}
        ours = tag_f1(*case, scheme, reading=reading)
        if not ours.by_type:  # no entity on either side: seqeval divides by nothing
            assert ours.micro.f1 == ours.macro.f1 == 0.0
            return
        theirs = classification_report(*case, output_dict=True, zero_division=0, **mode)
        same(ours.micro, theirs["micro avg"])
        same(ours.macro, theirs["macro avg"])
        assert set(ours.by_type) == set(theirs) - {"micro avg", "macro avg", "weighted avg"}
        for label, found in ours.by_type.items():
            same(found, theirs[label])

    check()


@pytest.mark.parametrize(
    ("gold", "guess", "errors"),
    [
        ([(0, 2, "A")], [(0, 2, "A")], {}),
        ([(0, 2, "A")], [(0, 1, "A")], {"boundary": 1}),
        ([(0, 2, "A")], [(0, 2, "B")], {"type": 1}),
        ([(0, 2, "A")], [(1, 3, "B")], {"both": 1}),
        ([(0, 2, "A")], [(2, 3, "A")], {"missed": 1, "spurious": 1}),
        ([(0, 4, "A")], [(0, 1, "A"), (2, 4, "A")], {"boundary": 1, "spurious": 1}),  # one split in two
        ([(0, 1, "A"), (1, 3, "B")], [(0, 3, "B")], {"boundary": 1, "missed": 1}),  # two in one
        ([(0, 5, "A"), (1, 3, "B")], [(0, 5, "A"), (1, 3, "C")], {"type": 1}),  # nested
        ([(0, 5, "A"), (1, 3, "A")], [(1, 3, "A")], {"missed": 1}),  # what is right is no partner
    ],
)
def test_errors_are_sorted_by_what_is_wrong(gold, guess, errors):
    wanted = dict.fromkeys(("boundary", "type", "both", "missed", "spurious"), 0) | errors
    assert entity_errors([gold], [guess]) == EntityErrors(**wanted)


@settings(max_examples=40)
@given(case=two_taggings("BIO"))
def test_every_error_is_counted_once_on_either_side(case):
    gold, guess = ([read_entities(tags, "BIO") for tags in side] for side in case)
    _, counts = entity_counts(gold, guess)
    errors = entity_errors(gold, guess)
    paired = errors.boundary + errors.type + errors.both
    right = counts.right.sum()
    assert right + paired + errors.missed == counts.gold.sum()
    assert right + paired + errors.spurious == counts.predicted.sum()


def test_tags_of_unequal_number_are_refused():
    with pytest.raises(DataError, match="text 2 has 1 gold tags but 2 predicted ones"):
        tag_f1([["O"], ["O"]], [["O"], ["O", "O"]], "BIO", reading="strict")
    with pytest.raises(DataError, match="1 texts have gold entities but 0"):
        entity_f1([[]], [])
