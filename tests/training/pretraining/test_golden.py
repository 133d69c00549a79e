"""Golden losses: the numbers of the first steps, so that a change of numerics is seen, and made on purpose."""

import pytest

from tests.training.engine.test_step import batch_of, stepper

GOLDEN = {
    "masked-lm": [3.953867, 3.940488, 3.923107, 3.905674],
    "next-sentence": [0.69933, 0.696057, 0.695361, 0.690546],
}


def test_the_first_steps_have_the_losses_they_have_always_had(small_recipe):
    """Dropout included: every draw follows from seed, step and microbatch."""
    found = stepper(small_recipe(), seed=3)
    reports = [found(batch_of([30, 7, 12, 25], seed=s), step=s, rate=1e-3, limit=48) for s in range(4)]
    for name, golden in GOLDEN.items():
        assert [report.losses[name] for report in reports] == pytest.approx(golden, rel=1e-4)
