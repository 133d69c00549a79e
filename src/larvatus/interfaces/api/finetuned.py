"""Model that `finetune` returns: a loaded model that also knows how well it did on held-out examples."""

from __future__ import annotations

from collections.abc import Mapping

from larvatus.core import notebook
from larvatus.core.tables import render_text
from larvatus.inference.model import Model
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.summary import result_parts


class FineTunedModel(Model):
    """A fine-tuned model; printed, it is the table of its scores on held-out examples."""

    scores: Mapping[str, float]
    """Metrics on held-out examples; empty where none were held out."""
    metric: str
    """Metric that selected the weights; empty where none were held out."""

    @classmethod
    def of(cls, model: Model, tuned: FineTuneResult) -> FineTunedModel:
        """A loaded model with the result of its training; of the data nothing is kept."""
        made = cls(model.bundle, model.device, number=model.number, origin=model.origin)
        made.scores = dict(tuned.scores.values) if tuned.scores is not None else {}
        made.metric = tuned.metric
        held_out = f", scored on {len(tuned.dev):,}" if tuned.dev is not None else ""
        made._read = f"fine-tuned on {len(tuned.train):,} examples{held_out}"
        made._table = render_text(result_parts(tuned))
        return made

    def __str__(self) -> str:
        return "\n".join(filter(None, [repr(self), self._read, self._table]))

    def _repr_html_(self) -> str:
        rows = [(name, f"{value:.4f}") for name, value in self.scores.items()]
        return notebook.table(("metric", "held out"), rows, title=repr(self), note=self._read)

    _read: str
    _table: str
