"""What `larvatus.load` returns: one object with the verbs. It imports no training.

    import larvatus as lv

    model = lv.load("runs/law")
    model.fill("The appeal was [MASK].")[0].token
    model.embed(["The appeal was dismissed."], unit="word", layers="last4")[0].shape

`encoder.py` has what any encoder can do (vectors, similarity, senses, attention), `model.py` what its heads can do
(fill, score, predict) and how it is saved, `loading.py` where it comes from.
"""

from larvatus.inference.model.encoder import EncoderModel
from larvatus.inference.model.loading import load
from larvatus.inference.model.model import Model

__all__ = ["EncoderModel", "Model", "load"]
