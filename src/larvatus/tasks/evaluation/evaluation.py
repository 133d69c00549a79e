"""How fine-tuned models are evaluated on labelled examples, whatever their task.

Intervals are of 95%, by the bootstrap over examples. Long texts are windowed as in fine-tuning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.scoring import ScoringOptions


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    scoring: ScoringOptions = field(default_factory=ScoringOptions)
    merge: Merge = "mean"
    """How the windows of a long text answer together."""
    length: int | None = None
    """Tokens of a window; None: as many as the model has positions."""
    truncate: bool = False
    """Read the first window of a long text alone."""
    repair: bool = False
    """Illegal sequences of gold tags are read as conlleval does, not refused."""
    strict: bool = False
    """Labels that the model does not know are refused, not counted as wrong."""
    beams: int | None = None
    """Of a model that writes: continuations kept on the way; None: greedy."""
    samples: int = 1000
    """Of the bootstrap."""
    seed: int = 0

    def windows(self, bundle: Bundle) -> WindowOptions:
        """How the model reads long texts."""
        return WindowOptions.of(bundle, length=self.length, truncate=self.truncate)
