"""What a model that writes is worth on held-out examples: scores of what it writes greedily, loss of what it should.

held = WritingValidation(pairs, golds, tokenizer, config, metric="f1")
held.scores(model, scoring).main
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from larvatus.core.errors import UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.writing import TextToTextConfig
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.scoring import ScoringOptions, batches_by_length, head_of, loss_of
from larvatus.tasks.validation import Calibration, Scores
from larvatus.tasks.write.encode import EncodedPairs
from larvatus.tasks.write.generating import write_texts
from larvatus.tasks.write.scores import Golds, resampled_texts, writing_scores

NO_HEAD = "text to text has no head that could learn alone: all of the model writes; train all, or the last layers"


@dataclass(frozen=True, eq=False)
class WritingValidation:
    pairs: EncodedPairs
    golds: Golds
    tokenizer: Tokenizer
    config: TextToTextConfig
    metric: str

    def read_once(self, model: Network, scoring: ScoringOptions) -> WritingValidation:
        raise UsageError(NO_HEAD)

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        answers = write_texts(model, self.tokenizer, self.pairs.sequences, most=self.config.most, scoring=scoring)
        rows = resampled_texts(self.golds, [answer.text for answer in answers], classes=self.config.classes)
        loss = written_loss(model, self.pairs, scoring)
        return Scores(metric=self.metric, values=writing_scores(rows), validation_loss=loss)

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """What is written has no probability that could be calibrated."""
        return Calibration()


@torch.inference_mode()
def written_loss(model: Network, pairs: EncodedPairs, scoring: ScoringOptions) -> float:
    """The mean loss of a token that is to be written, as training counts it."""
    head = head_of(model)
    model.eval()
    total, count = 0.0, 0
    for chosen in batches_by_length(pairs.sequences, scoring.budget):
        batch = pairs.batch(chosen)
        with scoring.autocast():
            loss = loss_of(
                model, on_device(batch, scoring.device), head, limit=int(pairs.sequences.lengths[chosen[-1]])
            )
        total += float(loss.total)
        count += int(head.size(batch))
    return total / count if count else math.nan
