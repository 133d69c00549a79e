"""Losses of rerankers, one file each: what is minimised when a model learns to score passages for a query.

    loss = Softmax()
    loss(scores_P, targets)               # the loss of each list, or of each pair

| loss | compares | labels | file |
| --- | --- | --- | --- |
| binary-cross-entropy | a pair with its label | 0 or 1, or between | `binary_cross_entropy.py` |
| mean-squared | a pair with its label | any grades | `mean_squared.py` |
| softmax | the candidates of a query with each other | 0 or 1, or grades | `softmax.py` |
| listnet | the candidates of a query with each other | grades | `listnet.py` |
"""

from larvatus.models.objectives.ranking.base import RankingLoss
from larvatus.models.objectives.ranking.binary_cross_entropy import BinaryCrossEntropy
from larvatus.models.objectives.ranking.listnet import ListNet
from larvatus.models.objectives.ranking.mean_squared import MeanSquared
from larvatus.models.objectives.ranking.softmax import Softmax

AnyRankingLoss = BinaryCrossEntropy | MeanSquared | Softmax | ListNet
"""All losses of rerankers."""

__all__ = ["AnyRankingLoss", "BinaryCrossEntropy", "ListNet", "MeanSquared", "RankingLoss", "Softmax"]
