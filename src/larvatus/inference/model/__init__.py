"""The class that `larvatus.load` returns. It imports no training.

    import larvatus as lv

    model = lv.load("runs/law")
    model.fill("The appeal was [MASK].")[0].token
    model.embed(["The appeal was dismissed."], unit="word", layers="last4")[0].shape

`encoder.py` has the methods of any encoder (vectors, similarity, senses, attention), `model.py` those of heads (fill,
score, predict) and saving, `loading.py` how a model is loaded.
"""

from larvatus.inference.model.loading import load
from larvatus.inference.model.model import Model

__all__ = ["Model", "load"]
