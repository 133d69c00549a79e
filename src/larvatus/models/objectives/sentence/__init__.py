"""Losses of sentence vectors, one file each: what is minimised when a model learns to embed.

    loss = MultipleNegatives(scale=20.0)
    loss(x_TD, targets)                   # the mean loss of a whole step, from the vectors of its texts

| loss | an example is | file |
| --- | --- | --- |
| multiple-negatives | an anchor, its positive, maybe hard negatives | `multiple_negatives.py` |
| simcse | one text, embedded twice with two dropout masks | `simcse.py` |
| cosent | two texts and how similar they are | `cosent.py` |
| triplet | an anchor, a positive, a negative | `triplet.py` |
| distillation | any texts, and the vectors of a teacher | `distillation.py` |

`matryoshka.py` applies any of them to the first dimensions too, `late_interaction.py` to token vectors compared by
MaxSim, `splade.py` to sparse vectors, with a regulariser.
"""

from larvatus.models.objectives.sentence.base import SentenceLoss, Texts, TextVectors
from larvatus.models.objectives.sentence.cosent import CoSENT
from larvatus.models.objectives.sentence.distillation import Distillation
from larvatus.models.objectives.sentence.late_interaction import TokenVectors
from larvatus.models.objectives.sentence.matryoshka import Matryoshka
from larvatus.models.objectives.sentence.multiple_negatives import MultipleNegatives
from larvatus.models.objectives.sentence.simcse import SimCSE
from larvatus.models.objectives.sentence.splade import Splade, WeightVectors
from larvatus.models.objectives.sentence.triplet import Triplet

PlainLoss = MultipleNegatives | SimCSE | CoSENT | Triplet | Distillation
"""Losses that Matryoshka and SPLADE may be applied to."""

__all__ = [
    "CoSENT",
    "Distillation",
    "Matryoshka",
    "MultipleNegatives",
    "PlainLoss",
    "SentenceLoss",
    "SimCSE",
    "Splade",
    "TextVectors",
    "Texts",
    "TokenVectors",
    "Triplet",
    "WeightVectors",
]
