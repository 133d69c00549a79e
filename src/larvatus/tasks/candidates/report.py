"""What a search among candidates tried and chose: a record of the run, and a table for people.

search of 400 examples by 5-fold cross-validation (accuracy), 48 of 120 seconds
candidate                     accuracy        95%  seconds
TF-IDF, logistic regression      0.640  0.59–0.69        3
linear head *                    0.792  0.75–0.83       12
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from larvatus.core.tables import Table

BASELINE = "TF-IDF, logistic regression"


class CandidateScore(Struct, frozen=True, kw_only=True):
    """A candidate with its cross-validated score."""

    name: str
    score: float
    low: float
    high: float
    """Ends of the 95% bootstrap interval over examples."""
    seconds: float
    """Time of all folds, with computing the vectors."""
    penalty: float = 0.0
    """C of logistic regression; 0 of fine-tuned weights, which have none."""


class SearchReport(Struct, frozen=True, kw_only=True):
    """Candidates of a search, in the order in which they were tried."""

    metric: str
    examples: int
    folds: int
    seconds: float
    minutes: float
    """The time budget."""
    candidates: tuple[CandidateScore, ...]
    chosen: str
    """Name of the candidate that the model was trained as."""
    values: dict[str, float]
    """All cross-validated metrics of the chosen candidate."""
    skipped: tuple[str, ...] = ()
    """Candidates that were not tried, with the reason."""

    @property
    def best(self) -> CandidateScore:
        """The chosen candidate."""
        return next(each for each in self.candidates if each.name == self.chosen)

    @property
    def baseline(self) -> CandidateScore | None:
        return next((each for each in self.candidates if each.name == BASELINE), None)

    @property
    def verdict(self) -> str:
        """Whether the bag of words is better than what is saved, and what to do then."""
        baseline, best = self.baseline, self.best
        if baseline is None or baseline.score <= best.score:
            return f"saved: {self.chosen}, trained on all {self.examples:,} examples"
        return (
            f"TF-IDF wins: {baseline.score:.3f} against {best.score:.3f} of {self.chosen}, which is saved since a "
            "model directory holds an encoder; try more --minutes or another --model, or use "
            "scikit-learn's TfidfVectorizer with LogisticRegression"
        )

    def parts(self) -> Iterator[Table | str]:
        """The table, what was not tried, and the verdict."""
        rows = [
            (
                f"{each.name} *" if each.name == self.chosen else each.name,
                f"{each.score:.3f}",
                f"{each.low:.3f}–{each.high:.3f}",
                f"{each.seconds:.0f}",
            )
            for each in self.candidates
        ]
        title = f"{self.folds}-fold cross-validation of {self.examples:,} examples, {self.seconds:.0f} s"
        yield Table(("candidate", self.metric, "95% interval", "seconds"), rows, title=title, notes=self.skipped)
        yield f"* {self.verdict}"
