"""How far a figure that is worked out again may be from the claimed one: by the kind of figure, never by the claim.

    tolerance_of(claim, again)         # `again` was measured just now, by the code of this Larvatus

A claim chooses between two documented tolerances at most, by the machine that it says it was measured on; the wider
one is 0.005. Whatever else a card holds has no say.

| figure | tolerance |
| --- | --- |
| whole numbers (sizes, counts), words | 0 |
| estimates of energy, worked out by a formula | 1e-9 of the value |
| measured in float32 on a CPU, both times | `ROUNDING` |
| measured in bfloat16 or on a GPU, either time | `HALF_PRECISION` |
| the same in per cent or points | a hundred times as much |
| perplexity, which is exp(loss) | as its loss, times the value |
"""

from __future__ import annotations

from larvatus.models.bundle.claims import Claim

ROUNDING = 1e-4
"""Another library or machine adds float32 numbers in another order."""
HALF_PRECISION = 5e-3
FORMULA = 1e-9
"""Share of the value."""
PERPLEXITY = "masked-lm perplexity"
ESTIMATED = "energy"
"""Command whose figures come of a formula."""


def tolerance_of(claim: Claim, again: Claim) -> float:
    """Absolute; `again` says what kind of figure it is, since this Larvatus made it."""
    value = again.value
    if isinstance(value, int | str):
        return 0.0
    if again.command == ESTIMATED:
        return FORMULA * abs(value)
    measured = HALF_PRECISION if _coarse(claim) or _coarse(again) else ROUNDING
    if again.metric == PERPLEXITY:
        return measured * abs(value)
    return 100 * measured if again.percent else measured


def _coarse(claim: Claim) -> bool:
    """Whether it was measured on a GPU or in bfloat16; a claim that names no machine has the narrow tolerance."""
    on_gpu = bool(claim.machine) and "cpu" not in claim.machine.lower()
    return on_gpu or claim.settings.get("precision") == "bf16"
